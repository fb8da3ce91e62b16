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
	"github.com/flagstone-db/flagstone/internal/clock"
)

type clockCommand struct {
	Dir  string `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the store." type:"path"`
	Into string `help:"Copy the store into this directory, which must not exist or be empty, and begin with the clock as it is now." type:"path"`
}

// Help is the long help of the command.
func (clockCommand) Help() string {
	return `Says what a store that no process has open makes of its clock: what versions are stamped with, and by what time expired data is dropped.

Times that were stamped while the clock was far ahead stay, and those stamped later are not below them. Once the clock is right, --into makes a copy that is rid of them: rows and tables as they are visible, with versions of now where they lie further ahead than the table allows; streams begin anew. The old directory is not changed. Serve the new one, and delete the old one when you are sure.`
}

// Run prints the clocks, and copies the stores if --into is given.
func (k *clockCommand) Run(ctx context.Context, c *output) error {
	err := instances.EachStore(k.Dir, flagstone.Options{}, func(within string, store *flagstone.Store) error {
		fmt.Fprintf(c.out, "%s: %s\n", filepath.Join(k.Dir, within), describeClock(store.Clock(), k.Into != ""))
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

// describeClock describes the clock of a store. If versions are stamped more than an hour ahead
// and no copy is being made, it names the way back.
func describeClock(k flagstone.ClockInfo, copying bool) string {
	const hour = int64(time.Hour / time.Millisecond)
	ahead, left := k.IssuedMillis-k.WallMillis, max(hour-k.Stood.Milliseconds(), 0)
	said := "the clock shows " + moment(k.WallMillis)
	if ahead > 0 {
		said += fmt.Sprintf("; versions are stamped from %s on, %s ahead", moment(k.IssuedMillis), clock.Span(ahead))
	}
	if !k.Believed {
		said += fmt.Sprintf("; nothing is dropped as expired yet: %s of running time to go", clock.Span(left))
	} else {
		said += "; expired data is dropped by " + moment(k.TrustedMillis)
		if behind := k.WallMillis - k.TrustedMillis; behind >= 1000 {
			said += fmt.Sprintf(", %s behind, for another %s of running time", clock.Span(behind), clock.Span(left))
		}
	}
	if ahead > hour && !copying {
		said += "; if the clock is right now, the way back is a copy: flagstone clock --into NEW"
	}
	return said
}

// copy copies the stores and the credentials file.
func (k *clockCommand) copy(ctx context.Context, c *output) error {
	// Read this first, so that a file that cannot be copied fails before the long copy.
	credentials, err := readSecret(filepath.Join(k.Dir, credentialsFile))
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
