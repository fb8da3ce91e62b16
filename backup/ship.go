package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/wal"
)

// maxPart is how many segments are put as one object. The store gives them up together.
const maxPart = 4

// ShipReport is what Ship has put.
type ShipReport struct {
	Records int
	Bytes   int64 // of records
}

// Ship puts what the store in dir keeps of its log into a repository that has a backup, in parts. It calls shipped with
// each part that is there, which the store may give up then. Ship may be killed: what was put counts. Of two calls at the
// same time both put the same. Each segment is compared with its checksums. Errors match ErrNotRepository, if there is no
// backup yet, or ErrSource, or are those of the repository, the file system, or shipped. fsys is that of the machine if nil.
func Ship(ctx context.Context, repo Repository, fsys vfs.FS, dir string, kept flagstone.KeptLog, opts CreateOptions, shipped func(flagstone.KeptLog) error) (report ShipReport, err error) {
	if err := checkMarker(ctx, repo, opts.Sealer); isMissing(err) {
		return report, fmt.Errorf("%w: it has no object %q; make a backup first", ErrNotRepository, markerName)
	} else if err != nil {
		return report, err
	}
	s := shipper{from: wal.Options{FS: orMachine(fsys), Dir: filepath.Join(dir, kept.Dir), StoreID: kept.StoreID}, report: &report}
	if opts.BytesPerSecond > 0 {
		s.limiter = rate.NewLimiter(rate.Limit(opts.BytesPerSecond), chunk)
	}
	p := logPart{store: storeName(kept.StoreID), from: kept.From, until: kept.From, changes: kept.Changes}
	for p.until < kept.Until || p.micros == 0 {
		p.from, p.until = p.until, min(p.until+maxPart, kept.Until)
		if p.until == kept.Until {
			p.micros = kept.Micros
		}
		err := repo.Put(ctx, p.name(), func(w io.Writer) error {
			return writeLog(w, opts.Sealer, &p, kept.Notes, func(put func(first uint64, batch []byte) error) error { return s.read(ctx, &p, put) })
		})
		if err == nil {
			part := kept
			part.From, part.Until, part.Micros = p.from, p.until, p.micros
			if p.until < kept.Until {
				part.Changes = 0 // a prune may delete this part while a backup needs the notes
			}
			err = shipped(part)
		}
		if err != nil {
			return report, err
		}
	}
	if p.from == p.until {
		return report, dropIdle(ctx, repo, &p)
	}
	return report, nil
}

// shipper reads the segments of a log.
type shipper struct {
	from    wal.Options
	limiter *rate.Limiter // nil: no limit
	unpaced int64         // bytes that were read since the limiter was asked, which costs more than a record
	report  *ShipReport
}

// read calls put for the records of a part.
func (s *shipper) read(ctx context.Context, p *logPart, put func(first uint64, batch []byte) error) error {
	for n := p.from; n < p.until; n++ {
		var failed error
		err := wal.Read(s.from, n, func(r wal.Record) error {
			if s.unpaced += int64(len(r.Payload)); s.unpaced >= chunk {
				failed, s.unpaced = pace(ctx, s.limiter, s.unpaced), 0
			}
			if failed == nil {
				failed = put(r.Position, r.Payload)
			}
			s.report.Records++
			s.report.Bytes += int64(len(r.Payload))
			return failed
		})
		switch {
		case failed != nil:
			return failed
		case isMissing(err):
			return fmt.Errorf("%w: segment %d of the log has gone: the kept log had reached its limit, or another 'backup log' runs; call it again: %w", ErrSource, n, err)
		case errors.Is(err, wal.ErrCorrupt):
			return fmt.Errorf("%w: %w; to go on behind it, end and begin to keep the log: 'backup create --keep-log 0', and then with a size", ErrSource, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// dropIdle deletes the parts between the first and the last one of those that say of an idle store that its log is
// complete. The first one may have notes that the last one lacks.
func dropIdle(ctx context.Context, repo Repository, p *logPart) error {
	parts, err := logParts(ctx, repo, fmt.Sprintf("%s/%d-%d-%d.", p.store, p.from, p.until, p.changes))
	list := parts[p.store]
	for i := 1; err == nil && i < len(list)-1; i++ {
		err = repo.Delete(ctx, list[i].name())
	}
	return err
}
