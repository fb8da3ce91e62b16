package flagstone

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// group is the two replicas of an external log.
type group struct {
	*testing.T
	leader, follower *rig
	log              *ownedLog
	lacks            []*Export // what the follower was not sent
}

func newGroup(t *testing.T, opts Options) *group {
	g := &group{T: t}
	g.leader, g.log = newLeader(t, opts)
	g.follower = newFollower(t, opts)
	return g
}

// follow brings the follower up to date, and sends it the files that it asks for.
func (g *group) follow() {
	g.Helper()
	for {
		_, err := g.follower.store.ApplyEntries(ctx(), g.log.from(g.follower.store.AppliedIndex()+1))
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNotStaged) || len(g.lacks) == 0 {
			g.Fatal(err)
		}
		for _, x := range g.lacks {
			wantError(g.T, "send", send(x, g.follower.store), nil)
		}
	}
	if l, f := g.leader.store, g.follower.store; l.AppliedIndex() != f.AppliedIndex() || l.pipeline.LastSeq() != f.pipeline.LastSeq() {
		g.Fatalf("index %d and sequence number %d, the leader has %d and %d", f.AppliedIndex(), f.pipeline.LastSeq(), l.AppliedIndex(), l.pipeline.LastSeq())
	}
}

func (g *group) table(r *rig) *Table {
	table, err := r.store.Table("t")
	if err != nil {
		g.Fatal(err)
	}
	return table
}

// upper is what a store says of the partitions of the part that moves.
func (g *group) upper(r *rig) (list []Partition) {
	for _, p := range g.table(r).Partitions() {
		if p.Start.Type() != 0 && p.Start.Text() >= partitionKey(movingFrom) {
			list = append(list, p)
		}
	}
	return list
}

// TestS8_S9_S10_APartitionMovesBetweenReplicatedGroups moves a part of a table back and forth between two groups
// of replicas, whose followers lag, lack files and lose power.
func TestS8_S9_S10_APartitionMovesBetweenReplicatedGroups(t *testing.T) {
	moves := 12
	if testing.Short() {
		moves = 4
	}
	const seed = 11
	rng, model := rand.New(rand.NewPCG(seed, 1)), map[[2]int]string{}
	t.Logf("seed %d", seed)
	groups := [2]*group{newGroup(t, movingOptions), newGroup(t, movingOptions)}
	for i, g := range groups {
		table := g.leader.table("t", TableOptions{})
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(movingFrom))), nil)
		for range i * 50 { // the logs are at different sequence numbers
			put(t, table, partitionKey(0), 1, "c", startMillis, "x")
		}
	}
	other := groups[1].table(groups[1].leader)
	id := groups[1].upper(groups[1].leader)[0].ID
	wantError(t, "Detach", other.Detach(ctx(), id, "it was not frozen"), ErrInvalid)
	wantError(t, "Freeze", other.Freeze(ctx(), id, "it begins elsewhere"), nil)
	wantError(t, "Split", other.Split(ctx(), row.String(partitionKey(movingFrom+3))), ErrFrozen)
	wantError(t, "Detach", other.Detach(ctx(), id, "it begins elsewhere"), nil)
	wantError(t, "Freeze", other.Freeze(ctx(), id, "it is gone"), ErrInvalid)

	at := 0
	for move := range moves {
		from, to := groups[at], groups[1-at]
		write := func() {
			for range 20 + rng.IntN(60) {
				k := [2]int{movingFrom + rng.IntN(8), rng.IntN(10)}
				key := Key(partitionKey(k[0]), k[1])
				wantError(t, "a write to the other group", to.table(to.leader).Put(ctx(), key, "c", startMillis, row.String("x")), ErrDetached)
				if rng.IntN(4) == 0 {
					wantError(t, "Delete", from.table(from.leader).Delete(ctx(), key), nil)
					delete(model, k)
					continue
				}
				model[k] = fmt.Sprint(rng.Uint64())
				wantError(t, "Put", from.table(from.leader).Put(ctx(), key, "c", startMillis, row.String(model[k])), nil)
			}
		}
		write()
		opts := ExportOptions{Start: row.String(partitionKey(movingFrom))}
		first, err := from.table(from.leader).Export(ctx(), fmt.Sprintf("/move%d", move), opts)
		wantError(t, "Export", err, nil)
		write()
		for _, p := range from.upper(from.leader) {
			wantError(t, "Freeze", from.table(from.leader).Freeze(ctx(), p.ID, "it moves"), nil)
		}
		wantError(t, "Put", from.table(from.leader).Put(ctx(), Key(partitionKey(movingFrom), 1), "c", startMillis, row.String("late")), ErrFrozen)
		opts.Base = first.Fragment
		rest, err := from.table(from.leader).Export(ctx(), fmt.Sprintf("/rest%d", move), opts)
		wantError(t, "Export", err, nil)

		wantError(t, "Ingest of what was not sent", to.leader.store.Ingest(ctx(), rest.Fragment), ErrNotStaged)
		to.lacks = []*Export{first, rest}
		for _, x := range to.lacks {
			wantError(t, "send", send(x, to.leader.store), nil)
			if move%3 == 0 {
				wantError(t, "send", send(x, to.follower.store), nil)
			}
		}
		wantError(t, "Ingest", to.leader.store.Ingest(ctx(), rest.Fragment), nil)
		wantError(t, "Ingest once more", to.leader.store.Ingest(ctx(), rest.Fragment), ErrInvalid)
		for _, p := range from.upper(from.leader) {
			wantError(t, "Detach", from.table(from.leader).Detach(ctx(), p.ID, "it has moved"), nil)
		}
		at = 1 - at
		if rng.IntN(2) == 0 {
			split := row.String(partitionKey(movingFrom + 1 + rng.IntN(7)))
			wantError(t, "Split", to.table(to.leader).Split(ctx(), split), nil)
		}
		for _, g := range groups {
			g.disturb(rng)
			g.follow()
			g.follower.exec.RunAll()
			g.leader.exec.RunAll()
			g.check(model, g == to)
		}
	}
}

// disturb lets a follower lose power at some entry, or be closed and opened again.
func (g *group) disturb(rng *rand.Rand) {
	g.Helper()
	f := g.follower
	entries := g.log.from(f.store.AppliedIndex() + 1)
	_, err := f.store.ApplyEntries(ctx(), entries[:rng.IntN(len(entries)+1)])
	if err != nil && !errors.Is(err, ErrNotStaged) {
		g.Fatal(err)
	}
	policies := vfs.CrashPolicies()
	switch n := rng.IntN(2 * len(policies)); {
	case n < len(policies):
		f.crash(policies[n], rng.Uint64())
	case n == len(policies):
		f.reopen()
	}
}

// check compares the replicas with the model of the part that moves, and with each other.
func (g *group) check(model map[[2]int]string, here bool) {
	g.Helper()
	var shown []string
	for _, r := range []*rig{g.leader, g.follower} {
		got := map[[2]int]string{}
		var failed error
		for row, err := range g.table(r).Scan(ctx(), Key(partitionKey(movingFrom)), nil, ScanOptions{}).All() {
			if failed = err; err == nil {
				got[[2]int{keyNumber(row.Key()), int(row.Key()[1].Int64())}] = string(row.Cells()[0].Value)
			}
		}
		if here && (failed != nil || !maps.Equal(got, model)) {
			g.Fatalf("%d rows, want %d; %v", len(got), len(model), failed)
		}
		if !here {
			wantError(g.T, "a scan of what is elsewhere", failed, ErrDetached)
		}
		info := g.table(r).Info()
		text := fmt.Sprint(info.ID, info.CreatedMillis, info.Options)
		for _, p := range g.table(r).Partitions() {
			text += fmt.Sprintf("; %d from %v to %v, %v, cut %v: %s", p.ID, p.Start, p.End, p.State, p.Cut, p.Reason)
		}
		shown = append(shown, text)
	}
	if shown[0] != shown[1] {
		g.Fatalf("the leader has\n%s\nthe follower\n%s", shown[0], shown[1])
	}
}

// TestS8_ReplicasAgreeAboutWatermarks has a follower whose compactions have raised its own, and a fragment with
// another one.
func TestS8_ReplicasAgreeAboutWatermarks(t *testing.T) {
	options := TableOptions{TTLSeconds: 1000}
	for _, behind := range []int64{1500, 1001, 999} { // of the source's watermark, in seconds
		g := newGroup(t, movingOptions)
		table := g.leader.table("t", options)
		wantError(t, "Split", table.Split(ctx(), row.String(partitionKey(20))), nil)
		put(t, table, partitionKey(1), 0, "c", startMillis-1000_000, "old")
		g.follow()
		g.leader.clock.Advance(1000 * time.Second)
		put(t, table, partitionKey(1), 1, "c", startMillis, "new") // the time of the log
		g.follow()
		wantError(t, "Compact", g.follower.store.Compact(ctx()), nil)
		if a, b := watermark(g.leader), watermark(g.follower); a >= b {
			t.Fatalf("the test needs watermarks that differ: %d and %d", a, b)
		}
		id := upper(table).ID
		wantError(t, "Freeze", table.Freeze(ctx(), id, ""), nil)
		wantError(t, "Detach", table.Detach(ctx(), id, ""), nil)

		source := newRig(t, movingOptions)
		put(t, source.table("t", options), partitionKey(30), 0, "c", startMillis, "x")
		x, err := source.table("t", options).Export(ctx(), "/x", ExportOptions{Start: row.String(partitionKey(20))})
		wantError(t, "Export", err, nil)
		f, err := manifest.DecodeFragment(x.Fragment)
		wantError(t, "DecodeFragment", err, nil)
		f.IssuedMillis = g.leader.clock.NowMillis()
		f.Table.Watermark = g.leader.clock.NowMillis()/1000 - behind
		want := error(nil)
		if behind < options.TTLSeconds {
			want = ErrInvalid
		}
		for _, r := range []*rig{g.leader, g.follower} {
			wantError(t, "send", send(x, r.store), nil)
		}
		wantError(t, "Ingest", g.leader.store.Ingest(ctx(), f.Append(nil)), want)
		g.follow()
		for _, r := range []*rig{g.leader, g.follower} {
			_, err := r.table("t", options).Get(ctx(), Key(partitionKey(30), 0), ReadOptions{})
			if want != nil {
				wantError(t, "Get", err, ErrDetached)
			} else if got := show(t, r.table("t", options), partitionKey(30), 0); err != nil || got == "absent" {
				t.Errorf("%d: %q, %v", behind, got, err)
			}
		}
	}
}
