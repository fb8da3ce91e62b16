// Command peers compares Flagstone with other storage engines on identical work.
// See README.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/machine"
	"github.com/flagstone-db/flagstone/bench/peers/report"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/engines"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

const usage = `peers compares Flagstone with other storage engines on identical work.

usage: go run [-tags rocksdb] . COMMAND [flags]

  quick    all workloads, scaled down, the peers that can be best
  full     all workloads, all peers, three rounds: hours
  grow     one store per engine and size, within a fixed memory: hours to days
  run      what the flags select, and a table of it; for a look while working
  report   write REPORT.md and its charts from the results in -out
  charts   draw the charts of a published report again from its tables
  machine  measure the physical limits of this machine
  list     list workloads and engines

quick, full and grow go on where they were interrupted. "go run . quick -help" lists the
flags of a command.
`

// screenName is the file of records from which quick takes the peers.
const screenName = "../../docs/benchmarks/records/75000-text.jsonl"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	all := engines.All()
	switch name {
	case runner.ChildArgument:
		return runner.Child(all)
	case "quick", "full", "run":
		return measure(ctx, name, all, args)
	case "grow":
		return grow(ctx, all, args)
	case "report":
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		out := flags.String("out", "results-full", "directory of results")
		if err := parse(flags, args); err != nil {
			return err
		}
		return writeReport(*out)
	case "charts":
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		from := flags.String("report", "../../BENCHMARKS.md", "Markdown file with tables and charts")
		if err := parse(flags, args); err != nil {
			return err
		}
		return report.Redraw(*from)
	case "machine":
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		dir := flags.String("work", os.TempDir(), "directory on the device to measure")
		if err := parse(flags, args); err != nil {
			return err
		}
		return machine.Measure(ctx, *dir, os.Stdout)
	case "list":
		list(os.Stdout, all)
		return nil
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("there is no command %q; go run . help", name)
	}
}

// parse refuses what is no flag, too: a name without its flag would select everything.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes flags only, not %q", flags.Name(), flags.Arg(0))
	}
	return nil
}

// selection makes one expression of several with commas, each of which has to match one
// of the names.
func selection(text string, names []string) (*regexp.Regexp, error) {
	for _, part := range strings.Split(text, ",") {
		re, err := regexp.Compile("^(?:" + part + ")$")
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(names, re.MatchString) {
			return nil, fmt.Errorf("nothing is named %q; there are %s", part, strings.Join(names, " "))
		}
	}
	return regexp.Compile("^(?:" + strings.ReplaceAll(text, ",", "|") + ")$")
}

func workloadNames() (names []string) {
	for _, s := range workload.All() {
		names = append(names, s.Name)
	}
	return names
}

// engineNames are the names of engines, and of what they are with each tuning and each
// encoding. RocksDB and LMDB are among them if they were built in.
func engineNames(all []rowstore.Engine) (names []string) {
	for _, e := range all {
		for _, s := range workload.All() {
			for _, v := range s.Variants(e) {
				names = append(names, v.Tuned, v.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// check refuses numbers that make no sense.
func check(o *runner.Options) error {
	for name, ok := range map[string]bool{
		"rounds": o.Rounds > 0, "rows": o.Rows > 0, "keys": o.Keys > 0, "memory": o.MemoryLimit > 0,
		"memtable": o.Memtable >= 0, "cache": o.Cache >= 0, "read": o.ReadSeconds > 0, "limit": o.LimitSeconds > 0,
		"near": o.Near > 0 || o.Near == 0 && o.Screen == "",
	} {
		if !ok {
			return fmt.Errorf("-%s must be positive", name)
		}
	}
	return nil
}

// commonFlags are the flags that all commands which measure have, with the same defaults.
func commonFlags(name string, all []rowstore.Engine, o *runner.Options) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.Func("engines", "engines, their tunings or variants, with commas: flagstone,pebble,pebble-deep0,bbolt+row,rocksdb.*; default all", func(s string) (err error) {
		o.Engines, err = selection(strings.ReplaceAll(s, "+", `\+`), engineNames(all))
		return err
	})
	o.Values = workload.HalfZeros
	flags.Func("values", "bytes of the values: zeros (random up to half, then zeros) or text; default zeros", func(s string) (err error) {
		o.Values, err = workload.ParseValues(s)
		return err
	})
	flags.BoolVar(&o.Fresh, "fresh", false, "forget the results in -out")
	flags.StringVar(&o.Work, "work", os.TempDir(), "directory for stores, on the device to be measured")
	flags.StringVar(&o.Profiles, "profiles", "", "directory for CPU profiles of the children")
	return flags
}

// passFlags are the flags of the commands that measure, with the defaults of
// each.
func passFlags(name string, all []rowstore.Engine, o *runner.Options) *flag.FlagSet {
	flags := commonFlags(name, all, o)
	const mib = 1 << 20
	full := name == "full"
	rows, keys, read, limit, rounds := 150_000, 300_000, 0.7, 8.0, 1
	memory := int64(96 * mib)
	if full {
		rows, keys, read, limit, rounds = 500_000, 1_000_000, 2, 30, 3
		memory = 256 * mib
	}
	out := "results-" + name
	if name == "run" {
		out = ""
	}
	flags.Func("workloads", "names or regular expressions, with commas; default all", func(s string) (err error) {
		o.Workloads, err = selection(s, workloadNames())
		return err
	})
	flags.IntVar(&o.Rounds, "rounds", rounds, "rounds")
	flags.IntVar(&o.Rows, "rows", rows, "rows of the row workloads")
	flags.IntVar(&o.Keys, "keys", keys, "keys of the key-value workloads")
	flags.Int64Var(&o.MemoryLimit, "memory", memory, "bytes of memory in the workload beyond memory, whose data is four times that")
	flags.Int64Var(&o.Memtable, "memtable", 0, "bytes of a memtable; default 64 MiB for 500,000 rows, in proportion (at least 8 MiB)")
	flags.Int64Var(&o.Cache, "cache", 0, "bytes of the block cache; default four memtables")
	flags.BoolVar(&o.Unmerged, "unmerged", false, "leave the data sets that are read as settling leaves them, without a manual compaction")
	flags.Float64Var(&o.ReadSeconds, "read", read, "seconds that reads are timed")
	flags.Float64Var(&o.LimitSeconds, "limit", limit, "seconds after which a phase of writing is stopped")
	near, screen := 0.0, ""
	switch name {
	case "full":
		near = 0.6
	case "quick":
		near, screen = 0.9, screenName
	}
	flags.Float64Var(&o.Near, "near", near,
		"part of the best peer's rate, in the first round and in -screen, that a peer has to reach to be run on a workload; 0 runs all")
	flags.StringVar(&o.Screen, "screen", screen, "file of records of an earlier pass: peers that were not near to the best in it are not run")
	flags.BoolVar(&o.Reload, "reload", full, "load the data sets anew in each round")
	flags.StringVar(&o.Out, "out", out, "directory of results; default of run: none are kept")
	return flags
}

func measure(ctx context.Context, name string, all []rowstore.Engine, args []string) error {
	var o runner.Options
	if err := parse(passFlags(name, all, &o), args); err != nil {
		return err
	}
	if err := check(&o); err != nil {
		return err
	}
	if runner.Jobs(all, o.Selection) == 0 {
		return errors.New("nothing is selected: none of these engines is compared in any of these workloads")
	}
	if o.Memtable == 0 {
		o.Memtable = max(64<<20*int64(o.Rows)/500_000, 8<<20)
	}
	if o.Cache == 0 {
		o.Cache = 4 * o.Memtable
	}
	// A row takes about 600 bytes on disk, compressed.
	o.Beyond = int(4 * o.MemoryLimit / 600)
	progress(&o)
	if o.Out == "" {
		dir, err := os.MkdirTemp("", "flagstone-peers-results-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.Out = dir
	}
	if o.Profiles != "" {
		var err error
		if o.Profiles, err = filepath.Abs(o.Profiles); err != nil {
			return err
		}
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return err
		}
	}
	if err := fillHeader(&o, all); err != nil {
		return err
	}
	if name != "run" {
		if err := measureMachine(ctx, &o); err != nil {
			return err
		}
	}
	if err := runner.Run(ctx, all, o); err != nil {
		return err
	}
	if name != "run" {
		return writeReport(o.Out)
	}
	header, records, err := runner.Read(o.Out)
	if err != nil {
		return err
	}
	return report.Table(os.Stdout, header, records)
}

// progress tells of a pass on the standard error.
func progress(o *runner.Options) {
	o.Progress = os.Stderr
	if info, err := os.Stderr.Stat(); err == nil {
		o.Terminal = info.Mode()&os.ModeCharDevice != 0
	}
}

// measureMachine measures the machine's limits for the report, unless that was
// done before.
func measureMachine(ctx context.Context, o *runner.Options) error {
	path := filepath.Join(o.Out, report.MachineName)
	if _, err := os.Stat(path); err == nil && !o.Fresh {
		return nil
	}
	fmt.Fprintln(o.Progress, "measuring the machine's own limits")
	if err := errors.Join(os.MkdirAll(o.Out, 0o755), os.MkdirAll(o.Work, 0o755)); err != nil {
		return err
	}
	var table bytes.Buffer
	if err := machine.Measure(ctx, o.Work, &table); err != nil {
		return err
	}
	return os.WriteFile(path, table.Bytes(), 0o644)
}

// fillHeader notes what is compared, and where.
func fillHeader(o *runner.Options, all []rowstore.Engine) (err error) {
	if o.Binary, err = runner.Binary(); err != nil {
		return err
	}
	o.Header = runner.Header{Started: time.Now().UTC().Format(time.RFC3339), Machine: machine.Describe(o.Work)}
	if o.Header.Revision = revision(); o.Header.Revision == "" {
		fmt.Fprintln(o.Progress, "the revision is not known, and will be missing from the report: build or run it within the repository")
	}
	for _, e := range all {
		o.Header.Engines = append(o.Header.Engines, runner.EngineInfo{
			Name: e.Name, Version: version(e.Module), Build: e.Build, LSM: e.LSM, Factor: e.Factor, Unsynced: e.Unsynced,
			Tunings: e.Tunings, Encodings: e.Encodings,
		})
	}
	return nil
}

// revision is the commit that this program was built from or, as with go run, the one that is checked out here.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(len(s.Value), 7)]
			}
		}
	}
	text, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	return strings.TrimSpace(string(text))
}

// version returns the version of a module of this build.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				return "this tree"
			}
			return dep.Version
		}
	}
	return "unknown"
}

func writeReport(dir string) error {
	header, records, err := runner.Read(dir)
	if err != nil {
		return err
	}
	path, err := report.Write(dir, header, records)
	if err == nil {
		fmt.Println("written:", path)
	}
	return err
}

func list(w io.Writer, all []rowstore.Engine) {
	for _, s := range workload.All() {
		fmt.Fprintf(w, "%-22s %-14s %s\n", s.Name, s.Shape, s.About)
	}
	for _, e := range all {
		fmt.Fprintf(w, "%-12s %-10s %s encodings %v; a killed process: %s\n", e.Name, version(e.Module), e.Build, e.Encodings, e.Unsynced)
		for _, t := range e.Tunings {
			fmt.Fprintf(w, "%-23s %s\n", e.Name+"-"+t.Name, t.About)
		}
	}
}
