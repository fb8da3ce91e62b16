package instances

import (
	"context"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// Streams describes the change stream of a table, and the tunnels that read the table.
type Streams struct {
	NowMillis int64    `json:"now_millis"` // by the clock of the server
	Stream    *Stream  `json:"stream"`     // null: the table has none
	Tunnels   []Tunnel `json:"tunnels"`
}

// Stream is a change stream.
type Stream struct {
	ID            string  `json:"id"`
	Hours         int32   `json:"hours"` // how long a record is kept
	CreatedMillis int64   `json:"created_millis"`
	Shards        []Shard `json:"shards"` // parents before children
	// Readers are those without a tunnel, of the last that the server remembers: at most mostReaders, the one that asked last first.
	Readers []Reader `json:"readers"`
}

// Reader reads a shard with iterators (GetStreamRecord). It keeps its place itself; the server knows what it gave it since the
// server was started.
type Reader struct {
	Key   string `json:"access_key"` // the id
	Shard string `json:"shard"`
	// GivenMillis is the time of the last change that it was given; without one, the time where it began, 0 for the oldest.
	GivenMillis int64 `json:"given_millis"`
	AskedMillis int64 `json:"asked_millis"` // when it asked last
	All         bool  `json:"all"`          // there was no more then
	Ended       bool  `json:"ended"`        // nor will there be: the shard has ended
}

// mostReaders bounds the readers in an answer.
const mostReaders = 500

// Shard is a shard of a stream.
type Shard struct {
	ID      string   `json:"id"`
	Parents []string `json:"parents"`
	Ended   bool     `json:"ended"` // a shard of Shards came from it
}

// Tunnel is a data tunnel with its channels.
type Tunnel struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Type          string    `json:"type"`
	CreatedMillis int64     `json:"created_millis"`
	BaseDone      bool      `json:"base_done"`         // it delivers no rows of the table any more
	Expired       string    `json:"expired,omitempty"` // why it cannot be read any more
	Channels      []Channel `json:"channels"`
}

// Channel is a channel of a tunnel, with its latest checkpoint.
type Channel struct {
	ID     string `json:"id"`
	Status string `json:"status"` // WAIT: no client has it; OPEN, CLOSING or TERMINATED: it was consumed to its end
	Client string `json:"client,omitempty"`
	// Key is the partition key of the next row of a channel of rows; null at the begin, or of a channel of changes.
	Key *string `json:"key"`
	// Millis is the time up to which the changes of a channel of changes were consumed; 0 if nothing was.
	Millis int64 `json:"millis,omitempty"`
}

// Streams describes the stream and the tunnels of a table. Errors match ErrNotFound or ErrRefused, or are those of
// the store.
func (h *Home) Streams(ctx context.Context, instance, table string) (*Streams, error) {
	engine, name, err := h.service(instance)
	if err != nil {
		return nil, err
	}
	t, err := engine.Table(name, table)
	if err != nil {
		return nil, missing(err, instance, table)
	}
	s := &Streams{NowMillis: h.now(), Tunnels: []Tunnel{}}
	if s.Stream, err = streamOf(ctx, engine, name, table); err != nil {
		return nil, refusal(err, instance, table)
	}
	list, err := engine.LookAtTunnels(ctx, name, table)
	if err != nil {
		return nil, refusal(err, instance, table)
	}
	for i := range list {
		s.Tunnels = append(s.Tunnels, tunnelOf(&list[i], t))
	}
	return s, nil
}

func streamOf(ctx context.Context, engine *ots.Engine, instance, table string) (*Stream, error) {
	list, err := engine.ListStream(ctx, instance, table)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	d, err := engine.DescribeStream(ctx, instance, &ots.DescribeStreamRequest{StreamID: list[0].StreamID})
	if err != nil {
		return nil, err
	}
	s := &Stream{ID: d.StreamID, Hours: d.ExpirationHours, CreatedMillis: d.CreatedMicros / 1000, Shards: []Shard{}, Readers: []Reader{}}
	ended := map[string]bool{}
	for _, from := range d.Shards {
		shard := Shard{ID: from.ID, Parents: []string{}}
		for _, parent := range []string{from.Parent, from.ParentSibling} {
			if parent != "" {
				shard.Parents, ended[parent] = append(shard.Parents, parent), true
			}
		}
		s.Shards = append(s.Shards, shard)
	}
	for i := range s.Shards {
		s.Shards[i].Ended = ended[s.Shards[i].ID]
	}
	readers, err := engine.LookAtReaders(instance, table)
	for _, r := range readers[:min(len(readers), mostReaders)] {
		s.Readers = append(s.Readers, Reader{r.Sender, r.Shard, r.GivenMicros / 1000, r.AskedMillis, r.All, r.Ended})
	}
	return s, err
}

func tunnelOf(d *ots.TunnelDescription, t *flagstone.Table) Tunnel {
	shown := Tunnel{
		ID: d.ID, Name: d.Name, Type: d.Type.String(), CreatedMillis: d.CreatedMicros / 1000,
		BaseDone: d.BaseDone, Expired: d.Expired, Channels: []Channel{},
	}
	for _, c := range d.Channels {
		channel := Channel{ID: c.ID, Status: c.Status, Client: c.Client}
		if tunnel.IsBase(c.ID) {
			next, _ := row.PartitionValueAt(c.At.Key, len(t.Info().Key))
			channel.Key = keyText(next)
		} else {
			channel.Millis = c.At.AsOf / 1000
		}
		shown.Channels = append(shown.Channels, channel)
	}
	return shown
}
