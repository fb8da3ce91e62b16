package load

import (
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkMeter has operations of one goroutine, or of several with -cpu 2, which stay in their
// stripes, as readers do, or share one.
func BenchmarkMeter(b *testing.B) {
	k := key(b, row.String("device-000123"), 5)
	for _, c := range []struct {
		name string
		use  func(m *Meter, stripe uint32)
	}{
		{"read", func(m *Meter, stripe uint32) { m.Read(stripe, k, 1, 300) }},
		{"write", func(m *Meter, stripe uint32) { m.Write(stripe, k, 300) }},
		{"read of one shared stripe", func(m *Meter, _ uint32) { m.Read(0, k, 1, 300) }},
		{"read of a large value", func(m *Meter, stripe uint32) { m.Read(stripe, k, 1, 100_000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := New(2, 0)
			var goroutines atomic.Uint32
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				stripe := goroutines.Add(1)
				for pb.Next() {
					c.use(m, stripe)
				}
			})
		})
	}
	b.Run("look", func(b *testing.B) {
		m := New(2, 0)
		for i := range b.N {
			m.Read(uint32(i), k, 1, 300)
			m.Look(HalfLife / 10)
		}
	})
	b.Run("sample", func(b *testing.B) {
		m := New(2, 0)
		for i := range int64(100_000) {
			m.Read(uint32(i), key(b, row.Integer(i*7919%100_000), 0), 1, 300)
		}
		b.ResetTimer()
		for range b.N {
			m.Sample().Half()
		}
	})
}
