package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Refusals match one of these.
var (
	// ErrGone says that a client is not connected any more, or does not have the channel.
	ErrGone = errors.New("gone")
	// ErrSequence says that a checkpoint does not follow the latest one.
	ErrSequence = errors.New("sequence number does not match")
	// ErrExpired says that data was lost before it was read.
	ErrExpired = errors.New("expired")
	// ErrInvalid says that a request is wrong, also that the tunnel was deleted.
	ErrInvalid = errors.New("invalid")
	// ErrTooMany says that a tunnel has as many clients as it may have.
	ErrTooMany = errors.New("too many")
	// ErrStale says that the tunnel has to be loaded again. The request may be repeated.
	ErrStale = errors.New("stale")
)

// Refusal is an error of a client. Its text is for the client.
type Refusal struct {
	Kind error // one of the above
	Text string
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

func refuse(kind error, format string, args ...any) error {
	return &Refusal{kind, fmt.Sprintf(format, args...)}
}

// Expired is the error of an Env that finds data lost.
func Expired(why string) error { return refuse(ErrExpired, "%s", why) }

const (
	// MostClients is the number of clients that are connected to a tunnel at once.
	MostClients = 256
	// MostReports is the number of channels in a heartbeat.
	MostReports = 10_000
	// DefaultTimeout and MostTimeout bound the seconds without a heartbeat after which a client is
	// dead.
	DefaultTimeout = 300
	MostTimeout    = 86_400
	// mostLeft is the number of ids of earlier runs that are remembered because their clients left.
	mostLeft = 1024
)

// Shard is a shard of the table's stream.
type Shard struct {
	ID      uint64
	Parents []uint64
}

// Change is what Env.Store writes: one step, durable when it returns.
type Change struct {
	Spec   *Spec              // nil: unchanged
	Put    map[string]Channel // by id
	Delete []string           // ids of channels
}

// Env is what a tunnel needs of the table and of the store.
type Env interface {
	// Shards lists the shards of the tunnel's stream, parents before children. The error matches
	// ErrExpired if the table has another stream or none.
	Shards(ctx context.Context) ([]Shard, error)
	// Oldest is the position before the oldest record of a shard that there is.
	Oldest(ctx context.Context, shard uint64) (Position, error)
	// Store writes a change. After an error the tunnel is stale, as the outcome may be unknown.
	Store(ctx context.Context, c Change) error
	// Millis is a monotonic clock in milliseconds.
	Millis() int64
}

// Tunnel is one tunnel. Its methods are safe for concurrent use: one works at a time, the others
// wait as long as their contexts allow.
type Tunnel struct {
	ID   string
	Spec Spec // as it was opened; expired may be newer than Spec.Expired
	env  Env
	run  uint64 // names the time for which the tunnel is loaded
	lock chan struct{}

	expired  string // Spec.Expired as it is now
	channels map[string]*channel
	clients  map[string]*client
	left     []string // clients of earlier runs that were shut down or died in this one
	loaded   int64    // when the tunnel was loaded
	deleted  bool
	stale    bool
}

// channel is a channel with what is known in memory only.
type channel struct {
	Channel
	client  string // that has it; empty: none
	version int64  // rises with every change of client or closing; 0: no client had it in this run
	closing bool
	tenure
}

// tenure is what is known of a channel while one client has it.
type tenure struct {
	opened bool // the client has a token of Channel.Tenure
	// end is the position from which the client read the end of the channel; nil: it has not.
	end *Position
	// named says that a heartbeat of the client named the channel, and missed that the latest did not.
	named, missed bool
}

// client is a connected client. Times are milliseconds.
type client struct {
	timeout, seen int64
	beaten        bool // it has sent a heartbeat
}

// New returns a tunnel with its kept state. It is a run of its own: clients that connected before it
// was loaded connect again by their heartbeats, or by requests for channels that they hold.
func New(id string, spec Spec, channels map[string]Channel, env Env) *Tunnel {
	t := &Tunnel{
		ID: id, env: env, run: rand.Uint64(), lock: make(chan struct{}, 1), Spec: spec, expired: spec.Expired,
		channels: make(map[string]*channel, len(channels)), clients: map[string]*client{}, loaded: env.Millis(),
	}
	for id, c := range channels {
		t.channels[id] = &channel{Channel: c}
	}
	return t
}

// enter waits for the tunnel, and refuses one that was deleted. leave is called after success.
func (t *Tunnel) enter(ctx context.Context) error {
	select {
	case t.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case t.deleted:
		t.leave()
		return refuse(ErrInvalid, "Requested tunnel does not exist.")
	case t.stale:
		t.leave()
		return refuse(ErrStale, "The tunnel is loaded again.")
	}
	return nil
}

func (t *Tunnel) leave() { <-t.lock }

// store writes a change. If that fails, memory and store may differ, so the tunnel is not used again.
func (t *Tunnel) store(ctx context.Context, c Change) error {
	err := t.env.Store(ctx, c)
	t.stale = err != nil
	return err
}

// Delete ends the tunnel: remove takes it out of the store, and later calls find it deleted.
func (t *Tunnel) Delete(ctx context.Context, remove func(channels []string) error) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	if err := remove(slices.Sorted(maps.Keys(t.channels))); err != nil {
		t.stale = true
		return err
	}
	t.deleted = true
	return nil
}

// Connect connects a client and returns its id. timeout is in seconds; 0 is DefaultTimeout.
func (t *Tunnel) Connect(ctx context.Context, timeout int64) (id string, err error) {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	if timeout < 1 || timeout > MostTimeout {
		return "", refuse(ErrInvalid, "The timeout of a tunnel client must be in range: [1, %d].", MostTimeout)
	}
	if err := t.enter(ctx); err != nil {
		return "", err
	}
	defer t.leave()
	if err := t.live(); err != nil {
		return "", err
	}
	id = t.Spec.newClientID(t.run, uint32(timeout))
	return id, t.add(id, timeout)
}

// live refuses a tunnel that has expired.
func (t *Tunnel) live() error {
	if t.expired != "" {
		return refuse(ErrExpired, "The tunnel has expired: %s", t.expired)
	}
	return nil
}

// add connects a client, if there is room for it.
func (t *Tunnel) add(id string, timeout int64) error {
	t.expireClients()
	if len(t.clients) >= MostClients {
		return refuse(ErrTooMany, "Number of clients of the tunnel exceeds the quota:%d.", MostClients)
	}
	t.clients[id] = &client{timeout: timeout * 1000, seen: t.env.Millis()}
	return nil
}

// expireClients disconnects the clients that missed their heartbeats.
func (t *Tunnel) expireClients() {
	for id, c := range t.clients {
		if t.late(c) {
			t.disconnect(id)
		}
	}
}

// late reports whether a client missed its heartbeats.
func (t *Tunnel) late(c *client) bool { return c != nil && t.env.Millis()-c.seen > c.timeout }

// disconnect removes a client; its channels are free.
func (t *Tunnel) disconnect(id string) {
	delete(t.clients, id)
	for _, ch := range t.channels {
		if ch.client == id {
			ch.free()
		}
		if ch.Holder == id {
			ch.unreserve()
		}
	}
	if run, _, _ := t.Spec.clientID(id); run != t.run && !slices.Contains(t.left, id) {
		t.left = append(t.left, id)
		t.left = t.left[max(0, len(t.left)-mostLeft):]
	}
}

// free takes a channel from its client.
func (ch *channel) free() {
	ch.client, ch.closing, ch.tenure = "", false, tenure{}
}

// reserved reports whether a channel waits for the client that held it in an earlier run.
func (t *Tunnel) reserved(ch *channel) bool {
	if ch.version != 0 || ch.Holder == "" || ch.Done {
		return false
	}
	_, timeout, ok := t.Spec.clientID(ch.Holder)
	return ok && t.env.Millis()-t.loaded <= int64(timeout)*1000
}

// adopt gives a reserved channel to its holder, which goes on with the tokens that it has.
func (ch *channel) adopt() {
	ch.client, ch.version, ch.opened = ch.Holder, 1, true
}

// unreserve ends the reservation of a channel.
func (ch *channel) unreserve() { ch.version = max(ch.version, 1) }

// reconnect finds a client, and connects one of an earlier run again, unless it left since.
func (t *Tunnel) reconnect(id string) (*client, error) {
	if c := t.clients[id]; c != nil {
		return c, nil
	}
	run, timeout, ok := t.Spec.clientID(id)
	if !ok || run == t.run || slices.Contains(t.left, id) {
		return nil, refuse(ErrGone, "The tunnel client is not connected, or its heartbeats were late.")
	}
	if err := t.add(id, int64(timeout)); err != nil {
		return nil, err
	}
	return t.clients[id], nil
}

// Shutdown disconnects a client. One that is not connected is fine too. Its channels are not reserved
// for it at the next restart.
func (t *Tunnel) Shutdown(ctx context.Context, id string) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	if _, _, ok := t.Spec.clientID(id); !ok {
		return refuse(ErrInvalid, "The id of the tunnel client is invalid.")
	}
	t.disconnect(id)
	put := map[string]Channel{}
	for name, ch := range t.channels {
		if ch.Holder == id && !ch.Done {
			ch.Holder = ""
			put[name] = ch.Channel
		}
	}
	if len(put) == 0 {
		return nil
	}
	return t.store(ctx, Change{Put: put})
}

// Expire records for good that data was lost before it was read.
func (t *Tunnel) Expire(ctx context.Context, why string) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	return t.expire(ctx, why)
}

func (t *Tunnel) expire(ctx context.Context, why string) error {
	if t.expired != "" {
		return nil
	}
	spec := t.Spec
	spec.Expired = why
	if err := t.store(ctx, Change{Spec: &spec}); err != nil {
		return err
	}
	t.expired = why
	return nil
}

// Description is the state of a tunnel. BaseDone says that the base was consumed.
type Description struct {
	Spec     Spec
	BaseDone bool
	Channels []ChannelDescription
}

// ChannelDescription is the state of a channel. Status is WAIT, OPEN, CLOSING or TERMINATED.
type ChannelDescription struct {
	ID, Status, Client string
	At                 Position // up to where it was consumed, by its latest checkpoint
}

// Describe returns the state of the tunnel, its channels ascending by id.
func (t *Tunnel) Describe(ctx context.Context) (*Description, error) {
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	defer t.leave()
	t.expireClients()
	if err := t.follow(ctx, nil); err != nil && !errors.Is(err, ErrExpired) {
		return nil, err
	}
	return t.describe(), nil
}

// Look is Describe without a change: nothing is written, no client is disconnected, and a new shard gets no channel.
func (t *Tunnel) Look(ctx context.Context) (*Description, error) {
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	defer t.leave()
	d := t.describe()
	if t.expired == "" && t.Spec.Type != Base {
		err := t.followShards(ctx, &Change{Put: map[string]Channel{}})
		if errors.Is(err, ErrExpired) {
			d.Spec.Expired, err = err.Error(), nil
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// describe describes the tunnel as it is. A channel whose client missed its heartbeats is free.
func (t *Tunnel) describe() *Description {
	d := &Description{Spec: t.Spec, BaseDone: t.baseDone()}
	d.Spec.Expired = t.expired
	for _, id := range slices.Sorted(maps.Keys(t.channels)) {
		ch := t.channels[id]
		c := ChannelDescription{ID: id, Status: "OPEN", Client: ch.client, At: ch.At}
		switch {
		case ch.Done:
			c.Status, c.Client = "TERMINATED", ""
		case ch.client == "" || t.late(t.clients[ch.client]):
			c.Status, c.Client = "WAIT", ""
		case ch.closing:
			c.Status = "CLOSING"
		}
		d.Channels = append(d.Channels, c)
	}
	return d
}
