package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

func TestGetAsksNoRunBelowOneThatDeletesTheRow(t *testing.T) {
	r := newRig(t)
	k := key("a", 1)
	r.putRow(k, "c", 1, "first")
	r.flush()
	r.put(k, "d", 1, "more")
	r.flush()
	first := r.seq
	r.putRow(k, "c", 2, "second")
	r.flush()
	second := r.seq
	r.put(k, "e", 2, "late")
	opened := func() int64 { return r.fault.Calls(vfs.OpOpen) }
	before := opened()
	if got, err := get(r.tree, k, row.MaxSequence); err != nil || got != "row c@2=second e@2=late" {
		t.Errorf("%q, %v", got, err)
	}
	if n := opened() - before; n != 1 {
		t.Errorf("%d files were opened, want the one with the newest PutRow", n)
	}
	// A reader that does not see the delete must read older runs.
	if got, err := get(r.tree, k, second-1); err != nil || got != "row c@1=first d@1=more" {
		t.Errorf("before it: %q, %v", got, err)
	}
	if got, err := get(r.tree, k, first-1); err != nil || got != "row c@1=first" {
		t.Errorf("before that: %q, %v", got, err)
	}
	// The delete may be in the memtable: then the read needs no file.
	r.apply(r.tree, &row.Mutation{Table: testTable, Key: k, DeleteRow: true}, 1)
	before = r.fault.Calls(vfs.OpOpen | vfs.OpReadAt)
	if got, err := get(r.tree, k, row.MaxSequence); err != nil || got != "absent" {
		t.Errorf("deleted: %q, %v", got, err)
	}
	if n := r.fault.Calls(vfs.OpOpen|vfs.OpReadAt) - before; n != 0 {
		t.Errorf("%d calls to the disk for a row that the memtable deletes", n)
	}
}

func TestGetOpensNoFileOutsideItsKeysOrItsFilter(t *testing.T) {
	r := newRig(t)
	for i := range 50 {
		r.put(key("m", i), "c", 1, "v")
	}
	r.flush()
	if got, err := get(r.tree, key("m", 7), row.MaxSequence); err != nil || got != "row c@1=v" {
		t.Fatalf("%q, %v", got, err)
	}
	before := r.fault.Calls(vfs.OpReadAt)
	for _, k := range [][]byte{key("a", 1), key("z", 1)} {
		if got, err := get(r.tree, k, row.MaxSequence); err != nil || got != "absent" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := r.fault.Calls(vfs.OpReadAt) - before; n != 0 {
		t.Errorf("%d reads for keys outside the file", n)
	}
}

// history is what was done to rows, for a naive reader.
type history struct {
	mutations []row.Mutation // by sequence number, from 1
}

// at prints a row as it was at a sequence number.
func (h *history) at(k []byte, seq uint64) string {
	exists, columns := false, map[string]map[int64]string{}
	for i := range h.mutations[:min(seq, uint64(len(h.mutations)))] {
		m := &h.mutations[i]
		if string(m.Key) != string(k) {
			continue
		}
		if m.DeleteRow {
			exists, columns = false, map[string]map[int64]string{}
		}
		exists = exists || m.PutRow
		for _, c := range m.Cells { // deletes of columns come before puts
			name := string(c.Column)
			if c.Kind == row.KindTrim {
				delete(columns, name)
				continue
			}
			exists = true
			if columns[name] == nil {
				columns[name] = map[int64]string{}
			}
			v, _ := row.PayloadValue(c.Type, c.Value)
			columns[name][c.Version] = v.Text()
		}
	}
	if !exists {
		return "absent"
	}
	s := "row"
	for _, name := range []string{"a", "b", "c"} {
		for version := int64(9); version >= 0; version-- {
			if v, ok := columns[name][version]; ok {
				s += fmt.Sprintf(" %s@%d=%s", name, version, v)
			}
		}
	}
	return s
}

// TestP05_ReadsDoNotDependOnFlushesAndCompactions compares random histories with the naive
// reader, at moments that views keep open.
func TestP05_ReadsDoNotDependOnFlushesAndCompactions(t *testing.T) {
	for seed := range uint64(12) {
		r := newRig(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		h := &history{}
		var keys [][]byte
		for i := range 30 {
			keys = append(keys, key(fmt.Sprint("k", i%5), i))
		}
		check := func() {
			t.Helper()
			seqs := []uint64{r.seq}
			for _, v := range r.views {
				seqs = append(seqs, v.Seq)
			}
			for _, seq := range seqs {
				forward, rows, err := scan(r.tree, seq, false)
				must(t, err)
				backward, _, err := scan(r.tree, seq, true)
				must(t, err)
				slices.Reverse(backward)
				if !slices.Equal(forward, backward) || !slices.IsSorted(forward) {
					t.Fatalf("seed %d: scans of both directions differ", seed)
				}
				for _, k := range keys {
					want := h.at(k, seq)
					if got, err := get(r.tree, k, seq); err != nil || got != want {
						t.Fatalf("seed %d, row %x at %d: got %q, %v, want %q", seed, k, seq, got, err, want)
					}
					if got, ok := rows[string(k)]; ok != (want != "absent") || ok && got != want {
						t.Fatalf("seed %d, row %x at %d: a scan shows %q, want %q", seed, k, seq, got, want)
					}
				}
			}
		}
		for range 600 {
			m := row.Mutation{Table: testTable, Key: keys[rng.IntN(len(keys))]}
			switch rng.IntN(10) {
			case 0:
				m.DeleteRow = true
			case 1:
				m.DeleteRow, m.PutRow = true, true
			case 2:
				m.Cells = []row.Cell{{Column: []byte{byte('a' + rng.IntN(3))}, Version: row.MaxVersion, Kind: row.KindTrim}}
			default:
				m.DeleteRow = rng.IntN(5) == 0
				m.Cells = []row.Cell{putCell(string(rune('a'+rng.IntN(3))), rng.Int64N(10), fmt.Sprint(r.seq))}
			}
			r.apply(r.tree, &m, 1)
			h.mutations = append(h.mutations, m)
			switch rng.IntN(60) {
			case 0, 1, 2:
				r.flush()
			case 3:
				r.rotate(r.tree)
			case 4:
				_, _, err := r.tree.CompactRange(nil, nil)
				must(t, err)
			case 5, 6, 7, 8:
				_, err := r.tree.Compact(Idle, nil)
				must(t, err)
			case 9:
				r.views = append(r.views, mvcc.View{Seq: r.seq, Cutoff: mvcc.NoExpiry})
			case 10:
				if len(r.views) > 0 {
					r.views = slices.Delete(r.views, 0, 1)
				}
			case 11:
				check()
			}
		}
		check()
		r.views = nil
		r.flush()
		_, _, err := r.tree.CompactRange(nil, nil)
		must(t, err)
		check()
		r.tree.Close()
		if open := r.disk.OpenFiles(); len(open) > 3 { // the manifest is open twice, and its copy
			t.Errorf("seed %d: open files: %v", seed, open)
		}
	}
}

func TestFlushTakesWhatWasRotatedOutInTime(t *testing.T) {
	r := newRig(t)
	var ends []uint64
	for i := range 3 {
		r.put(key("a", i), "c", 1, "v")
		if moved := r.rotate(r.tree); moved <= 0 {
			t.Fatalf("rotation %d moved %d bytes", i, moved)
		}
		ends = append(ends, r.seq+1)
	}
	if moved := r.rotate(r.tree); moved != 0 {
		t.Errorf("an empty memtable was moved: %d bytes", moved)
	}
	_, waiting := r.tree.MemoryBytes()
	asked := uint64(0)
	freed, err := r.tree.Flush(ends[1], func(end uint64, trees []*Tree) (func() error, error) { asked = end; return settled(end, trees) })
	must(t, err)
	if asked != ends[1] || r.tree.FlushedSeq() != ends[1]-1 {
		t.Errorf("settled up to %d, flushed up to %d; want %d", asked, r.tree.FlushedSeq(), ends[1])
	}
	if _, rest := r.tree.MemoryBytes(); freed+rest != waiting || rest <= 0 {
		t.Errorf("%d bytes waited, %d were freed, %d are left", waiting, freed, rest)
	}
	if freed, err := r.tree.Flush(ends[1], settled); freed != 0 || err != nil {
		t.Errorf("a second flush freed %d, %v", freed, err)
	}
	if freed, err := r.tree.Flush(ends[0]-1, settled); freed != 0 || err != nil {
		t.Errorf("a flush up to long ago freed %d, %v", freed, err)
	}
	if _, err := r.tree.Flush(row.MaxSequence, settled); err != nil {
		t.Error(err)
	}
	if mutable, waiting := r.tree.MemoryBytes(); mutable != 0 || waiting != 0 {
		t.Errorf("%d and %d bytes are left", mutable, waiting)
	}
}

func TestRoomInMemtables(t *testing.T) {
	r := newRig(t)
	r.env.MemtableSize = 1000
	if r.tree.Full(5000) {
		t.Error("an empty memtable has room for anything")
	}
	m := &row.Mutation{Table: testTable, Key: key("a", 1), Cells: []row.Cell{putCell("c", 1, "v")}}
	c := new(row.Change)
	must(t, c.Set(m))
	slot := r.tree.Reserve(500, 7, 8)
	if r.tree.Full(500) || !r.tree.Full(501) {
		t.Error("Full does not count what is promised")
	}
	r.seq++
	spare, waiting := slot.Apply(r.seq, c)
	slot.Done()
	size := 500 - spare
	if size <= 0 || size > memtable.EstimateSize(c) || waiting != 0 {
		t.Errorf("%d bytes taken, %d of the others waiting", size, waiting)
	}
	if r.tree.Full(1000-size) || !r.tree.Full(1000-size+1) {
		t.Error("Full is not exact")
	}
	if old, mutable := r.tree.OldestSegment(), r.tree.MutableSegment(); old != 7 || mutable != 7 {
		t.Errorf("oldest segments %d and %d, want 7", old, mutable)
	}
	if !r.tree.Holds(row.MaxSequence, 8) || r.tree.Holds(row.MaxSequence, 9) {
		t.Error("the mutation may be in segment 8, and in no later one")
	}
	r.rotate(r.tree)
	if old, mutable := r.tree.OldestSegment(), r.tree.MutableSegment(); old != 7 || mutable != 0 {
		t.Errorf("oldest segments %d and %d, want 7 and none", old, mutable)
	}
	r.apply(r.tree, m, 9)
	r.apply(r.tree, m, 10)
	if old, mutable := r.tree.OldestSegment(), r.tree.MutableSegment(); old != 7 || mutable != 9 {
		t.Errorf("oldest segments %d and %d, want 7 and 9", old, mutable)
	}
	if !r.tree.Holds(row.MaxSequence, 10) || r.tree.Holds(row.MaxSequence, 11) || r.tree.Holds(0, 7) {
		t.Error("the newest mutation is in segment 10")
	}
	if _, err := r.tree.Flush(row.MaxSequence, settled); err != nil {
		t.Fatal(err)
	}
	if old := r.tree.OldestSegment(); old != 9 {
		t.Errorf("oldest segment %d, want 9", old)
	}
}

func TestAFlushThatFailsLosesNothing(t *testing.T) {
	refused := fmt.Errorf("%w: no space", ErrRefused)
	for what, c := range map[string]struct {
		commit, settle, durable error
		rule                    vfs.Rule
		files                   int // left on the disk
	}{
		"settle":          {settle: syscall.EIO},
		"log not durable": {durable: syscall.EIO},
		"refused":         {commit: refused},
		"stale":           {commit: ErrStale},
		"outcome unknown": {commit: syscall.EIO, files: 1},
		"create":          {rule: vfs.Rule{Ops: vfs.OpCreate, Action: vfs.FailWith(syscall.EIO)}},
		"mkdir":           {rule: vfs.Rule{Ops: vfs.OpMkdirAll, Action: vfs.FailWith(syscall.EIO)}},
		"write":           {rule: vfs.Rule{Ops: vfs.OpWrites, Action: vfs.Short(10, syscall.ENOSPC)}},
		"sync":            {rule: vfs.Rule{Ops: vfs.OpSync, Action: vfs.FailSync(vfs.SyncFailureExt4)}},
		"close":           {rule: vfs.Rule{Ops: vfs.OpClose, Action: vfs.FailWith(syscall.EIO)}},
		"sync directory":  {rule: vfs.Rule{Ops: vfs.OpSyncDir, Action: vfs.FailWith(syscall.EIO)}},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			for i := range 20 {
				r.put(key("a", i), "c", 1, "v")
			}
			r.rotate(r.tree)
			_, before := r.tree.MemoryBytes()
			if c.rule.Ops != 0 {
				r.fault.Add(c.rule)
			}
			synced := false
			r.commit = func(*manifest.Edit) error {
				if !synced {
					t.Error("files were added before the log was durable")
				}
				return c.commit
			}
			freed, err := r.tree.Flush(row.MaxSequence, func(uint64, []*Tree) (func() error, error) {
				return func() error { synced = true; return c.durable }, c.settle
			})
			if err == nil || freed != 0 {
				t.Fatalf("the flush freed %d bytes, %v", freed, err)
			}
			if _, after := r.tree.MemoryBytes(); after != before {
				t.Errorf("%d bytes wait, before %d", after, before)
			}
			if n := len(r.live()); n != c.files {
				t.Errorf("%d files are left, want %d", n, c.files)
			}
			keys, _, err := scan(r.tree, row.MaxSequence, false)
			if err != nil || len(keys) != 20 {
				t.Errorf("%d rows, %v", len(keys), err)
			}
			r.commit = nil
			if _, err := r.tree.Flush(row.MaxSequence, settled); err != nil {
				t.Fatal(err)
			}
			if keys, _, err := scan(r.tree, row.MaxSequence, true); err != nil || len(keys) != 20 {
				t.Errorf("%d rows, %v", len(keys), err)
			}
			if open := r.disk.OpenFiles(); len(open) > 4 { // the manifest, twice, its copy, and the table
				t.Errorf("open files: %v", open)
			}
		})
	}
}

func TestP09_AReadErrorIsNoEndAndNoAbsence(t *testing.T) {
	r := newRig(t)
	for i := range 200 {
		n := i * 37 % 200 // so that the files overlap
		r.put(key("a", n), "c", 1, fmt.Sprintf("%050d", n))
		if i%50 == 49 {
			r.flush()
		}
	}
	for nth := int64(1); nth < 40; nth++ {
		r.fault.Clear()
		r.env.Files = tablefiles.New(r.fault, testDir, tablefiles.Options{}, r)
		tree := NewTree(r.env, testTable, r.tree.Meta())
		r.fault.Add(vfs.Rule{Ops: vfs.OpReadAt | vfs.OpOpen | vfs.OpSize, Nth: nth, Action: vfs.FailWith(syscall.EIO)})
		keys, _, err := scan(tree, row.MaxSequence, nth%2 == 0)
		if (err == nil) != (len(keys) == 200) || err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatalf("call %d: %d rows, %v", nth, len(keys), err)
		}
		r.fault.Clear()
		r.fault.Add(vfs.Rule{Ops: vfs.OpReadAt | vfs.OpOpen | vfs.OpSize, Nth: nth%7 + 1, Action: vfs.FailWith(syscall.EIO)})
		for i := range 200 {
			if got, err := get(tree, key("a", i), row.MaxSequence); err == nil && got == "absent" {
				t.Fatalf("call %d: row %d passes for absent", nth, i)
			}
		}
		tree.Close()
	}
	// The same holds for compactions: they fail, and their inputs stay.
	r.fault.Clear()
	r.env.Files = tablefiles.New(r.fault, testDir, tablefiles.Options{}, r)
	tree := NewTree(r.env, testTable, r.tree.Meta())
	before := len(r.live())
	r.fault.Add(vfs.Rule{Ops: vfs.OpReadAt, Nth: 2, Times: vfs.Forever, Action: vfs.FailWith(syscall.EIO)})
	if did, _, err := tree.CompactRange(nil, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("a merge of files that cannot be read: %v, %v", did, err)
	}
	if n := len(r.live()); n != before {
		t.Errorf("%d files, before %d", n, before)
	}
	r.fault.Clear()
	if keys, _, err := scan(tree, row.MaxSequence, false); err != nil || len(keys) != 200 {
		t.Errorf("%d rows, %v", len(keys), err)
	}
	tree.Close()
	if len(r.obsolete.numbers) > 0 {
		t.Errorf("files %d were let go", r.obsolete.numbers)
	}
}

func TestObsoleteFilesAreHandedOverOnceWhenNobodyReadsThem(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		for n := range 20 {
			r.put(key("a", n), "c", int64(i), "v")
		}
		r.flush()
	}
	inputs := r.live()
	it := r.tree.NewIterator()
	if !it.First() {
		t.Fatal(it.Error())
	}
	pinned, release := r.tree.Pin()
	if len(pinned.Levels[0]) != 4 {
		t.Fatalf("%d files at level 0", len(pinned.Levels[0]))
	}
	did, _, err := r.tree.CompactRange(nil, nil)
	if !did || err != nil {
		t.Fatal(did, err)
	}
	handed := func() int {
		r.obsolete.Lock()
		defer r.obsolete.Unlock()
		return len(r.obsolete.numbers)
	}
	if n := handed(); n != 0 {
		t.Errorf("%d files were handed over under a reader", n)
	}
	n := 1
	for it.NextRow() {
		n++
	}
	if n != 20 || it.Error() != nil {
		t.Errorf("%d rows, %v", n, it.Error())
	}
	it.Close()
	it.Close()
	if n := handed(); n != 0 {
		t.Errorf("%d files were handed over while they were pinned", n)
	}
	release()
	if n := handed(); n != len(inputs) {
		t.Errorf("%d files were handed over, want %d", n, len(inputs))
	}
	for _, number := range r.obsolete.numbers {
		if !inputs[number] {
			t.Errorf("file %d was no input", number)
		}
	}
	if !slices.IsSorted(r.obsolete.numbers) { // or else a history could not be repeated
		t.Errorf("files %d were handed over, not in their order", r.obsolete.numbers)
	}
	r.tree.Close()
	if n := handed(); n != len(inputs) {
		t.Errorf("closing handed over %d files more", n-len(inputs))
	}
}

// TestAFileOfSeveralVersionsOutlivesAllOfThem: readers pin two versions that share files, and
// release the newer one first.
func TestAFileOfSeveralVersionsOutlivesAllOfThem(t *testing.T) {
	r := newRig(t)
	for n := range 20 {
		r.put(key("a", n), "c", 1, "v")
	}
	r.flush()
	older := r.tree.NewIterator()
	r.put(key("a", 10), "c", 1, "v")
	r.flush()
	newer := r.tree.NewIterator()
	did, _, err := r.tree.CompactRange(nil, nil)
	if !did || err != nil {
		t.Fatal(did, err)
	}
	newer.Close()
	if n := r.obsolete.numbers; len(n) != 1 || n[0] != 2 {
		t.Errorf("handed over: %v, want the second file", n)
	}
	n := 0
	for ok := older.First(); ok; ok = older.NextRow() {
		n++
	}
	if n != 20 || older.Error() != nil {
		t.Errorf("%d rows, %v", n, older.Error())
	}
	older.Close()
	if n := r.obsolete.numbers; len(n) != 2 || n[1] != 1 {
		t.Errorf("handed over: %v, want both files", n)
	}
}

func TestDropLetsGoOfFilesAndOfWhatWaits(t *testing.T) {
	r := newRig(t)
	r.put(key("a", 1), "c", 1, "v")
	r.flush()
	r.put(key("a", 2), "c", 1, "v")
	r.rotate(r.tree)
	refusal := errors.New("refused")
	if err := dropTree(r.tree, func() error { return refusal }); !errors.Is(err, refusal) {
		t.Fatal(err)
	}
	if keys, _, err := scan(r.tree, row.MaxSequence, false); err != nil || len(keys) != 2 {
		t.Fatalf("after a drop that was refused: %d rows, %v", len(keys), err)
	}
	must(t, dropTree(r.tree, func() error {
		_, err := r.log.Commit(&manifest.Edit{Dropped: []uint64{testTable}})
		return err
	}))
	if len(r.obsolete.numbers) != 1 {
		t.Errorf("files handed over: %v", r.obsolete.numbers)
	}
	if freed, err := r.tree.Flush(row.MaxSequence, settled); freed != 0 || err != nil {
		t.Errorf("a flush of nothing: %d, %v", freed, err)
	}
	due := func() (bool, error) { return r.tree.Compact(Idle, nil) }
	all := func() (bool, error) { did, _, err := r.tree.CompactRange(nil, nil); return did, err }
	for _, compact := range []func() (bool, error){due, all} {
		if did, err := compact(); did || err != nil {
			t.Errorf("a compaction of nothing: %v, %v", did, err)
		}
	}
	if mutable, waiting := r.tree.MemoryBytes(); mutable != 0 || waiting != 0 {
		t.Errorf("%d and %d bytes are left", mutable, waiting)
	}
}

// TestVersionsFollowEachOtherAsTheManifestDoes runs flushes, compactions and readers at the same
// time.
func TestVersionsFollowEachOtherAsTheManifestDoes(t *testing.T) {
	r := newRig(t)
	const rounds = 60
	var wg sync.WaitGroup
	over := make(chan struct{})
	busy := func(do func() error) {
		wg.Go(func() {
			for {
				if err := do(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	busy(func() error { _, err := r.tree.Flush(row.MaxSequence, settled); return err })
	busy(func() error { _, err := r.tree.Compact(Idle, nil); return err })
	busy(func() error { _, _, err := r.tree.CompactRange(nil, nil); return err })
	busy(func() error {
		keys, rows, err := scan(r.tree, row.MaxSequence, false)
		for _, k := range keys {
			if rows[k][:4] != "row " {
				t.Errorf("row %x is %s", k, rows[k])
			}
		}
		return err
	})
	busy(func() error { // a pin holds what its version names
		v, _ := r.tree.pinVersion()
		defer v.unref()
		for level, metas := range v.meta.Levels {
			for i, f := range v.open(level, metas) {
				if f == nil || f.Meta.Number != metas[i].Number {
					t.Error("a version does not hold the files that it names")
				}
			}
		}
		return nil
	})
	for i := range rounds {
		for n := range 20 {
			r.put(key("a", n), "c", 1, fmt.Sprint(i))
		}
		r.rotate(r.tree)
	}
	close(over)
	wg.Wait()
	r.flush()
	_, meta := r.log.State().Partition(r.tree.ID())
	if r.tree.Meta() != meta {
		t.Error("the tree's version is not the manifest's last")
	}
	_, rows, err := scan(r.tree, row.MaxSequence, false)
	must(t, err)
	for n := range 20 {
		if got, want := rows[string(key("a", n))], fmt.Sprint("row c@1=", rounds-1); got != want {
			t.Errorf("row %d is %q, want %q", n, got, want)
		}
	}
	// The manifest names every file on the disk, or the file was handed over.
	for _, n := range r.obsolete.numbers {
		r.disk.Remove(testDir + "/" + manifest.TableName(n))
	}
	for n := range r.live() {
		if r.log.State().File(n) == nil {
			t.Errorf("file %d is left over", n)
		}
	}
	inventory, err := manifest.TakeInventory(r.disk, testDir, r.log.State())
	if err != nil || len(inventory.Missing) > 0 {
		t.Errorf("the manifest names files that are missing: %v, %v", inventory.Missing, err)
	}
}
