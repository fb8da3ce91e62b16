package main

// This file says what the tables of a home hold, so that a rehearsal can compare what was restored with what was
// backed up. The digest of a backup is a file of it: docs/format-backup.md describes it.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/clock"
)

// digestFile is the name of the file.
const digestFile = "digest"

// digestKind begins the file, before its checksum.
const digestKind = "flagstone-digest 1 "

// digest is what the tables of a home hold at a moment.
type digest struct {
	// Millis is what the clock showed: what has expired by then does not count.
	Millis int64         `json:"millis"`
	Tables []tableDigest `json:"tables"`
}

// tableDigest is what a table holds.
type tableDigest struct {
	Store    string `json:"store"` // its directory within the home
	Table    string `json:"table"`
	Rows     int64  `json:"rows"`
	Cells    int64  `json:"cells"`
	Checksum string `json:"checksum"` // xxhash64 over its rows, in hexadecimal
}

// stopped is a clock whose time of day stands still.
type stopped struct {
	clock.Clock
	millis int64
}

// NowMillis implements clock.Clock.
func (s stopped) NowMillis() int64 { return s.millis }

// NowMicros implements clock.Clock.
func (s stopped) NowMicros() int64 { return s.millis * 1000 }

// takeDigest reads every row of a home that no process writes. It holds one row in memory. pace is called with the bytes
// of each row.
func takeDigest(ctx context.Context, dir string, millis int64, pace func(bytes int) error) (digest, error) {
	d := digest{Millis: millis}
	opts := flagstone.Options{CacheSize: 1 << 20}
	opts.Seams.Clock = stopped{clock.System(), millis}
	err := instances.EachStore(dir, opts, func(within string, store *flagstone.Store) error {
		for _, t := range store.Tables() {
			one := tableDigest{Store: within, Table: t.Name()}
			sum, buffer := xxhash.New(), []byte(nil)
			for r, err := range t.Scan(ctx, nil, nil, flagstone.ScanOptions{}).All() {
				if err != nil {
					return fmt.Errorf("table %s: %w", lineText(t.Name()), err)
				}
				buffer = appendDigested(buffer[:0], r)
				_, _ = sum.Write(buffer) // never fails
				one.Rows++
				one.Cells += int64(len(r.Cells()))
				if err := pace(len(buffer)); err != nil {
					return err
				}
			}
			one.Checksum = fmt.Sprintf("%016x", sum.Sum64())
			d.Tables = append(d.Tables, one)
		}
		return nil
	})
	return d, err
}

// appendDigested appends all of a row, so that no two rows give the same bytes.
func appendDigested(dst []byte, r *flagstone.Row) []byte {
	text := func(b []byte) { dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...) }
	dst = append(dst, byte(len(r.Key())))
	for _, v := range r.Key() {
		dst = append(dst, byte(v.Type()))
		text(v.AppendPayload(nil))
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Cells())))
	for _, c := range r.Cells() {
		text(c.Column)
		dst = append(binary.AppendVarint(dst, c.Version), byte(c.Type))
		text(c.Value)
	}
	return dst
}

// write makes the file of a digest.
func (d *digest) write(name string) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return os.WriteFile(name, fmt.Appendf(nil, "%s%016x\n%s\n", digestKind, xxhash.Sum64(text), text), 0o600)
}

// print prints the rows of each table.
func (d *digest) print(c *output) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TABLE\tROWS")
	for _, t := range d.Tables {
		if !strings.HasPrefix(t.Table, ".") { // the server's own
			fmt.Fprintf(w, "%s\t%d\n", lineText(t.Table), t.Rows)
		}
	}
	return w.Flush()
}

// readDigest is the inverse of write.
func readDigest(name string) (d digest, err error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return d, err
	}
	line, text, _ := strings.Cut(string(content), "\n")
	text = strings.TrimSuffix(text, "\n")
	if want := fmt.Sprintf("%s%016x", digestKind, xxhash.Sum64String(text)); line != want {
		return d, fmt.Errorf("%s does not begin with %q: it is damaged, or newer than this program", name, want)
	}
	return d, json.Unmarshal([]byte(text), &d)
}

// compare returns a line for each table that differs. want is that of the backup.
func (d *digest) compare(want *digest) (differ []string) {
	type place struct{ store, table string }
	left := map[place]tableDigest{}
	for _, t := range d.Tables {
		left[place{t.Store, t.Table}] = t
	}
	for _, w := range want.Tables {
		at := place{w.Store, w.Table}
		switch got, ok := left[at]; {
		case !ok:
			differ = append(differ, fmt.Sprintf("table %s is missing; it had %d rows", lineText(w.Table), w.Rows))
		case got != w:
			differ = append(differ, fmt.Sprintf("table %s has %d rows with %d cells, checksum %s; it had %d rows with %d cells, checksum %s",
				lineText(w.Table), got.Rows, got.Cells, got.Checksum, w.Rows, w.Cells, w.Checksum))
		}
		delete(left, at)
	}
	for at := range left {
		differ = append(differ, fmt.Sprintf("table %s was not there", lineText(at.table)))
	}
	return differ
}
