package fuzz

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// The operations that an input byte can stand for; the bytes after it are its
// arguments.
const (
	opPut = iota
	opPutRow
	opDeleteRow
	opDeleteColumn
	opDeleteVersion
	opBatch
	opStep
	opFlush
	opCompact
	opReopen
	opCrash
	opGet
	ops
)

// now is the clock reading of every history: nothing expires here.
const now = 1_700_000_000_000

// FuzzHistory plays a history to a store with tiny thresholds and to a model,
// and compares them after every crash and at the end. Every write is synced, so
// no crash may take anything back.
func FuzzHistory(f *testing.F) {
	f.Add([]byte{opPut, 1, 2, 3, opFlush, opPutRow, 1, 0, 0, opCrash, 0, 1, opDeleteRow, 1})
	f.Add([]byte{opPut, 1, 1, 1, opPut, 1, 1, 2, opDeleteVersion, 1, 1, 2, opFlush, opCompact, opReopen, opGet, 1})
	f.Add([]byte{opBatch, 3, 1, 1, 2, 2, 3, 3, opStep, 0, opDeleteColumn, 1, 1, opFlush, opCrash, 3, 9})
	f.Add([]byte(strings.Repeat("\x00\x01\x02\x03\x05\x04\x01\x02\x03\x04\x07\x06\x00", 30)))
	f.Fuzz(func(t *testing.T, input []byte) {
		h := history{t: t, input: input, model: model{}, fs: vfs.NewSim(vfs.SimOptions{})}
		if len(input)%2 == 1 {
			h.threshold = 1 // every value in a value file
		}
		h.open()
		defer func() { h.store.Close() }()
		// Go takes an input that runs for ten seconds for a deadlock. A hundred crashes take half a second.
		for steps := 0; len(h.input) > 0 && steps < 100; steps++ {
			h.step()
		}
		h.compare()
	})
}

// model is what the store must hold: rows by key, columns by name, values by
// version.
type model map[byte]map[byte]map[byte]byte

type history struct {
	t     *testing.T
	input []byte
	model model
	fs    *vfs.Sim
	exec  *executortest.Manual
	store *flagstone.Store
	table *flagstone.Table
	value byte
	// threshold is Seams.ValueThreshold.
	threshold int
	// change: what the change under way has done to each row so far.
	changes map[byte]*change
}

// change is what one change, or one batch, does to a row.
type change struct {
	existed bool // before, and was not deleted
	putRow  bool
	puts    map[[2]byte]bool // column and version
}

// next takes an argument from the input; arguments are small so that they meet.
func (h *history) next(limit byte) byte {
	if len(h.input) == 0 {
		return 0
	}
	b := h.input[0]
	h.input = h.input[1:]
	return b % limit
}

func (h *history) open() {
	h.exec = executortest.NewManual()
	store, err := flagstone.Open("/store", flagstone.Options{
		MemtableSize: 1 << 10, TableFileSize: 2 << 10, WALSegmentSize: 16 << 10, MemoryBudget: 64 << 10,
		Seams: seams.Seams{FS: h.fs, Clock: clocktest.NewManual(now), Executor: h.exec, ValueThreshold: h.threshold},
	})
	if err != nil {
		h.t.Fatalf("open: %v", err)
	}
	h.store = store
	h.table, err = store.Table("t")
	if errors.Is(err, flagstone.ErrTableNotFound) {
		h.table, err = store.CreateTable(context.Background(), flagstone.TableSpec{
			Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeBinary}},
			Options: flagstone.TableOptions{MaxVersions: 1 << 20},
		})
	}
	h.must(err)
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) step() {
	ctx := context.Background()
	switch op := h.next(ops); op {
	case opPut, opPutRow, opDeleteRow, opDeleteColumn, opDeleteVersion:
		h.begin()
		h.must(h.table.Update(ctx, key(h.peekKey()), func(_ context.Context, tx *flagstone.RowTx) error {
			h.change(op, &tx.RowChange)
			return nil
		}))
		h.end()
	case opBatch:
		h.begin()
		b := h.store.NewBatch()
		for range h.next(4) {
			h.change(h.next(opDeleteVersion+1), b.Row(h.table, key(h.peekKey())))
		}
		h.must(h.store.Apply(ctx, b))
		h.end()
	case opStep:
		h.exec.Step(int(h.next(4)))
	case opFlush:
		h.must(h.store.Flush(ctx))
	case opCompact:
		h.must(h.store.Compact(ctx))
	case opReopen:
		h.must(h.store.Close())
		h.open()
		h.compare()
	case opCrash:
		policies := vfs.CrashPolicies()
		policy := policies[int(h.next(byte(len(policies))))]
		old := h.store
		h.fs = h.fs.Crash(policy, uint64(h.next(255)))
		old.Close()
		h.open()
		h.compare()
	case opGet:
		k := h.next(6)
		r, err := h.table.Get(ctx, key(k), flagstone.ReadOptions{})
		h.must(err)
		got := ""
		if r != nil {
			got = show(r)
		}
		if want := h.model.row(k); got != want {
			h.t.Fatalf("row %d: got %q, want %q", k, got, want)
		}
	}
}

func key(k byte) []row.Value { return []row.Value{row.Binary([]byte{k})} }

// peekKey is the key that the next change takes from the input.
func (h *history) peekKey() byte {
	if len(h.input) == 0 {
		return 0
	}
	return h.input[0] % 6
}

func (h *history) begin() { h.changes = map[byte]*change{} }

// end settles which of the changed rows exist: a change is all at once, so a
// put that it also deletes does not bring the row into being.
func (h *history) end() {
	for k, c := range h.changes {
		if !c.existed && !c.putRow && len(c.puts) == 0 {
			delete(h.model, k)
		}
	}
}

// change does one operation to the store's change and to the model.
func (h *history) change(op byte, c *flagstone.RowChange) {
	k := h.next(6)
	columns, exists := h.model[k]
	if !exists {
		columns = map[byte]map[byte]byte{}
		h.model[k] = columns
	}
	done := h.changes[k]
	if done == nil {
		done = &change{existed: exists, puts: map[[2]byte]bool{}}
		h.changes[k] = done
	}
	switch op {
	case opPutRow:
		c.PutRow()
		clear(columns)
		*done = change{putRow: true, puts: map[[2]byte]bool{}}
	case opDeleteRow:
		c.DeleteRow()
		clear(columns)
		*done = change{puts: map[[2]byte]bool{}}
	case opPut:
		column, version := h.next(3), h.next(5)
		h.value++
		c.Put(name(column), now+int64(version), row.Integer(int64(h.value)))
		if columns[column] == nil {
			columns[column] = map[byte]byte{}
		}
		columns[column][version] = h.value
		done.puts[[2]byte{column, version}] = true
	case opDeleteColumn:
		column := h.next(3)
		c.DeleteColumn(name(column))
		delete(columns, column)
		for version := range byte(5) {
			delete(done.puts, [2]byte{column, version})
		}
	case opDeleteVersion:
		column, version := h.next(3), h.next(5)
		c.DeleteVersion(name(column), now+int64(version))
		delete(columns[column], version)
		delete(done.puts, [2]byte{column, version})
	}
}

func name(column byte) string { return string(rune('a' + column)) }

// row formats a row of the model as show formats one of the store; empty if it
// does not exist.
func (m model) row(k byte) string {
	columns, exists := m[k]
	if !exists {
		return ""
	}
	var cells []string
	for column := range byte(3) {
		for version := 4; version >= 0; version-- {
			if v, ok := columns[column][byte(version)]; ok {
				cells = append(cells, fmt.Sprintf("%s@%d=%d", name(column), now+version, v))
			}
		}
	}
	return fmt.Sprintf("%d: %s", k, strings.Join(cells, " "))
}

func show(r *flagstone.Row) string {
	var cells []string
	for i := range r.Cells() {
		c := &r.Cells()[i]
		v, err := row.PayloadValue(c.Type, c.Value)
		if err != nil {
			return err.Error()
		}
		cells = append(cells, fmt.Sprintf("%s@%d=%s", c.Column, c.Version, v))
	}
	return fmt.Sprintf("%d: %s", r.Key()[0].Bytes()[0], strings.Join(cells, " "))
}

// compare scans the store, in both directions, against the model.
func (h *history) compare() {
	h.t.Helper()
	var want []string
	for k := range h.model {
		want = append(want, h.model.row(k))
	}
	sort.Strings(want)
	for _, reverse := range []bool{false, true} {
		var got []string
		rows := h.table.Scan(context.Background(), nil, nil, flagstone.ScanOptions{Reverse: reverse})
		for rows.Next() {
			got = append(got, show(rows.Row()))
		}
		h.must(errors.Join(rows.Err(), rows.Close()))
		if reverse {
			sort.Sort(sort.Reverse(sort.StringSlice(want)))
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			h.t.Fatalf("reverse=%v: got\n%s\nwant\n%s", reverse, g, w)
		}
	}
}
