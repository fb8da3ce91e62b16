package tunnel

import (
	"context"
	"errors"
	"maps"
)

// baseDone reports whether the base was consumed; a tunnel without one has nothing to consume.
func (t *Tunnel) baseDone() bool {
	for id, ch := range t.channels {
		if IsBase(id) && !ch.Done {
			return false
		}
	}
	return true
}

// readable returns the channels that can be read now: those of the base, then, once it was
// consumed, those of the stream whose parents were consumed. A parent without a channel was
// consumed long ago.
func (t *Tunnel) readable() map[string]bool {
	set := make(map[string]bool, len(t.channels))
	baseDone := t.baseDone()
	for id, ch := range t.channels {
		if !ch.Done && (IsBase(id) || baseDone && t.consumed(ch.Parents, nil)) {
			set[id] = true
		}
	}
	return set
}

// consumed reports whether shards were consumed. One without a channel was, unless it is listed:
// then its channel is still to be made.
func (t *Tunnel) consumed(shards []uint64, listed map[string]bool) bool {
	for _, s := range shards {
		id := StreamID(s)
		if ch := t.channels[id]; ch != nil && !ch.Done || ch == nil && listed[id] {
			return false
		}
	}
	return true
}

// follow makes the channels of the shards that have come, and removes those of shards that are
// forgotten. It finds out whether a shard was forgotten before it was consumed. What it writes
// includes put, channels that have changed already in memory.
func (t *Tunnel) follow(ctx context.Context, put map[string]Channel) error {
	if err := t.live(); err != nil {
		return err
	}
	change := Change{Put: map[string]Channel{}}
	maps.Copy(change.Put, put)
	if t.spec.Type != Base {
		if err := t.followShards(ctx, &change); err != nil {
			return t.lost(ctx, err)
		}
	}
	if len(change.Put) == 0 && len(change.Delete) == 0 {
		return nil
	}
	if err := t.env.Store(ctx, change); err != nil {
		return err
	}
	for id, c := range change.Put {
		if t.channels[id] == nil {
			t.channels[id] = &channel{Channel: c}
		}
	}
	for _, id := range change.Delete {
		delete(t.channels, id)
	}
	return nil
}

func (t *Tunnel) followShards(ctx context.Context, change *Change) error {
	shards, err := t.env.Shards(ctx)
	if err != nil {
		return err
	}
	listed := make(map[string]bool, len(shards))
	for _, s := range shards {
		id := StreamID(s.ID)
		listed[id] = true
		if t.channels[id] != nil || !t.consumed(s.Parents, listed) {
			continue
		}
		at, err := t.begin(ctx, s)
		if err != nil {
			return err
		}
		change.Put[id] = Channel{Shard: s.ID, Parents: s.Parents, At: at}
	}
	for id, ch := range t.channels {
		if IsBase(id) || listed[id] {
			continue
		}
		if !ch.Done {
			return Expired("a part of the stream expired before it was consumed.")
		}
		delete(change.Put, id)
		change.Delete = append(change.Delete, id)
	}
	return nil
}

// begin is the position at which a shard begins that came from others. Nothing in it is older than
// the moment at which the first of its parents was read to the end.
func (t *Tunnel) begin(ctx context.Context, s Shard) (Position, error) {
	var at Position
	for _, p := range s.Parents {
		if parent := t.channels[StreamID(p)]; parent != nil && (at.AsOf == 0 || parent.At.AsOf < at.AsOf) {
			at.AsOf = parent.At.AsOf
		}
	}
	if at.AsOf == 0 {
		return t.env.Oldest(ctx, s.ID)
	}
	return at, nil
}

// lost notes that the tunnel has expired, if that is what err says.
func (t *Tunnel) lost(ctx context.Context, err error) error {
	if !errors.Is(err, ErrExpired) {
		return err
	}
	if err := t.expire(ctx, err.Error()); err != nil {
		return err
	}
	return t.live()
}

// Token is a position as clients carry it: sealed bytes, or the end of the channel.
type Token struct {
	Position []byte
	Finished bool
}

// hold finds a channel that a client has.
func (t *Tunnel) hold(id, name string) (*channel, error) {
	if err := t.live(); err != nil {
		return nil, err
	}
	t.bury()
	if _, err := t.admit(id); err != nil {
		return nil, err
	}
	ch := t.channels[name]
	if ch != nil {
		t.adopt(name, id)
	}
	if ch == nil || ch.client != id {
		return nil, refuse(ErrGone, "The tunnel client does not have the channel.")
	}
	return ch, nil
}

// token is the position of a channel up to which it was consumed.
func (t *Tunnel) token(name string, ch *channel) Token {
	if ch.Done {
		return Token{Finished: true}
	}
	return Token{Position: t.spec.sealPosition(name, ch.At)}
}

// GetCheckpoint returns the position of a client's channel, and the number of the checkpoint.
func (t *Tunnel) GetCheckpoint(ctx context.Context, id, name string) (Token, int64, error) {
	if err := t.enter(ctx); err != nil {
		return Token{}, 0, err
	}
	defer t.leave()
	ch, err := t.hold(id, name)
	if err != nil {
		return Token{}, 0, err
	}
	return t.token(name, ch), ch.Sequence, nil
}

// Checkpoint notes for good that a channel was consumed up to a position. sequence is one more
// than that of the latest checkpoint; the same checkpoint again is fine. One that changes no
// position is not written, so its number is forgotten at a restart.
func (t *Tunnel) Checkpoint(ctx context.Context, id, name string, token Token, sequence int64) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	ch, err := t.hold(id, name)
	if err != nil {
		return err
	}
	at := ch.At
	if !token.Finished {
		var ok bool
		if at, ok = t.spec.position(name, token.Position); !ok {
			return refuse(ErrInvalid, "The token is not of this channel.")
		}
	}
	same := token.Finished == ch.Done && at.equal(ch.At)
	switch {
	case sequence == ch.Sequence && same:
		return nil
	case sequence != ch.Sequence+1:
		return refuse(ErrSequence, "The sequence number of the checkpoint is %d, the channel wants %d.", sequence, ch.Sequence+1)
	case same:
		ch.Sequence = sequence
		return nil
	case ch.Done || at.before(ch.At):
		return refuse(ErrGone, "The channel was consumed further than this checkpoint.")
	case token.Finished && !ch.ended:
		return refuse(ErrGone, "The tunnel client has not read the channel to its end.")
	case token.Finished:
		return t.finish(ctx, name, sequence)
	}
	next := ch.Channel
	next.At, next.Sequence = at, sequence
	if err := t.env.Store(ctx, Change{Put: map[string]Channel{name: next}}); err != nil {
		return err
	}
	ch.Channel = next
	return nil
}

// finish notes for good that a channel was consumed to its end, and makes the channels that
// follow it, in one step.
func (t *Tunnel) finish(ctx context.Context, name string, sequence int64) error {
	ch := t.channels[name]
	before := ch.Channel
	ch.Done, ch.Sequence, ch.At.AsOf = true, sequence, ch.endAsOf
	err := t.follow(ctx, map[string]Channel{name: ch.Channel})
	if err != nil {
		ch.Channel = before
	}
	return err
}

// Read finds the position of a client's channel that a token names. Nothing is to be read if the
// token is the end.
func (t *Tunnel) Read(ctx context.Context, id, name string, token Token) (Channel, Position, error) {
	if err := t.enter(ctx); err != nil {
		return Channel{}, Position{}, err
	}
	defer t.leave()
	ch, err := t.hold(id, name)
	if err != nil || token.Finished {
		return Channel{}, Position{}, err
	}
	at, ok := t.spec.position(name, token.Position)
	switch {
	case !ok:
		return Channel{}, Position{}, refuse(ErrInvalid, "The token is not of this channel.")
	case ch.Done || at.before(ch.At):
		return Channel{}, Position{}, refuse(ErrGone, "The channel was consumed further than this token.")
	}
	return ch.Channel, at, nil
}

// Passed notes that a client's read came to a position, or to the end of its channel, and returns
// the token. The client gets nothing of what was read if it lost the channel meanwhile.
func (t *Tunnel) Passed(ctx context.Context, id, name string, next Position, end bool) (Token, error) {
	if err := t.enter(ctx); err != nil {
		return Token{}, err
	}
	defer t.leave()
	ch, err := t.hold(id, name)
	if err != nil {
		return Token{}, err
	}
	if end {
		ch.ended, ch.endAsOf = true, next.AsOf
		return Token{Finished: true}, nil
	}
	return Token{Position: t.spec.sealPosition(name, next)}, nil
}
