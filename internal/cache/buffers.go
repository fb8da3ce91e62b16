package cache

import "math/bits"

// Buffers come in size classes, eight to each doubling, so that a class wastes
// at most an eighth and a buffer fits the next block of nearly the same size.
// Larger ones than the last class are not recycled.
const (
	stepBits      = 3
	smallestClass = 8  // 1<<8 bytes
	largestClass  = 20 // 1<<20 bytes
	classes       = (largestClass-smallestClass)<<stepBits + 1
)

// class returns the smallest class that holds n bytes and its size; ok is false
// if there is none.
func class(n int) (number, size int, ok bool) {
	if n <= 1<<smallestClass {
		return 0, 1 << smallestClass, true
	}
	if n > 1<<largestClass {
		return 0, 0, false
	}
	log := bits.Len(uint(n-1)) - 1 // 1<<log < n <= 2<<log
	step := 1 << (log - stepBits)
	k := (n - 1<<log + step - 1) / step // 1..8
	return (log-smallestClass)<<stepBits + k, 1<<log + k*step, true
}

// newBuffer makes a buffer of a whole class, so that it can be recycled.
func newBuffer(n int) []byte {
	if _, size, ok := class(n); ok {
		return make([]byte, size)
	}
	return make([]byte, n)
}

// recycler keeps what evicted blocks leave: buffers by class, and the Block
// structs with their decoded objects. Guarded by the shard's mutex.
type recycler struct {
	buffers [classes][][]byte
	blocks  []*Block
	bytes   int64
	limit   int64 // of bytes
	poison  bool
}

const maxFreeBlocks = 64

func (r *recycler) takeBuffer(n int) []byte {
	number, size, ok := class(n)
	if !ok {
		return nil
	}
	list := r.buffers[number]
	if len(list) == 0 {
		return nil
	}
	buffer := list[len(list)-1]
	list[len(list)-1] = nil
	r.buffers[number] = list[:len(list)-1]
	r.bytes -= int64(size)
	return buffer
}

func (r *recycler) takeBlock() *Block {
	if n := len(r.blocks); n > 0 {
		b := r.blocks[n-1]
		r.blocks[n-1] = nil
		r.blocks = r.blocks[:n-1]
		return b
	}
	return &Block{}
}

// give takes back a block that nobody refers to.
func (r *recycler) give(b *Block) {
	buffer := b.buffer[:cap(b.buffer)]
	b.buffer, b.hits, b.charge = nil, 0, 0
	if d, ok := b.Decoded.(Forgetter); ok {
		d.Forget()
	}
	if r.poison {
		for i := range buffer {
			buffer[i] = 0xDB
		}
	}
	if number, size, ok := class(len(buffer)); ok && size == len(buffer) && r.bytes+int64(size) <= r.limit {
		r.buffers[number] = append(r.buffers[number], buffer)
		r.bytes += int64(size)
	}
	if len(r.blocks) < maxFreeBlocks {
		r.blocks = append(r.blocks, b)
	}
}
