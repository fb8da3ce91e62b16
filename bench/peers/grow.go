package main

// This file is the command grow: the workload growth at several sizes.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/bench/peers/report"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// bytesPerRow is the room on the device that a row can take while it is overwritten: the kilobyte it
// has, its successor, and what an engine keeps beside them.
const bytesPerRow = 2200

func grow(ctx context.Context, all []rowstore.Engine, args []string) error {
	o := runner.Options{Selection: runner.Selection{
		Workloads: regexp.MustCompile("^" + workload.GrowthName + "$"), Rounds: 1,
	}}
	flags := commonFlags("grow", all, &o)
	const mib = 1 << 20
	sizes := flags.String("sizes", "1000000,5000000", "rows of a kilobyte, of each run, with commas")
	flags.Int64Var(&o.MemoryLimit, "memory", 4096*mib, "bytes of memory of a run, page cache included")
	flags.Int64Var(&o.Memtable, "memtable", 64*mib, "bytes of a memtable")
	flags.Int64Var(&o.Cache, "cache", 256*mib, "bytes of the block cache")
	flags.Float64Var(&o.ReadSeconds, "read", 60, "seconds of each phase of reading")
	flags.Float64Var(&o.LimitSeconds, "limit", 3600, "seconds after which a phase of overwriting is stopped")
	out := flags.String("out", "results-grow", "directory of results; runs that are there are not repeated")
	if err := parse(flags, args); err != nil {
		return err
	}
	o.Rows, o.Keys = 1, 1 // the sizes are checked below
	if err := check(&o); err != nil {
		return err
	}
	var rows []int
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1000 {
			return fmt.Errorf("-sizes: %q is no number of rows from 1,000 on", text)
		}
		rows = append(rows, n)
	}
	if runner.Jobs(all, o.Selection) == 0 {
		return errors.New("nothing is selected: none of these engines can be measured so")
	}
	progress(&o)
	for _, n := range rows {
		o.Rows, o.Out = n, filepath.Join(*out, strconv.Itoa(n))
		if err := room(o.Work, int64(n)*bytesPerRow); err != nil {
			return err
		}
		if err := fillHeader(&o, all); err != nil {
			return err
		}
		fmt.Fprintf(o.Progress, "%d rows\n", n)
		if err := runner.Run(ctx, all, o); err != nil {
			return err
		}
		path, err := report.Growth(*out)
		if err != nil {
			return err
		}
		fmt.Println("written:", path)
	}
	return nil
}

// room returns an error unless a directory's device has so many bytes left.
func room(dir string, need int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("the room in %s: %w", dir, err)
	}
	if have := int64(fs.Bavail) * fs.Bsize; have < need {
		return fmt.Errorf("%s has %d MB left, and a run may need %d: use -work, or smaller -sizes", dir, have>>20, need>>20)
	}
	return nil
}
