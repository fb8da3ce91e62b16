package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// logged is a rig whose store keeps its log, by the clock of the rig, with what it held at moments.
type logged struct {
	*rig
	moments []loggedMoment
	until   int64 // the log was shipped up to here
}

type loggedMoment struct {
	micros int64
	model  content
}

func newLogged(t *testing.T, seed uint64, sealer *testCipher) *logged {
	t.Helper()
	r := &logged{rig: newRig(t, seed, sealer)}
	r.clock.SetWall(time.Now().Add(time.Hour).UnixMilli()) // the store was opened by another clock, and does not go back
	r.reopen()
	r.ok(r.store.KeepLog(r.ctx, 1<<30))
	return r
}

func (r *logged) reopen() {
	r.t.Helper()
	r.ok(r.store.Close())
	opts := flagstone.Options{MemtableSize: 64 << 10, WALSegmentSize: 64 << 10}
	opts.Seams.FS, opts.Seams.Clock = r.fs, r.clock
	var err error
	r.store, err = flagstone.Open("/store", opts)
	r.ok(err)
	r.table, err = r.store.Table("t")
	r.ok(err)
}

// written writes at a time of its own.
func (r *logged) written(n int) {
	r.clock.Advance(2 * time.Millisecond)
	r.write(n)
	r.moments = append(r.moments, loggedMoment{r.clock.NowMicros(), r.model.clone()})
	r.clock.Advance(2 * time.Millisecond)
}

// ship does what 'flagstone backup log' does.
func (r *logged) ship(repo Repository) error {
	r.t.Helper()
	kept, err := r.store.KeptLog(r.ctx)
	r.ok(err)
	opts := r.options()
	_, err = Ship(r.ctx, repo, r.fs, "/store", kept, opts, func(part flagstone.KeptLog) error {
		if r.until = max(r.until, part.Micros); r.rand.IntN(8) == 0 {
			return errKilled
		}
		return r.store.LogShipped(r.ctx, part)
	})
	return err
}

// shipAll ships until it is not killed.
func (r *logged) shipAll() {
	r.t.Helper()
	for {
		if err := r.ship(r.repo()); !errors.Is(err, errKilled) {
			r.ok(err)
			return
		}
	}
}

// restoreAt restores a moment and returns what the store held.
func (r *logged) restoreAt(micros int64) (content, error) {
	r.t.Helper()
	return r.restoreFrom("", micros)
}

// restoreFrom is restoreAt of a named backup.
func (r *logged) restoreFrom(backup string, micros int64) (content, error) {
	r.t.Helper()
	r.made++
	dir := fmt.Sprintf("/moment%d", r.made)
	progress := func(p Progress) {
		if p.Bytes > p.AllBytes || p.Files > p.AllFiles {
			r.t.Errorf("progress %+v", p)
		}
	}
	if _, _, err := r.archive().RestoreAt(r.ctx, backup, micros, r.fs, dir, progress); err != nil {
		if _, there := r.fs.Stat(dir); there == nil {
			r.t.Errorf("%s is there after an error", dir)
		}
		return nil, err
	}
	store := r.open(dir, true)
	defer func() { r.ok(store.Close()) }()
	return r.rows(store), nil
}

// dying is a repository whose process dies in the middle of a Put.
type dying struct {
	Repository
	left *int
}

var errDied = errors.New("died")

func (d dying) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return d.Repository.Put(ctx, name, func(w io.Writer) error {
		if *d.left--; *d.left < 0 {
			return errDied
		}
		return write(w)
	})
}

// parts lists the parts of logs in the repository.
func (r *logged) parts() []logPart {
	r.t.Helper()
	all, err := logParts(r.ctx, r.repo(), "")
	r.ok(err)
	for _, parts := range all {
		return parts
	}
	return nil
}

// TestRandomMomentsAreRestored compares restored moments with a model. In between the log is shipped, by processes
// that die, backups are made and pruned, and the store is opened again.
func TestRandomMomentsAreRestored(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	restored := 0
	for i, sealer := range []*testCipher{nil, {key: 0x5a}} {
		r := newLogged(t, seed+uint64(i), sealer)
		r.backUp()
		for range 120 {
			switch r.rand.IntN(20) {
			case 0, 1:
				r.backUp()
			case 2:
				r.prune(r.archive(), 3)
			case 3:
				r.reopen()
			case 4:
				if err := r.ship(dying{r.repo(), new(0)}); !errors.Is(err, errDied) {
					t.Fatalf("a ship that died: %v", err)
				}
			case 5, 6, 7, 8:
				r.shipAll()
			default:
				r.written(1 + r.rand.IntN(60))
			}
		}
		r.written(60)
		r.clock.Advance(time.Second)
		r.shipAll()
		names := r.verify(r.archive())
		var report VerifyReport
		r.ok(r.archive().VerifyLogs(r.ctx, &report))
		r.ok(errors.Join(report.Problems...))
		first, err := r.archive().Moments(r.ctx, names)
		r.ok(err)
		for early := 0; restored < 50*(i+1); {
			m := r.moments[r.rand.IntN(len(r.moments))]
			if m.micros >= first[names[0]].From {
				got, err := r.restoreAt(m.micros)
				r.ok(err)
				r.compare(FormatMicros(m.micros), got, m.model)
				restored++
			} else if early++; early < 10 {
				if _, err := r.restoreAt(m.micros); !errors.Is(err, ErrMoment) {
					t.Errorf("a moment before the first backup: %v", err)
				}
			}
		}
		if _, err := r.restoreAt(r.until + 1); !errors.Is(err, ErrMoment) || !strings.Contains(err.Error(), FormatMicros(r.until)) {
			t.Errorf("a moment behind the end of the log, %s: %v", FormatMicros(r.until), err)
		}
	}
}

// TestAStoreGivesUpEachPartThatWasPut, but the notes with the last one, since a prune may delete the parts before it.
func TestAStoreGivesUpEachPartThatWasPut(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	_, err := r.store.CreateTable(r.ctx, flagstone.TableSpec{Name: "other", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeString}}})
	r.ok(err)
	var before flagstone.KeptLog
	for before.Until < before.From+2*maxPart+1 {
		r.written(60)
		before, err = r.store.KeptLog(r.ctx)
		r.ok(err)
	}
	puts := 2
	_, err = Ship(r.ctx, dying{r.repo(), &puts}, r.fs, "/store", before, r.options(), func(part flagstone.KeptLog) error { return r.store.LogShipped(r.ctx, part) })
	after, err2 := r.store.KeptLog(r.ctx)
	if r.ok(err2); !errors.Is(err, errDied) || after.From != before.From+2*maxPart || len(after.Notes) != len(before.Notes) {
		t.Errorf("two parts were put of segments from %d on; kept are those from %d on, %d notes of %d: %v", before.From, after.From, len(after.Notes), len(before.Notes), err)
	}
	_, err = Ship(r.ctx, r.repo(), r.fs, "/store", after, r.options(), func(part flagstone.KeptLog) error { return r.store.LogShipped(r.ctx, part) })
	r.ok(err)
	end, err := r.store.KeptLog(r.ctx)
	if r.ok(err); end.From != after.Until || len(end.Notes) > 0 {
		t.Errorf("all was put up to segment %d; kept are those from %d on, %d notes", after.Until, end.From, len(end.Notes))
	}
	last := r.moments[len(r.moments)-1]
	got, err := r.restoreAt(last.micros)
	r.ok(err)
	r.compare("the last moment", got, last.model)
}

// TestEveryByteOfALogIsVerified flips bytes of a part; a verify names it, and a restore refuses it.
func TestEveryByteOfALogIsVerified(t *testing.T) {
	for _, sealer := range []*testCipher{nil, {key: 0x5a}} {
		r := newLogged(t, 1, sealer)
		r.backUp()
		r.written(5)
		r.shipAll()
		name := r.parts()[0].name()
		content, err := getAll(r.ctx, r.repo(), name, nil)
		r.ok(err)
		put := func(content []byte) {
			r.ok(r.repo().Put(r.ctx, name, func(w io.Writer) error {
				_, err := w.Write(content)
				return err
			}))
		}
		check := func(what string) {
			t.Helper()
			var report VerifyReport
			r.ok(r.archive().VerifyLogs(r.ctx, &report))
			if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Error(), name) {
				t.Fatalf("%s: problems %v", what, report.Problems)
			}
		}
		for i := range content {
			content[i] ^= 1
			put(content)
			check(fmt.Sprint("byte ", i))
			content[i] ^= 1
		}
		for _, n := range []int{0, 1, 12, len(content) / 2, len(content) - 1} {
			put(content[:n])
			check(fmt.Sprint("cut to ", n))
		}
		put(append(content, 0))
		check("one byte more")
		if _, err := r.restoreAt(r.moments[0].micros); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("restore of a damaged log: %v", err)
		}
		put(content)
		got, err := r.restoreAt(r.moments[0].micros)
		r.ok(err)
		r.compare("put again", got, r.moments[0].model)
	}
}

// TestAMomentFromANamedBackup: an older backup takes the place of one with a damaged object.
func TestAMomentFromANamedBackup(t *testing.T) {
	r := newLogged(t, 1, nil)
	older := r.backUp()
	r.written(50)
	r.shipAll()
	newer := r.backUp()
	r.written(50)
	r.shipAll()
	d, err := r.archive().description(r.ctx, newer)
	r.ok(err)
	object := d.entries[slices.IndexFunc(d.entries, func(e entry) bool { return e.path == "CURRENT" })].object()
	content, err := getAll(r.ctx, r.repo(), object, nil)
	r.ok(err)
	content[len(content)/2] ^= 1
	r.ok(r.repo().Put(r.ctx, object, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}))
	last := r.moments[1]
	if _, err := r.restoreAt(last.micros); !errors.Is(err, ErrDamaged) {
		t.Errorf("of any backup: %v", err)
	}
	if _, err := r.restoreFrom(newer, r.moments[0].micros); !errors.Is(err, ErrMoment) || !strings.Contains(err.Error(), newer) {
		t.Errorf("of a backup behind the moment: %v", err)
	}
	got, err := r.restoreFrom(older, last.micros)
	r.ok(err)
	r.compare("of the older backup", got, last.model)
	r.ok(putEmpty(r.ctx, r.repo(), backupsPrefix+newer))
	from, unread, err := r.archive().RestoreAt(r.ctx, "", last.micros, r.fs, "/passed", nil)
	if err != nil || from != older || len(unread) != 1 || !strings.Contains(unread[0].Error(), newer) {
		t.Errorf("past a description that cannot be read: from %q, passed over %v, %v", from, unread, err)
	}
}

// TestATableOfAMoment: other tables, made before the backup and after it, do not come, nor do streams.
func TestATableOfAMoment(t *testing.T) {
	r := newLogged(t, 1, nil)
	create := func(name string) {
		_, err := r.store.CreateTable(r.ctx, flagstone.TableSpec{Name: name, Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeString}}, Stream: &flagstone.StreamSpec{RetentionSeconds: 3600}})
		r.ok(err)
	}
	create("before")
	backup := r.backUp()
	r.written(50)
	create("after")
	r.written(50)
	moment := r.moments[1]
	r.written(50)
	r.shipAll()
	for _, name := range []string{"t", "before", "after"} {
		from, _, err := r.archive().RestoreTableAt(r.ctx, "", moment.micros, r.fs, "/"+name, name, nil)
		if err != nil || from != backup {
			t.Fatalf("%s: from %q, %v", name, from, err)
		}
		store := r.open("/"+name, false)
		if tables := store.Tables(); len(tables) != 1 || tables[0].Name() != name {
			t.Errorf("%s: %d tables", name, len(tables))
		}
		if name == "t" {
			r.compare(name, r.rows(store), moment.model)
		}
		r.ok(store.Close())
	}
	if _, _, err := r.archive().RestoreTableAt(r.ctx, "", moment.micros, r.fs, "/none", "none", nil); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	if _, err := r.fs.Stat("/none"); err == nil {
		t.Error("a directory is left")
	}
}

// TestALogWithAHoleIsRefused: moments before the hole can be restored, those behind it when another backup was made.
func TestALogWithAHoleIsRefused(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	for range 3 {
		r.written(50)
		r.shipAll()
	}
	kept, err := r.store.KeptLog(r.ctx)
	r.ok(err)
	r.ok(r.store.LogShipped(r.ctx, kept))
	r.written(50)
	kept, err = r.store.KeptLog(r.ctx) // lost
	r.ok(err)
	r.ok(r.store.LogShipped(r.ctx, kept))
	r.written(50)
	r.shipAll()
	_, err = r.restoreAt(r.moments[4].micros)
	if want := fmt.Sprintf("segments %d to %d of the log are missing", kept.From, kept.Until-1); !errors.Is(err, ErrMoment) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	r.backUp()
	r.written(50)
	r.shipAll()
	for i, lost := range map[int]bool{1: false, 2: false, 3: true, 4: true, 5: false} {
		got, err := r.restoreAt(r.moments[i].micros)
		if lost != errors.Is(err, ErrMoment) || !lost && err != nil {
			t.Errorf("moment %d: %v", i, err)
		} else if !lost {
			r.compare(fmt.Sprint("moment ", i), got, r.moments[i].model)
		}
	}
}

// TestABulkLoadEndsWhatALogRestores, until the next backup. Tables that are made later are restored.
func TestABulkLoadEndsWhatALogRestores(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	r.clock.Advance(time.Second)
	other, err := r.store.CreateTable(r.ctx, flagstone.TableSpec{Name: "other", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeString}}, Options: flagstone.TableOptions{MaxVersions: 1, TTLSeconds: flagstone.NeverExpires}})
	r.ok(err)
	r.written(10)
	r.clock.Advance(time.Second)
	w, err := other.BulkLoad(r.ctx, flagstone.BulkOptions{})
	r.ok(err)
	r.ok(w.Put(flagstone.Key("a"), flagstone.BulkCell{Column: "c", Version: 1, Value: row.Integer(1)}))
	r.ok(w.Commit(r.ctx))
	loaded := r.clock.NowMicros()
	r.clock.Advance(time.Second)
	r.written(10)
	r.shipAll()
	for range 5 { // an idle store leaves two parts at most
		r.clock.Advance(time.Second)
		r.shipAll()
	}
	if n := len(r.parts()); n > 6 {
		t.Errorf("%d parts of a log that has one with records", n)
	}
	got, err := r.restoreAt(r.moments[0].micros)
	r.ok(err)
	r.compare("before the load", got, r.moments[0].model)
	_, err = r.restoreAt(r.moments[1].micros)
	if !errors.Is(err, ErrMoment) || !strings.Contains(err.Error(), "a bulk load into table other at "+FormatMicros(loaded)) {
		t.Errorf("behind the load: %v", err)
	}
	r.backUp()
	r.written(10)
	r.shipAll()
	got, err = r.restoreAt(r.moments[2].micros)
	r.ok(err)
	r.compare("behind the next backup", got, r.moments[2].model)
}

// TestALogThatLiesTakesNoMemory: lengths are compared with what is there.
func TestALogThatLiesTakesNoMemory(t *testing.T) {
	r := newLogged(t, 1, nil)
	p := &logPart{store: storeName([16]byte{1}), from: 1, until: 2}
	header := logHeader(p, nil)
	notes := append(header[:len(header)-9:len(header)-9], 0xff, 0xff, 3) // 65,535 of them
	whole := func(batch []byte) []byte {
		b := append(binary.AppendUvarint([]byte{1}, uint64(len(batch))), batch...)
		b = append(b, 0)
		return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(slices.Concat(header, b)))
	}
	r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
		_, err := w.Write(slices.Concat(header, packed(whole([]byte("batch"))...)))
		return err
	}))
	_, err := readLog(r.ctx, r.repo(), nil, p, func(uint64, []byte) error { return nil })
	r.ok(err)
	for name, content := range map[string][]byte{
		"a record of 256 MiB":      slices.Concat(header, packed(1, 0x80, 0x80, 0x80, 0x80, 1, 0)),
		"a record of 2^63":         slices.Concat(header, packed(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)),
		"a number that never ends": slices.Concat(header, packed(bytes.Repeat([]byte{0xff}, 20)...)),
		"records that are plain":   append(header[:len(header):len(header)], 1, 1, 0, 0),
		"a block of 512 KiB":       slices.Concat(header, packed(whole(make([]byte, 512<<10))...)),
		"an empty batch":           slices.Concat(header, packed(whole(nil)...)),
		"a chunk behind the end":   slices.Concat(header, packed(whole([]byte("batch"))...), []byte{0xfe, 1, 0, 0, 0}),
		"bytes behind the end":     slices.Concat(header, packed(append(whole([]byte("batch")), 0)...)),
		"notes that are not there": notes,
		"a note of 4 MiB":          append(notes[:len(notes):len(notes)], 1, 1, 0x80, 0x80, 0x80, 2),
	} {
		r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readLog(r.ctx, r.repo(), nil, p, func(uint64, []byte) error { return nil })
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrDamaged) || taken > 8<<20 {
			t.Errorf("%s: %v, after %d bytes", name, err, taken)
		}
	}
}

// packed are bytes as the records of a log are packed.
func packed(plain ...byte) []byte {
	var b bytes.Buffer
	w := s2.NewWriter(&b)
	_, _ = w.Write(plain) // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// TestLogsOfVersion1AreRead: their records are plain.
func TestLogsOfVersion1AreRead(t *testing.T) {
	r := newLogged(t, 1, nil)
	p := &logPart{store: storeName([16]byte{1}), from: 1, until: 2}
	b := binary.LittleEndian.AppendUint32([]byte(logMagic), formatVersion)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = append(appendString(b, strings.TrimPrefix(p.name(), logPrefix)), 0)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = append(b, 7, 5, 'b', 'a', 't', 'c', 'h', 0)
	whole := binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	for n := range len(whole) + 2 {
		content := append(whole[:len(whole):len(whole)], 0)[:n]
		r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		}))
		_, err := readLog(r.ctx, r.repo(), nil, p, func(first uint64, batch []byte) error {
			if first != 7 || string(batch) != "batch" {
				t.Errorf("%d bytes: record %d: %q", n, first, batch)
			}
			return nil
		})
		if ok := n == len(whole); ok != (err == nil) || !ok && !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// TestALogIsVerifiedBehindTheMoment: the checksum of plain records is at the end of the part.
func TestALogIsVerifiedBehindTheMoment(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	r.written(20)
	r.written(20)
	r.shipAll()
	parts := r.parts()
	if len(parts) != 1 {
		t.Fatalf("%d parts", len(parts))
	}
	p := &parts[0]
	b := binary.LittleEndian.AppendUint32([]byte(logMagic), formatVersion)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	b = append(appendString(b, strings.TrimPrefix(p.name(), logPrefix)), 0)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	_, err := readLog(r.ctx, r.repo(), nil, p, func(first uint64, batch []byte) error {
		b = appendString(binary.AppendUvarint(b, first), string(batch))
		return nil
	})
	r.ok(err)
	last := len(b) - 1 // of the last batch
	b = append(b, 0)
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	r.damage(p.name(), b)
	got, err := r.restoreAt(r.moments[0].micros)
	r.ok(err)
	r.compare("plain records", got, r.moments[0].model)
	b[last] ^= 1
	r.damage(p.name(), b)
	if _, err := r.restoreAt(r.moments[0].micros); !errors.Is(err, ErrDamaged) {
		t.Errorf("damage behind the moment: %v", err)
	}
}

func TestALogNeedsABackup(t *testing.T) {
	r := newLogged(t, 1, nil)
	if err := r.ship(r.repo()); !errors.Is(err, ErrNotRepository) {
		t.Errorf("a log without a backup: %v", err)
	}
}

// TestANewerBackupThatCannotBeReadBlocksNoMoment: older backups serve the moments before it, and those behind it.
func TestANewerBackupThatCannotBeReadBlocksNoMoment(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	r.written(20)
	r.shipAll()
	name := backupsPrefix + r.backUp()
	r.written(20)
	r.shipAll()
	content, err := getAll(r.ctx, r.repo(), name, nil)
	r.ok(err)
	for _, damaged := range [][]byte{content[:len(content)/2], nil} {
		r.ok(r.repo().Put(r.ctx, name, func(w io.Writer) error {
			_, err := w.Write(damaged)
			return err
		}))
		for _, m := range r.moments {
			got, err := r.restoreAt(m.micros)
			r.ok(err)
			r.compare(FormatMicros(m.micros), got, m.model)
		}
		if _, err := r.restoreAt(r.until + 1); !errors.Is(err, ErrMoment) || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("a moment that no backup serves: %v", err)
		}
	}
}

// TestPruneKeepsTheLogThatMayBeNeeded: parts of a Ship that runs have no time but that of their records, and a part that
// ends where the oldest backup begins may have a note that the backup needs. A last part that has no records, or is
// damaged, does not keep those before it.
func TestPruneKeepsTheLogThatMayBeNeeded(t *testing.T) {
	r := newLogged(t, 1, nil)
	name := r.backUp()
	d, err := r.archive().description(r.ctx, name)
	r.ok(err)
	o, other := d.origins[0], storeName([16]byte{9})
	dead := r.clock.NowMicros()
	putRecords := func(store string, from, until uint64, micros int64, times ...int64) string {
		p := logPart{store: store, from: from, until: until, micros: micros}
		r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
			return writeLog(w, nil, &p, nil, func(put func(uint64, []byte) error) error {
				for i, time := range times {
					b := new(row.Batch)
					err := b.Add(&row.Change{Table: 1, Key: []byte("key"), DeleteRow: true})
					b.SetTime(time)
					if err := errors.Join(err, put(uint64(i+1), slices.Concat(b.Pieces()...))); err != nil {
						return err
					}
				}
				return nil
			})
		}))
		return p.name()
	}
	put := func(store string, from, until uint64, micros int64) string {
		return putRecords(store, from, until, micros)
	}
	alive := dead + (UnfinishedAfter + time.Second).Microseconds() // the prune comes so much later
	kept := []string{put(storeName(o.store), o.segment-1, o.segment, 1), put(storeName(o.store), o.segment, o.segment, 1), put(other, 1, 65, 0), put(other, 65, 129, 0),
		putRecords(storeName([16]byte{7}), 1, 2, 0, dead), putRecords(storeName([16]byte{7}), 2, 3, 0, alive)}
	gone := []string{put(storeName(o.store), 0, o.segment-1, 1), put(storeName([16]byte{8}), 1, 2, 0), put(storeName([16]byte{8}), 2, 3, dead),
		putRecords(storeName([16]byte{6}), 1, 2, 0, dead, alive), putRecords(storeName([16]byte{6}), 2, 3, 0, dead, alive),
		putRecords(storeName([16]byte{5}), 1, 2, 0, dead), put(storeName([16]byte{5}), 2, 3, 0), put(storeName([16]byte{5}), 3, 4, 0)}
	r.ok(r.repo().Put(r.ctx, gone[len(gone)-1], func(io.Writer) error { return nil })) // damaged
	r.prune(r.archive(), 1)
	for i, name := range append(kept, gone...) {
		if there, err := exists(r.ctx, r.repo(), name); err != nil || there != (i < len(kept)) {
			t.Errorf("part %s: there %v, %v", name, there, err)
		}
	}
}

// TestOnlyAReadablePartSaysHowFarALogReaches: a part without segments is not read otherwise, and its name may lie.
func TestOnlyAReadablePartSaysHowFarALogReaches(t *testing.T) {
	r := newLogged(t, 1, nil)
	name := r.backUp()
	r.written(20)
	r.shipAll()
	last := r.parts()[len(r.parts())-1]
	last.from = last.until
	whole := logHeader(&last, nil)
	for what, micros := range map[string]int64{"of the end of time": math.MaxInt64, "behind the log": r.until + 1} {
		last.micros = micros
		for _, content := range [][]byte{nil, whole[:20], whole} {
			r.ok(r.repo().Put(r.ctx, last.name(), func(w io.Writer) error {
				_, err := w.Write(content)
				return err
			}))
			all, err := r.archive().Moments(r.ctx, []string{name})
			r.ok(err)
			if m := all[name]; m.Until != r.until || !strings.Contains(m.Why, last.name()) {
				t.Errorf("an object of %d bytes %s: until %d, %s; want %d", len(content), what, m.Until, m.Why, r.until)
			}
			if _, err := r.restoreAt(r.until + 1); !errors.Is(err, ErrMoment) || !strings.Contains(err.Error(), last.name()) {
				t.Errorf("an object of %d bytes %s: %v", len(content), what, err)
			}
		}
		got, err := r.restoreAt(r.moments[0].micros)
		r.ok(err)
		r.compare("before it", got, r.moments[0].model)
		r.ok(r.repo().Delete(r.ctx, last.name()))
	}
}

// TestTheNotesOfALogAreBoundedTogether: a header of notes that are allowed each does not take what all of them have.
func TestTheNotesOfALogAreBoundedTogether(t *testing.T) {
	r := newLogged(t, 1, nil)
	p := &logPart{store: storeName([16]byte{1}), from: 1, until: 1}
	large := flagstone.LogNote{Number: 1, What: "a change", Edit: make([]byte, maxLogNote)}
	for n, fits := range map[int]bool{3: true, 4: false, 6: false} {
		r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
			return writeLog(w, nil, p, slices.Repeat([]flagstone.LogNote{large}, n), func(func(uint64, []byte) error) error { return nil })
		}))
		notes, err := readLog(r.ctx, r.repo(), nil, p, nil)
		if fits && (err != nil || len(notes) != n) || !fits && (!errors.Is(err, ErrDamaged) || notes != nil) {
			t.Errorf("%d notes of 4 MiB: %d notes, %v", n, len(notes), err)
		}
	}
}

// TestNotesOfOtherChangesDoNotCount: only the changes between a backup and a moment matter.
func TestNotesOfOtherChangesDoNotCount(t *testing.T) {
	r := newLogged(t, 1, nil)
	r.backUp()
	p := logPart{store: storeName([16]byte{1}), from: 1, until: 1, changes: 3}
	var list []flagstone.LogNote
	for _, n := range []uint64{0, 1, 2, 3, 4, math.MaxUint64} {
		list = append(list, flagstone.LogNote{Number: n})
	}
	r.ok(r.repo().Put(r.ctx, p.name(), func(w io.Writer) error {
		return writeLog(w, nil, &p, list, func(func(uint64, []byte) error) error { return nil })
	}))
	notes, err := r.archive().notes(r.ctx, []logPart{p}, 2, 3)
	if got := slices.Sorted(maps.Keys(notes)); err != nil || !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("notes of the changes %v, %v; want 2 and 3", got, err)
	}
}
