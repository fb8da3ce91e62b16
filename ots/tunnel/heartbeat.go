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

// Heartbeat records that a client lives and what became of its channels, and returns the channels
// that it should have.
func (t *Tunnel) Heartbeat(ctx context.Context, id string, reports []Report) ([]Report, error) {
	named, err := checkReports(reports)
	if err != nil {
		return nil, err
	}
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	defer t.leave()
	if err := t.live(); err != nil {
		return nil, err
	}
	t.expireClients() // before the client is seen: it may be dead itself
	c, err := t.reconnect(id)
	if err != nil {
		return nil, err
	}
	c.seen, c.beaten = t.env.Millis(), true
	if err := t.applyReports(ctx, id, reports); err != nil {
		return nil, err
	}
	t.releaseUnnamed(id, named)
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

// checkReports checks the reports of a heartbeat and returns the names of their channels.
func checkReports(reports []Report) (named map[string]bool, err error) {
	if len(reports) > MostReports {
		return nil, refuse(ErrInvalid, "Number of channels in a heartbeat exceeds the limit:%d.", MostReports)
	}
	named = make(map[string]bool, len(reports))
	for _, r := range reports {
		if r.Version < 0 || r.Version > mostVersion {
			return nil, refuse(ErrInvalid, "The version of a channel is out of range.")
		}
		if named[r.Channel] {
			return nil, refuse(ErrInvalid, "A heartbeat names a channel twice.")
		}
		named[r.Channel] = true
	}
	return named, nil
}

// applyReports takes over what a client reports of its channels.
func (t *Tunnel) applyReports(ctx context.Context, id string, reports []Report) error {
	for _, r := range reports {
		ch := t.channels[r.Channel]
		if ch == nil || ch.Done {
			continue
		}
		if ch.Holder == id && t.reserved(ch) {
			ch.adopt()
		}
		if ch.client != id || r.Version < ch.version {
			continue
		}
		ch.named, ch.missed = true, false
		switch changed := r.Version > ch.version; {
		case changed && r.Status == Terminated && ch.end != nil && !ch.At.before(*ch.end):
			// The end is reported when it was read. Only with a checkpoint behind the last record
			// it is also consumed.
			if err := t.finish(ctx, r.Channel, ch.Sequence); err != nil {
				return err
			}
		case changed && (r.Status == Closed || r.Status == Terminated):
			ch.free()
		}
		ch.version = r.Version
	}
	return nil
}

// releaseUnnamed frees the channels that a heartbeat should have named. A late copy of a heartbeat
// takes no channel from a client that has it: if it named the channel before, two heartbeats have to
// miss it.
func (t *Tunnel) releaseUnnamed(id string, named map[string]bool) {
	for name, ch := range t.channels {
		switch {
		case named[name]:
		case ch.client == id && ch.closing && ch.named && !ch.missed:
			ch.missed = true
		case ch.client == id && ch.closing:
			ch.free()
		case ch.Holder == id:
			ch.unreserve()
		}
	}
}

// assign divides the channels that can be read among the clients that have sent a heartbeat.
func (t *Tunnel) assign() {
	var clients []string
	for id, c := range t.clients {
		if c.beaten {
			clients = append(clients, id)
		}
	}
	slices.Sort(clients)
	var seats []Seat
	for _, name := range slices.Sorted(maps.Keys(t.readable())) {
		if ch := t.channels[name]; !t.reserved(ch) {
			seats = append(seats, Seat{Channel: name, Client: ch.client, Closing: ch.closing})
		}
	}
	give, takeBack := Assign(clients, seats)
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
