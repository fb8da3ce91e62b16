// Command purchases is the tour of Flagstone: the purchase records of a
// university, as in the best practices of Table Store, in four tables that are
// keyed four ways. It generates the records, writes them with the official SDK,
// reads them back by key and by range, and checks every record and every order.
//
//	generate.go  the records
//	tables.go    the four tables and their keys
//	load.go      writing
//	verify.go    reading and comparing
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

const (
	envKeyID     = "FLAGSTONE_ACCESS_KEY_ID"
	envKeySecret = "FLAGSTONE_ACCESS_KEY_SECRET"

	// maxRecords keeps the orders of a day countable with six digits.
	maxRecords = 10_000_000
)

// options is the command line.
type options struct {
	endpoint, instance, credentials string
	records, workers                int
	seed                            uint64
	keep                            bool
}

// tour is one run.
type tour struct {
	client  *tablestore.TableStoreClient
	workers int
	records []purchase
	wrong   differences
	out     io.Writer
}

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run does the whole tour and returns the exit status: 0 if all was as it
// should be, 1 if not, 2 for a command line that is not understood.
func run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	id, secret, err := accessKey(opts.credentials, getenv)
	if err != nil {
		fmt.Fprintf(stderr, "purchases: %v\n", err)
		return 2
	}
	t := &tour{
		client:  tablestore.NewClient(opts.endpoint, opts.instance, id, secret),
		workers: opts.workers,
		out:     stdout,
	}
	if err := t.run(opts); err != nil {
		fmt.Fprintf(stderr, "purchases: %v\n", err)
		return 1
	}
	if all := t.wrong.all; len(all) > 0 {
		fmt.Fprintf(stderr, "purchases: %d differences, such as:\n\t%s\n", len(all), strings.Join(all[:min(10, len(all))], "\n\t"))
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("purchases", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.endpoint, "endpoint", "http://127.0.0.1:8087", "where the server listens")
	flags.StringVar(&o.instance, "instance", "demo", "instance to make the tables in")
	flags.StringVar(&o.credentials, "credentials", "", "file with the access key, as the server writes it; the environment wins")
	flags.IntVar(&o.records, "records", 200_000, "records to generate")
	flags.IntVar(&o.workers, "workers", 8, "requests under way at a time")
	flags.Uint64Var(&o.seed, "seed", 1, "the same seed makes the same records")
	flags.BoolVar(&o.keep, "keep", true, "keep the tables at the end, to look at them")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.records < 1 || o.records > maxRecords:
		err = fmt.Errorf("--records must be from 1 to %d", maxRecords)
	case o.workers < 1:
		err = errors.New("--workers must be at least 1")
	}
	if err != nil {
		fmt.Fprintf(stderr, "purchases: %v\n", err)
	}
	return &o, err
}

// accessKey takes the access key from the environment, or else from a file of
// NAME=value lines.
func accessKey(file string, getenv func(string) string) (id, secret string, err error) {
	id, secret = getenv(envKeyID), getenv(envKeySecret)
	if id != "" && secret != "" {
		return id, secret, nil
	}
	if file == "" {
		return "", "", fmt.Errorf("no access key: set %s and %s, or name the server's file with --credentials (credentials in its directory)", envKeyID, envKeySecret)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case envKeyID:
			id = value
		case envKeySecret:
			secret = value
		}
	}
	if id == "" || secret == "" {
		return "", "", fmt.Errorf("%s does not hold %s and %s", file, envKeyID, envKeySecret)
	}
	return id, secret, nil
}

// run generates, writes and reads. What cannot go on is an error; what is
// wrong with the data is noted in t.wrong.
func (t *tour) run(opts *options) error {
	begin := time.Now()
	t.records = generate(opts.records, opts.seed)
	t.describe(opts.seed)
	if err := t.makeTables(); err != nil {
		return err
	}
	if err := t.writeAll(); err != nil {
		return err
	}
	if err := t.readAll(); err != nil {
		return err
	}
	if !opts.keep {
		if err := t.dropTables(); err != nil {
			return err
		}
	}
	t.summarize(opts, time.Since(begin))
	return nil
}

// describe says what the records are like.
func (t *tour) describe(seed uint64) {
	cards, devices := map[int64]int{}, map[int64]int{}
	for i := range t.records {
		cards[t.records[i].CardID]++
		devices[t.records[i].DeviceID]++
	}
	most := func(counts map[int64]int) (n int) {
		for _, c := range counts {
			n = max(n, c)
		}
		return n
	}
	fmt.Fprintf(t.out, "%s purchases of %d days, seed %d: %s cards (the busiest has %s), %d tills (the busiest has %s)\n\n",
		thousands(len(t.records)), termDays, seed, thousands(len(cards)), thousands(most(cards)), len(devices), thousands(most(devices)))
}

// writeAll loads the four tables, one after the other.
func (t *tour) writeAll() error {
	fmt.Fprintf(t.out, "write, %d rows in a request, %d requests at a time\n", rowsPerWrite, t.workers)
	for i := range layouts {
		l := &layouts[i]
		if err := t.step(l.table, l.about, func() (int, error) { return len(t.records), t.load(l) }); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads the four tables in all ways.
func (t *tour) readAll() error {
	const singly, ranges = 500, 1000
	sorted := map[string][]*purchase{}
	fmt.Fprintf(t.out, "\nread every record by its key, %d in a request; %d by GetRow, and %d that were never written\n", rowsPerRead, singly, singly)
	for i := range layouts {
		l := &layouts[i]
		sorted[l.table] = t.sorted(l)
		if err := t.step(l.table, "", func() (int, error) {
			return len(t.records) + 2*singly, errors.Join(t.readByKey(l), t.readSingly(l, singly))
		}); err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "\nread ranges, forward and backward\n")
	for _, r := range []struct {
		what   string
		layout *layout
		groups []group
	}{
		{"a card, by its number", &byCard, cardRanges(sorted[byCard.table])},
		{"a card, by a prefix", &spliced, splicedRanges(sorted[spliced.table])},
		{"a till on a day", &byDevice, deviceDays(sorted[byDevice.table])},
	} {
		chosen := sample(r.groups, ranges)
		if err := t.step(r.layout.table, r.what, func() (int, error) {
			rows, err := t.scanGroups(r.what, chosen)
			return 2 * rows, err
		}); err != nil {
			return err
		}
		fmt.Fprintf(t.out, "    %s of %s such ranges\n", thousands(len(chosen)), thousands(len(r.groups)))
	}
	fmt.Fprintf(t.out, "\nread whole tables, forward and backward, in their order\n")
	for i := range layouts {
		l := &layouts[i]
		if err := t.step(l.table, "", func() (int, error) { return 2 * len(t.records), t.scanAll(l, sorted[l.table]) }); err != nil {
			return err
		}
	}
	return nil
}

// step does a part of the tour and prints how many rows it handled, in what
// time.
func (t *tour) step(table, about string, do func() (rows int, err error)) error {
	begin := time.Now()
	rows, err := do()
	if err != nil {
		return err
	}
	took := time.Since(begin)
	line := fmt.Sprintf("  %-20s %10s rows %7.2f s %9s rows/s   %s", table, thousands(rows),
		took.Seconds(), thousands(int(float64(rows)/took.Seconds())), about)
	fmt.Fprintln(t.out, strings.TrimRight(line, " "))
	return nil
}

func (t *tour) summarize(opts *options, took time.Duration) {
	verdict := "every record is where it belongs, and everything is in order"
	if n := len(t.wrong.all); n > 0 {
		verdict = thousands(n) + " differences"
	}
	fmt.Fprintf(t.out, "\n%s: %s records in %d tables, %.1f s\n", verdict, thousands(len(t.records)), len(layouts), took.Seconds())
	if opts.keep {
		fmt.Fprintf(t.out, "the tables are kept in instance %s; the next run begins by deleting them\n", opts.instance)
	}
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
