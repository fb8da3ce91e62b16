package runner

// This file decides what is run, and in which order.

import (
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
	// Quick leaves out the variants that have no chance to be the best of a
	// workload (Spec.Quick).
	Quick  bool
	Rounds int
	// Again is the part of the best variant's rate that a peer has to reach in the first
	// round, in any figure of a workload, to be run on it in later rounds; 0 runs all.
	Again float64
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
			wanted := s.Engines == nil || s.Engines.MatchString(v.Tuned) || s.Engines.MatchString(v.Name)
			if s.Quick && v.Name != e.Name && !slices.Contains(spec.Quick, v.Name) {
				wanted = false
			}
			if wanted {
				out = append(out, job{spec: spec, engine: e, variant: v})
			}
		}
	}
	return out
}

// beaten says that a peer's variant has no chance to be the best of its kind, LSM or not,
// in this workload: in none of its figures of the first round it came near to the best.
// Reclaiming is no rate. What failed is tried again.
func (r *runner) beaten(j *job) bool {
	mine := r.journal.first[key{1, j.spec.Name, j.variant.Name}]
	if r.Again == 0 || j.round == 1 || j.engine.Name == Subject || len(mine) == 0 {
		return false
	}
	best := map[string]float64{}
	for _, peer := range r.rivals[j.spec.Name] {
		if peer.engine.LSM != j.engine.LSM || peer.engine.Name == Subject {
			continue
		}
		for _, f := range r.journal.first[key{1, j.spec.Name, peer.variant.Name}] {
			best[f.Name] = max(best[f.Name], f.Headline()*peer.engine.Factor)
		}
	}
	return !slices.ContainsFunc(mine, func(f workload.Figure) bool {
		return f.Unit != workload.DeadUnits && f.Headline()*j.engine.Factor >= r.Again*best[f.Name]
	})
}
