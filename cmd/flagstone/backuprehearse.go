package main

// This command tries a restore out.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

type backupRehearseCommand struct {
	ofBackup
	quietly
	Scratch string `placeholder:"DIR" type:"path" help:"Where to restore to for the while; the directory for temporary files if not given."`
	At      string `placeholder:"TIME" help:"Rehearse 'restore --at' of this moment, as 2026-11-27T10:00:00Z. There is nothing to compare the rows with."`
}

// Help is the long help of the command.
func (backupRehearseCommand) Help() string {
	return `Restores the newest backup, or the one that is named, runs what 'flagstone check' does, opens it, and prints how many rows each table has. If the backup was made with --digest, it compares rows, versions and values of each table with what the store had. If it is killed, a folder flagstone-rehearsal-... is left in the scratch directory, with the rows and access keys of the backup: delete it.`
}

// Run rehearses a restore.
func (b *backupRehearseCommand) Run(ctx context.Context, c *output) (err error) {
	scratch, err := os.MkdirTemp(b.Scratch, "flagstone-rehearsal-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	dir := filepath.Join(scratch, "store")
	var name string
	if b.At != "" {
		name, err = b.restoreAt(ctx, c, b.At, func(archive *backup.Archive, name string, micros int64) (string, []error, error) {
			return archive.RestoreAt(ctx, name, micros, vfs.OS(), dir, b.progress(c, "restored"))
		})
	} else {
		name, err = b.restore(ctx, dir, b.progress(c, "restored"))
	}
	if err != nil {
		return err
	}
	if err := (&checkCommand{Dir: dir, Quiet: true}).Run(ctx, c); err != nil {
		return err
	}
	// Opening the home compares the instances with the stores.
	home, err := instances.OpenContext(ctx, dir, instances.Options{Store: flagstone.Options{ReadOnly: true}})
	if err != nil {
		return err
	}
	if err := home.Close(); err != nil {
		return err
	}
	if b.At != "" {
		err = countRows(ctx, c, dir)
	} else {
		err = compareDigest(ctx, c, dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: no problem found\n", strings.TrimSuffix(name+" up to "+b.At, " up to "))
	return nil
}

// countRows prints the rows of each table of a home that was restored to a moment.
func countRows(ctx context.Context, c *output, dir string) error {
	got, err := takeDigest(ctx, dir, clock.System().NowMillis(), func(int) error { return nil })
	if err == nil {
		err = got.print(c)
	}
	if err == nil {
		fmt.Fprintln(c.out, "compared with nothing: a digest is of a backup, and not of a moment; rows that have expired since are not counted")
	}
	return err
}

// compareDigest prints the rows of each table, and compares a restored home with the digest of its backup.
func compareDigest(ctx context.Context, c *output, dir string) error {
	want, err := readDigest(filepath.Join(dir, digestFile))
	has := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		want.Millis = clock.System().NowMillis()
	case err != nil:
		return err
	}
	got, err := takeDigest(ctx, dir, want.Millis, func(int) error { return nil })
	if err != nil {
		return err
	}
	if err := got.print(c); err != nil {
		return err
	}
	if !has {
		fmt.Fprintln(c.out, "compared with nothing: the backup was made without --digest")
		return nil
	}
	differ := got.compare(&want)
	for _, line := range differ {
		fmt.Fprintln(c.out, line)
	}
	if len(differ) > 0 {
		return fmt.Errorf("%d tables differ from what was backed up", len(differ))
	}
	fmt.Fprintf(c.out, "all %d tables are as they were backed up\n", len(got.Tables))
	return nil
}
