package recovery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

const (
	plain, streamed, changes = 1, 2, 3 // ids of tables; changes is the log of streamed
	shard                    = 20      // the partition of streamed
	micros                   = 5_000_000
)

var errCorrupt = errors.New("corrupt")

// budget counts memory and is never crowded.
type budget struct{ bytes int64 }

func (b *budget) Add(n int64)     { b.bytes += n }
func (b *budget) Crowded() bool   { return false }
func (b *budget) Rotated(int64)   {}
func (b *budget) Free(_, _ int64) {}

// rig is a replay onto three trees.
type rig struct {
	recovery.Replay
	t                        *testing.T
	env                      *partition.Env
	budget                   budget
	plain, streamed, changes *partition.Tree
}

// flushed are the sequence numbers up to which the files of the trees are complete.
func newRig(t *testing.T, flushed [3]uint64, after uint64) *rig {
	env := &partition.Env{
		Settings: partition.Settings{MemtableSize: 1 << 30}, Random: func() [16]byte { return [16]byte{1} },
	}
	r := &rig{
		t: t, env: env,
		plain:    partition.NewTree(env, plain, &manifest.Partition{ID: 10, FlushedSeq: flushed[0]}),
		streamed: partition.NewTree(env, streamed, &manifest.Partition{ID: shard, FlushedSeq: flushed[1]}),
		changes:  partition.NewTree(env, changes, &manifest.Partition{ID: 30, FlushedSeq: flushed[2]}),
	}
	log := &recovery.Log{ID: changes, After: after, Tree: r.changes}
	r.Replay = recovery.Replay{
		Tables: map[uint64]recovery.Table{
			plain:    {Trees: partition.NewMap([]*partition.Tree{r.plain})},
			streamed: {Trees: partition.NewMap([]*partition.Tree{r.streamed}), Log: log},
			changes:  {Log: log},
		},
		Trees:  []*partition.Tree{r.plain, r.streamed, r.changes},
		Memory: &r.budget, Issued: storeclock.NewIssued(clocktest.NewManual(1)), Corrupt: errCorrupt,
	}
	return r
}

func key(n int) []byte {
	b, err := row.AppendKey(nil, 1, row.Integer(int64(n)))
	if err != nil {
		panic(err)
	}
	return b
}

// put is the change of a row.
func put(table uint64, n int, value string) *row.Change {
	c := &row.Change{Table: table, Key: key(n)}
	if err := errors.Join(c.Put("c", 1000, row.String(value)), c.Normalize()); err != nil {
		panic(err)
	}
	return c
}

// carried carries what the column held before the preceding change.
func carried(value string) *row.Change {
	v := row.String(value)
	b, err := cdc.AppendBefore(nil, []row.Cell{{Column: []byte("c"), Version: 1, Kind: row.KindPut, Type: v.Type(), Value: v.AppendPayload(nil)}})
	if err != nil {
		panic(err)
	}
	c, err := cdc.Carry(changes, b)
	if err != nil {
		panic(err)
	}
	return c
}

// record makes the record of a batch.
func record(first uint64, list ...*row.Change) wal.Record {
	var b row.Batch
	for _, c := range list {
		if err := b.Add(c); err != nil {
			panic(err)
		}
	}
	b.SetTime(micros)
	rec := wal.Record{Position: first, Segment: 4, Offset: 8192}
	for _, piece := range b.Pieces() {
		rec.Payload = append(rec.Payload, piece...)
	}
	return rec
}

func (r *rig) replay(records ...wal.Record) {
	r.t.Helper()
	for _, rec := range records {
		if err := r.Record(rec); err != nil {
			r.t.Fatal(err)
		}
	}
}

// cells reads a row.
func (r *rig) cells(tree *partition.Tree, key []byte) []row.Cell {
	r.t.Helper()
	g := tree.NewGetter()
	defer g.Close()
	var found row.Collector
	view := mvcc.View{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}
	if _, err := g.Get(key, view, &mvcc.Selection{}, &found, 0); err != nil {
		r.t.Fatal(err)
	}
	return found.Cells
}

// holds says what the rows 1 to 4 of a tree hold.
func (r *rig) holds(tree *partition.Tree) (text string) {
	r.t.Helper()
	for n := 1; n <= 4; n++ {
		for _, c := range r.cells(tree, key(n)) {
			v, _ := row.PayloadValue(c.Type, c.Value)
			text += fmt.Sprintf("%d=%s ", n, v.Text())
		}
	}
	return text
}

// records says what the change log holds of the sequence numbers 1 to 9.
func (r *rig) records() (text string) {
	r.t.Helper()
	for seq := uint64(1); seq <= 9; seq++ {
		k, err := row.AppendKey(nil, 2, cdc.Key(shard, seq)...)
		if err != nil {
			r.t.Fatal(err)
		}
		cells := r.cells(r.changes, k)
		if len(cells) == 0 {
			continue
		}
		got, err := cdc.ReadRow(cdc.Key(shard, seq), cells, 1)
		if err != nil {
			text += fmt.Sprintf("%d:%c ", seq, cells[0].Column[0])
			continue
		}
		if got.Micros != micros {
			r.t.Errorf("the record of %d is of %d us", seq, got.Micros)
		}
		text += fmt.Sprintf("%d:%d", seq, got.Key[0].Int64())
		for _, c := range got.Before {
			v, _ := row.PayloadValue(c.Type, c.Value)
			text += "<" + v.Text()
		}
		text += " "
	}
	return text
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != want {
		t.Errorf("%s: %q, want %q", what, strings.TrimSpace(got), want)
	}
}

// batches are nine mutations: 3 is of a dropped table, and 6 carries what 5 replaced.
func batches() []wal.Record {
	return []wal.Record{
		record(1, put(plain, 1, "a"), put(streamed, 1, "a")), record(3, put(77, 1, "x")),
		record(4, put(plain, 1, "b"), put(streamed, 2, "b"), carried("old")),
		record(7, put(streamed, 1, "c"), put(plain, 2, "c"), put(streamed, 3, "d")),
	}
}

func TestEveryMutationIsAppliedWithItsRecord(t *testing.T) {
	r := newRig(t, [3]uint64{}, 0)
	r.replay(batches()...)
	want(t, "the plain table", r.holds(r.plain), "1=b 2=c")
	want(t, "the table with a stream", r.holds(r.streamed), "1=c 2=b 3=d")
	want(t, "its log", r.records(), "2:1 5:2<old 7:1 9:3")
	if r.LastSeq != 9 || r.LastMicros != micros || r.Issued.Last() != micros/1000 || r.Applied != 12 {
		t.Errorf("last %d at %d us, issued %d, applied %d", r.LastSeq, r.LastMicros, r.Issued.Last(), r.Applied)
	}
	var inTrees int64
	for _, tree := range r.Trees {
		mutable, waiting := tree.MemoryBytes()
		inTrees += mutable + waiting
	}
	if r.budget.bytes != inTrees {
		t.Errorf("%d bytes are charged, %d are in memtables", r.budget.bytes, inTrees)
	}
	if tree := r.plain; tree.OldestSegment() != 4 {
		t.Errorf("the oldest segment that a memtable needs is %d", tree.OldestSegment())
	}
}

func TestWhatTheFilesHoldIsSkipped(t *testing.T) {
	r := newRig(t, [3]uint64{4, 7, 2}, 0)
	r.replay(batches()...)
	want(t, "the plain table", r.holds(r.plain), "2=c")
	want(t, "the table with a stream", r.holds(r.streamed), "3=d")
	want(t, "its log", r.records(), "5:2<old 7:1 9:3")
	// What a column held before has the next sequence number: the log's files may end between.
	r = newRig(t, [3]uint64{9, 9, 5}, 0)
	r.replay(batches()...)
	want(t, "the log whose files end within a record", r.records(), "5:b 7:1 9:3")
	if r.plain.Written()+r.streamed.Written() != 0 {
		t.Error("a tree whose files hold everything was written to")
	}
}

func TestALogBeginsAndEnds(t *testing.T) {
	r := newRig(t, [3]uint64{}, 6)
	r.replay(batches()...)
	want(t, "a log that began after 6", r.records(), "7:1 9:3")
	r = newRig(t, [3]uint64{}, 0)
	delete(r.Tables, changes)
	r.Tables[streamed] = recovery.Table{Trees: r.Tables[streamed].Trees}
	r.replay(batches()...)
	want(t, "a log that has ended", r.records(), "")
	want(t, "its table", r.holds(r.streamed), "1=c 2=b 3=d")
}

func TestARecordThatNoWriterWroteIsCorrupt(t *testing.T) {
	good := record(1, put(plain, 1, "a"))
	other, short := good, good
	other.Stream = 5
	short.Payload = short.Payload[:len(short.Payload)-1]
	for what, rec := range map[string]wal.Record{"an unknown stream": other, "a batch cut short": short, "no batch": {Segment: 4, Offset: 8192}} {
		r := newRig(t, [3]uint64{}, 0)
		if err := r.Record(rec); !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), "log segment 4, offset 8192") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
