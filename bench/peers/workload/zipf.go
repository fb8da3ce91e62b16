package workload

import "math"

// zipf picks numbers of [0, n) as YCSB does: rank r with a probability that
// falls as r^-0.99, the ranks spread over the numbers. The method is that of Gray
// et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994).
type zipf struct {
	n                 int
	alpha, zeta, eta  float64
	probabilityOfZero float64
	spread            bool
}

const theta = 0.99

func newZipf(n int, spread bool) *zipf {
	zeta := 0.0
	for i := 1; i <= n; i++ {
		zeta += math.Pow(float64(i), -theta)
	}
	zeta2 := 1 + math.Pow(2, -theta)
	return &zipf{
		n: n, alpha: 1 / (1 - theta), zeta: zeta, spread: spread,
		eta:               (1 - math.Pow(2/float64(n), 1-theta)) / (1 - zeta2/zeta),
		probabilityOfZero: 1 / zeta,
	}
}

// next picks a number. It does not change z, so goroutines may share it.
func (z *zipf) next(r *random) int {
	u := float64(r.next()>>11) / (1 << 53)
	rank := 0
	switch {
	case u < z.probabilityOfZero:
	case u*z.zeta < 1+math.Pow(2, -theta):
		rank = 1
	default:
		rank = min(int(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)), z.n-1)
	}
	if !z.spread {
		return rank
	}
	return int(mix(uint64(rank)) % uint64(z.n))
}
