package offheaptest

import (
	"fmt"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// poisoned is memory that notices when it was written after it was freed.
type poisoned struct {
	freed [][]byte // oldest first
}

// Map allocates n bytes.
func (p *poisoned) Map(n int) []byte {
	b := vfs.AlignedBuffer(n)
	fill(b)
	return b
}

// Unmap fills the memory with garbage.
func (p *poisoned) Unmap(b []byte) {
	fill(b)
	p.freed = append(p.freed, b)
	if len(p.freed) > quarantine {
		check(p.freed[0])
		p.freed = p.freed[1:]
	}
}

func (p *poisoned) close() {
	for _, b := range p.freed {
		check(b)
	}
	p.freed = nil
}

// check panics if freed memory was written.
func check(b []byte) {
	if i := firstOther(b); i < len(b) {
		panic(fmt.Sprintf("offheaptest: byte %d of %d was written after its memory was freed", i, len(b)))
	}
}
