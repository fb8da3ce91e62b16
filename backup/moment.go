package backup

// Restores to a moment between backups: a backup before the moment, and the log from there on.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// ErrMoment reports a moment that cannot be restored.
var ErrMoment = errors.New("this moment cannot be restored")

// Moments are those that a backup can be brought to, in microseconds since the epoch, both included. There are none if
// From is larger than Until.
type Moments struct {
	From, Until int64
	Why         string // what comes behind Until cannot be restored
}

// Any reports whether there is a moment.
func (m Moments) Any() bool { return m.From <= m.Until }

// FormatMicros prints a time in UTC as RFC 3339 has it.
func FormatMicros(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// storePlan says what brings a store of a backup to a moment.
type storePlan struct {
	Moments
	origin  *origin
	parts   []logPart // ascending
	changes [][]byte
	unread  error // of the last part that does not count because it cannot be read
}

// planStore plans for a store, of whose log there are parts. Until is below the moment if it cannot be restored.
func (a *Archive) planStore(ctx context.Context, o *origin, parts []logPart, micros int64) (storePlan, error) {
	p := storePlan{Moments: Moments{o.micros, o.micros - 1, "the repository has no later part of the log"}, origin: o}
	reached := o.segment
	for i := 0; i < len(parts); {
		var best *logPart // of those that go on where the last one ended
		for ; i < len(parts) && parts[i].from <= reached; i++ {
			if parts[i].until > reached && (best == nil || parts[i].until > best.until) {
				best = &parts[i]
			}
		}
		if best == nil {
			if i < len(parts) {
				p.Why = fmt.Sprintf("segments %d to %d of the log are missing, which the store had given up", reached, parts[i].from-1)
			}
			break
		}
		reached = best.until
		p.parts = append(p.parts, *best)
	}
	var complete []logPart // up to a known time, with all that comes before them
	for _, part := range parts {
		if part.until >= o.segment && part.until <= reached && part.micros >= o.micros {
			complete = append(complete, part)
		}
	}
	slices.SortFunc(complete, func(p, q logPart) int { return cmp.Compare(p.micros, q.micros) })
	complete, err := a.upTo(ctx, &p, complete, micros)
	if len(complete) == 0 {
		return p, err
	}
	last := complete[len(complete)-1]
	p.Until = last.micros
	p.parts = slices.DeleteFunc(p.parts, func(part logPart) bool { return part.from >= last.until })
	return p, a.planChanges(ctx, &p, parts, complete, micros)
}

// upTo returns the parts, of which micros ascends, up to the first one that reaches a moment, or else all. Only the
// header of the last one says that its name is not a lie: those that cannot be read do not count.
func (a *Archive) upTo(ctx context.Context, p *storePlan, complete []logPart, micros int64) ([]logPart, error) {
	for len(complete) > 0 {
		last := slices.IndexFunc(complete, func(part logPart) bool { return part.micros >= micros })
		if last < 0 {
			last = len(complete) - 1
		}
		_, err := readLog(ctx, a.repo, a.unsealer, &complete[last], nil)
		if err == nil {
			return complete[:last+1], nil
		}
		if !isUnreadable(err) {
			return nil, err
		}
		p.Why, p.unread = err.Error(), err
		complete = slices.Delete(complete, last, last+1)
	}
	return nil, nil
}

// planChanges plans the changes beside the log. One that is unknown, or that cannot be made again, ends what can be
// restored. complete are the parts up to the moment.
func (a *Archive) planChanges(ctx context.Context, p *storePlan, parts, complete []logPart, micros int64) error {
	first, last := p.origin.changes+1, complete[len(complete)-1].changes
	notes, err := a.notes(ctx, parts, first, last)
	for n := first; n <= last && err == nil; n++ {
		note, known := notes[n]
		switch {
		case !known:
			before, err := a.upTo(ctx, p, slices.DeleteFunc(complete, func(part logPart) bool { return part.changes >= n }), math.MaxInt64)
			p.Until, p.Why = p.From-1, "a change was made that was not noted; make another backup"
			if len(before) > 0 {
				p.Until = before[len(before)-1].micros
			}
			return err
		case len(note.Edit) == 0 && note.Micros <= p.Until:
			p.Until, p.Why = note.Micros-1, fmt.Sprintf("the log does not have %s at %s; make another backup", note.What, FormatMicros(note.Micros))
			return nil
		case note.Micros <= micros:
			p.changes = append(p.changes, note.Edit)
		}
	}
	return err
}

// notes reads the notes of changes, by their numbers, from the first to the last one. Of the parts with the same number
// of changes, the first one has the notes that those with a smaller number lack.
func (a *Archive) notes(ctx context.Context, parts []logPart, first, last uint64) (map[uint64]flagstone.LogNote, error) {
	notes := map[uint64]flagstone.LogNote{}
	for _, part := range slices.SortedStableFunc(slices.Values(parts), func(p, q logPart) int { return cmp.Compare(p.changes, q.changes) }) {
		if _, known := notes[part.changes]; known || part.changes < first || part.changes > last {
			continue
		}
		list, err := readLog(ctx, a.repo, a.unsealer, &part, nil)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if n.Number >= first && n.Number <= last {
				notes[n.Number] = n
			}
		}
	}
	return notes, nil
}

// plan plans for all stores of a backup.
func (a *Archive) plan(ctx context.Context, d *description, parts map[string][]logPart, micros int64) (all Moments, stores []storePlan, err error) {
	isStore := func(e entry) bool { return path.Base(e.path) == manifest.CurrentName }
	count := 0
	for _, e := range d.entries {
		if isStore(e) {
			count++
		}
	}
	if len(d.origins) < count {
		return Moments{0, -1, "the log was not kept when the backup was made"}, nil, nil
	}
	all = Moments{math.MinInt64, math.MaxInt64, ""}
	for i := range d.origins {
		p, err := a.planStore(ctx, &d.origins[i], parts[storeName(d.origins[i].store)], micros)
		if err != nil {
			return all, nil, err
		}
		if all.From = max(all.From, p.From); p.Until < all.Until {
			all.Until, all.Why = p.Until, p.Why
		}
		stores = append(stores, p)
	}
	return all, stores, nil
}

// Moments returns what can be restored of backups, by their names. A backup that cannot be read, or was pruned
// meanwhile, or whose log cannot be read, has none.
func (a *Archive) Moments(ctx context.Context, backups []string) (map[string]Moments, error) {
	parts, err := logParts(ctx, a.repo, "")
	if err != nil {
		return nil, err
	}
	all := map[string]Moments{}
	for _, name := range backups {
		d, err := a.description(ctx, name)
		if err == nil {
			all[name], _, err = a.plan(ctx, d, parts, math.MaxInt64)
		}
		if err != nil {
			all[name] = Moments{0, -1, err.Error()}
		}
	}
	return all, ctx.Err()
}

// RestoreAt is Restore of a backup from before a moment, in microseconds since the epoch, and of the log from there up to
// the moment, which is included. If no backup is named, it is the newest that can be read, and all must be of one store. It
// returns the name of the backup, and the errors of newer ones that it passed over. Errors match ErrMoment, too.
func (a *Archive) RestoreAt(ctx context.Context, backup string, micros int64, fsys vfs.FS, dir string, progress func(Progress)) (from string, unread []error, err error) {
	d, stores, unread, err := a.before(ctx, backup, micros)
	if err != nil {
		return "", nil, err
	}
	return d.name, unread, a.restore(ctx, d, stores, micros, fsys, dir, progress, "")
}

// RestoreTableAt is RestoreTable of a moment, as RestoreAt has it. It restores the store that has the table then, and drops
// its other tables. Stores that do not have it are restored before, and deleted.
func (a *Archive) RestoreTableAt(ctx context.Context, backup string, micros int64, fsys vfs.FS, dir, table string, progress func(Progress)) (from string, unread []error, err error) {
	d, stores, unread, err := a.before(ctx, backup, micros)
	if err != nil {
		return "", nil, err
	}
	for i := range stores {
		at := *stores[i].origin
		store := *d
		store.entries = d.within(at.within)
		at.within, stores[i].origin = "", &at
		err := a.restore(ctx, &store, stores[i:i+1], micros, fsys, dir, progress, table)
		if !errors.Is(err, ErrNoTable) {
			return d.name, unread, err
		}
	}
	return "", nil, fmt.Errorf("%w: backup %s up to %s, table %q", ErrNoTable, d.name, FormatMicros(micros), table)
}

// before returns the backup with which a restore of a moment begins, how each of its stores comes to the moment, and the
// errors of backups that may be newer and cannot be read.
func (a *Archive) before(ctx context.Context, backup string, micros int64) (_ *description, _ []storePlan, unread []error, err error) {
	names := []string{backup}
	if backup == "" {
		if names, err = a.Names(ctx); err == nil {
			err = a.ofOne(ctx, names)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	parts, err := logParts(ctx, a.repo, "")
	if err != nil {
		return nil, nil, nil, err
	}
	why := errors.New("no backup before it has kept its log")
	if backup != "" {
		why = fmt.Errorf("backup %s is not from before it, or its log was not kept", backup)
	}
	for _, name := range slices.Backward(names) {
		d, err := a.description(ctx, name)
		if err == nil && slices.ContainsFunc(d.origins, func(o origin) bool { return o.micros > micros }) {
			continue // its log may be damaged, and is not needed
		}
		var moments Moments
		var stores []storePlan
		if err == nil {
			moments, stores, err = a.plan(ctx, d, parts, micros)
		}
		if isUnreadable(err) {
			unread = append(unread, err)
			continue
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if stores == nil {
			continue
		}
		if moments.Until < micros { // an older one needs the same log
			why = fmt.Errorf("backup %s: %s", name, moments.Why)
			for _, p := range stores {
				if p.unread != nil && p.unread.Error() == moments.Why {
					why = fmt.Errorf("backup %s: %w", name, p.unread)
				}
			}
			break
		}
		return d, stores, unread, nil
	}
	return nil, nil, nil, errors.Join(append([]error{a.refusal(ctx, micros, why)}, unread...)...)
}

// isUnreadable reports whether an error is of one object, which is damaged, of a newer version, or gone. Others may be
// read.
func isUnreadable(err error) bool {
	return isProblem(err) || isMissing(err) || errors.As(err, new(newerError))
}

// refusal is the error for a moment that cannot be restored. It says which ones can be.
func (a *Archive) refusal(ctx context.Context, micros int64, why error) error {
	names, err := a.Names(ctx)
	if err != nil {
		return err
	}
	all, err := a.Moments(ctx, names)
	if err != nil {
		return err
	}
	var merged []Moments
	for _, name := range names {
		m := all[name]
		if n := len(merged); m.Any() && n > 0 && m.From <= merged[n-1].Until {
			merged[n-1].Until = max(merged[n-1].Until, m.Until)
		} else if m.Any() {
			merged = append(merged, m)
		}
	}
	const most = 10
	var possible []string
	for _, m := range merged[max(len(merged)-most, 0):] {
		possible = append(possible, FormatMicros(m.From)+" to "+FormatMicros(m.Until))
	}
	return fmt.Errorf("%w: %s: %w; what can be: %s", ErrMoment, FormatMicros(micros), why, cmp.Or(strings.Join(possible, ", "), "nothing"))
}

// replay brings the store of a plan, which was restored, to a moment.
func (r *restorer) replay(ctx context.Context, p *storePlan, micros int64) error {
	opts := flagstone.Options{}
	opts.Seams.FS = r.fs
	return flagstone.ReplayLog(ctx, filepath.Join(r.dir, p.origin.within), p.changes, func(apply func(first uint64, batch []byte) error) error {
		behind := false // the records that come are behind the moment; the rest of a part is read for its checksum
		for i := 0; i < len(p.parts) && !behind; i++ {
			_, err := readLog(ctx, r.archive.repo, r.archive.unsealer, &p.parts[i], func(first uint64, batch []byte) error {
				b, err := row.NewBatchReader(batch)
				if err != nil {
					return fmt.Errorf("%w: %w", ErrDamaged, err)
				}
				if behind = behind || b.Time() > micros; behind {
					return nil
				}
				return apply(first, batch)
			})
			if err != nil {
				return err
			}
			r.done.Files++
			r.count(p.parts[i].size)
		}
		return nil
	}, opts)
}

// errBehind ends the reading of a log where no more of it is asked for.
var errBehind = errors.New("behind the moment")

// VerifyLogs adds to a report what is wrong with the parts of logs, all of which it reads.
func (a *Archive) VerifyLogs(ctx context.Context, report *VerifyReport) error {
	all, err := logParts(ctx, a.repo, "")
	for _, parts := range all {
		for i := range parts {
			if err != nil {
				return err
			}
			_, err = readLog(ctx, a.repo, a.unsealer, &parts[i], func(uint64, []byte) error { return nil })
			if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile; a restore says if it is needed
				err = nil
				continue
			}
			if isProblem(err) {
				report.Problems = append(report.Problems, fmt.Errorf("log up to %s: %w", FormatMicros(parts[i].micros), err))
				err = nil
			}
			report.Objects++
			report.Bytes += parts[i].size
		}
	}
	return err
}

// pruneLogs deletes the parts of logs that no backup needs, of stores with backups. Other stores may be those of a
// backup that is being made: their parts go when they are as old as those of dead creates.
func (p *pruner) pruneLogs(ctx context.Context) error {
	all, err := logParts(ctx, p.repo, "")
	for store, parts := range all {
		oldest, has := p.oldest[store]
		newest := slices.MaxFunc(parts, func(p, q logPart) int { return cmp.Compare(p.micros, q.micros) }).micros
		for i := len(parts); err == nil && !has && newest == 0 && i > 0; i-- { // the last ones may have no records, or be damaged
			newest, err = p.recordTime(ctx, &parts[i-1])
		}
		for _, part := range parts {
			needed := part.until >= oldest // one that ends there may have the only note of a change behind the backup
			if !has {
				needed = newest == 0 || !p.old(newest/1000) // the first Ship may be running
			}
			if err != nil || needed {
				continue
			}
			if err = p.repo.Delete(ctx, part.name()); err == nil {
				p.report.Objects++
				p.report.Bytes += part.size
			}
		}
	}
	return err
}

// recordTime returns the time of the first record of a part, for one without a time; 0 if there is none, or it cannot be
// read.
func (p *pruner) recordTime(ctx context.Context, part *logPart) (micros int64, err error) {
	_, err = readLog(ctx, p.repo, p.unsealer, part, func(_ uint64, batch []byte) error {
		b, err := row.NewBatchReader(batch)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		micros = b.Time()
		return errBehind
	})
	if errors.Is(err, errBehind) || isUnreadable(err) {
		err = nil
	}
	return micros, err
}
