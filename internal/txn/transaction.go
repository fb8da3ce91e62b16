package txn

// The writes of a transaction lie in a memtable of its own, under sequence numbers above all that
// the store assigns. Its reads merge that memtable with the tree like any other run, so the
// rule-book decides what it sees of its own writes. Nothing of it is in the log before the
// commit, so a crash leaves all of it or nothing. An open transaction holds its partition key: no
// other writer changes those rows, so all its reads see the same state.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrEnded: the transaction was committed or aborted, or has outlived its lifetime.
	ErrEnded = errors.New("flagstone: the transaction has ended")
	// ErrOutOfPartition: a row of another partition key than the transaction's.
	ErrOutOfPartition = errors.New("flagstone: a row outside of the transaction's partition key")
)

// Options are flagstone.TransactionOptions, which describes them.
type Options struct {
	Lifetime time.Duration
	Owner    string
	Ended    func()
}

// Transaction gathers changes of the rows of one partition key, which are applied as one write. A
// caller locks it with Enter.
type Transaction struct {
	set         *Set
	table       *table.Table
	prefix, end []byte // its rows: prefix <= key < end
	opts        Options

	// What it holds once take has returned nil, until release.
	name  string // of the table and the partition key
	user  share.User
	bytes int64

	mu        commit.Latch
	written   *memtable.Memtable // by this transaction; nil before the first write
	changes   []change.Prepared  // in order; a row may have several
	era       *table.Era         // in which they were worked out
	foreign   uint64             // of Pipeline.Sure
	deadline  time.Duration
	stopTimer func() bool
	over      atomic.Pointer[error] // why it has ended
	// asked is why it has to end; the holder of mu ends it. running is set while mu is held for a
	// function of Update: Terminate does not wait for that function.
	asked   atomic.Pointer[error]
	running atomic.Bool
}

const (
	// ownSequence is the sequence number of a transaction's first change in its own memtable:
	// above every real one, below row.MaxSequence.
	ownSequence = row.MaxSequence/2 + 1
	// Bytes and changeBytes are charged for a transaction and for each of its changes, besides the
	// data and what columns held before.
	Bytes       = 4 << 10
	changeBytes = 512
)

// errOver makes the reasons why a transaction has ended.
func errOver(how string) error { return fmt.Errorf("%w: it was %s", ErrEnded, how) }

var errLate = errOver("not ended in time")

// Begin begins a zero Transaction of a table's partition key; prefix is the encoded key. Errors
// match ErrConflict if another transaction holds the key, and ErrMemory. It waits, within ctx, for
// all callers that hold a latch.
func (tx *Transaction) Begin(ctx context.Context, set *Set, t *table.Table, prefix []byte, opts Options) error {
	tx.set, tx.table, tx.era, tx.prefix, tx.end = set, t, t.Era.Load(), prefix, row.Successor(prefix)
	if len(t.Key) == 1 { // the prefix is the whole key, and another key may begin with it
		tx.end = append(bytes.Clone(prefix), 0)
	}
	tx.name, tx.user = string(appendName(nil, t.ID, prefix)), share.User{Group: opts.Owner}
	if err := tx.take(Bytes); err != nil {
		return err
	}
	// Writers that did not see the lock still hold latches. Once these writers are done and what
	// they wrote is durable, the transaction sees what every reader sees.
	err := set.Latches.Pass(ctx)
	last := set.Pipeline.Refuse(nil)
	_ = tx.mu.Lock(context.Background()) // never fails with this context
	defer tx.mu.Unlock()
	if err == nil {
		_, err = last.Wait(ctx)
	}
	if err == nil {
		tx.foreign, err = set.Pipeline.Sure(ctx)
	}
	if err == nil { // the end of the store may not have seen tx
		err = t.Gone()
	}
	if over := tx.over.Load(); over != nil { // it has seen tx
		return *over
	}
	if err != nil {
		tx.finish(err)
		return err
	}
	tx.opts = opts
	tx.deadline = t.Clock.Elapsed() + opts.Lifetime
	if opts.Lifetime > 0 {
		tx.stopTimer = t.Clock.AfterFunc(opts.Lifetime, func() { tx.Terminate(errLate) })
	}
	return nil
}

// Enter locks the transaction for one call; Leave unlocks it. An error is the context's.
func (tx *Transaction) Enter(ctx context.Context) error { return tx.mu.Lock(ctx) }

// Leave ends what Enter began.
func (tx *Transaction) Leave() { tx.mu.Unlock() }

// usable returns nil or the reason why the transaction cannot go on. REQUIRES:
// mu is held.
func (tx *Transaction) usable() error {
	tx.heed()
	err := tx.Over()
	if err == nil && tx.opts.Lifetime > 0 && tx.table.Clock.Elapsed() >= tx.deadline {
		err = errLate
	}
	if err != nil && tx.over.Load() == nil {
		tx.finish(err)
	}
	return err
}

// ready is usable, and works out the changes again if the table's limit of versions has changed.
// REQUIRES: mu is held.
func (tx *Transaction) ready() error {
	if err := tx.usable(); err != nil {
		return err
	}
	if present := tx.table.Era.Load(); present != tx.era {
		return tx.workOutAgain(present)
	}
	return nil
}

// finish ends the transaction and releases everything. REQUIRES: mu is held, and it has not
// ended.
func (tx *Transaction) finish(why error) {
	tx.over.Store(&why)
	tx.release()
	tx.written, tx.changes = nil, nil
	if tx.stopTimer != nil {
		tx.stopTimer()
	}
	if tx.opts.Ended != nil {
		tx.opts.Ended()
	}
}

// Terminate ends the transaction unless it has ended. It does not wait for a function of Update,
// which may be its caller: then Update ends the transaction.
func (tx *Transaction) Terminate(why error) {
	tx.asked.CompareAndSwap(nil, &why)
	if tx.running.Load() { // Update looks at asked after it has reset running
		return
	}
	_ = tx.mu.Lock(context.Background()) // never fails with this context; an Update that locks mu first sees asked, and runs nothing
	defer tx.mu.Unlock()
	tx.heed()
}

// heed ends the transaction if asked is set. REQUIRES: mu is held.
func (tx *Transaction) heed() {
	if why := tx.asked.Load(); why != nil && tx.over.Load() == nil {
		tx.finish(*why)
	}
}

// Written is what the transaction has written; nil if that is nothing. REQUIRES: Enter.
func (tx *Transaction) Written() (*memtable.Memtable, error) {
	err := tx.ready()
	return tx.written, err
}

// Abort drops what the transaction has written.
func (tx *Transaction) Abort() { tx.Terminate(errOver("aborted")) }

// Open reports whether the transaction has not ended.
func (tx *Transaction) Open() bool { return tx.over.Load() == nil && tx.asked.Load() == nil }

// Over returns why what was read in the transaction must not be used, nil if it may be: after its
// end, reads may see later writes.
func (tx *Transaction) Over() error {
	if over := tx.over.Load(); over != nil {
		return *over
	}
	return tx.table.Gone()
}

// Within returns the bounds of a scan, of which empty ones become those of the transaction's rows:
// low <= key < high. An error says that they lie outside of these.
func (tx *Transaction) Within(low, high []byte) ([]byte, []byte, error) {
	if len(low) == 0 {
		low = tx.prefix
	}
	if len(high) == 0 {
		high = tx.end
	}
	if bytes.Compare(low, tx.prefix) < 0 || bytes.Compare(high, tx.end) > 0 {
		return nil, nil, tx.outside()
	}
	return low, high, nil
}

// Holds returns an error unless the key has the transaction's partition key.
func (tx *Transaction) Holds(key []byte) error {
	if bytes.Compare(key, tx.prefix) < 0 || bytes.Compare(key, tx.end) >= 0 {
		return tx.outside()
	}
	return nil
}

func (tx *Transaction) outside() error {
	return fmt.Errorf("%w: table %q", ErrOutOfPartition, tx.table.Name)
}

// Update lets fn gather changes of different rows, and adds them to the transaction; an error leaves
// it as it was, unless it has ended. fn may call Terminate. REQUIRES: Enter.
func (tx *Transaction) Update(fn func(written *memtable.Memtable) ([]*change.Change, error)) error {
	tx.running.Store(true) // before ready looks at asked
	defer func() {
		tx.running.Store(false)
		tx.heed()
	}()
	if err := tx.ready(); err != nil {
		return err
	}
	if tx.written == nil {
		tx.written = memtable.New(memtable.Options{SlabSize: 1})
	}
	changes, err := fn(tx.written)
	if err != nil {
		return err
	}
	return tx.add(changes)
}

// add appends changes and lets the transaction see them. If the table is altered
// meanwhile, it begins again. REQUIRES: mu is held.
func (tx *Transaction) add(rows []*change.Change) error {
	if err := tx.ready(); err != nil {
		return err
	}
	for _, r := range rows {
		r.Written = tx.written // other than it was, if all was worked out again
	}
	now := tx.table.Issued.Millis()
	from, size := len(tx.changes), int64(0)
	added := tx.changes
	for _, r := range rows {
		if r.Empty() {
			continue
		}
		p, err := r.Prepare(now)
		if err != nil {
			return err
		}
		size += p.Size + int64(r.Cap()) + changeBytes + int64(len(p.Before))
		if size > tx.set.Memory.Total() { // prepare no more of them
			return ErrMemory
		}
		added = append(added, p)
	}
	if tx.table.Era.Load() != tx.era {
		return tx.add(rows)
	}
	if tx.charge(size) != nil {
		return ErrMemory
	}
	tx.changes = added
	for i := from; i < len(added); i++ {
		tx.written.Apply(ownSequence+uint64(i), added[i].Change)
	}
	return nil
}

// workOutAgain works out all changes again if another era of the table affects them: under its
// limit of versions a compaction may have dropped versions on which the trims rely, and its
// stream may record other columns. Between two eras the result is good only until the next one
// begins. REQUIRES: mu is held.
func (tx *Transaction) workOutAgain(present *table.Era) error {
	log := tx.table.Log.Load()
	if slices.ContainsFunc(tx.changes, func(p change.Prepared) bool { return p.BeforeFor != log || p.From.DeletesVersions() }) {
		if err := tx.prepareAgain(); err != nil {
			return err
		}
	}
	tx.era = present
	return nil
}

// prepareAgain works out all changes again, and takes the memory they need now; an error leaves
// them as they were. REQUIRES: mu is held.
func (tx *Transaction) prepareAgain() (err error) {
	grown := int64(0)
	defer func() {
		if err != nil {
			tx.charge(-grown)
		}
	}()
	written := memtable.New(memtable.Options{SlabSize: 1})
	changes := make([]change.Prepared, len(tx.changes))
	for i := range tx.changes {
		p, from := &changes[i], tx.changes[i].From
		from.Written = written
		if err = from.WorkOut(p); err != nil {
			return err
		}
		more := int64(len(p.Before) - len(tx.changes[i].Before))
		if tx.charge(more) != nil {
			return ErrMemory
		}
		grown += more
		written.Apply(ownSequence+uint64(i), p.Change)
	}
	tx.written, tx.changes = written, changes
	return nil
}

// Commit orders and applies what the transaction has written as one write, without the wait for
// durability. The transaction ends with a nil error, and with one that says that nothing can be
// written any more. REQUIRES: Enter.
func (tx *Transaction) Commit(ctx context.Context) (c commit.Commit, err error) {
	if err = tx.usable(); err != nil {
		return c, err
	}
	if c, err = tx.apply(ctx); err == nil {
		tx.finish(errOver("committed"))
	} else if errors.Is(err, table.ErrNotFound) || errors.Is(err, commit.ErrPoisoned) || errors.Is(err, commit.ErrOutcomeUnknown) {
		tx.finish(err)
	}
	return c, err
}

// apply sends the changes through the pipeline. REQUIRES: mu is held.
func (tx *Transaction) apply(ctx context.Context) (commit.Commit, error) {
	if len(tx.changes) == 0 {
		return tx.set.Pipeline.Refuse(nil), nil
	}
	if err := tx.set.Gate.Pass(ctx); err != nil {
		return commit.Commit{}, err
	}
	for {
		var w commit.Write
		if err := tx.applyOnce(ctx, &w); !errors.Is(err, table.ErrAltered) {
			return w.Commit(), err
		}
	}
}

// applyOnce is apply in one era of the table. It takes no latches: no other writer can change
// rows of the partition key.
func (tx *Transaction) applyOnce(ctx context.Context, w *commit.Write) error {
	present, err := tx.table.Present(ctx)
	if err != nil {
		return err
	}
	if tx.set.Pipeline.Foreign() != tx.foreign {
		tx.finish(errOver("overtaken by writes of another replica"))
		return tx.Over()
	}
	if present != tx.era {
		if err := tx.workOutAgain(present); err != nil {
			return err
		}
	}
	for i := range tx.changes {
		tx.changes[i].From.Era = present
		if err := tx.changes[i].AddTo(w); err != nil {
			return err
		}
	}
	return tx.set.Pipeline.Write(ctx, w, tx.table.Issued.Micros())
}
