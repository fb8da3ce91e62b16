package vfs

// A file system that wraps another and makes chosen calls fail as real disks do. fault_rule.go
// says which calls fail, and how.

import (
	"cmp"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Fault passes calls on to another file system, counts them, and injects the faults that its
// rules ask for. It is safe for concurrent use; the scheduler decides which of two concurrent
// calls a rule hits.
type Fault struct {
	inner FS

	mu       sync.Mutex
	rng      *rand.Rand
	rules    []*activeRule
	calls    int64
	counts   [opKinds]int64
	injected map[Injection]int64
	observer Observer
}

// Call is a call that reached a Fault.
type Call struct {
	Index   int64 // among all calls, from 1
	Op      Op
	Name    string
	NewName string // of OpRename and OpLink
	Offset  int64  // of transfers; the size of OpTruncate and OpPreallocate
	Length  int    // of transfers
}

// Observer sees calls, for instance to record them or to take images of a Sim between them.
// Either function may be nil. They are called without locks. They may call the file system that
// the Fault wraps, but not the Fault.
type Observer struct {
	Before func(Call)
	After  func(Call, error)
}

// Injection is the key by which the report groups injected faults.
type Injection struct {
	Op       Op
	FileType string // "*.log" for 000042.log, "MANIFEST-*" for MANIFEST-000007
	Action   string
}

// NewFault wraps fsys. The seed decides all random choices of the rules.
func NewFault(fsys FS, seed uint64) *Fault {
	return &Fault{inner: fsys, rng: rand.New(rand.NewPCG(seed, 0)), injected: map[Injection]int64{}}
}

// Add adds a rule after the present ones. If several rules hit a call, the first one acts; all
// of them count it as a match.
func (f *Fault) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &activeRule{Rule: r})
}

// Clear removes all rules.
func (f *Fault) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Observe replaces the observer.
func (f *Fault) Observe(o Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observer = o
}

// Calls returns how many calls of the given kinds were made so far. A test can run its workload
// once without rules, and then try each value of Nth up to this number.
func (f *Fault) Calls(ops Op) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := int64(0)
	for i, n := range f.counts {
		if ops&(1<<i) != 0 {
			total += n
		}
	}
	return total
}

// InjectionCount is a line of the report of injected faults.
type InjectionCount struct {
	Injection
	Count int64
}

// Injected reports the injected faults, sorted.
func (f *Fault) Injected() []InjectionCount {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]InjectionCount, 0, len(f.injected))
	for k, n := range f.injected {
		out = append(out, InjectionCount{k, n})
	}
	slices.SortFunc(out, func(a, b InjectionCount) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.FileType, b.FileType), cmp.Compare(a.Action, b.Action))
	})
	return out
}

// begin counts a call and returns what to do with it.
func (f *Fault) begin(c *Call) (verdict, Observer) {
	f.mu.Lock()
	v := verdict{}
	f.counts[c.Op.index()]++
	f.calls++
	c.Index = f.calls
	for _, r := range f.rules {
		if r.hits(*c, f.rng) && v.Action.kind == actNothing {
			v.Action = r.Action
			v.random = f.rng.Uint64()
			f.injected[Injection{c.Op, fileType(c.Name), r.Action.String()}]++
		}
	}
	if c.Op == OpClose && v.kind == actFail {
		v.kind = actFailAfter // as on Linux, a close that fails has closed
	}
	o := f.observer
	f.mu.Unlock()
	if o.Before != nil {
		o.Before(*c)
	}
	if v.kind == actHold {
		<-v.release
	}
	return v, o
}

// fileType groups files for the report: 000042.log is "*.log", MANIFEST-000007
// is "MANIFEST-*".
func fileType(name string) string {
	base := filepath.Base(name)
	if ext := filepath.Ext(base); ext != "" && ext != base {
		return "*" + ext
	}
	if stem := strings.TrimRight(base, "0123456789"); stem != base {
		return stem + "*"
	}
	return base
}

// call makes a call that transfers no content. The rules may skip do, or deny its success.
func (f *Fault) call(c Call, do func() error) error { return f.callOn(nil, c, do) }

// callOn is like call, for a file whose sync may fail.
func (f *Fault) callOn(file *faultFile, c Call, do func() error) (err error) {
	v, o := f.begin(&c)
	switch v.kind {
	case actFail:
		err = pathError(c.Op.String(), c.Name, v.err)
	case actFailSync:
		err = pathError(c.Op.String(), c.Name, v.err)
		// A directory (no file) loses only what never was durable.
		if file != nil {
			file.failSync(v.model)
		}
	case actFailAfter:
		if err = do(); err == nil {
			err = pathError(c.Op.String(), c.Name, v.err)
		}
	case actLose:
		// It claims success without doing anything.
	default:
		err = do()
	}
	if o.After != nil {
		o.After(c, err)
	}
	return err
}

// open makes a call that opens a file.
func (f *Fault) open(op Op, name string, open func() (File, error)) (File, error) {
	var inner File
	err := f.call(Call{Op: op, Name: name}, func() (err error) {
		inner, err = open()
		return err
	})
	if inner != nil && err != nil {
		inner.Close() // opened, then denied
	}
	if err != nil {
		return nil, err
	}
	return &faultFile{fault: f, inner: inner, name: name}, nil
}

// Create implements FS.
func (f *Fault) Create(name string, opts OpenOptions) (File, error) {
	return f.open(OpCreate, name, func() (File, error) { return f.inner.Create(name, opts) })
}

// Open implements FS.
func (f *Fault) Open(name string, opts OpenOptions) (File, error) {
	return f.open(OpOpen, name, func() (File, error) { return f.inner.Open(name, opts) })
}

// OpenReadWrite implements FS.
func (f *Fault) OpenReadWrite(name string, opts OpenOptions) (File, error) {
	return f.open(OpOpenReadWrite, name, func() (File, error) { return f.inner.OpenReadWrite(name, opts) })
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	return f.call(Call{Op: OpRemove, Name: name}, func() error { return f.inner.Remove(name) })
}

// Rename implements FS.
func (f *Fault) Rename(oldName, newName string) error {
	return f.call(Call{Op: OpRename, Name: oldName, NewName: newName},
		func() error { return f.inner.Rename(oldName, newName) })
}

// Link implements FS.
func (f *Fault) Link(oldName, newName string) error {
	return f.call(Call{Op: OpLink, Name: oldName, NewName: newName},
		func() error { return f.inner.Link(oldName, newName) })
}

// RemoveDir implements FS.
func (f *Fault) RemoveDir(dir string) error {
	return f.call(Call{Op: OpRemoveDir, Name: dir}, func() error { return f.inner.RemoveDir(dir) })
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(dir string) error {
	return f.call(Call{Op: OpMkdirAll, Name: dir}, func() error { return f.inner.MkdirAll(dir) })
}

// List implements FS.
func (f *Fault) List(dir string) (names []string, err error) {
	err = f.call(Call{Op: OpList, Name: dir}, func() (err error) {
		names, err = f.inner.List(dir)
		return err
	})
	return names, err
}

// Stat implements FS.
func (f *Fault) Stat(name string) (info Info, err error) {
	err = f.call(Call{Op: OpStat, Name: name}, func() (err error) {
		info, err = f.inner.Stat(name)
		return err
	})
	return info, err
}

// Lstat implements FS.
func (f *Fault) Lstat(name string) (info Info, err error) {
	err = f.call(Call{Op: OpStat, Name: name}, func() (err error) {
		info, err = f.inner.Lstat(name)
		return err
	})
	return info, err
}

// SyncDir implements FS.
func (f *Fault) SyncDir(dir string) error {
	return f.call(Call{Op: OpSyncDir, Name: dir}, func() error { return f.inner.SyncDir(dir) })
}

// Lock implements FS.
func (f *Fault) Lock(name string, mode LockMode) (lock io.Closer, err error) {
	err = f.call(Call{Op: OpLock, Name: name}, func() (err error) {
		lock, err = f.inner.Lock(name, mode)
		return err
	})
	if err != nil && lock != nil {
		lock.Close() // taken, then denied
		lock = nil
	}
	return lock, err
}

// Restrict, FileLimit and Memory are never made to fail, nor counted.
func (f *Fault) Restrict(name string) error { return f.inner.Restrict(name) }
func (f *Fault) FileLimit() int             { return f.inner.FileLimit() }
func (f *Fault) Memory() int64              { return f.inner.Memory() }

// simulated is a file whose faults can reach below its calls, into the disk.
type simulated interface {
	failSync(model SyncFailure)
	staleReadAt(p []byte, off int64) (int, error)
	deviceWriteAt(p []byte, off int64, stored []byte, at int64) (int, error)
}

// faultFile implements File.
type faultFile struct {
	fault    *Fault
	inner    File
	name     string
	appended atomic.Int64
}

// ReadAt implements File.
func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	c := Call{Op: OpReadAt, Name: f.name, Offset: off, Length: len(p)}
	v, o := f.fault.begin(&c)
	n, err = v.readAt(f, p, off)
	if o.After != nil {
		o.After(c, err)
	}
	return n, err
}

// Map implements File. Every access is a read that may fail.
func (f *faultFile) Map(size int64) (*Mapping, error) {
	m, err := f.inner.Map(size)
	if err != nil {
		return nil, err
	}
	return &Mapping{name: f.name, read: f.ReadAt}, m.Close()
}

// WriteAt implements File.
func (f *faultFile) WriteAt(p []byte, off int64) (int, error) { return f.write(OpWriteAt, p, off) }

// Write implements File. It writes at offsets, so that a lost write still moves the offset of
// the next one.
func (f *faultFile) Write(p []byte) (int, error) {
	off := f.appended.Load()
	n, err := f.write(OpWrite, p, off)
	f.appended.Store(off + int64(n))
	return n, err
}

func (f *faultFile) write(op Op, p []byte, off int64) (n int, err error) {
	c := Call{Op: op, Name: f.name, Offset: off, Length: len(p)}
	v, o := f.fault.begin(&c)
	n, err = v.writeAt(f, p, off)
	if o.After != nil {
		o.After(c, err)
	}
	return n, err
}

// Alignment implements File. It makes no call to the disk.
func (f *faultFile) Alignment() int { return f.inner.Alignment() }

// Truncate implements File.
func (f *faultFile) Truncate(size int64) error {
	return f.fault.call(Call{Op: OpTruncate, Name: f.name, Offset: size}, func() error { return f.inner.Truncate(size) })
}

// WillNeed implements File. It is no operation of the disk.
func (f *faultFile) WillNeed(offset, n int64) { f.inner.WillNeed(offset, n) }

// Preallocate implements File.
func (f *faultFile) Preallocate(size int64) error {
	return f.fault.call(Call{Op: OpPreallocate, Name: f.name, Offset: size}, func() error { return f.inner.Preallocate(size) })
}

// Sync implements File.
func (f *faultFile) Sync() error {
	return f.fault.callOn(f, Call{Op: OpSync, Name: f.name}, f.inner.Sync)
}

// SyncData implements File.
func (f *faultFile) SyncData() error {
	return f.fault.callOn(f, Call{Op: OpSyncData, Name: f.name}, f.inner.SyncData)
}

// failSync, staleReadAt and deviceWriteAt reach the simulated file through any number of Faults.
// On a real file, failSync does nothing, and the others read and write as usual.

func (f *faultFile) failSync(model SyncFailure) {
	if inner, ok := f.inner.(simulated); ok {
		inner.failSync(model)
	}
}

func (f *faultFile) staleReadAt(p []byte, off int64) (int, error) {
	if inner, ok := f.inner.(simulated); ok {
		return inner.staleReadAt(p, off)
	}
	return f.inner.ReadAt(p, off)
}

func (f *faultFile) deviceWriteAt(p []byte, off int64, stored []byte, at int64) (int, error) {
	return verdict{Action: Action{device: true}}.store(f, p, off, stored, at)
}

// Size implements File.
func (f *faultFile) Size() (size int64, err error) {
	err = f.fault.call(Call{Op: OpSize, Name: f.name}, func() (err error) {
		size, err = f.inner.Size()
		return err
	})
	return size, err
}

// Close implements File.
func (f *faultFile) Close() error {
	return f.fault.call(Call{Op: OpClose, Name: f.name}, f.inner.Close)
}
