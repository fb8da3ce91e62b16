package vfs

import "sync/atomic"

// admission decides which reads of a file that miss the page cache bring their pages there.
//
// A page that comes in drives another one out, and costs a request to the device beside the read. That pays where the
// pages that are read again are few. So while the page cache serves more reads than chance would have it, one miss in
// admitOften brings its pages: of random reads hardly any would meet its pages again, and what is read often soon gets
// its turn (bimodal insertion: Qureshi and others, Adaptive Insertion Policies for High Performance Caching, ISCA 2007).
// Where reads are spread evenly it pays nothing, and one in admitRarely does.
//
// Chance is how often the page cache has as many bytes at another place of the file, which is asked at one miss in
// sampleEvery. Each judgeEvery misses are judged by themselves. In a store of many files most misses would come before
// the first judgement of their file, and merges write new files all the time, so a file begins with the newest judgement
// of any.
//
// The zero value admits often. Its methods are safe for concurrent use.
type admission struct {
	others *atomic.Bool // rarely, as the newest judgement of the files that share it has it; nil: none does
	misses atomic.Uint32
	served atomic.Int32 // reads that the page cache served since the last judgement; races may make it negative
	chance atomic.Int32 // samples that it would have served
	rarely atomic.Bool
}

const (
	// admitOften was measured with gets of a Zipf distribution (s = 1.05, data four times the memory, after some ten
	// seconds). With 1, 2, 4 and 8, the gets without an access to the device were 46, 48, 49 and 48 in a hundred, and 8
	// takes longest to get there. The median was 57, 45, 32 and 37 us.
	admitOften  = 4
	admitRarely = 64
	sampleEvery = 4
	judgeEvery  = 512
)

// miss counts a read that missed the page cache, and the reads since the last one that it served. It reports whether the
// read brings its pages there. elsewhere asks whether the page cache serves a place of the file, a fraction of 2^64 of it.
func (a *admission) miss(served uint32, elsewhere func(place uint64) bool) bool {
	a.served.Add(int32(served))
	n := a.misses.Add(1)
	if n%sampleEvery == 0 {
		const golden = 0x9e3779b97f4a7c15 // multiples of the golden ratio spread evenly
		if elsewhere(uint64(n) * golden) {
			a.chance.Add(1)
		}
	}
	if n%judgeEvery == 0 {
		a.judge()
	}
	rarely := &a.rarely
	if n < judgeEvery && a.others != nil {
		rarely = a.others
	}
	if rarely.Load() {
		return n%admitRarely == 0
	}
	return n%admitOften == 0
}

// judge compares the odds that the page cache serves a read with those of chance, which it has to exceed by half.
func (a *admission) judge() {
	const samples = judgeEvery / sampleEvery
	served, chance := int64(a.served.Swap(0)), min(int64(a.chance.Swap(0)), samples)
	rarely := 2*served*(samples-chance) < 3*judgeEvery*chance
	a.rarely.Store(rarely)
	if a.others != nil {
		a.others.Store(rarely)
	}
}
