package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

type checkCommand struct {
	Dir   string `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the store." type:"path"`
	Quiet bool   `short:"q" help:"Print problems only."`
}

// Help is the long help of the command.
func (checkCommand) Help() string {
	return `Reads the manifest, every block of every table file, and the log with its spare files, for capacity instances too, the registry of instances and the files of access keys and administration, and compares all of it with the checksums and with each other. Nothing is changed. Each problem is one line on standard output; the exit status is 0 if there is none.`
}

// Run checks the store.
func (k *checkCommand) Run(ctx context.Context, c *output) error {
	if info, err := os.Stat(k.Dir); err != nil {
		return fmt.Errorf("no store to check: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("no store to check: %s is no directory", k.Dir)
	}
	problems := 0
	_, err := readCredentials(filepath.Join(k.Dir, credentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, err := range []error{instances.Verify(k.Dir), err, admin.Verify(k.Dir)} {
		if err != nil {
			problems++
			fmt.Fprintln(c.out, oneLine(err))
		}
	}
	dirs := []string{k.Dir}
	if capacity := filepath.Join(k.Dir, instances.CapacityDir); exists(capacity) {
		dirs = append(dirs, capacity)
	}
	for _, dir := range dirs {
		n, err := k.check(ctx, c, dir)
		if err != nil {
			return err
		}
		problems += n
	}
	if problems > 0 {
		return fmt.Errorf("%d problems found in %s; restore a backup ('flagstone restore'), or the files they name from a copy of the store; without either, 'flagstone salvage' makes a new store of what is intact", problems, k.Dir)
	}
	if !k.Quiet {
		fmt.Fprintln(c.out, "no problem found")
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// check prints and counts the problems of one store.
func (k *checkCommand) check(ctx context.Context, c *output, dir string) (problems int, err error) {
	files := 0
	report, err := flagstone.Check(ctx, dir, flagstone.Options{}, func(file string) {
		if files++; !k.Quiet {
			fmt.Fprintf(c.err, "checking %s\n", file)
		}
	})
	if errors.Is(err, flagstone.ErrLocked) {
		return 0, fmt.Errorf("%w; stop it first", err)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot check the store in %s: %w", dir, err)
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(c.out, oneLine(problem))
	}
	if !k.Quiet {
		fmt.Fprintf(c.out, "%s: %d tables, %d table files with %d rows and %d cells in %d bytes, %d value files with %d values in %d bytes, %d log records in %d bytes, %d files left over\n",
			dir, report.Tables, report.TableFiles, report.Rows, report.Cells, report.FileBytes,
			report.ValueFiles, report.Values, report.ValueBytes,
			report.LogRecords, report.LogBytes, len(report.Orphans))
	}
	return len(report.Problems), nil
}
