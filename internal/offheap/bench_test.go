package offheap_test

import (
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap"
)

// BenchmarkFirstTouch maps 2 MiB and writes to each of its pages.
func BenchmarkFirstTouch(b *testing.B) {
	for _, idle := range []struct {
		name  string
		bytes int64
	}{{"fresh", -1}, {"reused", 64 << 20}} {
		b.Run(idle.name, func(b *testing.B) {
			p := offheap.New(offheap.Options{Idle: idle.bytes})
			b.SetBytes(2 << 20)
			for b.Loop() {
				m := p.Alloc(2 << 20)
				for i := 0; i < len(m); i += 4 << 10 {
					m[i] = 1
				}
				p.Free(m)
			}
		})
	}
}

// BenchmarkAllocFree frees the oldest of 1,000 allocations and makes a new one.
func BenchmarkAllocFree(b *testing.B) {
	for _, n := range []int{8 << 10, 1 << 20} {
		b.Run(map[int]string{8 << 10: "8KiB", 1 << 20: "1MiB"}[n], func(b *testing.B) {
			p := offheap.New(offheap.Options{})
			var ring [1000][]byte
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				p.Free(ring[i])
				ring[i] = p.Alloc(n)
				i = (i + 1) % len(ring)
			}
		})
	}
}
