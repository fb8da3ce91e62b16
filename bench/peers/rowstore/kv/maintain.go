package kv

// This file gives space back and divides a store.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// reclaimer is a session that knows what of its encoding is visible no more.
type reclaimer interface {
	reclaim(b *reclaimBatch) error
}

// reclaimBatch reads with one session of the engine and writes with another.
type reclaimBatch struct {
	reader, writer Session
	pending        int
}

func (b *reclaimBatch) set(key, value []byte) error {
	b.writer.BatchSet(key, value)
	return b.added(len(key) + len(value))
}

func (b *reclaimBatch) delete(key []byte) error {
	b.writer.BatchDelete(key)
	return b.added(len(key))
}

// added commits when enough has gathered.
func (b *reclaimBatch) added(n int) error {
	if b.pending += n + 16; b.pending < 64<<10 {
		return nil
	}
	b.pending = 0
	return b.writer.Commit()
}

// Reclaim deletes what is visible no more and compacts. Nobody may write
// meanwhile.
func (s *store) Reclaim() error {
	session, err := s.Session()
	if err != nil {
		return err
	}
	err = s.deleteInvisible(session)
	if err = errors.Join(err, session.Close()); err != nil {
		return err
	}
	return s.Compact()
}

func (s *store) Compact() error {
	if err := s.engine.Compact(); err != nil {
		return err
	}
	_, err := s.engine.Settle()
	return err
}

func (s *store) deleteInvisible(session rowstore.Session) error {
	r, ok := session.(reclaimer)
	if !ok {
		return nil // plain values are all visible
	}
	reader, err := s.engine.Session()
	if err != nil {
		return err
	}
	writer, err := s.engine.Session()
	if err != nil {
		return errors.Join(err, reader.Close())
	}
	b := reclaimBatch{reader: reader, writer: writer}
	err = r.reclaim(&b)
	if err == nil {
		err = writer.Commit()
	}
	return errors.Join(err, reader.Close(), writer.Close())
}

// SplitPoints asks the engine for keys or for sizes; failing both it reads
// everything.
func (s *store) SplitPoints(pieceBytes int64) ([][]byte, error) {
	session, err := s.engine.Session()
	if err != nil {
		return nil, err
	}
	var points [][]byte
	divided := false
	if d, ok := s.engine.(Divider); ok {
		points, divided = d.Divide(pieceBytes)
	} else if sizer, ok := s.engine.(Sizer); ok {
		points, err = divideBySize(session, sizer, pieceBytes)
		divided = true
	}
	if !divided {
		points, err = divideByScan(session, pieceBytes)
	}
	if err = errors.Join(err, session.Close()); err != nil {
		return nil, err
	}
	if s.cfg.Encoding == rowstore.CellKeys {
		points = rowKeys(points)
	}
	return points, nil
}

// rowKeys turns cell keys into the keys of their rows.
func rowKeys(points [][]byte) [][]byte {
	out := points[:0]
	for _, p := range points {
		n := EscapedLen(p)
		if n < 0 {
			continue
		}
		var scratch []byte
		key := bytes.Clone(unescape(&scratch, p[:n]))
		if len(out) == 0 || !bytes.Equal(out[len(out)-1], key) {
			out = append(out, key)
		}
	}
	return out
}

func divideByScan(session Session, pieceBytes int64) ([][]byte, error) {
	it, err := session.Iter(nil, nil, 0)
	if err != nil {
		return nil, err
	}
	var points [][]byte
	size := int64(0)
	for ; it.Valid(); it.Next() {
		value, err := it.Value()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		if size >= pieceBytes {
			points = append(points, bytes.Clone(it.Key()))
			size = 0
		}
		size += int64(len(it.Key()) + len(value))
	}
	return points, it.Close()
}

// divideBySize looks for the keys at which the estimated size reaches a multiple
// of pieceBytes: interpolation between bounds of known size, as keys that are
// spread evenly need only a step or two of it, and halving when that fails.
func divideBySize(session Session, sizer Sizer, pieceBytes int64) ([][]byte, error) {
	first, err := keyFrom(session, nil)
	if err != nil || first == nil {
		return nil, err
	}
	last, err := sizer.Last()
	if err != nil {
		return nil, err
	}
	// Keys are compared as numbers: the eight bytes after what all have in common.
	common := 0
	for common < min(len(first), len(last)) && first[common] == last[common] {
		common++
	}
	at := func(number uint64) []byte {
		return binary.BigEndian.AppendUint64(slices.Clone(first[:common]), number)
	}
	total, err := sizer.Size(first, append(bytes.Clone(last), 0))
	if err != nil {
		return nil, err
	}
	low, top := number(first[common:]), number(last[common:])
	below := int64(0) // size below low
	var points [][]byte
	for want := pieceBytes; want < total-pieceBytes/2; want += pieceBytes {
		high, above := top, total
		for step := 0; high-low > 1; step++ {
			middle := low + (high-low)/2
			if step%3 != 2 && above > below {
				share := float64(want-below) / float64(above-below)
				middle = low + uint64(float64(high-low)*share)
				middle = min(max(middle, low+1), high-1)
			}
			size, err := sizer.Size(first, at(middle))
			if err != nil {
				return nil, err
			}
			if size < want {
				low, below = middle, size
			} else {
				high, above = middle, size
			}
			if d := size - want; d > -pieceBytes/20 && d < pieceBytes/20 {
				low, below = middle, size
				break
			}
		}
		point, err := keyFrom(session, at(low))
		if err != nil {
			return nil, err
		}
		if point != nil && (len(points) == 0 || bytes.Compare(points[len(points)-1], point) < 0) {
			points = append(points, point)
		}
	}
	return points, nil
}

// number is the first eight bytes of a key as a number.
func number(key []byte) uint64 {
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// keyFrom returns the first key at or above start; nil if there is none.
func keyFrom(session Session, start []byte) ([]byte, error) {
	it, err := session.Iter(start, nil, 0)
	if err != nil {
		return nil, err
	}
	var key []byte
	if it.Valid() {
		key = bytes.Clone(it.Key())
	}
	return key, it.Close()
}
