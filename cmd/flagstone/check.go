package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

type checkCommand struct {
	Dir   string   `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the store." type:"path"`
	Quiet bool     `short:"q" help:"Print problems only."`
	Rate  byteRate `default:"${checkRate}" placeholder:"SIZE" help:"Bytes to read per second at most beside a server, ${default} if not given. Without a server there is no limit."`
}

// checkRate is the default of --rate.
const checkRate = "16MiB"

// Help is the long help of the command.
func (checkCommand) Help() string {
	return `Reads the manifest, every block of every table file, and the log with its spare files, for capacity instances too, the registry of instances and the files of access keys and administration, and compares all of it with the checksums and with each other. Nothing is changed. A server that has the store open checks its files itself, at a limited rate and past its caches, while it goes on to serve; it leaves out the log segment that it writes, and spare files. Its log and its metrics have the damage, too. Ctrl-C ends the check. Each problem is one line on standard output; the exit status is 0 if there is none.`
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
	var n int
	if server, err := admin.Connect(ctx, k.Dir); err == nil {
		n, err = k.checkServed(ctx, c, server)
		if err = errors.Join(err, server.Close()); err != nil {
			return err
		}
	} else if n, err = k.checkClosed(ctx, c); err != nil {
		return err
	}
	problems += n
	if problems > 0 {
		return fmt.Errorf("%s found in %s; restore a backup ('flagstone restore'), or the files they name from a copy of the store; without either, 'flagstone salvage' makes a new store of what is intact", countText(problems, "problem"), k.Dir)
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

// checkServed lets the server check its stores, and prints and counts the problems.
func (k *checkCommand) checkServed(ctx context.Context, c *output, server *admin.Client) (problems int, err error) {
	begun := time.Now()
	err = server.Check(ctx, int64(k.Rate), func(step instances.CheckStep) {
		switch {
		case step.Problem != "":
			problems++
			fmt.Fprintln(c.out, oneLine(errors.New(step.Problem)))
		case k.Quiet:
		case step.Report != nil:
			begun = time.Now() // of the next store
			fmt.Fprintf(c.out, "%s: %s\n", step.Store, checked(step.Report))
		default:
			fmt.Fprintf(c.err, "checking %s%s\n", step.File, howFar(time.Since(begun), step.Done, step.All))
		}
	})
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted; %d problems were found so far", problems)
	}
	return problems, err
}

// checkClosed checks the stores of a home that no process has open, and prints and counts the problems.
func (k *checkCommand) checkClosed(ctx context.Context, c *output) (problems int, err error) {
	dirs := []string{k.Dir}
	if capacity := filepath.Join(k.Dir, instances.CapacityDir); exists(capacity) {
		dirs = append(dirs, capacity)
	}
	for _, dir := range dirs {
		n, err := k.check(ctx, c, dir)
		if err != nil {
			return 0, err
		}
		problems += n
	}
	return problems, nil
}

// checked says what was checked.
func checked(r *flagstone.CheckReport) string {
	return fmt.Sprintf("%s, %s with %s and %s in %d bytes, %s with %s in %d bytes, %s in %d bytes",
		countText(r.Tables, "table"), countText(r.TableFiles, "table file"), countText(r.Rows, "row"), countText(r.Cells, "cell"), r.FileBytes,
		countText(r.ValueFiles, "value file"), countText(r.Values, "value"), r.ValueBytes, countText(r.LogRecords, "log record"), r.LogBytes)
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
		return 0, fmt.Errorf("%w; it is not a server that answers on its administration port: wait until it is ready, or stop it", err)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot check the store in %s: %w", dir, err)
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(c.out, oneLine(problem))
	}
	if !k.Quiet {
		fmt.Fprintf(c.out, "%s: %s, %s left over\n", dir, checked(&report), countText(len(report.Orphans), "file"))
	}
	return len(report.Problems), nil
}
