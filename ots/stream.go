package ots

// This file enables and describes streams (PROTOCOL section 8). streamrecord.go reads them.
// Properties of a stream that the engine does not know are kept with it as JSON:
//
//	{"version":1,"key":"q83vEjRWeJASNFZ4kBI0Vg=="}

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	flagstone "github.com/flagstone-db/flagstone"
)

// StreamDetails describe the stream of a table.
type StreamDetails struct {
	StreamID         string
	ExpirationHours  int32
	LastEnableMicros int64
	ColumnsToGet     []string
}

// StreamSummary is an entry of ListStream.
type StreamSummary struct {
	StreamID, Table string
	CreatedMicros   int64
}

// DescribeStreamRequest is PROTOCOL 2.5 DescribeStream.
type DescribeStreamRequest struct {
	StreamID   string
	StartShard *string // the first shard to be returned
	ShardLimit *int32
}

// StreamDescription is one page of a stream's shards.
type StreamDescription struct {
	StreamSummary
	ExpirationHours int32
	Shards          []StreamShard
	NextShard       string // empty: this is the last page
}

// StreamShard is one shard of a stream; parents are empty if there are none.
type StreamShard struct{ ID, Parent, ParentSibling string }

// stream is a stream as one request sees it.
type stream struct {
	table *table
	read  *flagstone.Stream
	info  flagstone.StreamInfo
	streamAttributes
}

// streamAttributes are the stream's annotations in the engine.
type streamAttributes struct {
	Version int `json:"version"`
	// Key authenticates the iterators of the stream.
	Key []byte `json:"key"`
}

const (
	streamAttributesVersion = 1
	hourSeconds             = 3600
)

// streamChange translates the stream specification of a request; nil means no change. present
// is the stream that the table has.
func (e *Engine) streamChange(spec *StreamSpecification, present *StreamDetails) (*flagstone.StreamChange, *Error) {
	switch {
	case spec == nil, !spec.Enable && present == nil:
		return nil, nil
	case !spec.Enable:
		return &flagstone.StreamChange{}, nil
	case present != nil:
		if present.ExpirationHours == *spec.ExpirationHours && slices.Equal(present.ColumnsToGet, spec.ColumnsToGet) {
			return nil, nil
		}
		return nil, invalid("The stream of the table is enabled. Disable it before it is enabled with other parameters.")
	}
	attrs := streamAttributes{Version: streamAttributesVersion, Key: make([]byte, 16)}
	rand.Read(attrs.Key)
	annotations, err := json.Marshal(&attrs)
	if err != nil {
		panic(fmt.Sprintf("ots: stream attributes do not encode: %v", err)) // plain data always does
	}
	return &flagstone.StreamChange{Enable: &flagstone.StreamSpec{
		RetentionSeconds: int64(*spec.ExpirationHours) * hourSeconds,
		Before:           spec.ColumnsToGet, Annotations: annotations,
	}}, nil
}

// checkStream checks the stream specification of a request.
func (l *Limits) checkStream(spec *StreamSpecification) *Error {
	if spec == nil || !spec.Enable {
		return nil
	}
	switch hours := spec.ExpirationHours; {
	case hours == nil:
		return invalid("Expiration time is missing while enabling stream.")
	case *hours < 1 || *hours > l.StreamExpirationHours:
		return invalid("The expiration time of stream must be in range: [1, %d].", l.StreamExpirationHours)
	}
	if err := l.checkCount(len(spec.ColumnsToGet)); err != nil {
		return err
	}
	for i, c := range spec.ColumnsToGet {
		if err := l.checkColumnName(c); err != nil {
			return err
		}
		if slices.Contains(spec.ColumnsToGet[:i], c) {
			return invalid("Duplicated column name: '%s'.", c)
		}
	}
	return nil
}

// checkCount checks how many columns a request names.
func (l *Limits) checkCount(columns int) *Error {
	if columns > l.ColumnsToGet {
		return invalid("The number of columns from the request exceeds the limit, limit count: %d, column count: %d.",
			l.ColumnsToGet, columns)
	}
	return nil
}

// streamOf returns the stream of a table, nil if it has none.
func (t *table) streamOf() (*stream, error) {
	read := t.engine.Stream()
	if read == nil {
		return nil, nil
	}
	s := &stream{table: t, read: read, info: read.Info()}
	if s.info.ID == 0 { // disabled meanwhile
		return nil, nil
	}
	if len(s.info.Annotations) > 0 { // empty if the stream was made through the engine
		if err := json.Unmarshal(s.info.Annotations, &s.streamAttributes); err != nil {
			return nil, fmt.Errorf("ots: annotations of the stream of table %q: %w", t.name, err)
		}
		if s.Version != streamAttributesVersion {
			return nil, fmt.Errorf("ots: annotations of the stream of table %q have version %d, this program reads %d",
				t.name, s.Version, streamAttributesVersion)
		}
	}
	return s, nil
}

// id identifies a stream for good: another stream of a table of the same name, or of another
// store, has another id.
func (s *stream) id() string {
	return fmt.Sprintf("%s_%d_%x", s.table.name, s.info.CreatedMillis*1000, s.info.ID)
}

func (s *stream) summary() StreamSummary {
	return StreamSummary{StreamID: s.id(), Table: s.table.name, CreatedMicros: s.info.CreatedMillis * 1000}
}

// hours is the retention, rounded up to hours.
func (s *stream) hours() int32 {
	return int32(min((s.info.RetentionSeconds+hourSeconds-1)/hourSeconds, math.MaxInt32))
}

// details describes the stream of a table, nil if it has none.
func (t *table) details() *StreamDetails {
	s, err := t.streamOf()
	if err != nil || s == nil {
		return nil
	}
	return &StreamDetails{
		StreamID: s.id(), ExpirationHours: s.hours(), LastEnableMicros: s.info.CreatedMillis * 1000, ColumnsToGet: s.info.Before,
	}
}

// ListStream returns the stream of a table. If name is empty, it returns the streams of all
// tables of the instance, in ascending order of table names.
func (e *Engine) ListStream(_ context.Context, instance, name string) ([]StreamSummary, error) {
	names := []string{name}
	if name == "" {
		names = e.tableNames(instance)
	} else if err := e.limits.checkTableName(name); err != nil {
		return nil, err
	}
	var streams []StreamSummary
	for _, n := range names {
		t, bad := e.table(instance, n)
		if bad != nil {
			if name == "" && bad.Code == CodeObjectNotExist { // dropped meanwhile
				continue
			}
			return nil, bad
		}
		s, err := t.streamOf()
		if err != nil {
			return nil, e.asError(err, "list streams", n, false)
		}
		if s != nil {
			streams = append(streams, s.summary())
		}
	}
	return streams, nil
}

func streamMissing() *Error {
	return &Error{Code: CodeObjectNotExist, Message: "Requested stream does not exist."}
}

// stream finds a stream by its id. The error is OTSObjectNotExist, or OTSInternalServerError if
// the annotations cannot be read.
func (e *Engine) stream(instance, id string) (*stream, *Error) {
	name := id
	for range 2 { // cut off the number and the time
		i := strings.LastIndexByte(name, '_')
		if i < 0 {
			return nil, streamMissing()
		}
		name = name[:i]
	}
	t, bad := e.table(instance, name)
	if bad != nil {
		if bad.Code == CodeObjectNotExist {
			bad = streamMissing()
		}
		return nil, bad
	}
	s, err := t.streamOf()
	if err != nil {
		return nil, e.asError(err, "open stream", name, false)
	}
	if s == nil || s.id() != id {
		return nil, streamMissing()
	}
	return s, nil
}

// DescribeStream describes a stream and lists its shards, in pages if the request sets a limit.
func (e *Engine) DescribeStream(_ context.Context, instance string, req *DescribeStreamRequest) (*StreamDescription, error) {
	if req.ShardLimit != nil && *req.ShardLimit <= 0 {
		return nil, invalid("The shard limit must be greater than 0.")
	}
	s, bad := e.stream(instance, req.StreamID)
	if bad != nil {
		return nil, bad
	}
	d := &StreamDescription{StreamSummary: s.summary(), ExpirationHours: s.hours()}
	shards := s.read.Shards()
	if req.StartShard != nil {
		from := slices.IndexFunc(shards, func(sh flagstone.StreamShard) bool { return shardID(sh.ID) == *req.StartShard })
		if from < 0 {
			return nil, shardMissing()
		}
		shards = shards[from:]
	}
	if req.ShardLimit != nil && len(shards) > int(*req.ShardLimit) {
		d.NextShard = shardID(shards[*req.ShardLimit].ID)
		shards = shards[:*req.ShardLimit]
	}
	for _, sh := range shards {
		described := StreamShard{ID: shardID(sh.ID)}
		for i, parent := range sh.Parents {
			if i == 0 {
				described.Parent = shardID(parent)
			} else {
				described.ParentSibling = shardID(parent)
			}
		}
		d.Shards = append(d.Shards, described)
	}
	return d, nil
}

func shardMissing() *Error {
	return &Error{Code: CodeObjectNotExist, Message: "Requested stream shard does not exist."}
}

// shardID is the name of a shard for clients.
func shardID(id uint64) string { return fmt.Sprintf("%016x", id) }

// shardNumber is the inverse of shardID.
func shardNumber(id string) (uint64, bool) {
	n, err := strconv.ParseUint(id, 16, 64)
	return n, err == nil && shardID(n) == id
}
