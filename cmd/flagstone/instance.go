package main

// This file holds the commands that change instances and their access keys. A server that has
// the store open performs them, and requests see the change at once. Without a server, the
// command opens the store itself.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/ots"
)

type instanceCommand struct {
	List   instanceListCommand   `cmd:"" help:"List instances: type, tables, size, access keys."`
	Create instanceCreateCommand `cmd:"" help:"Make an instance."`
	Delete instanceDeleteCommand `cmd:"" help:"Delete an instance and its access keys."`
	Key    keyCommand            `cmd:"" help:"Access keys of one instance."`
}

type keyCommand struct {
	Add    keyAddCommand    `cmd:"" help:"Make an access key that opens one instance, and print it."`
	List   keyListCommand   `cmd:"" help:"List the access keys of an instance, without secrets."`
	Remove keyRemoveCommand `cmd:"" help:"Take an access key away."`
}

// Help is the long help of the command.
func (keyCommand) Help() string {
	return `An instance may have two access keys beside that of the account, which opens every instance. To rotate: add a key, hand it out, remove the old one. Changes are good for the next request, without a restart.`
}

// at is the directory that the commands work on.
type at struct {
	Dir string `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the store." type:"path"`

	found bool   // no endpoint was given, and it is that of the server that has Dir open
	keyID string // the account's access key of that server; "" if the server does not tell
}

// intent is the kind of access that a command needs.
type intent int

const (
	toRead   intent = iota // writes nothing
	toChange               // needs an existing home
	toMake                 // makes the home if there is none
)

// open opens the home, or connects to the server that has it open.
func (a *at) open(ctx context.Context, want intent) (admin.Admin, error) {
	client, err := admin.Connect(ctx, a.Dir)
	if err == nil {
		return client, nil
	}
	if !errors.Is(err, admin.ErrNoServer) {
		return nil, err
	}
	if want != toMake && !exists(filepath.Join(a.Dir, "CURRENT")) {
		return nil, fmt.Errorf("no store in %s; name it with --dir, or make one with 'flagstone serve' or 'flagstone instance create'", a.Dir)
	}
	home, err := instances.OpenContext(ctx, a.Dir, instances.Options{Store: flagstone.Options{CacheSize: 1 << 20, ReadOnly: want == toRead}})
	if errors.Is(err, flagstone.ErrLocked) {
		return nil, fmt.Errorf("%w; it is not a server that answers on its administration port: wait until it is ready, or stop it", err)
	}
	if err != nil {
		return nil, explain(err, a.Dir)
	}
	return home, nil
}

// with runs f on the home.
func (a *at) with(ctx context.Context, want intent, f func(admin.Admin) error) (err error) {
	home, err := a.open(ctx, want)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	return f(home)
}

type instanceListCommand struct{ at }

// Run prints the instances.
func (l *instanceListCommand) Run(ctx context.Context, c *output) error {
	return l.with(ctx, toRead, func(home admin.Admin) error {
		infos, err := home.List(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tTYPE\tTABLES\tBYTES\tKEYS\tCREATED")
		for _, in := range infos {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", in.Name, in.Type, in.Tables, in.Bytes, len(in.Keys), moment(in.CreatedMillis))
		}
		return w.Flush()
	})
}

func moment(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }

type instanceCreateCommand struct {
	at
	Name string           `arg:"" help:"3 to 16 letters, digits and hyphens, a letter first, no hyphen last."`
	Type ots.InstanceType `default:"high-performance" enum:"high-performance,capacity" help:"high-performance, or capacity: less space, slower reads, no reserved throughput."`
}

// Run makes an instance.
func (k *instanceCreateCommand) Run(ctx context.Context, c *output) error {
	// Check first, so that an invalid name makes no store.
	if err := ots.CheckInstanceName(k.Name, ots.Current()); err != nil {
		return err
	}
	comes := k.Name == instances.DefaultName && !exists(filepath.Join(k.Dir, "CURRENT")) // with the new store
	return k.with(ctx, toMake, func(home admin.Admin) error {
		err := home.Create(ctx, k.Name, k.Type)
		switch had := comes && errors.Is(err, instances.ErrExists); {
		case had && k.Type != ots.HighPerformance:
			return fmt.Errorf("%w; a new store has it: delete it with 'flagstone instance delete %s --dir %s', and repeat the command", err, k.Name, k.Dir)
		case err != nil && !had:
			return err
		}
		fmt.Fprintf(c.err, "flagstone: made instance %s of type %s\n", k.Name, k.Type)
		return nil
	})
}

type instanceDeleteCommand struct {
	at
	Name       string `arg:"" help:"The instance."`
	WithTables bool   `help:"Delete its tables, too. Without it an instance that has tables is left alone."`
}

// Run deletes an instance.
func (d *instanceDeleteCommand) Run(ctx context.Context, c *output) error {
	return d.with(ctx, toChange, func(home admin.Admin) error {
		err := home.Delete(ctx, d.Name, d.WithTables)
		if errors.Is(err, instances.ErrHasTables) {
			return fmt.Errorf("%w; --with-tables deletes them, too", err)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.err, "flagstone: deleted instance %s\n", d.Name)
		return nil
	})
}

type keyAddCommand struct {
	at
	Name string `arg:"" help:"The instance."`
	File string `type:"path" placeholder:"FILE" help:"Write the key to this new file, which only its owner can read, instead of printing it."`
}

// Run makes a key and prints or writes it in the form of environment variables.
func (k *keyAddCommand) Run(ctx context.Context, c *output) error {
	return k.with(ctx, toChange, func(home admin.Admin) error {
		var file *os.File
		if k.File != "" { // first, so that no key is made that cannot be written
			var err error
			if file, err = os.OpenFile(k.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return err
			}
		}
		key, err := home.AddKey(ctx, k.Name)
		if err != nil {
			if file != nil {
				err = errors.Join(err, file.Close(), os.Remove(k.File))
			}
			return err
		}
		lines := credentialLines(key.ID, key.Secret)
		if file == nil {
			fmt.Fprint(c.out, lines)
			return nil
		}
		_, err = file.WriteString(lines)
		return errors.Join(err, file.Sync(), file.Close())
	})
}

type keyListCommand struct {
	at
	Name string `arg:"" help:"The instance."`
}

// Run prints the ids of the keys.
func (k *keyListCommand) Run(ctx context.Context, c *output) error {
	return k.with(ctx, toRead, func(home admin.Admin) error {
		infos, err := home.List(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(infos, func(in instances.Info) bool { return in.Name == k.Name })
		if i < 0 {
			i = slices.IndexFunc(infos, func(in instances.Info) bool { return strings.EqualFold(in.Name, k.Name) })
		}
		if i < 0 {
			return fmt.Errorf("%w: instance %q", instances.ErrNotFound, k.Name)
		}
		for _, key := range infos[i].Keys {
			fmt.Fprintf(c.out, "%s  made %s\n", key.ID, moment(key.CreatedMillis))
		}
		return nil
	})
}

type keyRemoveCommand struct {
	at
	Name string `arg:"" help:"The instance."`
	ID   string `arg:"" name:"access-key-id" help:"The id of the key."`
}

// Run removes a key.
func (k *keyRemoveCommand) Run(ctx context.Context, c *output) error {
	return k.with(ctx, toChange, func(home admin.Admin) error {
		if err := home.RemoveKey(ctx, k.Name, k.ID); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "flagstone: removed access key %s of instance %s\n", k.ID, k.Name)
		return nil
	})
}
