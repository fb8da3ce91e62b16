package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
)

type clockCommand struct {
	Dir  string `default:"./flagstone-data" help:"Directory of the store." type:"path"`
	Into string `help:"Copy the store into this directory, which must not exist or be empty, and begin with the clock as it is now." type:"path"`
}

// Help is the long help of the command.
func (clockCommand) Help() string {
	return `Says what a store that no process has open makes of its clock: what versions are stamped with, and by what time expired data is dropped.

Times that were stamped while the clock was far ahead stay, and those stamped later are not below them. Once the clock is right, --into makes a copy that is rid of them: rows and tables as they are visible, with versions of now where they lie further ahead than the table allows; streams begin anew. The old directory is not changed. Serve the new one, and delete the old one when you are sure.`
}

// Run prints the clocks, and copies the stores if it is asked to.
func (k *clockCommand) Run(ctx context.Context, c *console) error {
	err := instances.EachStore(k.Dir, func(within string, store *flagstone.Store) error {
		clock := store.Clock()
		fmt.Fprintf(c.out, "%s: the clock shows %s; versions are stamped from %s on, %v ahead; expired data is dropped by %s, and the clock has stood for %v of an hour\n",
			filepath.Join(k.Dir, within), moment(clock.WallMillis), moment(clock.IssuedMillis),
			time.Duration(max(clock.IssuedMillis-clock.WallMillis, 0))*time.Millisecond, moment(clock.TrustedMillis), clock.Stood)
		return nil
	})
	if err == nil && k.Into != "" {
		err = k.copy(ctx, c)
	}
	if errors.Is(err, flagstone.ErrLocked) {
		return fmt.Errorf("%w; stop it first", err)
	}
	return err
}

// copy copies the stores, with what lies beside them.
func (k *clockCommand) copy(ctx context.Context, c *console) error {
	// First: what cannot be copied is not found out in the end.
	credentials, err := readCredentials(filepath.Join(k.Dir, credentialsFile))
	none := errors.Is(err, fs.ErrNotExist)
	if err != nil && !none {
		return err
	}
	beside := func(into string) error {
		if none {
			return nil
		}
		return writeSecret(filepath.Join(into, credentialsFile), credentials)
	}
	return instances.Copy(ctx, k.Dir, k.Into, beside, func(within string, report flagstone.CopyReport) {
		fmt.Fprintf(c.out, "%s: copied %d tables, %d rows and %d cells; %d versions lay too far ahead and are those of now\n",
			filepath.Join(k.Into, within), report.Tables, report.Rows, report.Cells, report.Restamped)
	})
}
