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
	if t.Spec.Type != Base {
		if err := t.followShards(ctx, &change); err != nil {
			return t.recordExpiry(ctx, err)
		}
	}
	if len(change.Put) == 0 && len(change.Delete) == 0 {
		return nil
	}
	if err := t.store(ctx, change); err != nil {
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
// the last records of its parents.
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

// recordExpiry records that the tunnel has expired, if that is what err says.
func (t *Tunnel) recordExpiry(ctx context.Context, err error) error {
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

// ownedChannel finds a channel that a client has.
func (t *Tunnel) ownedChannel(id, name string) (*channel, error) {
	if err := t.live(); err != nil {
		return nil, err
	}
	t.expireClients()
	ch := t.channels[name]
	if ch != nil && ch.Holder == id && t.reserved(ch) {
		if _, err := t.reconnect(id); err != nil {
			return nil, err
		}
		ch.adopt()
	}
	if ch == nil || ch.client != id {
		return nil, refuse(ErrGone, "The tunnel client does not have the channel.")
	}
	return ch, nil
}

// positionOf decodes a token of a channel. A token of an earlier tenure is refused: meanwhile another
// client may have delivered records again that lie before it.
func (t *Tunnel) positionOf(name string, ch *channel, token Token) (Position, error) {
	at, tenure, ok := t.Spec.position(name, token.Position)
	switch {
	case !ok:
		return Position{}, refuse(ErrInvalid, "The token is not of this channel.")
	case !ch.opened || tenure != ch.Tenure:
		return Position{}, refuse(ErrGone, "The channel was opened again since the token was given out.")
	case ch.Done || at.before(ch.At):
		return Position{}, refuse(ErrGone, "The channel was consumed further than this token.")
	}
	if at.After == ch.At.After { // nothing lies between the times of the two
		at.AsOf = max(at.AsOf, ch.At.AsOf)
	}
	return at, nil
}

// GetCheckpoint opens a channel for its client. It returns the position from which the client reads,
// and the number of the latest checkpoint.
func (t *Tunnel) GetCheckpoint(ctx context.Context, id, name string) (Token, int64, error) {
	if err := t.enter(ctx); err != nil {
		return Token{}, 0, err
	}
	defer t.leave()
	ch, err := t.ownedChannel(id, name)
	if err != nil {
		return Token{}, 0, err
	}
	if ch.Done {
		return Token{Finished: true}, ch.Sequence, nil
	}
	if !ch.opened {
		next := ch.Channel
		next.Holder = id
		next.Tenure++
		if err := t.store(ctx, Change{Put: map[string]Channel{name: next}}); err != nil {
			return Token{}, 0, err
		}
		ch.Channel, ch.opened = next, true
	}
	return Token{Position: t.Spec.sealPosition(name, ch.Tenure, ch.At)}, ch.Sequence, nil
}

// Checkpoint records for good that a channel was consumed up to a position. sequence is one more
// than that of the latest checkpoint; the same checkpoint again is fine. One that changes no
// position is not written, so its number is forgotten at a restart.
func (t *Tunnel) Checkpoint(ctx context.Context, id, name string, token Token, sequence int64) error {
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.leave()
	ch, err := t.ownedChannel(id, name)
	if err != nil {
		return err
	}
	var at Position
	var late error // decided after the sequence number
	if token.Finished {
		at = ch.At
		if !ch.Done && ch.end == nil {
			late = refuse(ErrGone, "The tunnel client has not read the channel to its end.")
		}
	} else if at, late = t.positionOf(name, ch, token); errors.Is(late, ErrInvalid) {
		return late
	}
	same := late == nil && token.Finished == ch.Done && at.equal(ch.At)
	switch {
	case sequence == ch.Sequence && same:
		return nil
	case sequence != ch.Sequence+1:
		return refuse(ErrSequence, "The sequence number of the checkpoint is %d, the channel wants %d.", sequence, ch.Sequence+1)
	case late != nil:
		return late
	case same:
		ch.Sequence = sequence
		return nil
	case token.Finished:
		return t.finish(ctx, name, sequence)
	}
	return t.moveTo(ctx, name, at, sequence)
}

// moveTo records for good that a channel was consumed up to a position.
func (t *Tunnel) moveTo(ctx context.Context, name string, at Position, sequence int64) error {
	ch := t.channels[name]
	next := ch.Channel
	next.At, next.Sequence = at, sequence
	if err := t.store(ctx, Change{Put: map[string]Channel{name: next}}); err != nil {
		return err
	}
	ch.Channel = next
	return nil
}

// finish records for good that a channel was consumed to its end, and makes the channels that
// follow it, in one step. REQUIRES: it was read to its end.
func (t *Tunnel) finish(ctx context.Context, name string, sequence int64) error {
	ch := t.channels[name]
	before := ch.Channel
	ch.Done, ch.Sequence, ch.At = true, sequence, *ch.end
	err := t.follow(ctx, map[string]Channel{name: ch.Channel})
	if err != nil {
		ch.Channel = before
	}
	return err
}

// Reading is a read of a channel that goes on. If the token was the end, Done is set and there is
// nothing to be read.
type Reading struct {
	Client, Name string
	Channel      Channel // as it was at the begin
	From         Position
	Done         bool
}

// Page is what a read found: the position behind its records, or that the channel ends here. A page
// with records is not the end, so that a checkpoint can lie behind its last record.
type Page struct {
	Next  Position
	Empty bool
	End   bool // Empty is true, and Next has no meaning
}

// Read begins a read of a client's channel, at the position that a token names.
func (t *Tunnel) Read(ctx context.Context, id, name string, token Token) (Reading, error) {
	if err := t.enter(ctx); err != nil {
		return Reading{}, err
	}
	defer t.leave()
	ch, err := t.ownedChannel(id, name)
	if err != nil || token.Finished {
		return Reading{Done: true}, err
	}
	at, err := t.positionOf(name, ch, token)
	return Reading{Client: id, Name: name, Channel: ch.Channel, From: at}, err
}

// FinishRead records what a read found, and returns the token behind it. The client gets nothing of
// what was read if it lost the channel meanwhile.
func (t *Tunnel) FinishRead(ctx context.Context, r Reading, page Page) (Token, error) {
	if err := t.enter(ctx); err != nil {
		return Token{}, err
	}
	defer t.leave()
	ch, err := t.ownedChannel(r.Client, r.Name)
	if err != nil {
		return Token{}, err
	}
	if !ch.opened || ch.Tenure != r.Channel.Tenure || ch.Done {
		return Token{}, refuse(ErrGone, "The channel was opened again since the read began.")
	}
	if page.End {
		ch.end = &r.From
		return Token{Finished: true}, nil
	}
	// The position behind an empty page ages less. It is kept, since a client may write no checkpoint
	// as long as there are no records. The stream renews a position when half of its retention is over.
	if page.Empty && r.From.After == ch.At.After && page.Next.AsOf > ch.At.AsOf {
		if err := t.moveTo(ctx, r.Name, page.Next, ch.Sequence); err != nil {
			return Token{}, err
		}
	}
	return Token{Position: t.Spec.sealPosition(r.Name, ch.Tenure, page.Next)}, nil
}
