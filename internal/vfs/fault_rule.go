package vfs

// The rules of a Fault: which calls they hit, and what they do.

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Op is a set of kinds of calls.
type Op uint32

// The kinds of calls.
const (
	OpCreate Op = 1 << iota
	OpOpen
	OpOpenReadWrite
	OpRemove
	OpRename
	OpLink
	OpRemoveDir
	OpMkdirAll
	OpList
	OpStat
	OpSyncDir
	OpLock
	OpReadAt
	OpWriteAt
	OpWrite
	OpTruncate
	OpPreallocate
	OpSync
	OpSyncData
	OpSize
	OpClose

	opEnd

	// OpAll is every call.
	OpAll = opEnd - 1
	// OpSyncs are the calls that make something durable.
	OpSyncs = OpSyncDir | OpSync | OpSyncData
	// OpWrites are the calls that write content.
	OpWrites = OpWriteAt | OpWrite
	// OpMutating are the calls that change what a later crash may leave.
	OpMutating = OpCreate | OpRemove | OpRename | OpLink | OpRemoveDir | OpMkdirAll |
		OpWrites | OpTruncate | OpPreallocate | OpSyncs
)

// opKinds is the number of kinds.
const opKinds = 21

// index returns the index of a single kind.
func (o Op) index() int { return bits.TrailingZeros32(uint32(o)) }

// String names the kinds in the set.
func (o Op) String() string {
	names := [opKinds]string{"create", "open", "openrw", "remove", "rename", "link", "removedir", "mkdir",
		"list", "stat", "syncdir", "lock", "read", "writeat", "write", "truncate", "preallocate",
		"sync", "syncdata", "size", "close"}
	var parts []string
	for i, name := range names {
		if o&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "|")
}

// Rule says which calls fail, and how. A call matches if it has the right kind and file, and the
// action applies to it (see Action.Applies). With zero values, a rule hits the first matching
// call, once.
type Rule struct {
	// Ops are the kinds of calls; 0 means all.
	Ops Op
	// Glob is a pattern of package path. It is matched with the base name of the file or, if it
	// has a slash, with the whole path with slashes. "" means all files. A rename or link
	// matches by either name.
	Glob string
	// Nth is the first match that is hit, from 1; 0 means 1.
	Nth int64
	// Times is how many calls are hit; 0 means 1, Forever means all.
	Times int64
	// Probability is the chance of a hit for each match from the Nth on; 0 means 1.
	Probability float64
	// Action is what happens.
	Action Action
}

// Forever, as the Times of a rule, makes a permanent fault.
const Forever = -1

// activeRule is a rule with its counters.
type activeRule struct {
	Rule
	matches, hitCount int64
}

// hits counts a call if it matches, and decides whether it is hit.
func (r *activeRule) hits(c Call, rng *rand.Rand) bool {
	if r.Ops != 0 && r.Ops&c.Op == 0 || r.Action.Applies()&c.Op == 0 || !r.matchesName(c) {
		return false
	}
	r.matches++
	if r.matches < r.Nth || r.Times != Forever && r.hitCount >= max(r.Times, 1) {
		return false
	}
	if r.Probability > 0 && rng.Float64() >= r.Probability {
		return false
	}
	r.hitCount++
	return true
}

func (r *activeRule) matchesName(c Call) bool {
	if r.Glob == "" {
		return true
	}
	return globMatches(r.Glob, c.Name) || c.NewName != "" && globMatches(r.Glob, c.NewName)
}

func globMatches(glob, name string) bool {
	name = filepath.ToSlash(name)
	if !strings.Contains(glob, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(glob, name)
	if err != nil {
		panic(fmt.Sprintf("vfs: fault rule with pattern %q: %v", glob, err))
	}
	return ok
}

// Action is what a rule does to a call. The functions below make actions.
type Action struct {
	kind    actionKind
	err     error
	n       int64  // bytes, or the distance of a misdirection
	name    string // of the file that a write goes to instead
	device  bool   // see OnDevice
	model   SyncFailure
	release <-chan struct{}
}

type actionKind uint8

const (
	actNothing actionKind = iota
	actFail
	actFailAfter
	actShort
	actFlip
	actLose
	actMisdirect
	actMisdirectTo
	actStale
	actFailSync
	actHold
)

// FailWith makes the call fail with err, without any effect. A Close still closes the file.
func FailWith(err error) Action { return Action{kind: actFail, err: err} }

// FailAfter makes the call take effect and then fail with err, so that the caller cannot know
// about the effect.
func FailAfter(err error) Action { return Action{kind: actFailAfter, err: err} }

// Short makes a read or write stop after n bytes, or one byte before its end if that is smaller,
// with err. On a file with an alignment, a write stops at the block boundary before.
func Short(n int64, err error) Action { return Action{kind: actShort, n: n, err: err} }

// FlipBit inverts a random bit: in what a read returns (only in this read) or in what a write
// stores.
func FlipBit() Action { return Action{kind: actFlip} }

// Lose makes a write, a sync or a directory change claim success without being done.
func Lose() Action { return Action{kind: actLose} }

// Misdirect makes a read or write go to another offset of the file, by the given distance, but
// not below zero.
func Misdirect(distance int64) Action { return Action{kind: actMisdirect, n: distance} }

// MisdirectTo makes a write go to the same offset of another, existing file.
func MisdirectTo(name string) Action { return Action{kind: actMisdirectTo, name: name} }

// OnDevice makes a Lose, FlipBit or Misdirect of a write happen in the device: programs see what
// they wrote until the machine restarts, unless they read uncached. This needs a buffered file
// of a Sim; on other files the action happens as without OnDevice.
func OnDevice(a Action) Action {
	a.device = true
	return a
}

// Stale makes a read return what was durable before the last writes. It works on files of a Sim,
// and does nothing on others.
func Stale() Action { return Action{kind: actStale} }

// FailSync makes a sync fail with EIO. On a file of a Sim, the model says what happens to the
// unsynced content.
func FailSync(model SyncFailure) Action {
	return Action{kind: actFailSync, model: model, err: syscall.EIO}
}

// Hold makes the call wait until the channel is closed, like a device that hangs.
func Hold(release <-chan struct{}) Action { return Action{kind: actHold, release: release} }

// Applies returns the kinds of calls to which the action applies.
func (a Action) Applies() Op {
	switch a.kind {
	case actShort, actFlip, actMisdirect:
		if a.device {
			return OpWrites
		}
		return OpReadAt | OpWrites
	case actLose:
		if a.device {
			return OpWrites
		}
		return OpWrites | OpSyncs | OpRemove | OpRename | OpLink | OpTruncate
	case actStale:
		return OpReadAt
	case actMisdirectTo:
		return OpWrites
	case actFailSync:
		return OpSyncs
	default:
		return OpAll
	}
}

// String names the action.
func (a Action) String() string {
	switch a.kind {
	case actFail:
		return "fail: " + a.err.Error()
	case actFailAfter:
		return "fail after: " + a.err.Error()
	case actFailSync:
		return [...]string{"sync-ext4", "sync-btrfs"}[a.model]
	default:
		return a.where() + [...]string{"nothing", "", "", "short", "flip", "lose", "misdirect", "misdirect to another file", "stale", "", "hold"}[a.kind]
	}
}

func (a Action) where() string {
	if a.device {
		return "on the device: "
	}
	return ""
}

// verdict is what to do with one call.
type verdict struct {
	Action
	random uint64
}

// readAt reads from the wrapped file as the rules say.
func (v verdict) readAt(f *faultFile, p []byte, off int64) (int, error) {
	switch v.kind {
	case actFail:
		return 0, pathError("read", f.name, v.err)
	case actFailAfter:
		n, err := f.inner.ReadAt(p, off)
		if err == nil {
			err = pathError("read", f.name, v.err)
		}
		return n, err
	case actShort:
		// Reading all and reporting less keeps direct reads aligned.
		n, err := f.inner.ReadAt(p, off)
		if err != nil && err != io.EOF || n == 0 {
			return n, err
		}
		return int(min(v.n, int64(n)-1)), pathError("read", f.name, v.err)
	case actFlip:
		n, err := f.inner.ReadAt(p, off)
		flip(p[:n], v.random)
		return n, err
	case actMisdirect:
		return f.inner.ReadAt(p, max(off+v.n, 0))
	case actStale:
		return f.staleReadAt(p, off)
	}
	return f.inner.ReadAt(p, off)
}

// writeAt writes to the wrapped file as the rules say.
func (v verdict) writeAt(f *faultFile, p []byte, off int64) (int, error) {
	switch v.kind {
	case actFail:
		return 0, pathError("write", f.name, v.err)
	case actFailAfter:
		n, err := f.inner.WriteAt(p, off)
		if err == nil {
			err = pathError("write", f.name, v.err)
		}
		return n, err
	case actShort:
		n := min(v.n, max(int64(len(p))-1, 0))
		n -= n % int64(f.inner.Alignment())
		done, err := f.inner.WriteAt(p[:n], off)
		if err == nil {
			err = pathError("write", f.name, v.err)
		}
		return done, err
	case actFlip:
		// This needs a copy: the caller owns the buffer.
		stored := AlignedBuffer(len(p))
		copy(stored, p)
		flip(stored, v.random)
		return v.store(f, p, off, stored, off)
	case actLose:
		return v.store(f, p, off, nil, off)
	case actMisdirect:
		return v.store(f, p, off, p, max(off+v.n, 0))
	case actMisdirectTo:
		return len(p), f.fault.strayTo(v.name, p, off)
	}
	return f.inner.WriteAt(p, off)
}

// store does a write of p at off in a wrong way: it writes stored at the offset at, or nothing
// if stored is nil.
func (v verdict) store(f *faultFile, p []byte, off int64, stored []byte, at int64) (int, error) {
	if inner, ok := f.inner.(simulated); ok && v.device && f.inner.Alignment() == 1 {
		return inner.deviceWriteAt(p, off, stored, at)
	}
	if stored == nil {
		return len(p), nil
	}
	return f.inner.WriteAt(stored, at)
}

// strayTo writes p to another file of the wrapped file system.
func (f *Fault) strayTo(name string, p []byte, off int64) error {
	file, err := f.inner.OpenReadWrite(name, OpenOptions{})
	if err != nil {
		return err
	}
	_, err = file.WriteAt(p, off)
	return errors.Join(err, file.Close())
}

// flip inverts one bit of p, chosen by random.
func flip(p []byte, random uint64) {
	if len(p) > 0 {
		bit := random % (uint64(len(p)) * 8)
		p[bit/8] ^= 1 << (bit % 8)
	}
}
