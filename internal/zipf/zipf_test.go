package zipf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestRanksAreChosenAsOftenAsTheLawSays compares the shares of the first ranks, and of the first tenth, with the law's.
func TestRanksAreChosenAsOftenAsTheLawSays(t *testing.T) {
	const n, draws = 1000, 1_000_000
	r, rng := New(n), rand.New(rand.NewPCG(1, 2))
	var seen [n]int
	for range draws {
		seen[r.Rank(rng.Float64())]++
	}
	zeta := 0.0
	for i := 1; i <= n; i++ {
		zeta += math.Pow(float64(i), -0.99)
	}
	var got, want float64
	for rank := range n / 10 {
		got += float64(seen[rank]) / draws
		want += math.Pow(float64(rank+1), -0.99) / zeta
		// Of the ranks after the second the method is an approximation.
		if rank < 2 && math.Abs(got/want-1) > 0.02 {
			t.Errorf("ranks up to %d: a share of %.4f; the law has %.4f", rank, got, want)
		}
	}
	if math.Abs(got/want-1) > 0.05 {
		t.Errorf("the first tenth: a share of %.4f; the law has %.4f", got, want)
	}
}

func TestEveryRankIsInRange(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := New(n)
			for _, u := range []float64{0, 1e-12, 0.1, 0.5, 0.9, math.Nextafter(1, 0)} {
				if rank := r.Rank(u); rank < 0 || rank >= n {
					t.Errorf("%v has rank %d", u, rank)
				}
			}
		})
	}
}

func TestZetaOfManyIsTheSum(t *testing.T) {
	const n = 3_000_000
	sum := 0.0
	for i := 1; i <= n; i++ {
		sum += math.Pow(float64(i), -theta)
	}
	if got := zetaOf(n); math.Abs(got/sum-1) > 1e-12 {
		t.Errorf("zeta(%d) is %.15g, want %.15g", n, got, sum)
	}
}
