package runner

// This file decides what is run, and in which order.

import (
	"regexp"
	"slices"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// Selection says what of everything is run. Nil expressions select all.
type Selection struct {
	Workloads *regexp.Regexp // names of workloads
	Engines   *regexp.Regexp // engines or variants: "pebble", "pebble+row"
	// Quick leaves out the variants that have no chance to be the best of a
	// workload (Spec.Quick).
	Quick  bool
	Rounds int
}

// job is one run to be done.
type job struct {
	round    int
	spec     workload.Spec
	engine   rowstore.Engine
	encoding rowstore.Encoding
	variant  string
}

func (j *job) key() key { return key{j.round, j.spec.Name, j.variant} }

// plan lists all runs: round by round, in it workload by workload, and in that
// the variants, beginning with another one in each round and workload.
func plan(engines []rowstore.Engine, s Selection) []job {
	var jobs []job
	for round := 1; round <= s.Rounds; round++ {
		turn := round - 1
		for _, spec := range workload.All() {
			if s.Workloads != nil && !s.Workloads.MatchString(spec.Name) {
				continue
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
		variants := spec.Variants(e)
		var names []string
		for name := range variants {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			wanted := s.Engines == nil || s.Engines.MatchString(e.Name) || s.Engines.MatchString(name)
			if s.Quick && name != e.Name && !slices.Contains(spec.Quick, name) {
				wanted = false
			}
			if wanted {
				out = append(out, job{spec: spec, engine: e, encoding: variants[name], variant: name})
			}
		}
	}
	return out
}
