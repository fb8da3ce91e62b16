package vfs

// What the simulated disk knows about one file or directory: what programs see, what is durable,
// and the operations between the two.

// inode is a file or a directory, without its names.
type inode struct {
	id    uint64 // rises with creation: a deterministic order for crashes
	links int    // names that programs see
	opens int    // open files

	// Of a file.
	visible content
	durable content
	pending []dataOp
	log     []byte // the bytes of pending writes, one after the other
	// unwritten says that a failed sync left pages that are visible, but neither durable nor
	// pending.
	unwritten bool

	// Of a directory; nil maps mark a file.
	entries        map[string]*inode
	durableEntries map[string]*inode
	pendingEntries []entryOp
}

func (n *inode) isDir() bool { return n.entries != nil }

// dataOp is a change of a file's content since its last sync.
type dataOp struct {
	seq  uint64 // its number among all operations on the disk
	kind dataKind
	off  int64 // where a write starts; the new size; the end of the reserved space
	at   int   // where its bytes start in the log; allZeros if they are not there
	size int   // how many there are
	// device says that the disk gets these bytes, and programs see others.
	device bool
}

// allZeros, as the place of a write's bytes, says that all of them are zero.
const allZeros = -1

type dataKind uint8

const (
	dataWrite dataKind = iota
	dataResize
	dataReserve
)

// entryOp is a change of a directory since its last sync.
type entryOp struct {
	seq  uint64
	kind entryKind
	name string
	to   string // the new name of a move
	node *inode // what is linked or moved
}

type entryKind uint8

const (
	entryLink   entryKind = iota // name now refers to node
	entryUnlink                  // name is removed
	entryMove                    // name is removed and to refers to node, atomically
)

// write changes what programs see, and remembers the change.
func (n *inode) write(seq uint64, p []byte, off int64) {
	n.visible.writeAt(p, off)
	op := dataOp{seq: seq, kind: dataWrite, off: off, at: len(n.log), size: len(p)}
	if len(p) >= pageSize && allZero(p) {
		op.at = allZeros
	} else {
		n.log = append(n.log, p...)
	}
	n.pending = append(n.pending, op)
}

// readPast turns the cached content of the file from off on into what a direct read finds: dirty
// pages are written first, clean pages are those on the disk.
func (n *inode) readPast(p []byte, off int64) {
	if !n.unwritten {
		return
	}
	for done := 0; done < len(p); {
		at := off + int64(done)
		size := min(int((at/pageSize+1)*pageSize-at), len(p)-done)
		if !n.dirty(at / pageSize) {
			clear(p[done : done+size])
			n.durable.readAt(p[done:done+size], at)
		}
		done += size
	}
}

// dirty reports whether a write to a page is pending.
func (n *inode) dirty(page int64) bool {
	for _, op := range n.pending {
		if op.kind == dataWrite && op.off/pageSize <= page && page <= (op.off+int64(op.size)-1)/pageSize {
			return true
		}
	}
	return false
}

// resize changes the visible size, and remembers the change.
func (n *inode) resize(seq uint64, size int64) {
	n.visible.resize(size)
	n.pending = append(n.pending, dataOp{seq: seq, kind: dataResize, off: size})
}

// reserve reserves visible space, and remembers the change.
func (n *inode) reserve(seq uint64, size int64) {
	n.visible.reserve(size)
	n.pending = append(n.pending, dataOp{seq: seq, kind: dataReserve, off: size})
}

// bytesOf returns the bytes of a pending write.
func (n *inode) bytesOf(op dataOp) []byte {
	if op.at == allZeros {
		return make([]byte, op.size)
	}
	return n.log[op.at : op.at+op.size]
}

// keptLog is the largest buffer for pending bytes that a file keeps across syncs.
const keptLog = 1 << 20

// forget drops the pending operations.
func (n *inode) forget() {
	n.pending = n.pending[:0]
	n.log = n.log[:0]
	if cap(n.log) > keptLog {
		n.log = nil
	}
}

// sync makes the content durable, in time proportional to what is pending: written pages become
// shared between both states.
func (n *inode) sync() {
	for _, op := range n.pending {
		if op.kind == dataResize && op.off < n.durable.size {
			n.durable.resize(op.off) // bytes cut off must not come back when the file grows again
		}
	}
	n.durable.resize(n.visible.size)
	for _, op := range n.pending {
		switch {
		case op.device:
			// Stray bytes beyond the end are lost: they do not make the file longer.
			bytes := n.bytesOf(op)
			n.durable.writeAt(bytes[:min(max(n.durable.size-op.off, 0), int64(len(bytes)))], op.off)
		case op.kind == dataWrite:
			n.durable.sharePages(&n.visible, int(op.off/pageSize), pagesFor(op.off+int64(op.size)))
		case op.kind == dataReserve:
			n.durable.reserve(min(op.off, n.visible.size))
		}
	}
	n.forget()
}

// syncEntries makes a directory's entries durable.
func (n *inode) syncEntries() {
	for _, op := range n.pendingEntries {
		op.apply(n.durableEntries)
	}
	n.pendingEntries = n.pendingEntries[:0]
}

// apply carries out the operation on a set of entries.
func (op entryOp) apply(entries map[string]*inode) {
	switch op.kind {
	case entryLink:
		entries[op.name] = op.node
	case entryUnlink:
		delete(entries, op.name)
	case entryMove:
		// An older operation may be lost, so the old name may be another file's.
		if entries[op.name] == op.node {
			delete(entries, op.name)
		}
		entries[op.to] = op.node
	}
}

// change applies the operation to what programs see, and remembers it.
func (n *inode) change(op entryOp) {
	op.apply(n.entries)
	n.pendingEntries = append(n.pendingEntries, op)
}

// newPages returns how many pages a write of [off, end) would add.
func (n *inode) newPages(off, end int64) int64 {
	count := int64(0)
	for i := int(off / pageSize); i < pagesFor(end); i++ {
		if i >= len(n.visible.pages) || n.visible.pages[i] == nil {
			count++
		}
	}
	return count
}

// pagesFrom returns how many pages the file has from page i on.
func (n *inode) pagesFrom(i int) int64 {
	count := int64(0)
	for ; i < len(n.visible.pages); i++ {
		if n.visible.pages[i] != nil {
			count++
		}
	}
	return count
}
