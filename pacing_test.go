package flagstone

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// openBeside opens a store whose jobs run beside the test.
func openBeside(t *testing.T, opts Options) *Store {
	t.Helper()
	opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
	s, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// press puts a store under pressure: a write of a megabyte of noise owes a pause of some 100 ms, a small
// one nearly nothing.
func (s *Store) press() {
	s.gate.Flushed(100<<20, time.Second)
	s.gate.NoteTree("behind", func() (int, float64) { return 38, 0 })
}

// largeWrites are the ways to put a large value into row ("p", n).
func largeWrites(s *Store, table *Table) map[string]func(ctx context.Context, n int) error {
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	put := func(_ context.Context, tx *RowTx) error { tx.Put("c", Now, row.Binary(noise)); return nil }
	return map[string]func(ctx context.Context, n int) error{
		"Update": func(ctx context.Context, n int) error { return table.Update(ctx, Key("p", n), put) },
		"UpdateAsync": func(ctx context.Context, n int) error {
			c, err := table.UpdateAsync(ctx, Key("p", n), put)
			if err != nil {
				return err
			}
			return errors.Join(c.Wait(ctx), c.Wait(ctx)) // the second one does not pause
		},
		"Apply": func(ctx context.Context, n int) error {
			b := s.NewBatch()
			b.Row(table, Key("p", n)).Put("c", Now, row.Binary(noise))
			return s.Apply(ctx, b)
		},
		"Commit": func(ctx context.Context, n int) error {
			tx, err := table.Begin(ctx, row.String("p"), TransactionOptions{})
			if err == nil {
				err = tx.Update(ctx, Key("p", n), put)
			}
			if err == nil {
				err = tx.Commit(ctx)
			}
			return err
		},
	}
}

// TestAWriterPausesWhenItsWriteIsInPlace: the write is durable and visible, others can change its row, and a
// context that ends then ends the pause alone.
func TestAWriterPausesWhenItsWriteIsInPlace(t *testing.T) {
	for name := range largeWrites(nil, nil) {
		for _, external := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var opts Options
				l := &ownedLog{}
				if external {
					opts.External, opts.PartitionSplitSize = &External{Propose: l.propose}, -1
				}
				s := openBeside(t, opts)
				defer s.Close()
				l.leader = s
				table := createAnyhow(t, s)
				s.press()
				write := largeWrites(s, table)[name]
				if err := write(ctx(), 1); err != nil {
					t.Fatal(err)
				}
				paused := s.Metrics().Stalled
				if paused < 50*time.Millisecond || paused > time.Second {
					t.Errorf("%s: the writer paused for %v", name, paused)
				}
				within, end := context.WithCancel(ctx())
				done := make(chan error, 1)
				go func() { done <- write(within, 2) }()
				synctest.Wait()
				if r, err := table.Get(ctx(), Key("p", 2), ReadOptions{}); err != nil || !r.Exists() {
					t.Errorf("%s: the row is not visible while its writer pauses: %v", name, err)
				}
				if err := table.Put(ctx(), Key("p", 2), "other", Now, row.Integer(1)); err != nil {
					t.Errorf("%s: the row cannot be changed while its writer pauses: %v", name, err)
				}
				select {
				case err := <-done:
					t.Errorf("%s: the writer does not pause, or others wait for it: %v", name, err)
				default:
					end()
					if err := <-done; err != nil {
						t.Errorf("%s: the context ended while the writer paused: %v", name, err)
					}
				}
				end()
			})
		}
	}
}

// TestAFollowerPausesForTheEntriesOfOthers: it is held back between two calls, not within one.
func TestAFollowerPausesForTheEntriesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ownedLog{}
		leader := openBeside(t, Options{External: &External{Propose: l.propose}, PartitionSplitSize: -1})
		defer leader.Close()
		l.leader = leader
		table := createAnyhow(t, leader)
		follower := openBeside(t, Options{External: new(External)})
		defer follower.Close()
		follower.press()
		if err := largeWrites(leader, table)["Update"](ctx(), 1); err != nil {
			t.Fatal(err)
		}
		within, end := context.WithCancel(ctx())
		done := make(chan error, 1)
		go func() {
			_, err := follower.ApplyEntries(within, l.entries)
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the follower does not pause: %v", err)
		default:
		}
		if got := follower.AppliedIndex(); got != l.last() {
			t.Errorf("the follower has applied %d of %d entries while it pauses", got, l.last())
		}
		end()
		if err := <-done; err != nil {
			t.Errorf("the context ended while the follower paused: %v", err)
		}
		if leader.Metrics().Stalled != 0 {
			t.Errorf("the leader, without pressure, paused for %v", leader.Metrics().Stalled)
		}
	})
}
