package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/consumer"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server"
)

// rig is an endpoint in memory with table t, whose stream keeps an hour.
type rig struct {
	t      *testing.T
	client *tablestore.TableStoreClient
	table  *flagstone.Table
	clock  *clock.Shifted
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, clock: clock.NewShifted(clock.System())}
	opts := flagstone.Options{Sync: flagstone.SyncNone, MemoryBudget: 16 << 20, CacheSize: 8 << 20}
	opts.Seams.FS, opts.Seams.Clock = vfs.NewSim(vfs.SimOptions{}), g.clock
	store, err := flagstone.Open("/", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, err := ots.New(store, ots.Options{Instances: []string{"test"}})
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := server.New(server.Config{
		Instances:   func(name string) (ots.Service, string, bool) { return engine, name, engine.HasInstance(name) },
		Credentials: func(string) (server.AccessKey, bool) { return server.AccessKey{Secret: "secret"}, true },
		Now:         time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(endpoint.Handler())
	t.Cleanup(served.Close)
	g.client = tablestore.NewClient(served.URL, "test", "id", "secret")
	meta := &tablestore.TableMeta{TableName: "t"}
	meta.AddPrimaryKeyColumn("k", tablestore.PrimaryKeyType_INTEGER)
	if _, err := g.client.CreateTable(&tablestore.CreateTableRequest{
		TableMeta: meta, TableOption: tablestore.NewTableOption(-1, 1), ReservedThroughput: &tablestore.ReservedThroughput{},
		StreamSpec: &tablestore.StreamSpecification{EnableStream: true, ExpirationTime: 1},
	}); err != nil {
		t.Fatal(err)
	}
	if g.table, err = store.Table("test/t"); err != nil {
		t.Fatal(err)
	}
	return g
}

// put writes a number into a row.
func (g *rig) put(key, n int64) {
	err := g.table.Update(context.Background(), flagstone.Key(key), func(_ context.Context, tx *flagstone.RowTx) error {
		tx.Put("n", flagstone.Now, row.Integer(n))
		return nil
	})
	if err != nil {
		g.t.Error(err)
	}
}

func (g *rig) cut(at int64, cut func(context.Context, row.Value) error) {
	if err := cut(context.Background(), row.Integer(at)); err != nil && !errors.Is(err, flagstone.ErrConflict) {
		g.t.Error(err)
	}
}

// seen is a record as the tests look at it.
func seen(r *tablestore.StreamRecord) (key, n int64) {
	return r.PrimaryKey.PrimaryKeys[0].Value.(int64), r.Columns[0].Value.(int64)
}

// kept keeps a position as a program does.
type kept struct{ text []byte }

func (k *kept) save(p *consumer.Position) (err error) {
	k.text, err = json.Marshal(p)
	return err
}

func (k *kept) load(t *testing.T) (p *consumer.Position) {
	if k.text == nil {
		return nil
	}
	if err := json.Unmarshal(k.text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// all reads what there is, and returns it as texts.
func (g *rig) all(o consumer.Options) (got []string, err error) {
	o.Table = "t"
	o.Handle = func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
		for _, r := range records {
			key, n := seen(r)
			got = append(got, fmt.Sprintf("%d=%d", key, n))
		}
		return nil
	}
	err = consumer.Run(context.Background(), g.client, o)
	return got, err
}

// flaky fails now and then, and has short pages.
type flaky struct {
	consumer.Client
	fails func() bool
}

var errFlaky = errors.New("no answer")

func (f *flaky) GetStreamRecord(r *tablestore.GetStreamRecordRequest) (*tablestore.GetStreamRecordResponse, error) {
	if f.fails() {
		return nil, errFlaky
	}
	r.Limit = new(int32(7))
	return f.Client.GetStreamRecord(r)
}

func (f *flaky) DescribeStream(r *tablestore.DescribeStreamRequest) (*tablestore.DescribeStreamResponse, error) {
	r.ShardLimit = new(int32(2))
	return f.Client.DescribeStream(r)
}

// TestChangesOfEachRowComeInOrderWhileShardsSplitAndRunsFail writes, splits and merges while a consumer is ended by its
// handler, by its position that cannot be saved, and by requests, and goes on each time.
func TestChangesOfEachRowComeInOrderWhileShardsSplitAndRunsFail(t *testing.T) {
	const keys, changes, workers = 24, 120, 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	chance := func(one int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(one) == 0
	}
	g := newRig(t)
	var writers sync.WaitGroup
	defer writers.Wait()
	writers.Go(func() {
		for n := range int64(changes) {
			for key := range int64(keys) {
				g.put(key, n)
			}
			switch at := 1 + n*7%(keys-1); n % 4 {
			case 1, 2:
				g.cut(at, g.table.Split)
			case 3:
				g.cut(1+(n-1)*7%(keys-1), g.table.Merge)
			}
		}
	})
	var position kept
	var last [keys]int64
	var again, runs int
	errHandler := errors.New("the handler fails")
	f := &flaky{Client: g.client, fails: func() bool { return chance(40) }}
	done := errors.New("done")
	for err := error(nil); !errors.Is(err, done); runs++ {
		ctx, cancel := context.WithCancelCause(context.Background())
		err = consumer.Run(ctx, f, consumer.Options{
			Table: "t", From: position.load(t), Follow: true, Workers: workers,
			Save: func(p *consumer.Position) error {
				if chance(10) {
					return errHandler
				}
				return position.save(p)
			},
			Handle: func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
				if chance(30) {
					return errHandler
				}
				mu.Lock()
				defer mu.Unlock()
				for _, r := range records {
					key, n := seen(r)
					if n > last[key] {
						t.Errorf("row %d: change %d comes before %d", key, n, last[key])
					}
					if n < last[key] {
						again++
					}
					last[key] = max(last[key], n+1)
				}
				if slices.Min(last[:]) == changes {
					cancel(done)
				}
				return nil
			},
		})
		cancel(nil)
		if !errors.Is(err, done) && !errors.Is(err, errHandler) && !errors.Is(err, errFlaky) {
			t.Fatal(err)
		}
	}
	t.Logf("%d runs, %d changes came again", runs, again)
	if len(position.load(t).Shards) < 2 || runs < 2 {
		t.Errorf("%d runs, position %s", runs, position.text)
	}
}

// TestAsManyShardsAreHandledAtATimeAsThereAreWorkers also bounds the memory: each has one page.
func TestAsManyShardsAreHandledAtATimeAsThereAreWorkers(t *testing.T) {
	g := newRig(t)
	for at := range int64(9) {
		g.cut(at+1, g.table.Split)
	}
	var position kept
	if _, err := g.all(consumer.Options{Save: position.save}); err != nil { // all ten shards are open afterwards
		t.Fatal(err)
	}
	for key := range int64(10) {
		g.put(key, 0)
	}
	var both sync.WaitGroup
	both.Add(2)
	var calls, under atomic.Int64
	err := consumer.Run(context.Background(), g.client, consumer.Options{Table: "t", Workers: 2, From: position.load(t),
		Handle: func(context.Context, string, []*tablestore.StreamRecord) error {
			if n := under.Add(1); n > 2 {
				t.Errorf("%d shards at a time", n)
			}
			defer under.Add(-1)
			if calls.Add(1) <= 2 {
				both.Done()
				both.Wait() // the other worker comes, too
			}
			return nil
		}})
	if err != nil || calls.Load() != 10 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func TestARunGoesOnBehindThePosition(t *testing.T) {
	g := newRig(t)
	var position kept
	for n, want := range []string{"1=0 9=0", "1=1 9=1", "1=2 9=2", ""} {
		if want != "" {
			g.put(1, int64(n))
			g.put(9, int64(n))
		}
		got, err := g.all(consumer.Options{From: position.load(t), Save: position.save})
		if slices.Sort(got); err != nil || strings.Join(got, " ") != want {
			t.Errorf("run %d: %q, %v, want %q", n, got, err, want)
		}
		if n == 1 {
			g.cut(5, g.table.Split)
		}
	}
	if got, err := g.all(consumer.Options{}); err != nil || len(got) != 6 {
		t.Errorf("without a position: %q, %v", got, err)
	}
	g.clock.Advance(time.Minute)
	since := time.UnixMilli(g.clock.NowMillis())
	g.clock.Advance(time.Minute)
	g.put(7, 7)
	if got, err := g.all(consumer.Options{Since: since}); err != nil || strings.Join(got, " ") != "7=7" {
		t.Errorf("since %s: %q, %v", since, got, err)
	}
}

func TestAHandlerThatFailsGetsItsChangesAgain(t *testing.T) {
	g := newRig(t)
	g.put(1, 1)
	var position kept
	errHandler := errors.New("not now")
	calls := 0
	o := consumer.Options{Table: "t", Save: position.save, Handle: func(context.Context, string, []*tablestore.StreamRecord) error {
		calls++
		return errHandler
	}}
	for want := 1; want <= 2; want++ {
		o.From = position.load(t)
		if err := consumer.Run(context.Background(), g.client, o); !errors.Is(err, errHandler) || calls != want {
			t.Fatalf("%d calls, %v", calls, err)
		}
	}
	if got, err := g.all(consumer.Options{From: position.load(t)}); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestARequestIsSentAgainAsTheCallerSays(t *testing.T) {
	g := newRig(t)
	g.put(1, 1)
	failures := 3
	f := &flaky{Client: g.client, fails: func() bool { failures--; return failures >= 0 }}
	handled := 0
	err := consumer.Run(context.Background(), f, consumer.Options{
		Table: "t",
		Handle: func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
			handled += len(records)
			return nil
		},
		Retry: func(_ context.Context, request func() error) error {
			for {
				if err := request(); !errors.Is(err, errFlaky) {
					return err
				}
			}
		},
	})
	if err != nil || handled != 1 {
		t.Errorf("%d, %v", handled, err)
	}
}

func TestLostChangesAreReported(t *testing.T) {
	for name, lose := range map[string]func(g *rig){
		"expired": func(g *rig) { g.clock.Advance(2 * time.Hour) },
		"expired in a shard that was split": func(g *rig) {
			g.cut(5, g.table.Split)
			g.put(9, 3)
			g.clock.Advance(2 * time.Hour)
			g.put(9, 4)
		},
		"forgotten shards": func(g *rig) {
			g.cut(5, g.table.Split)
			g.clock.Advance(3 * time.Hour)
			g.put(9, 3)
			g.cut(7, g.table.Split)
			g.cut(8, g.table.Split)
		},
		"another stream": func(g *rig) {
			for _, change := range []*tablestore.StreamSpecification{{}, {EnableStream: true, ExpirationTime: 1}} {
				if _, err := g.client.UpdateTable(&tablestore.UpdateTableRequest{TableName: "t", StreamSpec: change}); err != nil {
					g.t.Fatal(err)
				}
			}
		},
		"no table": func(g *rig) {
			if _, err := g.client.DeleteTable(&tablestore.DeleteTableRequest{TableName: "t"}); err != nil {
				g.t.Fatal(err)
			}
		},
		"no stream": func(g *rig) {
			if _, err := g.client.UpdateTable(&tablestore.UpdateTableRequest{TableName: "t", StreamSpec: &tablestore.StreamSpecification{}}); err != nil {
				g.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.put(1, 1)
			var position kept
			if _, err := g.all(consumer.Options{Save: position.save}); err != nil {
				t.Fatal(err)
			}
			g.put(1, 2)
			lose(g)
			if got, err := g.all(consumer.Options{From: position.load(t)}); !errors.Is(err, consumer.ErrLost) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	g := newRig(t)
	if _, err := g.client.UpdateTable(&tablestore.UpdateTableRequest{TableName: "t", StreamSpec: &tablestore.StreamSpecification{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.all(consumer.Options{}); err == nil || errors.Is(err, consumer.ErrLost) {
		t.Errorf("a table without a stream: %v", err)
	}
}

// TestChangesThatExpireInAChildWhileItsParentEndsAreLost lets the clock go on while the last page of the parent is handled.
func TestChangesThatExpireInAChildWhileItsParentEndsAreLost(t *testing.T) {
	g := newRig(t)
	g.put(1, 1)
	g.cut(5, g.table.Split)
	g.put(9, 2)
	var once sync.Once
	err := consumer.Run(context.Background(), g.client, consumer.Options{
		Table: "t",
		Handle: func(context.Context, string, []*tablestore.StreamRecord) error {
			once.Do(func() {
				g.clock.Advance(2 * time.Hour)
				g.put(9, 3) // the child forgets the first of its records
			})
			return nil
		},
	})
	if !errors.Is(err, consumer.ErrLost) {
		t.Error(err)
	}
}

// late lists shards from the last to the first, and children only after some requests.
type late struct {
	consumer.Client
	requests int
}

func (l *late) DescribeStream(r *tablestore.DescribeStreamRequest) (*tablestore.DescribeStreamResponse, error) {
	d, err := l.Client.DescribeStream(r)
	if err != nil {
		return nil, err
	}
	slices.Reverse(d.Shards)
	if l.requests--; l.requests >= 0 {
		d.Shards = slices.DeleteFunc(d.Shards, func(s *tablestore.StreamShard) bool { return s.FatherShard != nil })
	}
	return d, nil
}

func TestChildrenThatAreListedLateAreRead(t *testing.T) {
	g := newRig(t)
	g.put(9, 1)
	g.cut(5, g.table.Split)
	g.put(9, 2)
	done := errors.New("done")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var got []int64
	err := consumer.Run(ctx, &late{Client: g.client, requests: 3}, consumer.Options{
		Table: "t", Follow: true,
		Handle: func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
			for _, r := range records {
				_, n := seen(r)
				if got = append(got, n); n == 2 {
					cancel(done)
				}
			}
			return nil
		},
	})
	if !errors.Is(err, done) || !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("%d, %v", got, err)
	}
}

// TestARunEndsWhileTheTableIsWritten writes a change for each one that is read.
func TestARunEndsWhileTheTableIsWritten(t *testing.T) {
	g := newRig(t)
	g.put(1, 1)
	g.put(9, 1)
	g.cut(5, g.table.Split)
	g.put(1, 2)
	g.put(9, 2)
	handled := 0
	err := consumer.Run(context.Background(), g.client, consumer.Options{
		Table: "t",
		Handle: func(_ context.Context, _ string, records []*tablestore.StreamRecord) error {
			if handled += len(records); handled > 100 {
				return errors.New("it does not end")
			}
			g.put(1, 3)
			g.put(9, 3)
			return nil
		},
	})
	if err != nil || handled < 4 {
		t.Errorf("%d changes, %v", handled, err)
	}
}

// TestAnInterruptionHidesNoOtherError ends the context in the handler.
func TestAnInterruptionHidesNoOtherError(t *testing.T) {
	cause, errHandler, errSave := errors.New("interrupted"), errors.New("no handler"), errors.New("no position")
	for name, c := range map[string]struct{ handle, save, want error }{
		"nothing failed":         {nil, nil, cause},
		"the handler gave up":    {context.Canceled, nil, cause},
		"the handler failed":     {errHandler, nil, errHandler},
		"the position is unsafe": {nil, errSave, errSave},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.put(1, 1)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			err := consumer.Run(ctx, g.client, consumer.Options{
				Table: "t", Follow: true, Save: func(*consumer.Position) error { return c.save },
				Handle: func(context.Context, string, []*tablestore.StreamRecord) error {
					cancel(cause)
					return c.handle
				},
			})
			if !errors.Is(err, c.want) || (err == cause) != (c.want == cause) || c.want != cause && errors.Is(err, cause) {
				t.Error(err)
			}
		})
	}
}
