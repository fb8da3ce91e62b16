package workload

import "github.com/flagstone-db/flagstone/internal/zipf"

// skew picks numbers of [0, n) as YCSB does, the ranks spread over the numbers.
type skew struct {
	ranks  *zipf.Ranks
	n      int
	spread bool
}

func newSkew(n int, spread bool) *skew { return &skew{zipf.New(n), n, spread} }

// next picks a number. It does not change s, so goroutines may share it.
func (s *skew) next(r *random) int {
	rank := s.ranks.Rank(float64(r.next()>>11) / (1 << 53))
	if !s.spread {
		return rank
	}
	return int(mix(uint64(rank)) % uint64(s.n))
}
