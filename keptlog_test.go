package flagstone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// keeper is a store that keeps its log, what was shipped of it, and a model of what it held at moments.
type keeper struct {
	*rig
	random  *rand.Rand
	records []keptRecord
	notes   map[uint64]LogNote
	shipped uint64 // segments below were
	micros  int64  // and all commits up to this time
	points  []string
	out     int

	model   map[string]*modelTable
	moments []keptMoment
	large   string
}

type keptRecord struct {
	segment, first, micros uint64
	batch                  []byte
}

// modelTable is what a table holds: its options, the newest version of rows, and how many records its stream has.
type modelTable struct {
	versions int64
	rows     map[int]string
	changes  int // -1: no stream
}

type keptMoment struct {
	micros int64
	tables string
}

func newKeeper(t *testing.T) *keeper {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	k := &keeper{
		rig: newRig(t, Options{WALSegmentSize: 16 << 10, MemtableSize: 32 << 10, Seams: Seams{ValueThreshold: 512}}), random: rand.New(rand.NewPCG(seed, 0)),
		notes: map[uint64]LogNote{}, model: map[string]*modelTable{}, large: strings.Repeat("large ", 150),
	}
	k.ok(k.store.KeepLog(ctx(), 1<<30))
	return k
}

// ship does what 'flagstone backup log' does.
func (k *keeper) ship() {
	k.t.Helper()
	kept, err := k.store.KeptLog(ctx())
	k.ok(err)
	if k.shipped != 0 && kept.From > k.shipped {
		k.t.Fatalf("segments %d to %d were given up", k.shipped, kept.From)
	}
	opts := wal.Options{FS: k.fs, Dir: filepath.Join("/store", kept.Dir), StoreID: kept.StoreID}
	for n := kept.From; n < kept.Until; n++ {
		k.ok(wal.Read(opts, n, func(r wal.Record) error {
			batch, err := row.NewBatchReader(r.Payload)
			if n >= k.shipped { // else a ship that was not acknowledged has it
				k.records = append(k.records, keptRecord{n, r.Position, uint64(batch.Time()), bytes.Clone(r.Payload)})
			}
			return err
		}))
	}
	for _, n := range kept.Notes {
		k.notes[n.Number] = n
	}
	k.shipped, k.micros = max(k.shipped, kept.Until), kept.Micros
	if k.random.IntN(4) > 0 {
		k.ok(k.store.LogShipped(ctx(), kept))
	}
}

// checkpoint makes what backups are made of.
func (k *keeper) checkpoint() {
	k.t.Helper()
	dir := fmt.Sprint("/checkpoint", len(k.points))
	k.ok(k.store.Checkpoint(ctx(), dir))
	k.points = append(k.points, dir)
}

// restore makes a store of the newest checkpoint before a moment, and of the log.
func (k *keeper) restore(micros int64) *Store {
	k.t.Helper()
	k.out++
	dir, from := fmt.Sprint("/restored", k.out), k.before(micros)
	linkTree(k.t, k.fs, from, dir)
	state, _, err := manifest.Load(k.fs, dir)
	k.ok(err)
	var changes [][]byte
	for n := state.Origin.Changes + 1; k.notes[n].Number == n && k.notes[n].Micros <= micros; n++ {
		changes = append(changes, k.notes[n].Edit)
	}
	opts := Options{MemtableSize: 32 << 10, Seams: Seams{FS: k.fs, Clock: k.clock}}
	k.ok(ReplayLog(ctx(), dir, changes, func(apply func(uint64, []byte) error) error {
		for _, r := range k.records {
			if r.segment < state.Origin.Segment || r.micros > uint64(micros) {
				continue
			}
			if err := apply(r.first, r.batch); err != nil {
				return err
			}
		}
		return nil
	}, opts))
	opts.ReadOnly = true
	s, err := Open(dir, opts)
	k.ok(err)
	return s
}

// before returns the newest checkpoint that has nothing behind a moment, "" if there is none.
func (k *keeper) before(micros int64) string {
	for _, dir := range slices.Backward(k.points) {
		state, _, err := manifest.Load(k.fs, dir)
		k.ok(err)
		if state.IssuedMillis*1000 <= micros {
			return dir
		}
	}
	return ""
}

// linkTree copies a directory by links.
func linkTree(t *testing.T, fsys vfs.FS, from, to string) {
	t.Helper()
	names, err := fsys.List(from)
	if err = errors.Join(err, fsys.MkdirAll(to)); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := fsys.Stat(filepath.Join(from, name))
		if err == nil && info.Dir {
			linkTree(t, fsys, filepath.Join(from, name), filepath.Join(to, name))
		} else if err == nil {
			err = fsys.Link(filepath.Join(from, name), filepath.Join(to, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contentOf shows all tables of a store as showModel does.
func contentOf(t *testing.T, s *Store) string {
	t.Helper()
	model := map[string]*modelTable{}
	for _, table := range s.Tables() {
		m := &modelTable{versions: table.Info().Options.MaxVersions, rows: map[int]string{}, changes: -1}
		for r, err := range table.Scan(context.Background(), nil, nil, ScanOptions{ReadOptions: ReadOptions{MaxVersions: 1}}).All() {
			if err != nil {
				t.Fatal(err)
			}
			m.rows[int(r.Key()[1].Int64())] = cells(r)
		}
		if st := table.Stream(); st != nil {
			m.changes = 0
			for _, shard := range st.Shards() {
				pos, err := st.Oldest(ctx(), shard.ID)
				if err != nil {
					t.Fatal(err)
				}
				records, _ := readStream(t, st, pos, StreamLimits{Records: 1000, Bytes: 1 << 20})
				m.changes += len(records)
			}
		}
		model[table.Name()] = m
	}
	return showModel(model)
}

func showModel(model map[string]*modelTable) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(model)) {
		m := model[name]
		fmt.Fprintf(&b, "table %s, %d versions, %d changes\n", name, m.versions, m.changes)
		for _, n := range slices.Sorted(maps.Keys(m.rows)) {
			fmt.Fprintf(&b, "  %d: %s\n", n, m.rows[n])
		}
	}
	return b.String()
}

// step does one thing at random, and notes the moment.
func (k *keeper) step() {
	k.t.Helper()
	k.clock.Advance(time.Duration(1+k.random.IntN(3)) * time.Millisecond)
	names := slices.Sorted(maps.Keys(k.model))
	name := names[k.random.IntN(len(names))]
	table, err := k.store.Table(name)
	k.ok(err)
	m := k.model[name]
	switch k.random.IntN(60) {
	case 0:
		k.create(fmt.Sprint("t", k.clock.NowMillis()), k.random.IntN(2) == 0)
	case 1:
		if len(names) > 2 {
			k.ok(k.store.DropTable(ctx(), name))
			delete(k.model, name)
		}
	case 2, 3:
		m.versions = 1 + int64(k.random.IntN(3))
		k.ok(table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: m.versions}}))
	case 4:
		k.ok(table.Split(ctx(), row.String(fmt.Sprint("p", k.random.IntN(8)))))
	case 5:
		k.ok(k.store.Flush(ctx()))
	case 6:
		k.ok(k.store.Compact(ctx()))
	case 7:
		k.reopen()
	case 8:
		k.crash(vfs.CrashLoseAll, k.random.Uint64())
	case 9, 10:
		k.checkpoint()
	case 11, 12, 13, 14:
		k.ship()
	default:
		for range 1 + k.random.IntN(8) {
			k.write(table, m)
		}
	}
	k.exec.RunAll()
	k.moments = append(k.moments, keptMoment{k.clock.NowMicros(), showModel(k.model)})
}

func (k *keeper) create(name string, stream bool) {
	k.t.Helper()
	spec := TableSpec{Name: name, Options: TableOptions{MaxVersions: 2}, Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}}
	k.model[name] = &modelTable{versions: 2, rows: map[int]string{}, changes: -1}
	if stream {
		spec.Stream = &StreamSpec{RetentionSeconds: 3600}
		k.model[name].changes = 0
	}
	_, err := k.store.CreateTable(ctx(), spec)
	k.ok(err)
}

// write puts or deletes a row.
func (k *keeper) write(table *Table, m *modelTable) {
	k.t.Helper()
	n := k.random.IntN(60)
	key := Key(fmt.Sprint("p", n%8), n)
	if k.random.IntN(4) == 0 {
		k.ok(table.Delete(ctx(), key))
		delete(m.rows, n)
	} else {
		value, version := fmt.Sprint(k.random.Uint32()), k.store.NowMillis()
		if k.random.IntN(8) == 0 {
			value += k.large
		}
		k.ok(table.Put(ctx(), key, "c", version, row.String(value)))
		m.rows[n] = fmt.Sprintf("c@%d=%s ", version, value)
	}
	if m.changes >= 0 {
		m.changes++
	}
}

// TestAKeptLogRestoresAnyMoment restores random moments of a random history with crashes, splits, and tables that are
// made, altered and dropped, and compares them with a model.
func TestAKeptLogRestoresAnyMoment(t *testing.T) {
	k := newKeeper(t)
	k.create("plain", false)
	k.create("streamed", true)
	k.checkpoint()
	for range 600 {
		k.step()
	}
	k.clock.Advance(time.Second)
	k.ship()
	restored := 0
	for range 100 {
		m := k.moments[k.random.IntN(len(k.moments))]
		if m.micros > k.micros || k.before(m.micros) == "" {
			continue
		}
		s := k.restore(m.micros)
		if got := contentOf(t, s); got != m.tables {
			t.Fatalf("at %d, from %s:\n%s", m.micros, k.before(m.micros), firstDifference(got, m.tables))
		}
		k.ok(s.Close())
		restored++
	}
	if restored < 95 {
		t.Errorf("only %d moments were restored", restored)
	}
	t.Logf("%d checkpoints, %d records, %d changes of tables", len(k.points), len(k.records), len(k.notes))
}

// TestKeptLogIsCompleteAmongWriters: no commit up to the time that KeptLog returns lies in a later segment.
func TestKeptLogIsCompleteAmongWriters(t *testing.T) {
	k := newKeeper(t)
	table := k.table("t", TableOptions{MaxVersions: 1})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := range 150 {
				put(t, table, fmt.Sprint("p", w), n, "c", Now, "value")
				k.clock.Advance(time.Microsecond)
			}
		})
	}
	var parts []KeptLog
	for range 30 {
		part, err := k.store.KeptLog(ctx())
		k.ok(err)
		parts = append(parts, part)
	}
	writers.Wait()
	last, err := k.store.KeptLog(ctx())
	k.ok(err)
	total := 0
	for n := last.From; n < last.Until; n++ {
		k.ok(wal.Read(wal.Options{FS: k.fs, Dir: "/store/wal", StoreID: last.StoreID}, n, func(r wal.Record) error {
			batch, err := row.NewBatchReader(r.Payload)
			total++
			for _, p := range append(parts, last) {
				if n >= p.Until && batch.Time() <= p.Micros {
					t.Errorf("a commit at %d lies in segment %d, but the log below %d was complete up to %d", batch.Time(), n, p.Until, p.Micros)
				}
			}
			return err
		}))
	}
	if total != 600 {
		t.Errorf("%d records were kept, want 600", total)
	}
}

func TestAKeptLogStaysWithinItsLimit(t *testing.T) {
	k := newKeeper(t)
	k.ok(k.store.KeepLog(ctx(), 64<<10))
	fill := func() KeptLog {
		table := k.table("t", TableOptions{MaxVersions: 1})
		for n := range 400 {
			put(t, table, "p", n, "c", Now, strings.Repeat("x", 300))
			if n%50 == 0 {
				k.ok(k.store.Flush(ctx()))
			}
		}
		k.exec.RunAll()
		k.ok(k.store.Flush(ctx()))
		kept, err := k.store.KeptLog(ctx())
		k.ok(err)
		return kept
	}
	first := k.store.state().Kept.From
	kept := fill()
	if n := kept.Until - kept.From; kept.From == 1 || n < 4 || n > 6 {
		t.Errorf("segments %d to %d are kept, of 16 KiB each", kept.From, kept.Until)
	}
	if m := k.store.Metrics(); m.KeptLogBytes != int64(kept.Until-kept.From)*16<<10 || m.KeptLogLimit != 64<<10 || m.LogShippedMicros != 0 {
		t.Errorf("segments %d to %d are kept; the metrics say %d bytes of %d, shipped up to %d", kept.From, kept.Until, m.KeptLogBytes, m.KeptLogLimit, m.LogShippedMicros)
	}
	if lost := k.store.Metrics().KeptLogLostBytes; lost != int64(kept.From-first)*16<<10 {
		t.Errorf("segments %d to %d were given up; the metrics say %d bytes", first, kept.From, lost)
	}
	k.reopen()
	if again, err := k.store.KeptLog(ctx()); err != nil || again.From != kept.From {
		t.Errorf("after a restart segments from %d on are kept, %v; want %d", again.From, err, kept.From)
	}
	if err := k.store.LogShipped(ctx(), KeptLog{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("the log of another store: %v", err)
	}
	last, err := k.store.KeptLog(ctx())
	k.ok(err)
	k.ok(k.store.LogShipped(ctx(), KeptLog{StoreID: last.StoreID, From: last.From, Until: last.Until - 1}))
	if m := k.store.Metrics(); m.KeptLogBytes != 16<<10 || m.LogShippedMicros != 0 {
		t.Errorf("a part but the last one was shipped: %d bytes, up to %d", m.KeptLogBytes, m.LogShippedMicros)
	}
	for range 2 { // the second time for an idle store
		k.ok(k.store.LogShipped(ctx(), last))
		if m := k.store.Metrics(); m.KeptLogBytes != 0 || m.LogShippedMicros != last.Micros {
			t.Errorf("all was shipped: %d bytes, up to %d, want %d", m.KeptLogBytes, m.LogShippedMicros, last.Micros)
		}
		k.clock.Advance(time.Second)
		late := last
		last, err = k.store.KeptLog(ctx())
		k.ok(err)
		k.ok(k.store.LogShipped(ctx(), last))
		late.Micros = 0 // a part but the last one, of another that ships
		k.ok(k.store.LogShipped(ctx(), late))
		if m := k.store.Metrics(); m.LogShippedMicros != last.Micros {
			t.Errorf("another ships late, and the log is shipped up to %d, want %d", m.LogShippedMicros, last.Micros)
		}
	}
	k.ok(k.store.KeepLog(ctx(), 0))
	if m := k.store.Metrics(); m.KeptLogBytes != 0 || m.KeptLogLimit != 0 || m.LogShippedMicros != 0 {
		t.Errorf("the log is not kept, and the metrics say %+v", m)
	}
	if _, err := k.store.KeptLog(ctx()); !errors.Is(err, ErrInvalid) {
		t.Errorf("the log of a store that does not keep it: %v", err)
	}
	k.ok(k.store.KeepLog(ctx(), 1<<30))
	if again := fill(); again.From < kept.Until || again.Changes != kept.Changes+1 {
		t.Errorf("kept anew: %d from segment %d on, after %d up to %d", again.Changes, again.From, kept.Changes, kept.Until)
	}
}

// TestTheEndOfKeepingMeetsTheLimit: the log is not kept any more if the keeping is ended while segments are given up.
func TestTheEndOfKeepingMeetsTheLimit(t *testing.T) {
	k := newKeeper(t)
	k.ok(k.store.Close())
	ending := &keepingEnds{k: k, done: make(chan error, 1)}
	k.opts.Logger = slog.New(ending)
	k.open()
	k.ok(k.store.KeepLog(ctx(), 64<<10))
	table := k.table("t", TableOptions{MaxVersions: 1})
	fill := func() {
		for n := range 400 {
			put(t, table, "p", n, "c", Now, strings.Repeat("x", 300))
		}
		k.ok(k.store.Flush(ctx()))
		k.exec.RunAll()
	}
	fill()
	k.ok(<-ending.done)
	fill()
	if oldest, newest := k.store.log.Oldest(), k.store.log.NewestOnDisk(); newest-oldest > 1 {
		t.Errorf("segments %d to %d are there though the log is not kept", oldest, newest)
	}
}

// keepingEnds is a log handler that ends the keeping when segments are given up. It lets the call run on as far as that
// gets, to its end unless a lock prevents that.
type keepingEnds struct {
	k    *keeper
	once sync.Once
	done chan error
}

func (h *keepingEnds) Enabled(context.Context, slog.Level) bool { return true }
func (h *keepingEnds) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *keepingEnds) WithGroup(string) slog.Handler            { return h }
func (h *keepingEnds) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "are given up") {
		h.once.Do(func() {
			go func() { h.done <- h.k.store.KeepLog(ctx(), 0) }()
			for range 10_000 {
				if len(h.done) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	return nil
}

// TestABulkLoadIsNoted: nothing but its files can repeat it.
func TestABulkLoadIsNoted(t *testing.T) {
	k := newKeeper(t)
	table := k.table("t", TableOptions{MaxVersions: 1})
	w, err := table.BulkLoad(ctx(), BulkOptions{})
	k.ok(err)
	k.ok(w.Put(Key("p", 1), BulkCell{Column: "c", Version: startMillis, Value: row.Integer(1)}))
	k.ok(w.Commit(ctx()))
	kept, err := k.store.KeptLog(ctx())
	k.ok(err)
	if n := kept.Notes[len(kept.Notes)-1]; n.What != "a bulk load into table t" || n.Edit != nil {
		t.Errorf("the note is %+v", n)
	}
}

// TestWhatHadExpiredStaysAway at a moment behind the change of a table's Time To Live.
func TestWhatHadExpiredStaysAway(t *testing.T) {
	k := newKeeper(t)
	table, err := k.store.CreateTable(ctx(), TableSpec{
		Name: "t", Options: TableOptions{TTLSeconds: 10},
		Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
	})
	k.ok(err)
	put(t, table, "p", 1, "c", k.store.NowMillis(), "expires")
	k.checkpoint()
	k.clock.Advance(2 * storeclock.Probation)
	k.exec.RunAll()
	put(t, table, "p", 2, "c", k.store.NowMillis(), "stays")
	k.ok(k.store.Flush(ctx()))
	k.ok(table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: NeverExpires}}))
	want := contentOf(t, k.store)
	if strings.Contains(want, "expires") || !strings.Contains(want, "stays") {
		t.Fatalf("the store has %s", want)
	}
	k.clock.Advance(time.Second)
	k.ship()
	s := k.restore(k.micros)
	defer s.Close()
	if got := contentOf(t, s); got != want {
		t.Error(firstDifference(got, want))
	}
}
