package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// world is an Env in memory: a stream of shards whose records are numbers, and the rows that were
// stored.
type world struct {
	now      int64
	shards   []Shard
	ends     map[uint64]uint64 // of shards that have ended: their last number
	spec     []byte
	rows     map[string][]byte
	gone     bool  // the stream is
	failing  error // of the next Store
	stored   int
	bases    int
	baseRows uint64 // of each base channel
}

func newWorld(bases, shards int) *world {
	w := &world{now: 1_000_000, rows: map[string][]byte{}, ends: map[uint64]uint64{}, bases: bases, baseRows: 20}
	for i := range shards {
		w.shards = append(w.shards, Shard{ID: uint64(i + 1)})
	}
	return w
}

func (w *world) Millis() int64 { return w.now }

func (w *world) Shards(context.Context) ([]Shard, error) {
	if w.gone {
		return nil, Expired("the stream is gone.")
	}
	return w.shards, nil
}

func (w *world) Oldest(context.Context, uint64) (Position, error) { return Position{AsOf: 1}, nil }

func (w *world) Store(_ context.Context, c Change) error {
	if err := w.failing; err != nil {
		w.failing = nil
		return err
	}
	w.stored++
	if c.Spec != nil {
		w.spec = c.Spec.Encode()
	}
	for id, ch := range c.Put {
		w.rows[id] = ch.Encode()
	}
	for _, id := range c.Delete {
		delete(w.rows, id)
	}
	return nil
}

// open makes the tunnel, or opens it again in another run of the server.
func (w *world) open(t *testing.T, kind Type) *Tunnel {
	t.Helper()
	created := w.spec == nil
	if created {
		change := Change{Spec: &Spec{Name: "n", Type: kind, Key: []byte("key")}, Put: map[string]Channel{}}
		for i := range w.bases {
			change.Put[BaseID(i)] = Channel{}
		}
		if kind != Base {
			for _, s := range w.shards {
				change.Put[StreamID(s.ID)] = Channel{Shard: s.ID, Parents: s.Parents, At: Position{AsOf: 1}}
			}
		}
		if err := w.Store(context.Background(), change); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := DecodeSpec(w.spec)
	if err != nil {
		t.Fatal(err)
	}
	channels := map[string]Channel{}
	for id, row := range w.rows {
		if channels[id], err = DecodeChannel(row); err != nil {
			t.Fatal(err)
		}
	}
	return New("id", spec, channels, w)
}

// read reads up to three numbers after a position.
func (w *world) read(r Reading) (numbers []uint64, page Page) {
	id, at := r.Name, r.From
	last := w.ends[r.Channel.Shard]
	if IsBase(id) {
		last = w.baseRows
	}
	next := Position{After: at.After, AsOf: w.now * 1000}
	for range 3 {
		if last != 0 && next.After >= last || last == 0 && next.After >= 50 {
			break
		}
		next.After++
		numbers = append(numbers, next.After)
	}
	empty := len(numbers) == 0
	return numbers, Page{Next: next, Empty: empty, End: empty && last != 0 && next.After >= last}
}

func connect(t *testing.T, tunnel *Tunnel, timeout int64) string {
	t.Helper()
	id, err := tunnel.Connect(context.Background(), timeout)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// beat sends a heartbeat and shows the answer as "channel:version:status" with short names.
func beat(t *testing.T, tunnel *Tunnel, id string, reports ...Report) ([]Report, string) {
	t.Helper()
	answer, err := tunnel.Heartbeat(context.Background(), id, reports)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, r := range answer {
		parts = append(parts, fmt.Sprintf("%s:%d:%d", short(r.Channel), r.Version, r.Status))
	}
	return answer, strings.Join(parts, " ")
}

// short is b0 for the first base channel and s1 for shard 1.
func short(id string) string {
	var n uint64
	if _, err := fmt.Sscanf(id, basePrefix+"%d", &n); err == nil {
		return fmt.Sprint("b", n)
	}
	_, _ = fmt.Sscanf(id, streamPrefix+"%x", &n)
	return fmt.Sprint("s", n)
}

func wantAnswer(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// consume reads a channel to its end and notes that.
func consume(t *testing.T, w *world, tunnel *Tunnel, client, name string) {
	t.Helper()
	ctx := context.Background()
	token, sequence, err := tunnel.GetCheckpoint(ctx, client, name)
	for !token.Finished && err == nil {
		var r Reading
		if r, err = tunnel.Read(ctx, client, name, token); err != nil {
			break
		}
		_, page := w.read(r)
		if token, err = tunnel.FinishRead(ctx, r, page); err == nil {
			sequence++
			err = tunnel.Checkpoint(ctx, client, name, token, sequence)
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestChannelsFollowTheBaseAndTheShards(t *testing.T) {
	w := newWorld(2, 2)
	tunnel := w.open(t, BaseAndStream)
	a := connect(t, tunnel, 10)
	_, got := beat(t, tunnel, a)
	wantAnswer(t, "the base comes first", got, "b0:1:1 b1:1:1")
	consume(t, w, tunnel, a, BaseID(0))
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "half of the base", got, "b1:1:1")
	consume(t, w, tunnel, a, BaseID(1))
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "then the shards", got, "s1:1:1 s2:1:1")

	w.shards = append(w.shards, Shard{3, []uint64{1}}, Shard{4, []uint64{1}}, Shard{5, []uint64{4, 2}})
	w.ends[1], w.ends[2], w.ends[4] = 9, 9, 4
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "the parent has not ended", got, "s1:1:1 s2:1:1")
	consume(t, w, tunnel, a, StreamID(1))
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "a split", got, "s2:1:1 s3:1:1 s4:1:1")
	consume(t, w, tunnel, a, StreamID(4))
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "one parent of a merge", got, "s2:1:1 s3:1:1")
	consume(t, w, tunnel, a, StreamID(2))
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "both parents", got, "s3:1:1 s5:1:1")

	w.shards = []Shard{{3, nil}, {5, nil}} // the others are forgotten
	_, got = beat(t, tunnel, a)
	wantAnswer(t, "forgotten shards", got, "s3:1:1 s5:1:1")
	if names := slices.Sorted(maps.Keys(w.rows)); len(names) != 4 {
		t.Errorf("rows %v", names)
	}
}

func TestAChannelThatIsForgottenBeforeItWasConsumedExpiresTheTunnel(t *testing.T) {
	for what, lose := range map[string]func(*world){
		"the shard":  func(w *world) { w.shards = []Shard{{2, nil}} },
		"the stream": func(w *world) { w.gone = true },
	} {
		w := newWorld(0, 1)
		tunnel := w.open(t, Stream)
		a := connect(t, tunnel, 10)
		beat(t, tunnel, a)
		lose(w)
		before := w.stored
		if d, err := tunnel.Look(context.Background()); err != nil || d.Spec.Expired == "" || w.stored != before {
			t.Errorf("%s, looked at: %+v, %v", what, d, err)
		}
		if _, err := tunnel.Heartbeat(context.Background(), a, nil); !errors.Is(err, ErrExpired) {
			t.Errorf("%s: %v", what, err)
		}
		again := w.open(t, Stream)
		if _, err := again.Connect(context.Background(), 10); !errors.Is(err, ErrExpired) {
			t.Errorf("%s, opened again: %v", what, err)
		}
		if d, err := again.Describe(context.Background()); err != nil || d.Spec.Expired == "" {
			t.Errorf("%s, described: %+v, %v", what, d, err)
		}
	}
}

// TestALookChangesNothing looks at a tunnel whose client is late and whose stream has a shard more.
func TestALookChangesNothing(t *testing.T) {
	w := newWorld(0, 1)
	tunnel := w.open(t, Stream)
	a := connect(t, tunnel, 10)
	beat(t, tunnel, a)
	status := func() string {
		d, err := tunnel.Look(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, c := range d.Channels {
			all = append(all, c.ID+" "+c.Status+" "+c.Client)
		}
		return strings.Join(all, ", ")
	}
	if got := status(); got != StreamID(1)+" OPEN "+a {
		t.Errorf("its client lives: %s", got)
	}
	before := w.stored
	w.now += 11_000
	w.shards = append(w.shards, Shard{ID: 2})
	if got := status(); got != StreamID(1)+" WAIT " || w.stored != before || len(tunnel.clients) != 1 {
		t.Errorf("its client is late: %s, %d clients, stored %d times", got, len(tunnel.clients), w.stored-before)
	}
	if d, err := tunnel.Describe(context.Background()); err != nil || len(d.Channels) != 2 || len(tunnel.clients) != 0 {
		t.Errorf("described: %+v, %v", d, err)
	}
}

func TestAClientThatMissesItsHeartbeatsLosesItsChannels(t *testing.T) {
	w := newWorld(0, 2)
	tunnel := w.open(t, Stream)
	first, second := connect(t, tunnel, 10), connect(t, tunnel, 10)
	held, got := beat(t, tunnel, first)
	wantAnswer(t, "the first, as the second has sent no heartbeat", got, "s1:1:1 s2:1:1")
	beat(t, tunnel, second)
	_, got = beat(t, tunnel, first, held...)
	wantAnswer(t, "the first gives one back", got, "s1:1:1 s2:2:2")
	_, got = beat(t, tunnel, first, Report{StreamID(1), 1, Open}, Report{StreamID(2), 3, Closed})
	wantAnswer(t, "the first has one", got, "s1:1:1")
	_, got = beat(t, tunnel, second)
	wantAnswer(t, "the second", got, "s2:4:1")
	w.now += 9_000
	beat(t, tunnel, second, Report{StreamID(2), 4, Open})
	w.now += 2_000
	_, got = beat(t, tunnel, second, Report{StreamID(2), 4, Open})
	wantAnswer(t, "after the first died", got, "s1:2:1 s2:4:1")
	ctx := context.Background()
	_, err := tunnel.Heartbeat(ctx, first, held)
	_, _, readErr := tunnel.GetCheckpoint(ctx, first, StreamID(1))
	if !errors.Is(err, ErrGone) || !errors.Is(readErr, ErrGone) {
		t.Errorf("the dead client: %v, %v", err, readErr)
	}
	if err := tunnel.Shutdown(ctx, second); err != nil {
		t.Error(err)
	}
	if _, err := tunnel.Heartbeat(ctx, second, nil); !errors.Is(err, ErrGone) {
		t.Errorf("after shutdown: %v", err)
	}
	d, err := tunnel.Describe(ctx)
	if err != nil || d.Channels[0].Status != "WAIT" || d.Channels[1].Client != "" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestChannelsMoveToANewClientOnlyWhenTheyAreGivenBack(t *testing.T) {
	w := newWorld(0, 2)
	tunnel := w.open(t, Stream)
	a := connect(t, tunnel, 10)
	beat(t, tunnel, a)
	b := connect(t, tunnel, 10)
	_, got := beat(t, tunnel, b)
	wantAnswer(t, "the new client, early", got, "")
	_, got = beat(t, tunnel, a, Report{StreamID(1), 1, Open}, Report{StreamID(2), 1, Open})
	wantAnswer(t, "the old client", got, "s1:1:1 s2:2:2")
	_, got = beat(t, tunnel, a, Report{StreamID(1), 1, Open}, Report{StreamID(2), 2, Closing})
	wantAnswer(t, "while it closes", got, "s1:1:1 s2:2:2")
	_, got = beat(t, tunnel, a, Report{StreamID(1), 1, Open}, Report{StreamID(2), 1, Closed})
	wantAnswer(t, "a late message", got, "s1:1:1 s2:2:2")
	_, got = beat(t, tunnel, a, Report{StreamID(1), 1, Open}, Report{StreamID(2), 3, Closed})
	wantAnswer(t, "it has closed", got, "s1:1:1")
	_, got = beat(t, tunnel, b)
	wantAnswer(t, "the new client", got, "s2:4:1")
	_, got = beat(t, tunnel, a, Report{StreamID(1), 2, Terminated})
	wantAnswer(t, "what was not read to the end is not ended", got, "s1:3:1")
}

func TestCheckpointsAreRefusedUnlessTheyFollowTheLatest(t *testing.T) {
	ctx := context.Background()
	w := newWorld(0, 2)
	tunnel := w.open(t, Stream)
	a := connect(t, tunnel, 10)
	beat(t, tunnel, a)
	for _, name := range []string{StreamID(1), StreamID(2)} {
		if _, _, err := tunnel.GetCheckpoint(ctx, a, name); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string, n uint64) Token {
		return Token{Position: tunnel.Spec.sealPosition(name, 1, Position{After: n, AsOf: int64(n)})}
	}
	other := newWorld(0, 1)
	foreign := other.open(t, Stream)
	foreign.Spec.Key = []byte("another")
	stranger := connect(t, foreign, 10)
	flipped := at(StreamID(1), 7)
	flipped.Position = slices.Clone(flipped.Position)
	flipped.Position[3] ^= 1
	for _, c := range []struct {
		what     string
		client   string
		token    Token
		sequence int64
		want     error
	}{
		{"the first", a, at(StreamID(1), 5), 1, nil},
		{"the same again", a, at(StreamID(1), 5), 1, nil},
		{"a number that is used", a, at(StreamID(1), 6), 1, ErrSequence},
		{"a number that is ahead", a, at(StreamID(1), 6), 3, ErrSequence},
		{"the next", a, at(StreamID(1), 8), 2, nil},
		{"a step back", a, at(StreamID(1), 7), 3, ErrGone},
		{"of another channel", a, at(StreamID(2), 9), 3, ErrInvalid},
		{"changed", a, flipped, 3, ErrInvalid},
		{"cut", a, Token{Position: at(StreamID(1), 9).Position[:20]}, 3, ErrInvalid},
		{"empty", a, Token{}, 3, ErrInvalid},
		{"the end that was not read", a, Token{Finished: true}, 3, ErrGone},
		{"of a client of another tunnel", stranger, at(StreamID(1), 9), 3, ErrGone},
		{"of no client", "", at(StreamID(1), 9), 3, ErrGone},
		{"of nonsense", strings.Repeat("A", 10_000), at(StreamID(1), 9), 3, ErrGone},
		{"the same position", a, at(StreamID(1), 8), 3, nil},
		{"after all that", a, at(StreamID(1), 9), 4, nil},
	} {
		if err := tunnel.Checkpoint(ctx, c.client, StreamID(1), c.token, c.sequence); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if _, err := tunnel.Read(ctx, a, StreamID(1), at(StreamID(1), 8)); !errors.Is(err, ErrGone) {
		t.Errorf("reading what was consumed: %v", err)
	}
	stored := w.stored
	if err := tunnel.Checkpoint(ctx, a, StreamID(1), at(StreamID(1), 9), 5); err != nil || w.stored != stored {
		t.Errorf("a checkpoint without progress: %v, %d writes", err, w.stored-stored)
	}
	w.failing = errors.New("disk full")
	if err := tunnel.Checkpoint(ctx, a, StreamID(1), at(StreamID(1), 10), 6); err == nil {
		t.Error("a checkpoint that was not written is acknowledged")
	}
	if err := tunnel.Checkpoint(ctx, a, StreamID(1), at(StreamID(1), 10), 6); !errors.Is(err, ErrStale) {
		t.Errorf("its repetition: %v", err)
	}
	tunnel = w.open(t, Stream)
	if err := tunnel.Checkpoint(ctx, a, StreamID(1), at(StreamID(1), 10), 5); err != nil {
		t.Errorf("its repetition when the tunnel was loaded again: %v", err)
	}
}

func open(t *testing.T, tunnel *Tunnel, client, name string) (Token, int64) {
	t.Helper()
	token, sequence, err := tunnel.GetCheckpoint(context.Background(), client, name)
	if err != nil {
		t.Fatal(err)
	}
	return token, sequence
}

// page reads a page.
func page(t *testing.T, w *world, tunnel *Tunnel, client, name string, token Token) Token {
	t.Helper()
	r, err := tunnel.Read(context.Background(), client, name, token)
	if err != nil {
		t.Fatal(err)
	}
	_, p := w.read(r)
	token, err = tunnel.FinishRead(context.Background(), r, p)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestAReportedEndIsNotACheckpoint: a client reports the end when it has read it, and may be processing.
func TestAReportedEndIsNotACheckpoint(t *testing.T) {
	for _, consumed := range []bool{false, true} {
		w := newWorld(0, 1)
		w.ends[1] = 3
		tunnel := w.open(t, Stream)
		a := connect(t, tunnel, 10)
		beat(t, tunnel, a)
		token, sequence := open(t, tunnel, a, StreamID(1))
		behind := page(t, w, tunnel, a, StreamID(1), token)
		if end := page(t, w, tunnel, a, StreamID(1), behind); !end.Finished {
			t.Fatal("not the end")
		}
		if consumed {
			if err := tunnel.Checkpoint(context.Background(), a, StreamID(1), behind, sequence+1); err != nil {
				t.Fatal(err)
			}
		}
		_, got := beat(t, tunnel, a, Report{StreamID(1), 2, Terminated})
		wantAnswer(t, fmt.Sprint("consumed: ", consumed), got, map[bool]string{false: "s1:3:1", true: ""}[consumed])
		if !consumed {
			token, _ = open(t, tunnel, a, StreamID(1))
			if at, _, _ := tunnel.Spec.position(StreamID(1), token.Position); at.After != 0 {
				t.Errorf("goes on after %d", at.After)
			}
		}
	}
}

// TestAnOldTokenOfAChannelIsRefused: a channel comes back to a client after another one read it.
func TestAnOldTokenOfAChannelIsRefused(t *testing.T) {
	ctx := context.Background()
	w := newWorld(0, 1)
	tunnel := w.open(t, Stream)
	a := connect(t, tunnel, 300)
	beat(t, tunnel, a)
	old, sequence := open(t, tunnel, a, StreamID(1))
	beat(t, tunnel, a, Report{StreamID(1), 2, Closed}) // and it gets the channel again
	refused := func(what string) {
		t.Helper()
		_, err := tunnel.Read(ctx, a, StreamID(1), old)
		if other := tunnel.Checkpoint(ctx, a, StreamID(1), old, sequence+1); !errors.Is(err, ErrGone) || !errors.Is(other, ErrGone) {
			t.Errorf("%s: read %v, checkpoint %v", what, err, other)
		}
	}
	refused("before it is opened")
	token, _ := open(t, tunnel, a, StreamID(1))
	refused("when it is opened")
	page(t, w, tunnel, a, StreamID(1), token)
	tunnel = w.open(t, Stream)
	refused("after a restart")
	page(t, w, tunnel, a, StreamID(1), token)
}

// TestAnIdleChannelDoesNotAge: the client writes no checkpoint, as there are no records.
func TestAnIdleChannelDoesNotAge(t *testing.T) {
	w := newWorld(0, 1)
	w.ends[1] = 3
	tunnel := w.open(t, Stream)
	a := connect(t, tunnel, 300)
	beat(t, tunnel, a)
	token, sequence := open(t, tunnel, a, StreamID(1))
	token = page(t, w, tunnel, a, StreamID(1), token)
	if err := tunnel.Checkpoint(context.Background(), a, StreamID(1), token, sequence+1); err != nil {
		t.Fatal(err)
	}
	w.ends[1] = 0
	r, err := tunnel.Read(context.Background(), a, StreamID(1), token)
	if err != nil {
		t.Fatal(err)
	}
	later := Position{After: 7, AsOf: w.now*1000 + 1}
	if _, err := tunnel.FinishRead(context.Background(), r, Page{Next: later, Empty: true}); err != nil {
		t.Fatal(err)
	}
	if c, err := DecodeChannel(w.rows[StreamID(1)]); err != nil || !c.At.equal(later) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestAChannelWaitsForItsHolderAfterARestart as long as the holder may live.
func TestAChannelWaitsForItsHolderAfterARestart(t *testing.T) {
	ctx := context.Background()
	start := func() (w *world, tunnel *Tunnel, a string, held []Report) {
		w = newWorld(0, 2)
		tunnel = w.open(t, Stream)
		a = connect(t, tunnel, 300)
		held, _ = beat(t, tunnel, a)
		for _, r := range held {
			open(t, tunnel, a, r.Channel)
		}
		return w, tunnel, a, held
	}
	w, _, a, held := start()
	tunnel := w.open(t, Stream)
	b := connect(t, tunnel, 1000)
	w.now += 290_000
	_, got := beat(t, tunnel, b)
	wantAnswer(t, "a new client waits", got, "")
	if _, _, err := tunnel.GetCheckpoint(ctx, a, StreamID(1)); err != nil {
		t.Errorf("the holder reads: %v", err)
	}
	_, got = beat(t, tunnel, a, held...)
	wantAnswer(t, "the holder shares", got, "s1:1:1 s2:2:2")

	w, _, a, held = start()
	tunnel = w.open(t, Stream)
	b = connect(t, tunnel, 1000)
	w.now += 301_000
	_, got = beat(t, tunnel, b)
	wantAnswer(t, "the holder does not come", got, "s1:1:1 s2:1:1")
	_, got = beat(t, tunnel, a, held...)
	wantAnswer(t, "it comes late", got, "")

	w, tunnel, a, _ = start()
	if err := tunnel.Shutdown(ctx, a); err != nil {
		t.Fatal(err)
	}
	tunnel = w.open(t, Stream)
	_, got = beat(t, tunnel, connect(t, tunnel, 10))
	wantAnswer(t, "the holder was shut down", got, "s1:1:1 s2:1:1")
	if _, _, err := tunnel.GetCheckpoint(ctx, a, StreamID(1)); !errors.Is(err, ErrGone) {
		t.Errorf("its late request: %v", err)
	}

	w, _, a, held = start()
	tunnel = w.open(t, Stream)
	if err := tunnel.Shutdown(ctx, a); err != nil {
		t.Fatal(err)
	}
	if _, err := tunnel.Heartbeat(ctx, a, held); !errors.Is(err, ErrGone) {
		t.Errorf("a late heartbeat of a client that was shut down: %v", err)
	}
}

func TestClientsAndMessagesAreBounded(t *testing.T) {
	ctx := context.Background()
	w := newWorld(0, 1)
	tunnel := w.open(t, Stream)
	for range MostClients {
		connect(t, tunnel, 10)
	}
	if _, err := tunnel.Connect(ctx, 10); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more client: %v", err)
	}
	w.now += 11_000 // they are dead
	a := connect(t, tunnel, 10)
	for what, err := range map[string]error{
		"many channels": second(tunnel.Heartbeat(ctx, a, make([]Report, MostReports+1))),
		"a version":     second(tunnel.Heartbeat(ctx, a, []Report{{StreamID(1), mostVersion + 1, Open}})),
		"one twice":     second(tunnel.Heartbeat(ctx, a, []Report{{StreamID(1), 1, Open}, {StreamID(1), 2, Open}})),
		"below zero":    second(tunnel.Heartbeat(ctx, a, []Report{{StreamID(1), -1, Open}})),
		"a timeout":     second(tunnel.Connect(ctx, MostTimeout+1)),
		"none":          second(tunnel.Connect(ctx, -1)),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	tunnel.lock <- struct{}{}
	if _, err := tunnel.Connect(cancelled, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("a tunnel in use: %v", err)
	}
	tunnel.leave()
	if err := tunnel.Delete(ctx, func([]string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := tunnel.Heartbeat(ctx, a, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a deleted tunnel: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestStoredRowsOfOtherVersionsAreRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":0}`, `[]`, `{"version":1,"at":3}`} {
		if _, err := DecodeChannel([]byte(text)); err == nil {
			t.Errorf("channel %s is accepted", text)
		}
		if _, err := DecodeSpec([]byte(text)); err == nil && !strings.Contains(text, "at") {
			t.Errorf("tunnel %s is accepted", text)
		}
	}
}
