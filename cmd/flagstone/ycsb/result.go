package ycsb

// This file is what a run has measured.

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what was measured of a workload. Its JSON is for programs.
type Result struct {
	Workload string `json:"workload"`
	About    string `json:"about"`
	// Seconds is how long it ran, Operations how many ended in that time.
	Seconds    float64 `json:"seconds"`
	Operations int64   `json:"operations"`
	// PerSecond is their rate. Asked is the rate of an open loop, and Unserved how many operations of its timetable were
	// not begun when the time was over; both are 0 in a closed loop.
	PerSecond float64 `json:"per_second"`
	Asked     float64 `json:"asked_per_second,omitempty"`
	Unserved  int64   `json:"unserved,omitempty"`
	// Kinds are the kinds of operations that the workload has.
	Kinds []KindResult `json:"kinds"`
	// Timers is how late timers were in an open loop, which is a part of the latencies.
	Timers *Latencies `json:"timers,omitempty"`
	// Timeline has how many operations ended in each second; the last one may not be whole.
	Timeline []int64 `json:"timeline"`
	// Stopped says that it was interrupted.
	Stopped bool `json:"stopped,omitempty"`
}

// KindResult is what was measured of one kind of operation.
type KindResult struct {
	Kind      string  `json:"kind"`
	Count     int64   `json:"count"`
	PerSecond float64 `json:"per_second"`
	// Rows is how many rows scans read.
	Rows int64 `json:"rows,omitempty"`
	Latencies
}

// Latencies are microseconds, exact to a hundredth part.
type Latencies struct {
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	P9999 float64 `json:"p9999_us"`
	Max   float64 `json:"max_us"`
}

func latencies(h *hdrhistogram.Histogram) Latencies {
	at := func(percent float64) float64 { return float64(h.ValueAtPercentile(percent)) / 1e3 }
	return Latencies{Mean: h.Mean() / 1e3, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(h.Max()) / 1e3}
}

// result adds up what the workers measured.
func (r *run) result(took time.Duration, stopped bool) *Result {
	seconds := took.Seconds()
	result := &Result{Workload: r.load.Name, About: r.load.About, Seconds: seconds, Operations: r.done(), Asked: r.o.Rate, Stopped: stopped}
	result.PerSecond = float64(result.Operations) / seconds
	for k := range kinds {
		if r.load.percent[k] == 0 {
			continue
		}
		all, rows := newHistogram(), int64(0)
		for _, w := range r.workers {
			all.Merge(w.hists[k])
			if k == Scan {
				rows += w.read
			}
		}
		result.Kinds = append(result.Kinds, KindResult{
			Kind: k.String(), Count: all.TotalCount(), PerSecond: float64(all.TotalCount()) / seconds, Rows: rows, Latencies: latencies(all),
		})
	}
	result.Timeline = make([]int64, int(seconds)+1)
	for _, w := range r.workers {
		for second, n := range w.timeline {
			result.Timeline[min(second, int(seconds))] += n
		}
	}
	if r.o.Rate > 0 {
		late := newHistogram()
		for _, w := range r.workers {
			late.Merge(w.late)
		}
		timers := latencies(late)
		result.Timers = &timers
		result.Unserved = max(int64(r.o.Rate*min(seconds, r.o.Duration.Seconds()))-result.Operations, 0)
	}
	return result
}
