package runner

// This file decides what is run, and in which order.

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// Subject is the engine that the others are compared with.
const Subject = "flagstone"

// Selection says what of everything is run. Nil expressions select all.
type Selection struct {
	Workloads *regexp.Regexp // names of workloads
	Engines   *regexp.Regexp // engines, their tunings, or variants: "pebble", "pebble-deep0", "pebble+row"
	Rounds    int
	// Near is the part of the best peer's rate that a peer has to reach, in any figure of a
	// workload, to be run on it after the first round; 0 runs all.
	Near float64
	// Screen is a file of records, "" for none: a peer that was not near to the best in them
	// is not run at all, nor is a tuning of the subject.
	Screen string
}

// job is one run to be done.
type job struct {
	round   int
	spec    workload.Spec
	engine  rowstore.Engine
	variant workload.Variant
}

func (j *job) key() key { return key{j.round, j.spec.Name, j.variant.Name} }

// plan lists all runs: round by round, in it workload by workload, and in that
// the variants, beginning with another one in each round and workload.
func plan(engines []rowstore.Engine, s Selection) []job {
	var jobs []job
	for round := 1; round <= s.Rounds; round++ {
		turn := round - 1
		for _, spec := range workload.All() {
			if s.Workloads == nil && spec.Shape == workload.Growth || s.Workloads != nil && !s.Workloads.MatchString(spec.Name) {
				continue // growth takes hours, so it has to be asked for
			}
			variants := s.variants(engines, spec)
			for i := range variants {
				v := variants[(i+turn)%len(variants)]
				v.round = round
				jobs = append(jobs, v)
			}
			turn++
		}
	}
	return jobs
}

// Jobs is how many runs a selection has.
func Jobs(engines []rowstore.Engine, s Selection) int { return len(plan(engines, s)) }

// variants lists what a workload is run on, in a fixed order.
func (s *Selection) variants(engines []rowstore.Engine, spec workload.Spec) []job {
	var out []job
	for _, e := range engines {
		for _, v := range spec.Variants(e) {
			if s.Engines == nil || s.Engines.MatchString(v.Tuned) || s.Engines.MatchString(v.Name) {
				out = append(out, job{spec: spec, engine: e, variant: v})
			}
		}
	}
	return out
}

// screened leaves out the jobs of peers that were not near to the best in the records of the
// screen, and of tunings of the subject. What failed there, or did not run, is tried; what ran in
// the first round of this pass is judged by that alone.
func (r *runner) screened(jobs []job) ([]job, error) {
	if r.Screen == "" {
		return jobs, nil
	}
	_, records, err := readFile(r.Screen)
	if err != nil {
		return nil, fmt.Errorf("records of an earlier pass: %w", err)
	}
	first := map[key][]workload.Figure{}
	for _, record := range records {
		first[record.key()] = record.Figures
	}
	return slices.DeleteFunc(jobs, func(j job) bool {
		if _, ran := r.journal.first[key{1, j.spec.Name, j.variant.Name}]; ran {
			return false
		}
		return r.far(&j, first) || j.engine.Name == Subject && j.variant.Tuning != ""
	}), nil
}

// far says that in the first round, of which these are the figures, a peer's variant came near to
// the best in none, neither settled nor until the device had all: it has no chance to be the best
// in this workload. A tree is compared with all peers, so it runs where it is fast; an LSM engine
// with its like. Reclaiming is no rate.
func (r *runner) far(j *job, first map[key][]workload.Figure) bool {
	mine := first[key{1, j.spec.Name, j.variant.Name}]
	if r.Near == 0 || len(mine) == 0 || j.engine.Name == Subject {
		return false
	}
	rates := [](func(*workload.Figure) float64){(*workload.Figure).Headline, (*workload.Figure).RateWritten}
	near := func(rate func(*workload.Figure) float64) bool {
		best := map[string]float64{}
		for _, peer := range r.rivals[j.spec.Name] {
			if j.engine.LSM && !peer.engine.LSM || peer.engine.Name == Subject {
				continue
			}
			for _, f := range first[key{1, j.spec.Name, peer.variant.Name}] {
				best[f.Name] = max(best[f.Name], rate(&f)*peer.engine.Factor)
			}
		}
		return slices.ContainsFunc(mine, func(f workload.Figure) bool {
			return f.Unit != workload.DeadUnits && rate(&f) > 0 && rate(&f)*j.engine.Factor >= r.Near*best[f.Name]
		})
	}
	return !slices.ContainsFunc(rates, near)
}
