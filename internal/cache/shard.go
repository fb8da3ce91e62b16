package cache

import "sync"

const maxHits = 3 // of a block's clock count

// shard is one part of the cache. A block in the map holds one reference of
// the shard, so its count cannot fall to zero while it can be found.
type shard struct {
	mu        sync.Mutex
	blocks    map[name]*Block
	hand      *Block // the clock's position in the ring of resident blocks
	resident  int
	used      int64
	capacity  int64
	free      recycler
	hits      uint64
	misses    uint64
	evictions uint64
	_         [64]byte // keeps neighbouring shards' locks off this cache line
}

// join pins a block found in the map and unlocks the shard; it waits if the
// block is being filled.
func (s *shard) join(b *Block) (*Block, error) {
	b.refs.Add(1)
	if b.hits < maxHits {
		b.hits++
	}
	filling := b.filling
	s.mu.Unlock()
	if !filling {
		return b, nil
	}
	b.filled.Lock()
	err := b.err
	b.filled.Unlock()
	if err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// panicked is what those who waited for a filling get when it panicked.
type panicked struct{}

func (panicked) Error() string { return "cache: filling of a block panicked" }

// fill runs the filler and makes the block resident, or removes it.
func (s *shard) fill(b *Block, f Filler) (err error) {
	err = panicked{}
	defer func() {
		s.mu.Lock()
		b.filling = false
		b.err = err
		switch {
		case err != nil:
			delete(s.blocks, b.name)
			b.refs.Add(-1) // the caller's reference remains
		default:
			s.admit(b)
		}
		s.mu.Unlock()
		b.filled.Unlock()
	}()
	return f.FillBlock(b)
}

// admit charges a filled block, puts it behind the hand, where the hand comes
// last, and evicts others.
func (s *shard) admit(b *Block) {
	b.charge = int64(cap(b.buffer)) + overhead
	b.hits = 0
	if s.hand == nil {
		s.hand, b.next, b.prev = b, b, b
	} else {
		b.next, b.prev = s.hand, s.hand.prev
		b.prev.next, b.next.prev = b, b
	}
	s.resident++
	s.used += b.charge
	if b.charge > s.capacity/oversizeShare {
		s.remove(b)
		return
	}
	s.evict()
}

// evict moves the hand until the shard is within its capacity. Pinned blocks
// are passed over; the hand gives up after it has counted every block down to
// zero once, when all that is left is pinned.
func (s *shard) evict() {
	for steps := (maxHits + 2) * s.resident; s.used > s.capacity && steps > 0 && s.hand != nil; steps-- {
		b := s.hand
		s.hand = b.next
		switch {
		case b.refs.Load() > 1: // pinned; only under this lock can it become so
		case b.hits > 0:
			b.hits--
		default:
			s.evictions++
			s.remove(b)
		}
	}
}

// remove takes a resident block out of the shard.
func (s *shard) remove(b *Block) {
	delete(s.blocks, b.name)
	if b.next == b {
		s.hand = nil
	} else {
		if s.hand == b {
			s.hand = b.next
		}
		b.prev.next, b.next.prev = b.next, b.prev
	}
	b.next, b.prev = nil, nil
	s.resident--
	s.used -= b.charge
	if b.refs.Add(-1) == 0 {
		s.free.give(b)
	}
}

func (s *shard) takeBuffer(n int) []byte {
	s.mu.Lock()
	buffer := s.free.takeBuffer(n)
	s.mu.Unlock()
	if buffer == nil {
		buffer = newBuffer(n)
	}
	return buffer[:n]
}
