package valuefile

// Unpacking values with helpers: an idle processor takes pieces of a long value as the reader
// does, until there are none left. A megabyte of text then takes 210 to 240 us instead of 430.

import (
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// shortestHelped is how many bytes of a value must be in compressed pieces for the reader to ask
// for help: decoding them takes a hundred microseconds and more. If most of a value is only
// copied, as noise and runs are, waiting for a helper that lost its processor costs more than
// helpers save. A megabyte that is half zeros took 28 us at the median and 32 at the 90th
// percentile; with help on a busy machine 30 and 67, on an idle one 16.
const shortestHelped = 256 << 10

// unpacking describes how to unpack one value.
type unpacking struct {
	buffer *[]byte
	known  bool // its pieces need not be verified
	// helpers may take pieces; nil: none. If the packed value is in a mapping, each helper makes
	// its own access: a fault concerns the goroutine that meets it.
	helpers *assist.Helpers
	mapping *vfs.Mapping
	offset  int64 // of the packed value in the mapping
	size    int64 // of the packed value
}

// pieces unpacks these pieces, raw bytes, into the buffer; bad says what is wrong, or is ""; err
// is the error of a helper.
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
	// Deferred, so that it waits for the helper even if the reader's own access faults.
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

// slow reports whether there are several pieces that take long to decode, of shortestHelped bytes
// together.
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

// share is the shared state of unpacking one value.
type share struct {
	unpacking
	pieces pieces // a helper must not touch them if they are in a mapping
	value  []byte
	next   atomic.Int32 // next piece to unpack

	// The errors of the helper.
	bad string
	err error

	loan   assist.Task
	stream assist.Stream
}

// shares holds working memory, and what the streams have learned about whether helpers come.
var shares = sync.Pool{New: func() any { return new(share) }}

// take unpacks pieces until none is left; bad says what is wrong, or is "".
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

// Do runs in the helper.
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
