package tunnel

import (
	"context"
	"maps"
	"slices"
)

// Status is the state of a channel as the protocol numbers it.
type Status int

// States of a channel. The server says Open and Closing: that the client should read the channel, or
// give it back. The client says Closed when it has given it back, and Terminated when it has read
// it to the end.
const (
	Open       Status = 1
	Closing    Status = 2
	Closed     Status = 3
	Terminated Status = 4
)

// Report is the state of one channel, in a heartbeat and in its answer. The version of a channel
// rises with each change that either side makes, so that a late message changes nothing.
type Report struct {
	Channel string
	Version int64
	Status  Status
}

// mostVersion bounds the versions of clients, so that the next ones do not overflow.
const mostVersion = 1 << 60

// Heartbeat notes that a client lives and what became of its channels, and returns the channels
// that it should have.
func (t *Tunnel) Heartbeat(ctx context.Context, id string, reports []Report) ([]Report, error) {
	if len(reports) > MostReports {
		return nil, refuse(ErrInvalid, "Number of channels in a heartbeat exceeds the limit:%d.", MostReports)
	}
	for _, r := range reports {
		if r.Version < 0 || r.Version > mostVersion {
			return nil, refuse(ErrInvalid, "The version of a channel is out of range.")
		}
	}
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	defer t.leave()
	if err := t.live(); err != nil {
		return nil, err
	}
	t.bury() // before the client is seen: it may be dead itself
	c, err := t.admit(id)
	if err != nil {
		return nil, err
	}
	c.seen = t.env.Millis()
	if err := t.note(ctx, id, reports); err != nil {
		return nil, err
	}
	if err := t.follow(ctx, nil); err != nil {
		return nil, err
	}
	t.assign()
	var answer []Report
	for _, name := range slices.Sorted(maps.Keys(t.channels)) {
		if ch := t.channels[name]; ch.client == id && !ch.Done {
			r := Report{Channel: name, Version: ch.version, Status: Open}
			if ch.closing {
				r.Status = Closing
			}
			answer = append(answer, r)
		}
	}
	return answer, nil
}

// note takes over what a client reports of its channels.
func (t *Tunnel) note(ctx context.Context, id string, reports []Report) error {
	named := make(map[string]bool, len(reports))
	for _, r := range reports {
		named[r.Channel] = true
		ch := t.channels[r.Channel]
		if ch == nil || ch.Done {
			continue
		}
		if r.Status == Open || r.Status == Closing {
			t.adopt(r.Channel, id)
		}
		if ch.client != id || r.Version < ch.version {
			continue
		}
		switch changed := r.Version > ch.version; {
		case changed && r.Status == Terminated && ch.ended:
			if err := t.finish(ctx, r.Channel, ch.Sequence); err != nil {
				return err
			}
		case changed && (r.Status == Closed || r.Status == Terminated):
			ch.free()
		}
		ch.version = r.Version
	}
	for name, ch := range t.channels {
		if ch.client == id && ch.closing && !named[name] { // the client never had it, or forgot it
			ch.free()
		}
	}
	return nil
}

// adopt gives a channel that no client had in this run to one that has it from an earlier run.
func (t *Tunnel) adopt(name, id string) {
	ch := t.channels[name]
	if ch.client != "" || ch.version != 0 {
		return
	}
	if run, _, ok := t.spec.clientID(id); ok && run != t.run && t.readable()[name] {
		ch.client, ch.version = id, 1
	}
}

// assign divides the channels that can be read among the clients.
func (t *Tunnel) assign() {
	if t.waits() {
		return
	}
	var seats []Seat
	for _, name := range slices.Sorted(maps.Keys(t.readable())) {
		ch := t.channels[name]
		seats = append(seats, Seat{Channel: name, Client: ch.client, Closing: ch.closing})
	}
	give, takeBack := Assign(slices.Sorted(maps.Keys(t.clients)), seats)
	for name, id := range give {
		ch := t.channels[name]
		ch.client = id
		ch.version++
	}
	for _, name := range takeBack {
		ch := t.channels[name]
		ch.closing = true
		ch.version++
	}
}

// waits reports whether clients of an earlier run may still come for their channels.
func (t *Tunnel) waits() bool {
	if !t.old {
		return false
	}
	grace := int64(0)
	for _, c := range t.clients {
		grace = max(grace, c.timeout/3)
	}
	t.old = t.env.Millis()-t.opened < min(grace, mostGrace)
	return t.old
}
