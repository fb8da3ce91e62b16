package valuefile

// This file unpacks values. A long one is unpacked by two: a processor that has
// nothing to do takes pieces as the reader does, until there are none left. A
// megabyte of text then takes 210 to 240 us instead of 430.

import (
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// shortestHelped is how much must have been compressed that help is asked for, which
// takes a hundred microseconds and more to decode. Where most is only copied, as noise
// and runs are, waiting for a helper that lost its processor costs more than helpers
// save: a megabyte of which one half is zero took 28 us at the median and 32 at the
// 90th percentile, with help on a busy machine 30 and 67, on an idle one 16.
const shortestHelped = 256 << 10

// unpacking is a value that is unpacked.
type unpacking struct {
	buffer *[]byte
	known  bool // its pieces need not be verified
	// helpers may take pieces; nil: none. If what is packed lies in a mapping, they
	// access it on their own: a fault is one of the goroutine that meets it.
	helpers *assist.Helpers
	mapping *vfs.Mapping
	offset  int64 // of what is packed in the mapping,
	size    int64 // and its length
}

// pieces makes the buffer hold the value of these pieces, raw bytes. It returns the
// value, and what is wrong, or "", or the error of a helper.
func (u *unpacking) pieces(p *pieces, raw int) (value []byte, bad string, err error) {
	value = resize(u.buffer, raw)
	if u.helpers == nil || raw < shortestHelped || !p.slow() {
		for i := range p.len() {
			if bad = p.unpack(i, value, u.known); bad != "" {
				return nil, bad, nil
			}
		}
		return value, "", nil
	}
	s := shares.Get().(*share)
	s.pieces, s.value, s.unpacking = *p, value, *u
	s.next.Store(0)
	s.stream.Use(u.helpers)
	s.stream.Offer(&s.loan, s)
	// Also when the reader's own access meets a fault: nobody may be at it afterwards.
	defer func() {
		s.stream.Collect(&s.loan)
		if bad == "" {
			bad, err = s.bad, s.err
		}
		s.pieces, s.value, s.unpacking, s.bad, s.err = pieces{}, nil, unpacking{}, "", nil
		shares.Put(s)
	}()
	return value, s.take(p), nil
}

// slow reports whether there are several pieces that take long to decode.
func (p *pieces) slow() bool {
	pieces, sum := 0, 0
	for i := range p.len() {
		if c, bad := p.piece(i); bad == "" && !c.run && len(c.content) < (c.to-c.from)/8*7 {
			pieces++
			sum += c.to - c.from
		}
	}
	return pieces > 1 && sum >= shortestHelped
}

// share is the work of unpacking one value, as far as it is shared.
type share struct {
	unpacking
	pieces pieces // not to be touched by a helper if they lie in a mapping
	value  []byte
	next   atomic.Int32 // piece to be unpacked

	// What a helper found wrong.
	bad string
	err error

	loan   assist.Task
	stream assist.Stream
}

// shares holds working memory, and what was learned about whether helpers come.
var shares = sync.Pool{New: func() any { return new(share) }}

// take unpacks pieces until none is left, and says what is wrong, or "".
func (s *share) take(p *pieces) (bad string) {
	for {
		i := int(s.next.Add(1)) - 1
		if i >= p.len() {
			return ""
		}
		if bad = p.unpack(i, s.value, s.known); bad != "" {
			return bad
		}
	}
}

// Do is the helper's part.
func (s *share) Do() {
	if s.mapping == nil {
		s.bad = s.take(&s.pieces)
		return
	}
	s.err = s.mapping.Access(s.offset, s.size, func(content []byte) error {
		p, _, bad := parsePieces(content)
		if bad == "" {
			bad = s.take(&p)
		}
		s.bad = bad
		return nil
	})
}
