package commit

import "github.com/flagstone-db/flagstone/partition"

// Rotation of memtables: when one is replaced by an empty one, and waits to be flushed.

// makeRoom rotates the memtables that have no room for the mutations, and the heaviest ones if
// all together come near their budget. REQUIRES: order is held.
func (p *Pipeline) makeRoom(mutations []mutation) {
	for i := range mutations {
		if m := &mutations[i]; m.tree != nil && m.tree.Full(m.size) {
			p.rotate(m.tree)
		}
	}
	if p.gate.Crowded() {
		p.rotateHeaviest()
	}
}

// rotate rotates a tree's memtable. REQUIRES: order is held.
func (p *Pipeline) rotate(t *partition.Tree) {
	if moved := t.Rotate(p.nextSeq); moved > 0 {
		p.gate.Rotated(moved)
		p.env.FlushDue(t)
	}
}

// rotateHeaviest rotates the memtables that are worth the most as one flush. REQUIRES: order is held.
func (p *Pipeline) rotateHeaviest() {
	for _, t := range partition.Heaviest(p.env.Trees()) {
		p.rotate(t)
	}
}

// Replace hands the memtables of old trees over to those that replace them, and asks for their flush.
// REQUIRES: the caller is the begin of Cut, and partition.Alone holds for the old trees.
func (p *Pipeline) Replace(old, made []*partition.Tree) {
	p.SetAside(old)
	partition.HandOver(old, made, p.nextSeq)
	for _, t := range made {
		p.env.FlushDue(t)
	}
}

// Renew renews the empty memtables of trees at one sequence number, which it returns: the last one given
// out.
func (p *Pipeline) Renew(trees []*partition.Tree) uint64 {
	p.order.Lock()
	defer p.order.Unlock()
	for _, t := range trees {
		t.Renew(p.nextSeq)
	}
	return p.nextSeq - 1
}

// SetAside rotates the memtables of trees that are about to be dropped, and does not ask for their
// flush. REQUIRES: the caller is a function of Between.
func (p *Pipeline) SetAside(trees []*partition.Tree) {
	for _, t := range trees {
		p.gate.Rotated(t.Rotate(p.nextSeq))
	}
}

// Rotate rotates the memtables of trees, or of all trees if none is given, at one sequence number, the
// first that is in none of them, and returns it and the trees.
func (p *Pipeline) Rotate(trees ...*partition.Tree) (all []*partition.Tree, endSeq uint64) {
	p.order.Lock()
	defer p.order.Unlock()
	if trees == nil {
		trees = p.env.Trees()
	}
	for _, tree := range trees {
		p.rotate(tree)
	}
	return trees, p.nextSeq
}

// RotateLargest rotates the largest memtable, or several small ones, unless no write is accepted
// any more.
func (p *Pipeline) RotateLargest() {
	p.order.Lock()
	defer p.order.Unlock()
	if p.Writable() == nil {
		p.rotateHeaviest()
	}
}

// BoundLog rotates the memtables that hold back too much of the log. The store calls it when it was
// opened: each run begins a segment, and many short runs leave many nearly empty ones.
func (p *Pipeline) BoundLog() { p.Between(p.boundLog) }

// boundLog is BoundLog whenever the log begins a new segment. It finds the memtables of idle
// tables, or of writes that take more log than memory, as small ones do. REQUIRES: order is held.
func (p *Pipeline) boundLog() {
	if p.external != nil {
		p.boundExternal()
		return
	}
	current := p.log.Segment()
	p.bounded = current
	for _, tree := range p.env.Trees() {
		segment := tree.MutableSegment()
		if segment != 0 && int64(current-segment)*p.opts.SegmentSize > p.opts.LogBound {
			p.rotate(tree)
		}
	}
}
