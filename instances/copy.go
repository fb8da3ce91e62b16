package instances

// This file opens and copies the stores of a home that no process has open, one after the
// other.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	flagstone "github.com/flagstone-db/flagstone"
)

// EachStore opens the stores of a home read-only, and calls use for each, with its directory
// relative to the home. opts are those of the high-performance store.
func EachStore(dir string, opts flagstone.Options, use func(within string, store *flagstone.Store) error) error {
	opts.ReadOnly = true
	if err := withStore(dir, ".", opts, use); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, CapacityDir)); err != nil {
		return nil // no capacity store
	}
	return withStore(dir, CapacityDir, capacityOptions(opts), use)
}

func withStore(dir, within string, opts flagstone.Options, use func(within string, store *flagstone.Store) error) error {
	store, err := flagstone.Open(filepath.Join(dir, within), opts)
	if err != nil {
		return err
	}
	return errors.Join(use(within, store), store.Close())
}

// Copy copies the home in dir, which no process has open, to the directory into, which must be
// empty or not exist: its stores by flagstone.Store.CopyTo, and its registry. beside copies
// other files durably. The directory gets its name only when all is there. Copy calls copied
// for each report.
func Copy(ctx context.Context, dir, into string, beside func(into string) error, copied func(within string, report flagstone.CopyReport)) error {
	if err := refuseInside(dir, into); err != nil {
		return err
	}
	opts := flagstone.Options{ReadOnly: true}
	return withStore(dir, ".", opts, func(_ string, store *flagstone.Store) error {
		r, found, err := loadRegistry(dir)
		if err != nil {
			return err
		}
		report, err := store.CopyTo(ctx, into, func(partial string) error {
			if _, err := os.Stat(filepath.Join(dir, CapacityDir)); err == nil {
				err := withStore(dir, CapacityDir, capacityOptions(opts), func(within string, store *flagstone.Store) error {
					report, err := store.CopyTo(ctx, filepath.Join(partial, within), nil)
					if err == nil {
						copied(within, report)
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			if found {
				if err := r.save(partial); err != nil {
					return err
				}
			}
			return beside(partial)
		})
		if err == nil {
			copied(".", report)
		}
		return err
	})
}

// refuseInside returns ErrInvalid if into lies in dir, also through links.
func refuseInside(dir, into string) error {
	home, err := os.Stat(dir)
	if err != nil {
		return err
	}
	at, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	for {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			at = real
		}
		if st, err := os.Stat(at); err == nil && os.SameFile(home, st) {
			return fmt.Errorf("%w: %s lies in the store that is to be copied, %s", ErrInvalid, into, dir)
		}
		parent := filepath.Dir(at)
		if parent == at {
			return nil
		}
		at = parent
	}
}
