package latency

import (
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// BenchmarkOperation is what an operation that takes no time costs with a sampler of its own, one goroutine on each
// processor and one histogram for all, as gets of one table.
func BenchmarkOperation(b *testing.B) {
	var h Histogram
	c := clock.System()
	b.RunParallel(func(pb *testing.PB) {
		s := NewSampler()
		for pb.Next() {
			h.End(c, s.Begin(c))
		}
	})
}
