package ots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// consumer is a client of a tunnel that consumes all it gets.
type consumer struct {
	f       *fixture
	id      string
	client  string
	reports []tunnel.Report
	seen    map[string][]string // by channel, "type key" of each record
	order   []string            // channels, as they were first read
}

func (f *fixture) tunnelOf(name string, kind tunnel.Type) string {
	f.tb.Helper()
	id, err := f.CreateTunnel(context.Background(), testInstance, &CreateTunnelRequest{Table: "t", Name: name, Type: kind})
	if err != nil {
		f.tb.Fatal(err)
	}
	return id
}

func (f *fixture) consumer(id string) *consumer {
	f.tb.Helper()
	client, err := f.ConnectTunnel(context.Background(), testInstance, id, 0)
	if err != nil {
		f.tb.Fatal(err)
	}
	return &consumer{f: f, id: id, client: client, seen: map[string][]string{}}
}

// beat sends a heartbeat.
func (c *consumer) beat() error {
	reports, err := c.f.HeartbeatTunnel(context.Background(), testInstance, c.id, c.client, c.reports)
	c.reports = reports
	return err
}

// read reads a channel to its present end and writes a checkpoint.
func (c *consumer) read(channel string) error {
	ctx := context.Background()
	at := TunnelChannel{c.id, c.client, channel}
	token, sequence, err := c.f.GetTunnelCheckpoint(ctx, testInstance, at)
	for more := true; err == nil && more && !token.Finished; {
		if !slices.Contains(c.order, channel) {
			c.order = append(c.order, channel)
		}
		var page *TunnelPage
		if page, err = c.f.ReadTunnel(ctx, testInstance, at, token); err != nil {
			return err
		}
		for i := range page.Records {
			r := &page.Records[i]
			c.seen[channel] = append(c.seen[channel], fmt.Sprintf("%d %s", r.Type, r.Row.Key[0].Value))
		}
		token, more = page.Next, page.More
		sequence++
		err = c.f.CheckpointTunnel(ctx, testInstance, at, token, sequence)
	}
	return err
}

// all reads all channels until nothing new comes.
func (c *consumer) all() error {
	for quiet := 0; quiet < 3; quiet++ {
		if err := c.beat(); err != nil {
			return err
		}
		for _, r := range c.reports {
			before := len(c.seen[r.Channel]) + len(c.order)
			if err := c.read(r.Channel); err != nil {
				return err
			}
			if len(c.seen[r.Channel])+len(c.order) > before {
				quiet = 0
			}
		}
	}
	return nil
}

func (c *consumer) mustAll() {
	c.f.tb.Helper()
	if err := c.all(); err != nil {
		c.f.tb.Fatal(err)
	}
}

// records are those of all channels, in the order in which the channels were read.
func (c *consumer) records() (list []string) {
	for _, channel := range c.order {
		list = append(list, c.seen[channel]...)
	}
	return list
}

func (f *fixture) split(at string) {
	f.tb.Helper()
	t, err := f.Table(testInstance, "t")
	if err == nil {
		err = t.Split(context.Background(), row.String(at))
	}
	if err != nil {
		f.tb.Fatal(err)
	}
}

func TestATunnelDeliversTheBaseAndThenTheChanges(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.split("m")
	f.mustWrite(putOf(pk("a"), cell("c", 1)), putOf(pk("z"), cell("c", 1)), putOf(pk("gone"), cell("c", 1)), deleteOf(pk("gone")))
	c := f.consumer(f.tunnelOf("n", tunnel.BaseAndStream))
	f.mustWrite(putOf(pk("b"), cell("c", 1)))
	if err := c.beat(); err != nil || len(c.reports) != 2 {
		t.Fatalf("%v, %v", c.reports, err)
	}
	c.mustAll()
	f.mustWrite(updateOf(pk("a"), cell("c", 2)))
	f.split("c")
	f.mustWrite(updateOf(pk("a"), cell("c", 3)), deleteOf(pk("z")))
	c.mustAll()
	got := c.records()
	// b was written after the tunnel was made: it is a row of the base, and a change too.
	want := []string{`1 "a"`, `1 "b"`, `1 "z"`, `1 "b"`, `2 "a"`, `3 "z"`, `2 "a"`}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	d, err := f.DescribeTunnel(context.Background(), testInstance, TunnelRef{Table: "t", Name: "n"})
	if err != nil || !d.BaseDone {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestAPageOfATunnelIsBounded reads more rows, and more bytes, than a page may have.
func TestAPageOfATunnelIsBounded(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const rows = 30
	id := f.tunnelOf("stream", tunnel.Stream)
	for i := range rows {
		f.mustWrite(putOf(pk(fmt.Sprintf("%02d", i)), cell("c", strings.Repeat("x", 500<<10))))
	}
	base := f.tunnelOf("base", tunnel.Base)
	for _, id := range []string{id, base} {
		c := f.consumer(id)
		if err := c.beat(); err != nil {
			t.Fatal(err)
		}
		ctx, at := context.Background(), TunnelChannel{id, c.client, c.reports[0].Channel}
		token, _, err := f.GetTunnelCheckpoint(ctx, testInstance, at)
		if err != nil {
			t.Fatal(err)
		}
		page, err := f.ReadTunnel(ctx, testInstance, at, token)
		if err != nil || len(page.Records) < 7 || len(page.Records) > 9 || !page.More {
			t.Fatalf("%d records, more %v, %v", len(page.Records), page.More, err)
		}
		c.mustAll()
		if n := len(c.records()); n != rows {
			t.Errorf("%d records", n)
		}
	}
}

func TestATunnelGoesOnWhereItWasAfterTheStoreIsOpenedAgain(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	c := f.consumer(f.tunnelOf("n", tunnel.Stream))
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	c.mustAll()
	engine, err := New(f.store, Options{Instances: []string{testInstance}})
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = engine
	f.mustWrite(putOf(pk("b"), cell("c", 1)))
	c.mustAll() // the same client
	if got := c.records(); !slices.Equal(got, []string{`1 "a"`, `1 "b"`}) {
		t.Errorf("%v", got)
	}
}

// TestCheckpointsSurvivePowerLoss cuts the power behind each checkpoint. What was acknowledged is not
// delivered again, and nothing is missed.
func TestCheckpointsSurvivePowerLoss(t *testing.T) {
	disk := vfs.NewSim(vfs.SimOptions{})
	clock := clocktest.NewManual(startMillis)
	var c *consumer
	written := 0
	for round := range 12 {
		store, err := flagstone.Open("/store", flagstone.Options{Seams: seams.Seams{FS: disk, Clock: clock}})
		if err != nil {
			t.Fatal(err)
		}
		engine, err := New(store, Options{Instances: []string{testInstance}})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{Engine: engine, tb: t, clock: clock}
		if c == nil {
			f.createPlain(1, -1)
			c = f.consumer(f.tunnelOf("n", tunnel.BaseAndStream))
		}
		c.f = f
		for range 3 {
			f.mustWrite(putOf(pk(fmt.Sprintf("%03d", written)), cell("c", 1)))
			written++
		}
		if round > 0 { // the base was empty
			c.mustAll()
		} else if err := c.beat(); err != nil {
			t.Fatal(err)
		}
		next := disk.Crash(vfs.CrashPolicy(round%3), uint64(round))
		if err := store.Close(); err == nil {
			t.Fatal("the store was not cut off")
		}
		disk = next
	}
	var want []string
	for i := range written {
		want = append(want, fmt.Sprintf("1 \"%03d\"", i))
	}
	for channel, got := range c.seen {
		if !tunnel.IsBase(channel) && !slices.Equal(got, want) {
			t.Errorf("%s: %v", channel, got)
		}
	}
}

func TestATunnelExpiresWithItsRecords(t *testing.T) {
	ctx := context.Background()
	f := openStream(t, Limits{}, StreamSpecification{ExpirationHours: ptr(int32(1))})
	id := f.tunnelOf("n", tunnel.Stream)
	c := f.consumer(id)
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	c.mustAll()
	for range 6 { // an idle consumer keeps its place
		f.clock.Advance(20 * time.Minute)
		c = f.consumer(id)
		c.mustAll()
	}
	f.mustWrite(putOf(pk("b"), cell("c", 1)))
	f.clock.Advance(2 * time.Hour)
	c = f.consumer(id)
	if err := c.all(); err == nil || !strings.HasPrefix(err.Error(), CodeTunnelExpired+": ") || !strings.Contains(err.Error(), "expired before they were consumed") {
		t.Fatalf("%v", err)
	}
	if err := c.beat(); err == nil || !strings.HasPrefix(err.Error(), CodeTunnelExpired) {
		t.Errorf("heartbeat: %v", err)
	}
	engine, err := New(f.store, Options{Instances: []string{testInstance}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := engine.ListTunnel(ctx, testInstance, "t")
	if err != nil || len(list) != 1 || list[0].Expired == "" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := engine.DeleteTunnel(ctx, testInstance, TunnelRef{Table: "t", Name: "n"}); err != nil {
		t.Error(err)
	}
}

func TestAStreamThatATunnelReadsIsNotDisabled(t *testing.T) {
	ctx := context.Background()
	f := openStream(t, Limits{}, StreamSpecification{})
	id := f.tunnelOf("n", tunnel.BaseAndStream)
	disable := &UpdateTableRequest{Table: "t", Stream: &StreamSpecification{}}
	if _, err := f.UpdateTable(ctx, testInstance, disable); err == nil || !strings.Contains(err.Error(), "read by tunnel 'n'") {
		t.Errorf("%v", err)
	}
	engine, err := f.Table(testInstance, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Alter(ctx, flagstone.TableChange{Stream: &flagstone.StreamChange{}}); err != nil { // below the protocol
		t.Fatal(err)
	}
	c := f.consumer(id)
	if err := c.all(); err == nil || !strings.HasPrefix(err.Error(), CodeTunnelExpired) {
		t.Errorf("%v", err)
	}
	if _, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: "t", Stream: &StreamSpecification{Enable: true, ExpirationHours: ptr(int32(24))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.UpdateTable(ctx, testInstance, disable); err != nil { // no tunnel reads this one
		t.Error(err)
	}
}

// rowsOfTunnels are the keys of the rows that are kept of tunnels.
func (f *fixture) rowsOfTunnels() (keys []string) {
	f.tb.Helper()
	for _, kind := range []string{tunnelKind, channelKind} {
		err := f.scanTunnels(context.Background(), []row.Value{row.String(testInstance), row.String(kind)}, func(key []row.Value, _ []byte) error {
			keys = append(keys, fmt.Sprint(key))
			return nil
		})
		if err != nil {
			f.tb.Fatal(err)
		}
	}
	return keys
}

func TestDroppedTablesAndInstancesLeaveNoTunnels(t *testing.T) {
	ctx := context.Background()
	for what, drop := range map[string]func(*fixture) error{
		"DeleteTable":    func(f *fixture) error { return f.DeleteTable(ctx, testInstance, "t") },
		"DropTables":     func(f *fixture) error { return f.DropTables(ctx, testInstance) },
		"RemoveInstance": func(f *fixture) error { return f.RemoveInstance(ctx, testInstance) },
	} {
		f := openFixture(t, Limits{})
		f.createPlain(1, -1)
		id := f.tunnelOf("n", tunnel.BaseAndStream)
		c := f.consumer(id)
		if what != "DeleteTable" { // a crash left rows behind
			orphan := &openTunnel{Tunnel: &tunnel.Tunnel{ID: newTunnelID()}, e: f.Engine, instance: testInstance}
			if err := orphan.Store(ctx, tunnel.Change{Spec: &tunnel.Spec{Table: "gone"}, Put: map[string]tunnel.Channel{"x": {}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := drop(f); err != nil {
			t.Fatal(what, err)
		}
		if err := c.all(); err == nil || !strings.HasPrefix(err.Error(), CodeParameterInvalid) {
			t.Errorf("%s: %v", what, err)
		}
		if left := f.rowsOfTunnels(); len(left) != 0 {
			t.Errorf("%s leaves %v", what, left)
		}
	}
	// A table is dropped below the protocol, and another has its name.
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	id := f.tunnelOf("n", tunnel.Stream)
	if err := f.store.DropTable(ctx, storedName(testInstance, "t")); err != nil {
		t.Fatal(err)
	}
	f.createPlain(1, -1)
	list, err := f.ListTunnel(ctx, testInstance, "")
	_, connected := f.ConnectTunnel(ctx, testInstance, id, 0)
	if len(list) != 0 || err != nil || connected == nil {
		t.Errorf("%v, %v, %v", list, err, connected)
	}
	f.tunnelOf("n", tunnel.Stream)
}

// TestRowsThatACrashLeftGoAtTheNextStart drops a table below the protocol, as if the server had been cut off then.
func TestRowsThatACrashLeftGoAtTheNextStart(t *testing.T) {
	ctx := context.Background()
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.tunnelOf("lost", tunnel.BaseAndStream)
	if err := f.store.DropTable(ctx, storedName(testInstance, "t")); err != nil {
		t.Fatal(err)
	}
	f.createPlain(1, -1)
	kept := f.tunnelOf("kept", tunnel.Base)
	if _, err := New(f.store, Options{Instances: []string{testInstance}}); err != nil {
		t.Fatal(err)
	}
	left := f.rowsOfTunnels()
	if len(left) != 2 || !strings.Contains(left[0], kept) || !strings.Contains(left[1], kept) {
		t.Errorf("the rows %v are left; want those of %s", left, kept)
	}
}

// TestATunnelOfATableThatIsReplacedMeanwhileIsRefused replaces the table and its stream between the two steps.
func TestATunnelOfATableThatIsReplacedMeanwhileIsRefused(t *testing.T) {
	ctx := context.Background()
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	req := &CreateTunnelRequest{Table: "t", Name: "n", Type: tunnel.Stream}
	begun, bad := f.beginTunnel(ctx, testInstance, req)
	if bad != nil {
		t.Fatal(bad)
	}
	spec := tunnel.Spec{Name: "n", Table: "t", TableID: begun.info.ID, Type: tunnel.Stream}
	channels := map[string]tunnel.Channel{}
	if err := streamChannels(ctx, begun, &spec, channels); err != nil {
		t.Fatal(err)
	}
	other := spec
	other.StreamID += "0"
	if _, err := f.addTunnel(ctx, testInstance, other, channels); err == nil || !strings.HasPrefix(err.Error(), CodeObjectNotExist) {
		t.Errorf("another stream: %v", err)
	}
	other = spec
	other.TableID++
	if _, err := f.addTunnel(ctx, testInstance, other, channels); err == nil || !strings.HasPrefix(err.Error(), CodeObjectNotExist) {
		t.Errorf("another table: %v", err)
	}
	if _, err := f.addTunnel(ctx, testInstance, spec, channels); err != nil {
		t.Error(err)
	}
	if _, err := f.addTunnel(ctx, testInstance, spec, channels); err == nil || !strings.HasPrefix(err.Error(), CodeTunnelExist) {
		t.Errorf("a second one: %v", err)
	}
}

// TestAPageOfManySmallCellsIsBounded writes cells of one byte, whose memory is many times their content.
func TestAPageOfManySmallCellsIsBounded(t *testing.T) {
	const rows, columns = 60, 1000
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	c := f.consumer(f.tunnelOf("n", tunnel.Stream))
	table, err := f.store.Table(storedName(testInstance, "t"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range rows {
		err := table.Update(context.Background(), []row.Value{row.String(fmt.Sprint(n))}, func(_ context.Context, tx *flagstone.RowTx) error {
			for i := range columns {
				tx.Put(fmt.Sprint(i), flagstone.Now, row.Boolean(true))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.beat(); err != nil || len(c.reports) != 1 {
		t.Fatalf("%v, %v", c.reports, err)
	}
	at := TunnelChannel{Tunnel: c.id, Client: c.client, Channel: c.reports[0].Channel}
	token, _, err := f.GetTunnelCheckpoint(context.Background(), testInstance, at)
	if err != nil {
		t.Fatal(err)
	}
	page, err := f.ReadTunnel(context.Background(), testInstance, at, token)
	if err != nil || !page.More || len(page.Records) == 0 || len(page.Records)*columns*96 > 2*tunnelBytes {
		t.Errorf("%d of %d records in a page, %v", len(page.Records), rows, err)
	}
}

func TestTunnelsOfOtherInstancesAndTablesStayHidden(t *testing.T) {
	ctx := context.Background()
	f := openFixture(t, Limits{Tables: 0})
	f.createPlain(1, -1)
	f.create(tableRequest("u", "pk", row.TypeString))
	f.mustWrite(putOf(pk("secret"), cell("c", 1)))
	id := f.tunnelOf("n", tunnel.Base)
	c := f.consumer(id)
	if err := c.beat(); err != nil {
		t.Fatal(err)
	}
	at := TunnelChannel{id, c.client, c.reports[0].Channel}
	token, _, err := f.GetTunnelCheckpoint(ctx, testInstance, at)
	if err != nil {
		t.Fatal(err)
	}
	otherID, err := f.CreateTunnel(ctx, testInstance, &CreateTunnelRequest{Table: "u", Name: "n", Type: tunnel.Base})
	if err != nil {
		t.Fatal(err)
	}
	own := f.consumer(otherID)
	if err := own.beat(); err != nil {
		t.Fatal(err)
	}
	read := func(instance string, at TunnelChannel, token tunnel.Token) error {
		page, err := f.ReadTunnel(ctx, instance, at, token)
		if page != nil {
			t.Errorf("%s reads %v", instance, page.Records)
		}
		return err
	}
	for what, err := range map[string]error{
		"another instance":           read("other", at, token),
		"the token of another table": read(testInstance, TunnelChannel{otherID, own.client, own.reports[0].Channel}, token),
		"the client of another":      read(testInstance, TunnelChannel{id, own.client, at.Channel}, token),
		"a channel that is none":     read(testInstance, TunnelChannel{id, c.client, "BaseData_9999"}, token),
		"no tunnel":                  read(testInstance, TunnelChannel{strings.Repeat("x", 1<<20), c.client, at.Channel}, token),
	} {
		if err == nil {
			t.Errorf("%s is served", what)
		}
	}
	if list, err := f.ListTunnel(ctx, "other", ""); err != nil || len(list) != 0 {
		t.Errorf("another instance lists %v, %v", list, err)
	}
	if tables, err := f.ListTable(ctx, testInstance); err != nil || !slices.Equal(tables, []string{"t", "u"}) {
		t.Errorf("tables %v, %v", tables, err)
	}
	if err := f.RemoveInstance(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if list, err := f.ListTunnel(ctx, testInstance, ""); err != nil || len(list) != 2 {
		t.Errorf("after another instance was removed: %v, %v", list, err)
	}
}

// TestTheBaseIsCutIntoChannels: at partitions, and at no more than mostBases places.
func TestTheBaseIsCutIntoChannels(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	for i := range 100 {
		f.mustWrite(putOf(pk(fmt.Sprintf("%03d", i)), cell("c", 1)))
		if i%10 == 5 {
			f.split(fmt.Sprintf("%03d", i))
		}
	}
	c := f.consumer(f.tunnelOf("n", tunnel.Base))
	c.mustAll()
	if len(c.seen) != 11 {
		t.Errorf("%d channels", len(c.seen))
	}
	var rows []string
	for _, channel := range slices.Sorted(maps.Keys(c.seen)) {
		rows = append(rows, c.seen[channel]...)
	}
	if len(rows) != 100 || !slices.IsSorted(rows) {
		t.Errorf("%d rows, %v", len(rows), rows)
	}
	var points [][]byte
	for i := range 1000 {
		points = append(points, []byte(fmt.Sprintf("%04d", i)))
	}
	thin := thinned(points, mostBases-1)
	if len(thin) != mostBases-1 || string(thin[0]) != "0000" || string(thin[62]) != "0984" {
		t.Errorf("%d points, %s to %s", len(thin), thin[0], thin[len(thin)-1])
	}
}

// TestRecordsOfASplitDoNotExpireSilently: a shard that follows another one has records which are older than
// the moment at which the other one was read to its end.
func TestRecordsOfASplitDoNotExpireSilently(t *testing.T) {
	f := openStream(t, Limits{}, StreamSpecification{ExpirationHours: ptr(int32(1))})
	id := f.tunnelOf("n", tunnel.Stream)
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	f.split("m")
	f.mustWrite(putOf(pk("b"), cell("c", 1))) // of the shard that follows
	f.clock.Advance(50 * time.Minute)
	c := f.consumer(id)
	for range 2 { // what follows is not read
		if err := c.beat(); err != nil {
			t.Fatal(err)
		}
		if c.order == nil {
			if err := c.read(c.reports[0].Channel); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(c.reports) != 2 {
		t.Fatalf("%v", c.reports)
	}
	f.clock.Advance(30 * time.Minute)
	err := c.all()
	if got := c.records(); err == nil && !slices.Contains(got, `1 "b"`) {
		t.Errorf("a record expired silently: %v", got)
	}
}

// TestATunnelIsLoadedAgainAfterAFailedWrite: the outcome of a write is unknown when its client is gone.
func TestATunnelIsLoadedAgainAfterAFailedWrite(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	c := f.consumer(f.tunnelOf("n", tunnel.Stream))
	c.mustAll()
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	old, err := f.tunnel(context.Background(), testInstance, c.id)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := old.Store(cancelled, tunnel.Change{Spec: &old.Spec}); err == nil {
		t.Fatal("written for a client that is gone")
	}
	if again, err := f.tunnel(context.Background(), testInstance, c.id); err != nil || again == old {
		t.Errorf("not loaded again: %v", err)
	}
	c.mustAll() // the same client
	if got := c.records(); !slices.Equal(got, []string{`1 "a"`}) {
		t.Errorf("%v", got)
	}
}

func TestATunnelDoesNotBeginInTheFuture(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	request := &CreateTunnelRequest{Table: "t", Name: "n", Type: tunnel.Stream, StartMillis: uint64(f.clock.NowMillis()) + 1}
	if _, err := f.CreateTunnel(context.Background(), testInstance, request); err == nil || !strings.Contains(err.Error(), "in the future") {
		t.Errorf("%v", err)
	}
}
