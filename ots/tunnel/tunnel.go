package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// mostGrace is for how long, in milliseconds, a channel is kept for the client that had it before
	// the server was started: a client that lives reads or reports within it.
	mostGrace = 10_000
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
	Store(ctx context.Context, c Change) error
	// Millis is a clock in milliseconds.
	Millis() int64
}

// Tunnel is one tunnel. Its methods are safe for concurrent use: one works at a time, the others
// wait as long as their contexts allow.
type Tunnel struct {
	ID   string
	env  Env
	run  uint64 // of the server
	lock chan struct{}

	spec     Spec
	channels map[string]*channel
	clients  map[string]*client
	// old says that the tunnel may have clients of an earlier run. opened is when it was loaded.
	old     bool
	opened  int64
	deleted bool
}

// channel is a channel with what is known in memory only.
type channel struct {
	Channel
	client  string // that has it; empty: none
	version int64  // rises with every change of client or closing; 0: no client had it in this run
	closing bool
	// ended says that its client read it to the end, and endAsOf when that was.
	ended   bool
	endAsOf int64
}

// client is a connected client. Times are milliseconds.
type client struct{ timeout, seen int64 }

// New returns a tunnel with its kept state. run names the run of the server: a client id that
// names another run is let in again. created says that the tunnel was created in this run.
func New(id string, run uint64, created bool, spec Spec, channels map[string]Channel, env Env) *Tunnel {
	t := &Tunnel{
		ID: id, env: env, run: run, lock: make(chan struct{}, 1), spec: spec,
		channels: make(map[string]*channel, len(channels)), clients: map[string]*client{},
		old: !created, opened: env.Millis(),
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
	if t.deleted {
		t.leave()
		return refuse(ErrInvalid, "Requested tunnel does not exist.")
	}
	return nil
}

func (t *Tunnel) leave() { <-t.lock }

// Delete ends the tunnel: remove takes it out of the store, and later calls find it deleted.
func (t *Tunnel) Delete(ctx context.Context, remove func(channels []string) error) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	if err := remove(slices.Sorted(maps.Keys(t.channels))); err != nil {
		return err
	}
	t.deleted = true
	return nil
}

// Connect lets in a client and returns its id. timeout is in seconds; 0 is DefaultTimeout.
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
	id = t.spec.newClientID(t.run, uint32(timeout))
	return id, t.add(id, timeout)
}

// live refuses a tunnel that has expired.
func (t *Tunnel) live() error {
	if t.spec.Expired != "" {
		return refuse(ErrExpired, "The tunnel has expired: %s", t.spec.Expired)
	}
	return nil
}

// add lets in a client, if there is room for it.
func (t *Tunnel) add(id string, timeout int64) error {
	t.bury()
	if len(t.clients) >= MostClients {
		return refuse(ErrTooMany, "Number of clients of the tunnel exceeds the quota:%d.", MostClients)
	}
	t.clients[id] = &client{timeout: timeout * 1000, seen: t.env.Millis()}
	return nil
}

// bury removes the clients that missed their heartbeats.
func (t *Tunnel) bury() {
	now := t.env.Millis()
	for id, c := range t.clients {
		if now-c.seen > c.timeout {
			t.remove(id)
		}
	}
}

// remove removes a client; its channels are free.
func (t *Tunnel) remove(id string) {
	delete(t.clients, id)
	for _, ch := range t.channels {
		if ch.client == id {
			ch.free()
		}
	}
}

// free takes a channel from its client.
func (ch *channel) free() {
	ch.client, ch.closing, ch.ended = "", false, false
}

// admit finds the client that sends a request. A client of an earlier run is let in again.
func (t *Tunnel) admit(id string) (*client, error) {
	if c := t.clients[id]; c != nil {
		return c, nil
	}
	run, timeout, ok := t.spec.clientID(id)
	if !ok || run == t.run {
		return nil, refuse(ErrGone, "The tunnel client is not connected, or its heartbeats were late.")
	}
	if err := t.add(id, int64(timeout)); err != nil {
		return nil, err
	}
	return t.clients[id], nil
}

// Shutdown takes leave of a client. One that is not connected is fine too.
func (t *Tunnel) Shutdown(ctx context.Context, id string) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	if _, _, ok := t.spec.clientID(id); !ok {
		return refuse(ErrInvalid, "The id of the tunnel client is invalid.")
	}
	t.remove(id)
	return nil
}

// Expire notes for good that data was lost before it was read.
func (t *Tunnel) Expire(ctx context.Context, why string) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	return t.expire(ctx, why)
}

func (t *Tunnel) expire(ctx context.Context, why string) error {
	if t.spec.Expired != "" {
		return nil
	}
	spec := t.spec
	spec.Expired = why
	if err := t.env.Store(ctx, Change{Spec: &spec}); err != nil {
		return err
	}
	t.spec = spec
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
}

// Describe returns the state of the tunnel, its channels ascending by id.
func (t *Tunnel) Describe(ctx context.Context) (*Description, error) {
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	defer t.leave()
	t.bury()
	if err := t.follow(ctx, nil); err != nil && !errors.Is(err, ErrExpired) {
		return nil, err
	}
	d := &Description{Spec: t.spec, BaseDone: t.baseDone()}
	for _, id := range slices.Sorted(maps.Keys(t.channels)) {
		ch := t.channels[id]
		c := ChannelDescription{ID: id, Status: "OPEN", Client: ch.client}
		switch {
		case ch.Done:
			c.Status, c.Client = "TERMINATED", ""
		case ch.closing:
			c.Status = "CLOSING"
		case ch.client == "":
			c.Status = "WAIT"
		}
		d.Channels = append(d.Channels, c)
	}
	return d, nil
}
