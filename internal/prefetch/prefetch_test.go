package prefetch

import "testing"

// TestAHintDoesNoHarm: a hint has no visible effect on its memory, and none where no memory is.
func TestAHintDoesNoHarm(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i)
	}
	for _, part := range [][]byte{nil, b[:0], b[1:2], b[63:65], b} {
		Bytes(part)
	}
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
	Range(1<<12, 10*Line) // not mapped
}

func BenchmarkBytes(b *testing.B) {
	memory := make([]byte, 1<<10)
	for b.Loop() {
		Bytes(memory)
	}
}
