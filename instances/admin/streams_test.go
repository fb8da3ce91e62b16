package admin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// TestStreamsAndTunnelsAreDescribedThroughTheDoor follows a tunnel from its first row to a change, over a split.
func TestStreamsAndTunnelsAreDescribedThroughTheDoor(t *testing.T) {
	ctx := context.Background()
	_, home, client := opened(t)
	makeTable(t, home, "rows", row.TypeString)
	seen := func() *instances.Streams {
		t.Helper()
		here, err := home.Streams(ctx, "demo", "rows")
		there, err2 := client.Streams(ctx, "demo", "rows")
		if err == nil && err2 == nil {
			there.NowMillis = here.NowMillis // the second answer is later
		}
		if err != nil || err2 != nil || here.NowMillis == 0 || !reflect.DeepEqual(here, there) {
			t.Fatalf("here %+v, %v, there %+v, %v", here, err, there, err2)
		}
		return here
	}
	if s := seen(); s.Stream != nil || len(s.Tunnels) != 0 {
		t.Errorf("of a new table: %+v", s)
	}
	engine, instance, _ := home.Service("demo")
	table, err := engine.Table(instance, "rows")
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) {
		t.Helper()
		if err := table.Put(ctx, flagstone.Key(key), "c", flagstone.Now, row.Integer(1)); err != nil {
			t.Fatal(err)
		}
	}
	const rows = 5001 // one more than a page of a tunnel
	for i := range rows {
		put(fmt.Sprintf("%05d", i))
	}
	id, err := engine.CreateTunnel(ctx, instance, &ots.CreateTunnelRequest{Table: "rows", Name: "mirror", Type: tunnel.BaseAndStream})
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Split(ctx, "demo", "rows", "m"); err != nil {
		t.Fatal(err)
	}
	if err := client.AlterTable(ctx, "demo", "rows", &instances.TableChange{MaxVersions: new(int32(2))}); err != nil {
		t.Fatal(err)
	}
	s := seen()
	if s.Stream == nil || s.Stream.Hours != 168 || len(s.Stream.Shards) != 3 || !s.Stream.Shards[0].Ended || s.Stream.Shards[1].Ended ||
		!reflect.DeepEqual(s.Stream.Shards[2].Parents, []string{s.Stream.Shards[0].ID}) {
		t.Errorf("the stream after a split: %+v", s.Stream)
	}
	if len(s.Tunnels) != 1 || s.Tunnels[0].ID != id || s.Tunnels[0].Name != "mirror" || s.Tunnels[0].BaseDone || s.Tunnels[0].Expired != "" {
		t.Fatalf("the tunnel: %+v", s.Tunnels)
	}
	first := s.Tunnels[0].Channels[0]
	if first.ID != "BaseData_0000" || first.Status != "WAIT" || first.Key != nil {
		t.Errorf("the rows before they are read: %+v", first)
	}

	worker, err := engine.ConnectTunnel(ctx, instance, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.HeartbeatTunnel(ctx, instance, id, worker, nil); err != nil {
		t.Fatal(err)
	}
	at := ots.TunnelChannel{Tunnel: id, Client: worker, Channel: "BaseData_0000"}
	token, sequence, err := engine.GetTunnelCheckpoint(ctx, instance, at)
	if err != nil {
		t.Fatal(err)
	}
	page, err := engine.ReadTunnel(ctx, instance, at, token)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.CheckpointTunnel(ctx, instance, at, page.Next, sequence+1); err != nil {
		t.Fatal(err)
	}
	if c := seen().Tunnels[0].Channels[0]; c.Status != "OPEN" || c.Client != worker || c.Key == nil || *c.Key != "05000" {
		t.Errorf("after a page: %+v", c)
	}
	shard := seen().Stream.Shards[1].ID
	iterator, err := engine.GetShardIterator(ctx, instance, &ots.GetShardIteratorRequest{StreamID: s.Stream.ID, ShardID: shard})
	if err != nil {
		t.Fatal(err)
	}
	if list := seen().Stream.Readers; len(list) != 0 {
		t.Errorf("readers before one reads: %+v", list)
	}
	if _, err := engine.GetStreamRecord(ctx, instance, &ots.GetStreamRecordRequest{Iterator: iterator, Sender: "key"}); err != nil {
		t.Fatal(err)
	}
	if list := seen().Stream.Readers; len(list) != 1 || list[0].Key != "key" || list[0].Shard != shard || !list[0].All || list[0].Ended || list[0].AskedMillis == 0 {
		t.Errorf("readers: %+v", list)
	}
	if _, err := client.Streams(ctx, "demo", "none"); !errors.Is(err, instances.ErrNotFound) {
		t.Errorf("of no table: %v", err)
	}
}

// TestTheTableOfTunnelsIsHidden makes a tunnel, and looks for the table that keeps it in every list.
func TestTheTableOfTunnelsIsHidden(t *testing.T) {
	ctx := context.Background()
	_, home, client := opened(t)
	makeTable(t, home, "rows", row.TypeString)
	engine, instance, _ := home.Service("demo")
	if _, err := engine.CreateTunnel(ctx, instance, &ots.CreateTunnelRequest{Table: "rows", Name: "mirror", Type: tunnel.Stream}); err != nil {
		t.Fatal(err)
	}
	tables, err := client.Tables(ctx, "demo")
	if err != nil || len(tables) != 1 {
		t.Errorf("tables: %+v, %v", tables, err)
	}
	if _, err := client.Table(ctx, "demo", ".tunnels"); err == nil {
		t.Error("the table is described")
	}
	all, err := client.Figures(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range all {
		for _, table := range store.Tables {
			if table.Name == ".tunnels" {
				t.Error("the figures have the table")
			}
		}
	}
}
