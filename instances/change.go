package instances

// This file creates and deletes instances and their access keys. A change is durable in the
// registry before it takes effect, and then requests see it at once.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

// KeysPerInstance is the number of access keys that an instance may have: two, so that clients
// can switch to a new key before the old one is removed.
const KeysPerInstance = 2

// Errors that callers distinguish.
var (
	ErrNotFound  = errors.New("not found")
	ErrExists    = errors.New("exists already")
	ErrQuota     = errors.New("quota exhausted")
	ErrInvalid   = errors.New("invalid")
	ErrHasTables = errors.New("has tables")

	errClosed = errors.New("the home of instances is closed")
)

// Info describes an instance.
type Info struct {
	Name          string           `json:"name"`
	Type          ots.InstanceType `json:"type"`
	CreatedMillis int64            `json:"created_millis"`
	Tables        int              `json:"tables"`
	Bytes         int64            `json:"bytes"` // approximate size of its tables, in memory and on disk
	Keys          []KeyInfo        `json:"keys"`
}

// KeyInfo is the public part of an access key.
type KeyInfo struct {
	ID            string `json:"id"`
	CreatedMillis int64  `json:"created_millis"`
}

// List describes all instances, by name.
func (h *Home) List(ctx context.Context) ([]Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed
	}
	infos := []Info{}
	for _, in := range h.registry.Instances {
		if in.Deleting {
			continue
		}
		info := Info{Name: in.Name, Type: in.Type, CreatedMillis: in.CreatedMillis, Keys: []KeyInfo{}}
		for _, k := range in.Keys {
			info.Keys = append(info.Keys, KeyInfo{ID: k.ID, CreatedMillis: k.CreatedMillis})
		}
		var err error
		if info.Tables, info.Bytes, err = h.rooms[in.Type].engine.Usage(ctx, in.Name); err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Create makes an instance, which is usable when the call returns. Errors match ErrInvalid,
// ErrExists or ErrQuota, or are those of the store.
func (h *Home) Create(ctx context.Context, name string, kind ots.InstanceType) error {
	if err := ots.CheckInstanceName(name, h.opts.Limits); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if kind != ots.HighPerformance && kind != ots.Capacity {
		return fmt.Errorf("%w: instance type %q, want %s or %s", ErrInvalid, kind, ots.HighPerformance, ots.Capacity)
	}
	done, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	return h.change(func(r *registry) error {
		switch in := r.find(name); {
		case in != nil && in.Deleting:
			return fmt.Errorf("%w: instance %q is being deleted", ErrExists, name)
		case in != nil:
			return fmt.Errorf("%w: instance %q, of type %s", ErrExists, name, in.Type)
		case len(r.Instances) >= h.opts.Limits.Instances:
			return fmt.Errorf("%w: the number of instances cannot exceed %d", ErrQuota, h.opts.Limits.Instances)
		}
		for other, room := range h.rooms {
			if had := room.tablesOf(name); had != "" && (other != kind || had != name) {
				return fmt.Errorf("%w: tables of an instance %q, of type %s; create it with that name and type to have them back", ErrExists, had, other)
			}
		}
		if _, err := h.room(ctx, kind); err != nil { // fail before the registry lists the instance
			return err
		}
		r.add(&record{Name: name, Type: kind, CreatedMillis: h.now()})
		return nil
	}, func() error { return h.serve(ctx, h.registry.find(name)) })
}

// Delete removes an instance, its access keys and, if withTables is set, its tables. Without
// withTables it fails with ErrHasTables if there are any. Requests for the instance are refused
// as soon as the deletion begins.
func (h *Home) Delete(ctx context.Context, name string, withTables bool) error {
	done, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.changeable(); err != nil {
		return err
	}
	in := h.registry.find(name)
	if in == nil {
		return fmt.Errorf("%w: instance %q", ErrNotFound, name)
	}
	if engine := h.rooms[in.Type].engine; !in.Deleting && !withTables {
		if n, _, err := engine.Usage(ctx, in.Name); err != nil {
			return err
		} else if n > 0 {
			return fmt.Errorf("%w: instance %q has %d tables", ErrHasTables, in.Name, n)
		}
	}
	next := h.registry.clone()
	marked := next.find(in.Name)
	marked.Deleting, marked.Keys = true, nil
	if err := next.save(h.dir); err != nil {
		return err
	}
	h.registry = next
	h.publish()
	return h.finishDelete(ctx, marked)
}

// finishDelete drops the tables of an instance that is marked as deleting, and removes its
// record. After a failure, Open or Delete tries again. REQUIRES: mu is held.
func (h *Home) finishDelete(ctx context.Context, in *record) error {
	r, err := h.room(ctx, in.Type)
	if err != nil {
		return err
	}
	if r.engine == nil { // no other instance has its type
		if err := h.serve(ctx, &record{Name: in.Name, Type: in.Type}); err != nil {
			return err
		}
	}
	if err := r.engine.RemoveInstance(ctx, in.Name); err != nil {
		return fmt.Errorf("the deletion of instance %q is not complete, delete it again: %w", in.Name, err)
	}
	next := h.registry.clone()
	next.Instances = slices.DeleteFunc(next.Instances, func(o *record) bool { return o.Name == in.Name })
	if err := next.save(h.dir); err != nil {
		return err
	}
	h.registry = next
	h.publish()
	h.opts.Logger.Info("instance deleted", "instance", in.Name)
	return nil
}

// AddKey makes an access key for an instance, which works at once. No later call returns the
// secret. Errors match ErrNotFound or ErrQuota.
func (h *Home) AddKey(_ context.Context, instance string) (Key, error) {
	key := NewKey()
	err := h.change(func(r *registry) error {
		in, err := r.served(instance)
		if err != nil {
			return err
		}
		if len(in.Keys) >= KeysPerInstance {
			return fmt.Errorf("%w: instance %q has %d access keys; remove the one that is not used any more", ErrQuota, instance, len(in.Keys))
		}
		key.CreatedMillis = h.now()
		in.Keys = append(in.Keys, key)
		return nil
	}, nil)
	return key, err
}

// RemoveKey removes an access key: the next request signed with it is refused. Errors match
// ErrNotFound.
func (h *Home) RemoveKey(_ context.Context, instance, id string) error {
	return h.change(func(r *registry) error {
		in, err := r.served(instance)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(in.Keys, func(k Key) bool { return k.ID == id })
		if i < 0 {
			return fmt.Errorf("%w: instance %q has no access key %q", ErrNotFound, instance, id)
		}
		in.Keys = slices.Delete(in.Keys, i, i+1)
		return nil
	}, nil)
}

// NewKey makes a random access key.
func NewKey() Key {
	return Key{ID: "flagstone" + rand.Text()[:12], Secret: rand.Text() + rand.Text()}
}

// served returns the record of an instance that is not being deleted.
func (r *registry) served(name string) (*record, error) {
	in := r.find(name)
	if in == nil || in.Deleting {
		return nil, fmt.Errorf("%w: instance %q", ErrNotFound, name)
	}
	return in, nil
}

// changeable returns an error if nothing can be changed. REQUIRES: mu is held.
func (h *Home) changeable() error {
	switch {
	case h.closed:
		return errClosed
	case h.opts.Store.ReadOnly:
		return flagstone.ErrReadOnly
	}
	return nil
}

// beginChange waits until no instance is created or deleted, and no checkpoint is made. done ends that for the caller.
func (h *Home) beginChange(ctx context.Context) (done func(), err error) {
	select {
	case h.changing <- struct{}{}:
		return func() { <-h.changing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// change edits a copy of the registry, saves it, and calls then, which may be nil. After that
// it shows the change to requests.
func (h *Home) change(edit func(*registry) error, then func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.changeable(); err != nil {
		return err
	}
	next := h.registry.clone()
	if err := edit(next); err != nil {
		return err
	}
	if err := next.save(h.dir); err != nil {
		return err
	}
	h.registry = next
	if then != nil {
		if err := then(); err != nil {
			return err
		}
	}
	h.publish()
	return nil
}
