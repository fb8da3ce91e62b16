package ots

// This file reads streams: iterators and records. An iterator is a position in a shard that the
// client carries. Its content is opaque to clients:
//
//	base64url( version 1 | shard 8 | after 8 | as of 8 | stream id | mac 16 )
//
// Integers are big endian. The mac is the beginning of an HMAC-SHA256 under a key of the
// stream, so the server accepts only iterators that it gave out for this stream.

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/seal"
	"github.com/flagstone-db/flagstone/row"
)

// GetShardIteratorRequest is PROTOCOL 2.5 GetShardIterator.
type GetShardIteratorRequest struct {
	StreamID, ShardID string
	Timestamp         *int64 // microseconds; nil: the oldest record
	Token             string
}

// GetStreamRecordRequest is PROTOCOL 2.5 GetStreamRecord.
type GetStreamRecordRequest struct {
	Iterator string
	Limit    *int32
	Table    *string // if given, it must be the stream's
	Sender   string  // whom Engine.LookAtReaders names; "": nobody
}

// StreamRecord is one change of one row. Row has the operations of an update, or the delete
// marker of a delete.
type StreamRecord struct {
	Type   ChangeType
	Row    Row
	Origin *Row // previous values of the stream's columns_to_get; nil: none
	// The triple of Epoch, Timestamp (microseconds) and RowIndex rises strictly within a shard.
	Epoch     int32
	Timestamp int64
	RowIndex  int32
}

// GetStreamRecordResponse is one page. Next is the iterator after the records. Without records
// it is mostly that of the request, renewed from time to time so that it does not expire. It is
// empty at the end of a shard whose partition was split or merged.
type GetStreamRecordResponse struct {
	Records  []StreamRecord
	Next     string
	Consumed CapacityUnit
	More     bool
}

const (
	iteratorVersion = 1
	iteratorHead    = 1 + 8 + 8 + 8
)

func trimmed() *Error {
	return &Error{Code: CodeTrimmedDataAccess, Message: "Requested stream data is already trimmed or does not exist."}
}

// iterator encodes a position.
func (s *stream) iterator(pos flagstone.StreamPosition) string {
	b := []byte{iteratorVersion}
	b = binary.BigEndian.AppendUint64(b, pos.Shard)
	b = binary.BigEndian.AppendUint64(b, pos.After)
	b = binary.BigEndian.AppendUint64(b, uint64(pos.AsOf))
	b = append(b, s.id()...)
	return base64.RawURLEncoding.EncodeToString(seal.Seal(s.Key, "", b))
}

// openIterator decodes an iterator and finds its stream.
func (e *Engine) openIterator(instance, iterator string) (*stream, flagstone.StreamPosition, *Error) {
	var pos flagstone.StreamPosition
	malformed := invalid("The shard iterator is invalid.")
	b, err := base64.RawURLEncoding.Strict().DecodeString(iterator)
	if err != nil || len(b) <= iteratorHead+seal.MAC || b[0] != iteratorVersion {
		return nil, pos, malformed
	}
	s, bad := e.stream(instance, string(b[iteratorHead:len(b)-seal.MAC]))
	if bad != nil {
		if bad.Code == CodeObjectNotExist { // the stream was disabled
			bad = trimmed()
		}
		return nil, pos, bad
	}
	body, ok := seal.Open(s.Key, "", b)
	if !ok {
		return nil, pos, malformed
	}
	pos.Shard = binary.BigEndian.Uint64(body[1:])
	pos.After = binary.BigEndian.Uint64(body[9:])
	pos.AsOf = int64(binary.BigEndian.Uint64(body[17:]))
	return s, pos, nil
}

// GetShardIterator returns the iterator of the oldest record of a shard, or of the first record
// that is not older than a timestamp.
func (e *Engine) GetShardIterator(ctx context.Context, instance string, req *GetShardIteratorRequest) (string, error) {
	if req.Token != "" { // this server never gives out tokens
		return "", invalid("The token is invalid.")
	}
	since := int64(0)
	if req.Timestamp != nil {
		if since = *req.Timestamp; since < 0 {
			return "", invalid("The timestamp must be greater than or equal to 0.")
		}
	}
	s, bad := e.stream(instance, req.StreamID)
	if bad != nil {
		return "", bad
	}
	shard, ok := shardNumber(req.ShardID)
	if !ok {
		return "", shardMissing()
	}
	pos, err := s.read.Since(ctx, shard, since)
	switch {
	case errors.Is(err, flagstone.ErrStreamNotFound), errors.Is(err, flagstone.ErrStreamTrimmed):
		return "", shardMissing()
	case err != nil:
		return "", e.asError(err, "get shard iterator", s.table.name, false)
	}
	return s.iterator(pos), nil
}

// GetStreamRecord returns the records after an iterator.
func (e *Engine) GetStreamRecord(ctx context.Context, instance string, req *GetStreamRecordRequest) (*GetStreamRecordResponse, error) {
	limits := flagstone.StreamLimits{Records: e.limits.StreamRecords, Bytes: e.limits.StreamBytes}
	if req.Limit != nil {
		if *req.Limit <= 0 {
			return nil, invalid("The limit must be greater than 0.")
		}
		if n := int(*req.Limit); limits.Records == 0 || n < limits.Records {
			limits.Records = n
		}
	}
	s, pos, bad := e.openIterator(instance, req.Iterator)
	if bad != nil {
		return nil, bad
	}
	if req.Table != nil && *req.Table != s.table.name {
		return nil, invalid("The shard iterator is not of table '%s'.", printable(*req.Table))
	}
	if bad := e.admitTable(s.table, reads); bad != nil {
		return nil, bad
	}
	if err := turnOf(ctx).Take(ctx); err != nil { // if only a few records are wanted, too: rows may be large
		return nil, err
	}
	if err := RoomOf(ctx).Take(ctx, answerCopies*e.limits.StreamBytes); err != nil {
		return nil, err
	}
	page, err := s.read.Read(ctx, pos, limits)
	switch {
	case errors.Is(err, flagstone.ErrStreamTrimmed), errors.Is(err, flagstone.ErrStreamNotFound):
		return nil, trimmed()
	case err != nil:
		return nil, e.asError(err, "get stream records", s.table.name, false)
	}
	resp := &GetStreamRecordResponse{More: page.More}
	if !page.Next.End {
		resp.Next = s.iterator(page.Next)
	}
	var size int64
	for i := range page.Records {
		r, err := s.record(&page.Records[i])
		if err != nil {
			return nil, e.asError(err, "get stream records", s.table.name, false)
		}
		size += changeSize(&r.Row)
		if r.Origin != nil {
			size += changeSize(r.Origin) - keySize(r.Origin.Key)
		}
		resp.Records = append(resp.Records, r)
	}
	resp.Consumed = readCost(size)
	e.charge(s.table, resp.Consumed)
	if req.Sender != "" {
		e.readers.note(s.info.ID, pos.Shard, StreamReader{
			Sender: req.Sender, Shard: shardID(pos.Shard), GivenMicros: page.Next.AsOf, AskedMillis: e.store.WallMillis(),
			All: !page.More, Ended: page.Next.End,
		})
	}
	return resp, nil
}

// record translates a record. The sequence number rises strictly and the time does not fall:
// the low 31 bits of the sequence number are the row index, the bits above are the epoch.
func (s *stream) record(from *flagstone.StreamRecord) (StreamRecord, error) {
	const indexBits = 31
	r := StreamRecord{
		Row:       Row{Key: nameKey(s.table.key, from.Key)},
		Epoch:     int32(from.Sequence >> indexBits),
		Timestamp: from.Micros,
		RowIndex:  int32(from.Sequence & (1<<indexBits - 1)),
	}
	switch from.Action {
	case flagstone.StreamPut:
		r.Type = ChangePut
	case flagstone.StreamUpdate:
		r.Type = ChangeUpdate
	case flagstone.StreamDelete:
		r.Type, r.Row.DeleteMarker = ChangeDelete, true
		from.Cells = nil
	}
	var err error
	if r.Row.Cells, err = streamCells(from.Cells); err != nil || len(from.Before) == 0 {
		return r, err
	}
	r.Origin = &Row{Key: r.Row.Key}
	r.Origin.Cells, err = streamCells(from.Before)
	return r, err
}

func streamCells(from []row.Cell) ([]Cell, error) {
	cells := make([]Cell, 0, len(from))
	for i := range from {
		c := Cell{Name: string(from[i].Column)}
		switch from[i].Kind {
		case row.KindTrim:
			c.Op = OpDeleteAllVersion
		case row.KindDeleteVersion:
			c.Op, c.Version, c.HasVersion = OpDeleteOneVersion, from[i].Version, true
		default:
			v, err := row.PayloadValue(from[i].Type, from[i].Value)
			if err != nil {
				return nil, err
			}
			c.Value, c.Version, c.HasVersion = v, from[i].Version, true
		}
		cells = append(cells, c)
	}
	return cells, nil
}
