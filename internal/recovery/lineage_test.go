package recovery_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// history is what was done to the table streamed: the records of the log, and which shard took each
// mutation.
type history struct {
	*rapid.T
	state   *manifest.State
	seq     uint64
	records []wal.Record
	taken   []taken
}

// taken is a mutation of row n; carried says that what the column held before is in the log behind it.
type taken struct {
	record     int
	n          int
	seq, shard uint64
	carried    bool
}

// newHistory makes the tables; the change log holds the mutations above after.
func newHistory(t *rapid.T, after uint64) *history {
	h := &history{T: t, state: manifest.NewState([16]byte{1}), seq: after}
	table := func(id, partition uint64, name string) *manifest.Table {
		return &manifest.Table{
			ID: id, Name: name, Key: []manifest.KeyColumn{{Name: "k", Type: row.TypeInteger}},
			Options: manifest.TableOptions{MaxVersions: 1, TTLSeconds: 60}, Partitions: []*manifest.Partition{{ID: partition}},
		}
	}
	log := table(changes, 30, "log")
	log.Log = &manifest.ChangeLog{Of: streamed, After: after}
	h.commit(&manifest.Edit{Created: []*manifest.Table{table(streamed, shard, "t"), log}})
	return h
}

func (h *history) commit(e *manifest.Edit) {
	next, err := h.state.Apply(e)
	if err != nil {
		h.Fatal(err)
	}
	h.state = next
}

func (h *history) partitions() []*manifest.Partition { return h.state.Table(streamed).Partitions }

// write makes a batch of at most so many mutations, carriers included; they go to these partitions.
func (h *history) write(partitions []*manifest.Partition, atMost int) {
	var list []*row.Change
	first := h.seq + 1
	for range min(rapid.IntRange(1, 3).Draw(h.T, "mutations"), atMost) {
		n := rapid.IntRange(1, 9).Draw(h.T, "row")
		p := partitions[slices.IndexFunc(partitions, func(p *manifest.Partition) bool { return p.Overlaps(key(n), key(n)) })]
		h.seq++
		made := taken{len(h.records), n, h.seq, p.ID, len(list)+2 <= atMost && rapid.Bool().Draw(h.T, "carried")}
		list = append(list, put(streamed, n, fmt.Sprint(h.seq)))
		if made.carried {
			h.seq++
			list = append(list, carried("old"))
		}
		if h.taken = append(h.taken, made); len(list) >= atMost {
			break
		}
	}
	if len(list) > 0 {
		h.records = append(h.records, record(first, list...))
	}
}

// replace splits or merges partitions. Mutations with reserved sequence numbers still go to the old
// ones.
func (h *history) replace() {
	old := h.partitions()
	at := rapid.IntRange(0, len(old)-1).Draw(h.T, "partition")
	p, next := old[at], h.state.NextPartition
	reserved := rapid.IntRange(0, 4).Draw(h.T, "reserved")
	r := &manifest.Replacement{Table: streamed, Old: []uint64{p.ID}, After: h.seq + uint64(reserved)}
	if at+1 < len(old) && rapid.Bool().Draw(h.T, "merge") {
		right := old[at+1]
		r.Old = append(r.Old, right.ID)
		r.New = []*manifest.Partition{{ID: next, Start: p.Start, End: right.End, Epoch: max(p.Epoch, right.Epoch) + 1}}
	} else {
		cut := key(rapid.IntRange(1, 9).Draw(h.T, "cut"))
		if !p.Overlaps(cut, cut) || string(cut) == string(p.Start) {
			return
		}
		r.New = []*manifest.Partition{{ID: next, Start: p.Start, End: cut, Epoch: p.Epoch + 1}, {ID: next + 1, Start: cut, End: p.End, Epoch: p.Epoch + 1}}
	}
	h.commit(&manifest.Edit{Replaced: []*manifest.Replacement{r}})
	if reserved > 0 {
		h.write(old, reserved)
	}
	h.seq = r.After
}

// rig is a replay onto the present partitions; the files of the log hold everything up to flushed.
func (h *history) rig(t *testing.T, flushed uint64) *rig {
	log := h.state.Table(changes).Log
	r := newRig(t, [3]uint64{0, 0, flushed}, log.After)
	r.Trees = []*partition.Tree{r.changes}
	var trees []*partition.Tree
	for _, p := range h.partitions() {
		trees = append(trees, partition.NewTree(r.env, streamed, p))
	}
	of := r.Tables[streamed].Log
	of.Shards = log.Shards
	r.Trees = append(r.Trees, trees...)
	r.Tables[streamed] = recovery.Table{Trees: partition.NewMap(trees), Log: of}
	return r
}

// TestARecordIsDerivedForTheShardThatTookItsMutation replays a table that was split and merged at
// random, from any record on, onto a log whose files hold anything.
func TestARecordIsDerivedForTheShardThatTookItsMutation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(rt, rapid.Uint64Range(0, 3).Draw(rt, "after"))
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if rapid.IntRange(0, 2).Draw(rt, "step") == 0 {
				h.replace()
			} else {
				h.write(h.partitions(), 6)
			}
		}
		flushed := rapid.Uint64Range(0, h.seq).Draw(rt, "flushed")
		start := rapid.IntRange(0, len(h.records)).Draw(rt, "start")
		r := h.rig(t, flushed)
		r.replay(h.records[start:]...)
		applied := 0
		for _, m := range h.taken {
			if m.record < start {
				continue
			}
			want := ""
			if applied++; m.seq > flushed {
				want += "r"
				applied++
			}
			if m.carried && m.seq+1 > flushed {
				want += "b"
				applied++
			}
			k, err := row.AppendKey(nil, 2, cdc.Key(m.shard, m.seq)...)
			if err != nil {
				rt.Fatal(err)
			}
			got := ""
			for _, c := range r.cells(r.changes, k) {
				got = string(c.Column[:1]) + got
			}
			if got != want {
				rt.Errorf("mutation %d of row %d, shard %d: the log has %q, want %q", m.seq, m.n, m.shard, got, want)
			}
		}
		if r.Applied != applied {
			rt.Errorf("%d mutations were applied, want %d", r.Applied, applied)
		}
	})
}

// TestARecordWithoutAShardIsDamage: no manifest forgets a shard whose records are not in files.
func TestARecordWithoutAShardIsDamage(t *testing.T) {
	shards := manifest.Lineage{{ID: 20, After: 5}}
	for seq, fails := range map[uint64]bool{1: true, 5: true, 6: false} {
		for _, flushed := range []uint64{0, 5} {
			r := newRig(t, [3]uint64{0, 0, flushed}, 0)
			r.Tables[streamed].Log.Shards = shards
			err := r.Record(record(seq, put(streamed, 1, "a"), carried("old")))
			if want := fails && (flushed == 0 || seq == 5); errors.Is(err, errCorrupt) != want || err != nil != want {
				t.Errorf("mutation %d, the log's files hold %d: %v", seq, flushed, err)
			}
		}
	}
}
