package tunnel

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Type says what a tunnel delivers; the numbers are the protocol's.
type Type int

// Types of tunnels.
const (
	Base          Type = 1 // the rows of the table
	Stream        Type = 2 // the changes of the table
	BaseAndStream Type = 3 // the rows, then the changes since the tunnel was created
)

// String returns the protocol's name of a type.
func (t Type) String() string {
	switch t {
	case Base:
		return "BaseData"
	case Stream:
		return "Stream"
	case BaseAndStream:
		return "BaseAndStream"
	}
	return fmt.Sprintf("Type(%d)", int(t))
}

// Spec is what is kept of a tunnel.
type Spec struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Table   string `json:"table"`
	// TableID is the engine's id of the table: a table that is made later under the same name has
	// another one.
	TableID       uint64 `json:"table_id"`
	Type          Type   `json:"type"`
	CreatedMicros int64  `json:"created_micros"`
	// StreamID is the id of the stream, which no other stream has; none for Base.
	StreamID string `json:"stream_id,omitempty"`
	// Earliest and StartMillis say where a Stream tunnel begins, as its creator asked.
	Earliest    bool   `json:"earliest,omitempty"`
	StartMillis uint64 `json:"start_millis,omitempty"`
	// Key authenticates what clients carry.
	Key []byte `json:"key"`
	// Expired says why the tunnel cannot be read any more; empty while it can.
	Expired string `json:"expired,omitempty"`
}

// Position is a place in a channel: what lies before it was consumed.
type Position struct {
	Key   []byte `json:"key,omitempty"`   // base: the encoded key of the next row; empty is the begin
	After uint64 `json:"after,omitempty"` // stream: as in flagstone.StreamPosition; base: 1 is the end
	AsOf  int64  `json:"as_of,omitempty"` // stream: microseconds, likewise
}

// Channel is what is kept of a channel.
type Channel struct {
	Version int `json:"version"`
	// Begin (inclusive) and End (exclusive) are encoded keys; empty is unbounded. Base only.
	Begin []byte `json:"begin,omitempty"`
	End   []byte `json:"end,omitempty"`
	// Shard and its Parents are shards of the stream. Stream only.
	Shard   uint64   `json:"shard,omitempty"`
	Parents []uint64 `json:"parents,omitempty"`
	At      Position `json:"at"`
	// Holder is the client that opened the channel last, and Tenure counts how often it was opened.
	Holder string `json:"holder,omitempty"`
	Tenure uint64 `json:"tenure,omitempty"`
	// Sequence counts the checkpoints, except for the latest that changed no position.
	Sequence int64 `json:"sequence"`
	// Done says that the channel was consumed to its end; At.AsOf is then not above the time of
	// what follows in other channels.
	Done bool `json:"done,omitempty"`
}

const storedVersion = 1

// The beginnings of channel ids. Clients tell base channels by theirs.
const (
	basePrefix   = "BaseData_"
	streamPrefix = "Stream_"
)

// BaseID is the id of the n-th base channel.
func BaseID(n int) string { return fmt.Sprintf("%s%04d", basePrefix, n) }

// StreamID is the id of the channel of a shard.
func StreamID(shard uint64) string { return fmt.Sprintf("%s%016x", streamPrefix, shard) }

// IsBase reports whether a channel id is that of a base channel.
func IsBase(id string) bool { return strings.HasPrefix(id, basePrefix) }

// Encode returns the bytes that are kept.
func (s Spec) Encode() []byte {
	s.Version = storedVersion
	return encode(&s)
}

// Encode returns the bytes that are kept.
func (c Channel) Encode() []byte {
	c.Version = storedVersion
	return encode(&c)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("tunnel: a row does not encode: %v", err)) // plain data always does
	}
	return b
}

// DecodeSpec is the inverse of Spec.Encode. It refuses a newer version, since an unknown field
// may change the meaning of the others.
func DecodeSpec(b []byte) (Spec, error) {
	var s Spec
	err := decode(b, &s, &s.Version)
	return s, err
}

// DecodeChannel is the inverse of Channel.Encode.
func DecodeChannel(b []byte) (Channel, error) {
	var c Channel
	err := decode(b, &c, &c.Version)
	return c, err
}

func decode(b []byte, v any, version *int) error {
	if err := json.Unmarshal(b, v); err != nil {
		return err
	}
	if *version != storedVersion {
		return fmt.Errorf("version %d, this program reads %d", *version, storedVersion)
	}
	return nil
}
