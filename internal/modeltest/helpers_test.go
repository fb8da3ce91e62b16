package modeltest

// Helpers of reads. What is lent to them is done at once, some time later, in the
// middle of other operations, or never; reads of theirs fail now and then. Nothing of
// it may be seen in an answer. What becomes of an offer does not depend on the
// machine's random numbers, nor on how many offers the operations before made: that
// depends on working memory that all stores of a process share.

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// takenBlocks is how the pieces are counted that a helper did and their owners collected.
const takenBlocks = "pieces of blocks taken from a helper"

// helpers decide about the pieces that one machine's store lends. Nil is none.
type helpers struct {
	*assist.Helpers
	m       *machine
	source  *rand.PCG
	rng     *rand.Rand
	soon    int // of ten pieces, so many are done at once,
	later   int // and so many later, or never
	lent    map[*assist.Task]bool
	waiting []*assist.Task       // those of them that are for later
	failed  map[*vfs.Fault]int64 // calls of helpers that were made to fail
}

func newHelpers(m *machine) *helpers {
	h := &helpers{m: m, source: rand.NewPCG(m.seed, uint64(crc32.ChecksumIEEE([]byte(m.cfg.name)))), lent: map[*assist.Task]bool{}, failed: map[*vfs.Fault]int64{}}
	h.rng = rand.New(h.source)
	h.soon = h.rng.IntN(11)
	h.later = h.rng.IntN(11 - h.soon)
	h.Helpers = assist.NewStepped(h.offered, h.returned)
	return h
}

func (h *helpers) offered(l *assist.Task, _ assist.Work) {
	h.lent[l] = true
	if h.rng.IntN(4) == 0 {
		h.sometime()
	}
	switch n := h.rng.IntN(10); {
	case n < h.soon:
		h.help(l)
	case n < h.soon+h.later:
		h.waiting = append(h.waiting, l)
	}
}

func (h *helpers) returned(l *assist.Task, helped bool) {
	if helped {
		h.m.seen[takenBlocks]++
	}
	delete(h.lent, l)
	h.waiting = slices.DeleteFunc(h.waiting, func(w *assist.Task) bool { return w == l })
}

// help does a piece; perhaps a read fails that it needs.
func (h *helpers) help(l *assist.Task) {
	if h.rng.IntN(8) == 0 {
		faults := h.m.faults
		faults.Add(vfs.Rule{
			Ops: vfs.OpReadAt, Glob: "*.sst", Nth: 1 + h.rng.Int64N(3), Times: 1 + h.rng.Int64N(2), Action: vfs.FailWith(syscall.EIO),
		})
		before := injectedBy(faults)
		defer func() {
			faults.Clear()
			failed := injectedBy(faults) - before
			h.failed[faults] += failed
			h.m.seen["read errors of helpers"] += int(failed)
		}()
	}
	l.Help()
}

// beginOperation is called before every operation of the machine.
func (h *helpers) beginOperation() {
	if h != nil {
		h.source.Seed(h.m.seed, 3+uint64(h.m.op))
		h.sometime()
	}
}

// sometime does, or not, some of the pieces that wait.
func (h *helpers) sometime() {
	if h == nil || len(h.waiting) == 0 || h.rng.IntN(3) > 0 {
		return
	}
	for range 1 + h.rng.IntN(3) {
		if len(h.waiting) == 0 {
			break
		}
		i := h.rng.IntN(len(h.waiting))
		l := h.waiting[i]
		h.waiting = slices.Delete(h.waiting, i, i+1)
		h.help(l)
		h.m.seen["help that came later"]++
	}
}

// largeValues are unpacked in several pieces. They are shared by all histories, for
// these are kept.
var largeValues = sync.OnceValue(func() (values []row.Value) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		var b []byte
		for n := 0; len(b) < 260<<10+i*40_000; n++ {
			b = fmt.Appendf(b, "{\"value\": %d, \"id\": %d, \"name\": \"n%d\"}\n", i, n, rng.Uint32())
		}
		values = append(values, row.String(string(b)))
	}
	return values
})
