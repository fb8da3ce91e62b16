package instances

// This file takes a table of another store into an instance, from a store that a restore has put into the home's
// directory.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/flagstone-db/flagstone"
)

// ArrivalsDir is the directory, within that of the home, of stores whose tables are about to come into the home. What is
// left in it goes at the next opening.
const ArrivalsDir = "arrivals"

// TakeTable makes a table of an instance that holds what the only table of a store holds: options, rows and versions, but
// no stream. The store lies in the directory within of ArrivalsDir, and no process has it open. Requests are served
// meanwhile; the creation and deletion of instances waits, and so does a checkpoint. The table appears at once. After an error nothing of it is
// there. Errors match ErrNotFound, ErrExists, ErrInvalid or ErrRefused, or are those of flagstone.Store.Ingest.
func (h *Home) TakeTable(ctx context.Context, within, instance, table string) (err error) {
	if within == "" || filepath.Base(within) != within || !filepath.IsLocal(within) {
		return fmt.Errorf("%w: %q is no directory of %s", ErrInvalid, within, ArrivalsDir)
	}
	if h.opts.Store.Seams.FS != nil {
		return fmt.Errorf("%w: the stores are in memory", ErrInvalid)
	}
	done, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	engine, name, err := h.service(instance)
	if err != nil {
		return err
	}
	stored, err := engine.NameFor(ctx, name, table)
	if err != nil {
		return refusal(err, instance, table)
	}
	dir := filepath.Join(h.dir, ArrivalsDir, within)
	if _, err := os.Stat(filepath.Join(dir, "CURRENT")); err != nil { // else Open would make a store
		return fmt.Errorf("%w: no store is in %s: %w", ErrInvalid, dir, err)
	}
	from, err := flagstone.Open(dir, flagstone.Options{CacheSize: 1 << 20, MemoryBudget: 8 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	tables := from.Tables()
	if len(tables) != 1 {
		return fmt.Errorf("%w: %s has %d tables, want one", ErrInvalid, dir, len(tables))
	}
	export, err := tables[0].Export(ctx, dir+"-files", flagstone.ExportOptions{As: stored})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, export.Release()) }()
	h.mu.Lock()
	to := h.rooms[h.registry.find(name).Type].store
	h.mu.Unlock()
	for i := range export.Files {
		if err = stage(ctx, to, export, i); err != nil {
			break
		}
	}
	if err == nil {
		err = to.Ingest(ctx, export.Fragment)
	}
	if err != nil { // no other Ingest runs: it would be within beginChange, too
		return errors.Join(err, to.DiscardStaged())
	}
	h.opts.Logger.Info("table restored", "instance", name, "table", table, "from", tables[0].Name())
	return nil
}

// stage hands a file of an export to a store.
func stage(ctx context.Context, to *flagstone.Store, export *flagstone.Export, i int) error {
	content, err := export.Open(i)
	if err != nil {
		return err
	}
	f := export.Files[i]
	return errors.Join(to.StageFile(f.Name, f.Size, f.Checksum, untilEnd{ctx, content}), content.Close())
}

// untilEnd reads until its context ends.
type untilEnd struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u untilEnd) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
