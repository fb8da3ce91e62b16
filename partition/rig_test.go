package partition

// The rig of this package's tests: a tree over a simulated disk and a real manifest, owned by
// the test.

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

const (
	testDir   = "/store"
	testTable = 1
)

type rig struct {
	t     testing.TB
	disk  *vfs.Sim
	fault *vfs.Fault
	log   *manifest.Log
	env   *Env
	tree  *Tree // of the first partition

	seq      uint64 // the last one given out
	views    []mvcc.View
	commit   func(e *manifest.Edit) error // called before each commit
	yield    func()                       // called by merges
	noticed  int                          // calls of ReadsLose
	obsolete struct {
		sync.Mutex
		numbers []uint64 // of table files
		values  []string // names of value files
	}
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, disk: vfs.NewSim(vfs.SimOptions{})}
	r.fault = vfs.NewFault(r.disk, 1)
	must(t, manifest.Create(r.disk, testDir, manifest.NewState([16]byte{1})))
	var err error
	r.log, _, err = manifest.Open(r.disk, testDir, nil)
	must(t, err)
	r.env = &Env{
		Settings: Settings{
			MemtableSize: 1 << 20,
			Table:        sstable.WriterOptions{BlockSize: 256, FilterBitsPerKey: 10},
			Compaction:   compaction.Config{TableFileSize: 4 << 10},
		},
		FS: r.fault, Dir: testDir, Clock: clocktest.NewManual(1),
		Memory:   offheaptest.New(t),
		Random:   counter(),
		Manifest: r, Retention: r, Scheduler: r, Executor: executortest.NewManual(),
	}
	r.env.Files = tablefiles.New(r.fault, testDir, tablefiles.Options{Cache: sstable.NewBlockCache(cache.Options{Capacity: 64 << 10})}, r)
	var e manifest.Edit
	e.Created = []*manifest.Table{{
		ID: testTable, Name: "t",
		Key: []manifest.KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		Options: manifest.TableOptions{
			MaxVersions: 1, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 1,
		},
		Watermark: manifest.NoWatermark, Partitions: []*manifest.Partition{{ID: 1}},
	}}
	state, err := r.log.Commit(&e)
	must(t, err)
	r.tree = NewTree(r.env, testTable, state.Table(testTable).Partitions[0])
	return r
}

// counter makes identities that count upwards.
func counter() func() [16]byte {
	var n atomic.Uint64
	return func() (id [16]byte) {
		binary.BigEndian.PutUint64(id[:], n.Add(1))
		return id
	}
}

// The rig is what its trees ask, and the owner of their files.

func (r *rig) NextFile() uint64 { return r.log.NewFileNumber() }

func (r *rig) ValueFile(number uint64) (manifest.ValueUsage, bool) {
	return r.log.State().ValueFile(number)
}

func (r *rig) Commit(_ uint64, _ Kept, e *manifest.Edit) (*manifest.State, error) {
	if r.commit != nil {
		if err := r.commit(e); err != nil {
			return nil, err
		}
	}
	return r.log.Commit(e)
}

func (r *rig) Advance(uint64, int64) error { return nil }

func (r *rig) Policy(uint64) compaction.Policy {
	latest := mvcc.View{Seq: row.MaxSequence, Cutoff: mvcc.NoExpiry}
	return compaction.Policy{Views: append(append([]mvcc.View(nil), r.views...), latest), ExpiryCutoff: mvcc.NoExpiry}
}

func (r *rig) MaxVersions(_, _ uint64) int { return 0 }

func (r *rig) Cancelled() error { return nil }

func dropTree(t *Tree, commit func() error) error {
	_, err := t.Drop(commit)
	return err
}

func (r *rig) Yield() {
	if r.yield != nil {
		r.yield()
	}
}

func (r *rig) ReadsLose(*Tree) { r.noticed++ }

func (r *rig) Obsolete(name string) {
	r.obsolete.Lock()
	defer r.obsolete.Unlock()
	if number, ok := manifest.ParseTableName(name); ok {
		r.obsolete.numbers = append(r.obsolete.numbers, number)
	} else {
		r.obsolete.values = append(r.obsolete.values, name)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func key(pk string, n int) []byte {
	b, err := row.AppendKey(nil, 2, row.String(pk), row.Integer(int64(n)))
	if err != nil {
		panic(err)
	}
	return b
}

// apply writes a mutation at the next sequence number to a tree, with the log at that segment.
func (r *rig) apply(t *Tree, m *row.Mutation, segment uint64) {
	r.t.Helper()
	c := new(row.Change)
	must(r.t, c.Set(m))
	r.seq++
	slot := t.Reserve(memtable.EstimateSize(c), segment, segment)
	slot.Apply(r.seq, c)
	slot.Done()
}

// put writes one column of a row.
func (r *rig) put(k []byte, column string, version int64, value string) {
	r.t.Helper()
	r.apply(r.tree, &row.Mutation{Table: testTable, Key: k, Cells: []row.Cell{putCell(column, version, value)}}, 1)
}

// putRow replaces a row.
func (r *rig) putRow(k []byte, column string, version int64, value string) {
	r.t.Helper()
	r.apply(r.tree, &row.Mutation{
		Table: testTable, Key: k, DeleteRow: true, PutRow: true,
		Cells: []row.Cell{putCell(column, version, value)},
	}, 1)
}

func putCell(column string, version int64, value string) row.Cell {
	return row.Cell{
		Column: []byte(column), Version: version, Kind: row.KindPut,
		Type: row.TypeString, Value: row.String(value).AppendPayload(nil),
	}
}

// rotate rotates a tree's memtable out.
func (r *rig) rotate(t *Tree) int64 { return t.Rotate(r.seq + 1) }

// Flush is the package's Flush of one tree.
func (t *Tree) Flush(upTo uint64, settle func(endSeq uint64, flushed []*Tree) (durable func() error, err error)) (freed int64, err error) {
	freed, _, err = Flush(Group{[]*Tree{t}, upTo}, settle)
	return freed, err
}

func settled(uint64, []*Tree) (durable func() error, err error) {
	return func() error { return nil }, nil
}

// flush writes all memtables to table files.
func (r *rig) flush() {
	r.t.Helper()
	r.rotate(r.tree)
	_, err := r.tree.Flush(row.MaxSequence, settled)
	must(r.t, err)
}

// get reads a row as it was at a sequence number.
func get(t *Tree, k []byte, seq uint64) (text string, err error) {
	g := t.NewGetter()
	defer g.Close()
	reader, err := g.Seek(k, mvcc.View{Seq: seq, Cutoff: mvcc.NoExpiry}, mvcc.Selection{})
	if err != nil {
		return "", err
	}
	text = read(reader)
	return text, reader.Error()
}

// read prints the row that a reader stands on.
func read(r *mvcc.RowReader) string {
	if !r.Exists() {
		return "absent"
	}
	s := "row"
	for r.NextCell() {
		s += text(r.Cell())
	}
	return s
}

func text(c *row.Cell) string {
	v, err := row.PayloadValue(c.Type, c.Value)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(" %s@%d=%s", c.Column, c.Version, v.Text())
}

// scan reads all rows of a tree as they were at a sequence number; upwards it reads as many at
// once as possible.
func scan(t *Tree, seq uint64, backward bool) (keys []string, rows map[string]string, err error) {
	it := t.NewIterator()
	rows = map[string]string{}
	reader := mvcctest.NewReader(it, mvcc.View{Seq: seq, Cutoff: mvcc.NoExpiry}, mvcc.Selection{})
	move, ok := it.NextRow, false
	if backward {
		move = it.PrevRow
		ok = it.Last()
	} else {
		ok = it.First()
	}
	chunk := row.Chunk{Budget: 1000}
	for ; ok; ok = move() {
		if backward {
			reader.StartRow()
		} else if reader.NextRow(); reader.CollectRows(&chunk) > 0 {
			for i := range chunk.Len() {
				key, cells := chunk.Row(i)
				keys, rows[string(key)] = append(keys, string(key)), "row"
				for j := range cells {
					rows[string(key)] += text(&cells[j])
				}
			}
			chunk.Reset()
			continue
		}
		if text := read(reader); text != "absent" {
			keys = append(keys, string(it.RowKey()))
			rows[string(it.RowKey())] = text
		}
	}
	if err = it.Error(); err == nil {
		err = it.Close()
	} else {
		it.Close()
	}
	return keys, rows, err
}

// live returns the numbers of the table files on the disk.
func (r *rig) live() map[uint64]bool {
	numbers := map[uint64]bool{}
	for _, name := range r.disk.Files() {
		if n, ok := manifest.ParseTableName(name[len(testDir):]); ok {
			numbers[n] = true
		}
	}
	return numbers
}
