// Package zipf chooses numbers of which a few are chosen often, as keys of requests are.
package zipf

import "math"

// theta is the exponent that YCSB takes.
const theta = 0.99

// Ranks are numbers of [0, n), of which r is chosen with a probability that falls as (r+1)^-0.99. The method is that of
// Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994).
type Ranks struct {
	n                int
	alpha, zeta, eta float64
}

// New prepares ranks of [0, n). REQUIRES: n > 0.
func New(n int) *Ranks {
	zeta := zetaOf(n)
	return &Ranks{
		n: n, alpha: 1 / (1 - theta), zeta: zeta,
		eta: (1 - math.Pow(2/float64(n), 1-theta)) / (1 - (1+math.Pow(2, -theta))/zeta),
	}
}

// zetaOf is the sum of i^-theta for i from 1 to n. Beyond a million it is an integral, with Euler and Maclaurin's first
// correction.
func zetaOf(n int) (sum float64) {
	const exact = 1_000_000
	for i := 1; i <= min(n, exact); i++ {
		sum += math.Pow(float64(i), -theta)
	}
	if n > exact {
		from, to := float64(exact), float64(n)
		sum += (math.Pow(to, 1-theta)-math.Pow(from, 1-theta))/(1-theta) + (math.Pow(to, -theta)-math.Pow(from, -theta))/2
	}
	return sum
}

// Rank is the rank that belongs to u, a uniform number of [0, 1).
func (r *Ranks) Rank(u float64) int {
	switch {
	case u*r.zeta < 1:
		return 0
	case u*r.zeta < 1+math.Pow(2, -theta):
		return min(1, r.n-1)
	}
	return min(int(float64(r.n)*math.Pow(r.eta*u-r.eta+1, r.alpha)), r.n-1)
}
