package main

// This command restores a backup: all of it, a moment behind it, or one table into a store.

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

type restoreCommand struct {
	ofBackup
	at
	quietly
	To       string `xor:"target" required:"" placeholder:"DIR" type:"path" help:"Directory to make; it must be empty or not exist."`
	At       string `placeholder:"TIME" help:"The moment to restore, which is included, as 2026-11-27T10:00:00Z or 2026-11-27T10:00:00.123456Z: from the newest backup before it, or the one that is named, and the log that 'backup log' has put."`
	As       string `xor:"target" required:"" placeholder:"TABLE" help:"Restore one table, --table, into the store --dir under this name, also while a server runs."`
	Table    string `placeholder:"TABLE" help:"The table of the backup; with --as, which is its name if this is not given."`
	Instance string `default:"demo" env:"FLAGSTONE_INSTANCE" help:"Instance of --table, ${default} if not given."`
	Into     string `placeholder:"INSTANCE" help:"Instance that gets the table --as; --instance if not given."`
}

// Help is the long help of the command.
func (restoreCommand) Help() string {
	return `Restores the newest backup, or the one that is named, as it must be if the repository has those of several stores and --store names none, with its instances and access keys, and verifies every byte. 'flagstone serve --dir DIR' then serves it. Until all is there the directory is named DIR.partial, and if the command is killed, that can be deleted.

  flagstone restore /mnt/backups --to ./restored
  flagstone serve --dir ./restored

With --as one table comes back into the store --dir, beside the tables that are there. Its rows keep their versions; it has the options of the backup, and no stream. All rows appear at once, at the end. If the command is killed, there is no table, and what it had read is left in the folder 'arrivals' of the store; the next start of the server deletes it.

  flagstone restore /mnt/backups --table orders --as orders_of_monday

With --at, the store or the table comes back as it was at that moment, for which the log must have been kept. --as restores all of a store into that folder first, and wants the log of all stores to reach the moment.

  flagstone restore /mnt/backups --at 2026-11-27T10:00:00Z --table orders --as orders_then`
}

// Run restores a backup, or a table of one.
func (r *restoreCommand) Run(ctx context.Context, c *output) error {
	if r.As != "" {
		return r.with(ctx, toChange, func(home admin.Admin) error { return r.table(ctx, c, home) })
	}
	if r.Table != "" || r.Into != "" {
		return misuse("--table and --into go with --as, and not with --to")
	}
	var what string
	var err error
	if r.At != "" {
		what, err = r.restoreAt(ctx, c, r.At, func(archive *backup.Archive, name string, micros int64) (string, []error, error) {
			return archive.RestoreAt(ctx, name, micros, vfs.OS(), r.To, r.progress(c, "restored"))
		})
		what = r.At + ", from backup " + what + ","
	} else {
		what, err = r.restore(ctx, r.To, r.progress(c, "restored"))
	}
	switch partial := r.To + ".partial"; {
	case err == nil:
		_, err = fmt.Fprintf(c.out, "restored %s to %s\n", what, r.To)
	case ended(err) && exists(partial):
		err = leaving(err, "%s is left, and can be deleted", partial)
	case ended(err):
		err = leaving(err, "nothing of the restore is left")
	}
	return err
}

// table restores a table into a home.
func (r *restoreCommand) table(ctx context.Context, c *output, home admin.Admin) (err error) {
	table, into := cmp.Or(r.Table, r.As), cmp.Or(r.Into, r.Instance)
	switch _, err := home.Table(ctx, into, r.As); { // before the work
	case err == nil:
		return fmt.Errorf("instance %s has a table %s; give another name with --as", into, r.As)
	case !errors.Is(err, instances.ErrNotFound):
		return err
	}
	within := rand.Text()
	dir := filepath.Join(r.Dir, instances.ArrivalsDir, within)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	name, err := r.readTable(ctx, c, dir, r.Instance+"/"+table)
	if ended(err) {
		return leaving(err, "the store has no new table")
	} else if err != nil {
		return err
	}
	if err := home.TakeTable(ctx, within, into, r.As); ended(err) {
		return leaving(err, "it is not known whether the store has the new table")
	} else if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "restored table %s of %s as %s of instance %s\n", table, name, r.As, into)
	return nil
}

// readTable makes a directory a store with one table of a backup, or of a moment behind it, and says which.
func (r *restoreCommand) readTable(ctx context.Context, c *output, dir, table string) (what string, err error) {
	if r.At != "" {
		name, err := r.restoreAt(ctx, c, r.At, func(archive *backup.Archive, name string, micros int64) (string, []error, error) {
			return archive.RestoreTableAt(ctx, name, micros, vfs.OS(), dir, table, r.progress(c, "read"))
		})
		return r.At + ", from backup " + name + ",", err
	}
	archive, err := r.archive(ctx)
	if err != nil {
		return "", err
	}
	name, err := archive.Find(ctx, r.Backup)
	if err != nil {
		return "", err
	}
	return name, archive.RestoreTable(ctx, name, vfs.OS(), dir, table, r.progress(c, "read"))
}

// restore restores a backup to a directory, and returns its name.
func (b *ofBackup) restore(ctx context.Context, to string, progress func(backup.Progress)) (name string, err error) {
	archive, err := b.archive(ctx)
	if err != nil {
		return "", err
	}
	if name, err = archive.Find(ctx, b.Backup); err != nil {
		return "", err
	}
	return name, archive.Restore(ctx, name, vfs.OS(), to, progress)
}

// restoreAt calls restore for a moment, with the name of the backup that the caller wants it to begin with, "" for any. It
// returns that of the backup that it began with, and prints why it passed over newer ones.
func (b *ofBackup) restoreAt(ctx context.Context, c *output, moment string, restore func(archive *backup.Archive, name string, micros int64) (string, []error, error)) (name string, err error) {
	at, err := time.Parse(time.RFC3339Nano, moment)
	if err != nil {
		return "", misuse("--at: %q is no time; write one as 2026-11-27T10:00:00Z or 2026-11-27T10:00:00.123456Z", moment)
	}
	archive, err := b.archive(ctx)
	if err != nil {
		return "", err
	}
	if b.Backup != "" {
		if name, err = archive.Find(ctx, b.Backup); err != nil {
			return "", err
		}
	}
	name, unread, err := restore(archive, name, at.UnixMicro())
	if b.Backup == "" && errors.Is(err, backup.ErrDamaged) && !errors.Is(err, backup.ErrMoment) {
		return "", fmt.Errorf("%w; if an object of that backup is damaged, name an older one, and --at reads more of the log", err)
	}
	for _, newer := range unread {
		fmt.Fprintf(c.err, "flagstone: not used, since it cannot be read: %s\n", oneLine(newer))
	}
	return name, err
}
