package instances

// Stores of a home that no process has open, one after the other.

import (
	"errors"
	"os"
	"path/filepath"

	flagstone "github.com/flagstone-db/flagstone"
)

// EachStore opens the stores of a home, to be read only, and calls a function for
// each, with its directory within that of the home.
func EachStore(dir string, use func(within string, store *flagstone.Store) error) error {
	opts := flagstone.Options{ReadOnly: true}
	if err := withStore(dir, ".", opts, use); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, CapacityDir)); err != nil {
		return nil // there is none
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

// CopyRegistry copies the registry of a home, if it has one, to another
// directory.
func CopyRegistry(dir, to string) error {
	r, found, err := loadRegistry(dir)
	if err != nil || !found {
		return err
	}
	return r.save(to)
}
