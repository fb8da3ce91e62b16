package main

import (
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore/engines"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
)

// What is misspelt must not select everything, or quietly less than was meant.
func TestWhatNamesNothingIsRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // in the error
	}{
		{[]string{"quick", "getrow-1col"}, `not "getrow-1col"`},
		{[]string{"report", "results"}, `not "results"`},
		{[]string{"run", "-workloads", "getrow-1col,getrow-al"}, `"getrow-al"`},
		{[]string{"run", "-engines", "flagstone,pebbel"}, `"pebbel"`},
		{[]string{"run", "-workloads", "kv100-.+", "-engines", "bbolt+row"}, "nothing is selected"},
		{[]string{"run", "-values", "ones"}, `no values "ones"`},
		{[]string{"run", "-rows", "0"}, "-rows must be positive"},
		{[]string{"full", "-limit", "-1"}, "-limit must be positive"},
	} {
		if err := command(t.Context(), c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %s", c.args, err, c.want)
		}
	}
}

func TestNamesAndExpressionsSelect(t *testing.T) {
	all := engines.All()
	for _, c := range []struct {
		args  []string
		least int
	}{
		{[]string{"-workloads", "getrow-1col", "-engines", "flagstone,bbolt+row"}, 2},
		{[]string{"-workloads", "getrow-all-g[12],kv1k-.+", "-engines", "flagstone"}, 3},
		{nil, 100},
	} {
		var o runner.Options
		if err := parse(passFlags("run", all, &o), c.args); err != nil {
			t.Fatal(err)
		}
		if n := runner.Jobs(all, o.Selection); n < c.least || c.args != nil && n > 40 {
			t.Errorf("%v: %d runs", c.args, n)
		}
	}
}
