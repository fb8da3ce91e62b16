//go:build unix

package bench

// What a precaution costs: the same work with it and without it, in turns within one
// process, so that what else the machine does falls on both. Costs are processor time of
// the process, by getrusage, and the clock's.

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// cost is what a unit of work took, in nanoseconds.
type cost struct{ cpu, wall float64 }

// costOf does work until so much time has passed, once at least. work returns how many
// units it did.
func costOf(atLeast time.Duration, work func() int) cost {
	began, used := time.Now(), cpuTime()
	n := work()
	for time.Since(began) < atLeast {
		n += work()
	}
	return cost{float64(cpuTime()-used) / float64(n), float64(time.Since(began)) / float64(n)}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inTurns measures pairs, now the one first and now the other, and reports medians: of the
// processor time of both, and of the pairs' ratios, with divided by without. -benchtime 60x
// makes 60 pairs.
func inTurns(b *testing.B, without, with func() cost) {
	var plain, careful, cpu, wall []float64
	for i := 0; b.Loop(); i++ {
		var p, c cost
		if i%2 == 0 {
			p, c = without(), with()
		} else {
			c, p = with(), without()
		}
		plain, careful = append(plain, p.cpu), append(careful, c.cpu)
		cpu, wall = append(cpu, c.cpu/p.cpu), append(wall, c.wall/p.wall)
	}
	b.ReportMetric(0, "ns/op") // of a pair: says nothing
	b.ReportMetric(median(plain), "cpu-ns-without")
	b.ReportMetric(median(careful), "cpu-ns-with")
	b.ReportMetric(median(cpu), "cpu-ratio")
	b.ReportMetric(median(wall), "time-ratio")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}
