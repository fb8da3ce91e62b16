package vfs

// What a power cut leaves on the simulated disk.
//
// Each file has its durable content and the operations since its last sync; each directory has
// its durable entries and the operations since its last SyncDir. A policy says which pending
// operations reach the disk. These are replayed in their order on the durable state.

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// CrashPolicy says what a power cut does to operations that were not synced.
type CrashPolicy int

const (
	// CrashLoseAll loses all of them.
	CrashLoseAll CrashPolicy = iota
	// CrashKeepAll keeps all of them.
	CrashKeepAll
	// CrashPrefix keeps the first few, in order. The seed chooses whether they end at one moment
	// for the whole disk, or at a moment of its own for each file and directory.
	CrashPrefix
	// CrashSubset decides separately for each 512-byte sector of each write and each directory
	// operation whether it is kept. A rename within a directory leaves the old name, the new
	// name or both.
	CrashSubset
	// CrashSizeFirst keeps directory operations and sizes but not the content: the part by which
	// a file has grown holds zeros, garbage, or old blocks of other files. (ext4 with
	// data=writeback, XFS after a crash at the wrong moment.)
	CrashSizeFirst
	// CrashMetaFirst keeps directory operations and no content: a renamed file
	// is empty. (Delayed allocation.)
	CrashMetaFirst
	// CrashDataFirst keeps content and no directory operations.
	CrashDataFirst

	crashPolicies
)

// String names the policy.
func (p CrashPolicy) String() string {
	return [...]string{"lose-all", "keep-all", "prefix", "subset", "size-first", "meta-first", "data-first"}[p]
}

// CrashPolicies returns all policies.
func CrashPolicies() []CrashPolicy {
	all := make([]CrashPolicy, crashPolicies)
	for i := range all {
		all[i] = CrashPolicy(i)
	}
	return all
}

// sectorSize is the unit that a device writes atomically.
const sectorSize = 512

// Crash cuts the power: s and its open files return ErrCrashed from now on, and the result is
// the machine after a restart. It may be called several times, with other policies and seeds,
// for other outcomes of the same power cut.
func (s *Sim) Crash(policy CrashPolicy, seed uint64) *Sim {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.disk.running = nil
	return s.disk.image(policy, seed).start(s.opts)
}

// Image returns what Crash would, and lets s go on. So a workload that runs once can be crashed
// at each of its calls.
func (s *Sim) Image(policy CrashPolicy, seed uint64) *Sim {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	return s.disk.image(policy, seed).start(s.opts)
}

// Kill ends the process but not the machine: s and its open files return ErrCrashed from now on.
// The result is the same disk as the next process sees it: without locks, with everything
// written visible, and with unsynced writes still not durable.
func (s *Sim) Kill() *Sim {
	d := s.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running != s {
		panic("vfs: Kill of a Sim that is dead already")
	}
	for f := range d.files {
		f.node.opens--
		d.release(f.node)
	}
	return d.start(s.opts)
}

// crash is one power cut that is being computed.
type crash struct {
	policy CrashPolicy
	seed   uint64
	cut    uint64            // of CrashPrefix: the first lost operation; 0: one for each inode
	nodes  []*inode          // all that the old disk knows, by id
	images map[*inode]*inode // their state after the crash
	stale  []*page           // blocks that may show up in other files
}

// image makes the disk after a power cut. REQUIRES: the disk is locked.
func (d *disk) image(policy CrashPolicy, seed uint64) *disk {
	c := &crash{policy: policy, seed: seed, images: map[*inode]*inode{}}
	c.collect(d.root)
	slices.SortFunc(c.nodes, func(a, b *inode) int { return cmp.Compare(a.id, b.id) })
	c.prepare()
	for _, n := range c.nodes {
		rng := rand.New(rand.NewPCG(seed, n.id))
		image := c.images[n]
		if n.isDir() {
			c.survivingEntries(n, image, rng)
		} else {
			image.durable = c.survivingContent(n, rng)
			image.visible = image.durable.clone()
		}
	}
	after := &disk{root: c.images[d.root], nodes: d.nodes}
	after.root.links = 1
	after.count(after.root)
	return after
}

// collect finds all inodes that have a name, had one at the last sync, or may get one back.
func (c *crash) collect(n *inode) {
	if n == nil || c.images[n] != nil {
		return
	}
	c.nodes = append(c.nodes, n)
	c.images[n] = &inode{id: n.id}
	if !n.isDir() {
		return
	}
	c.images[n].entries, c.images[n].durableEntries = map[string]*inode{}, map[string]*inode{}
	for _, child := range n.entries {
		c.collect(child)
	}
	for _, child := range n.durableEntries {
		c.collect(child)
	}
	for _, op := range n.pendingEntries {
		c.collect(op.node)
	}
}

// prepare gathers what a policy needs from the whole disk.
func (c *crash) prepare() {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	switch c.policy {
	case CrashPrefix:
		if rng.IntN(2) == 0 {
			return
		}
		var seqs []uint64
		for _, n := range c.nodes {
			for _, op := range n.pending {
				seqs = append(seqs, op.seq)
			}
			for _, op := range n.pendingEntries {
				seqs = append(seqs, op.seq)
			}
		}
		slices.Sort(seqs)
		seqs = append(seqs, ^uint64(0))
		c.cut = seqs[rng.IntN(len(seqs))]
	case CrashSizeFirst:
		for _, n := range c.nodes {
			for _, pg := range n.durable.pages {
				if pg != nil && pg != reservedPage {
					c.stale = append(c.stale, pg)
				}
			}
		}
	}
}

// kept returns how many of the operations a prefix keeps.
func kept[T any](c *crash, ops []T, seq func(T) uint64, rng *rand.Rand) int {
	if c.cut == 0 {
		return rng.IntN(len(ops) + 1)
	}
	n, _ := slices.BinarySearchFunc(ops, c.cut, func(op T, cut uint64) int { return cmp.Compare(seq(op), cut) })
	return n
}

// survivingContent returns what a file holds after the crash.
func (c *crash) survivingContent(n *inode, rng *rand.Rand) content {
	out := n.durable.clone()
	ops := n.pending
	switch c.policy {
	case CrashLoseAll, CrashMetaFirst:
		return out
	case CrashKeepAll, CrashDataFirst:
		// These replay the operations and do not copy what is visible: after a failed sync that
		// dropped pages, the visible content is not what would be written.
	case CrashPrefix:
		ops = ops[:kept(c, ops, func(op dataOp) uint64 { return op.seq }, rng)]
	case CrashSubset:
		for _, op := range ops {
			c.replaySectors(n, op, &out, rng)
		}
		return out
	case CrashSizeFirst:
		c.growOnly(n, &out, rng)
		return out
	}
	for _, op := range ops {
		n.replay(op, &out)
	}
	return out
}

// replay carries out a pending operation.
func (n *inode) replay(op dataOp, out *content) {
	switch op.kind {
	case dataWrite:
		out.writeAt(n.bytesOf(op), op.off)
	case dataResize:
		out.resize(op.off)
	case dataReserve:
		out.reserve(op.off)
	}
}

// replaySectors carries out a random part of one operation.
func (c *crash) replaySectors(n *inode, op dataOp, out *content, rng *rand.Rand) {
	if op.kind != dataWrite {
		if rng.IntN(2) == 0 {
			n.replay(op, out)
		}
		return
	}
	data := n.bytesOf(op)
	for done := 0; done < len(data); {
		at := op.off + int64(done)
		size := min(sectorSize-int(at%sectorSize), len(data)-done)
		if rng.IntN(2) == 0 {
			out.writeAt(data[done:done+size], at)
		}
		done += size
	}
}

// growOnly gives a file its last size, and fills the part beyond its durable size with other
// bytes than those written.
func (c *crash) growOnly(n *inode, out *content, rng *rand.Rand) {
	for _, op := range n.pending {
		if op.kind == dataResize && op.off < out.size || op.kind == dataReserve {
			n.replay(op, out)
		}
	}
	if len(n.pending) == 0 {
		return
	}
	start := out.size
	out.resize(max(start, n.visible.size))
	var fill [pageSize]byte
	for _, op := range n.pending {
		from, to := max(op.off, start), min(op.off+int64(op.size), n.visible.size)
		for from < to {
			end := min((from/pageSize+1)*pageSize, to)
			c.fillBlock(&fill, rng)
			out.writeAt(fill[from%pageSize:from%pageSize+end-from], from)
			from = end
		}
	}
	out.resize(n.visible.size)
}

// fillBlock makes a block that a file system may return for unwritten content.
func (c *crash) fillBlock(block *[pageSize]byte, rng *rand.Rand) {
	switch choice := rng.IntN(3); {
	case choice == 1:
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
	case choice == 2 && len(c.stale) > 0:
		*block = c.stale[rng.IntN(len(c.stale))].data
	default:
		clear(block[:])
	}
}

// survivingEntries sets the entries of a directory after the crash.
func (c *crash) survivingEntries(n, image *inode, rng *rand.Rand) {
	entries := make(map[string]*inode, len(n.durableEntries))
	for name, child := range n.durableEntries {
		entries[name] = child
	}
	ops := n.pendingEntries
	switch c.policy {
	case CrashLoseAll, CrashDataFirst:
		ops = nil
	case CrashPrefix:
		ops = ops[:kept(c, ops, func(op entryOp) uint64 { return op.seq }, rng)]
	case CrashSubset:
		ops = someEntries(ops, rng)
	case CrashKeepAll, CrashSizeFirst, CrashMetaFirst:
	}
	for _, op := range ops {
		op.apply(entries)
	}
	for name, child := range entries {
		image.entries[name] = c.images[child]
		image.durableEntries[name] = c.images[child]
	}
}

// someEntries picks operations at random. A rename may leave both names, but never neither: the
// new name is linked before the old one goes.
func someEntries(ops []entryOp, rng *rand.Rand) []entryOp {
	var out []entryOp
	for _, op := range ops {
		if rng.IntN(2) == 0 {
			continue
		}
		if op.kind == entryMove && rng.IntN(2) == 0 {
			op = entryOp{seq: op.seq, kind: entryLink, name: op.to, node: op.node}
		}
		out = append(out, op)
	}
	return out
}

// count sets the links of all reachable inodes, and adds up their space.
func (d *disk) count(dir *inode) {
	for _, child := range dir.entries {
		child.links++
		switch {
		case child.isDir():
			d.count(child)
		case child.links == 1:
			d.used += child.pagesFrom(0)
		}
	}
}
