package gosdk_test

// This file kills servers under a consumer. Writers change the rows of a table
// with a stream by every operation there is; a consumer reads its records and
// carries them out on a model that began empty, and goes on after each kill -9
// where it was. After each round the model must be the table, cell by cell and
// version by version.
//
//	FLAGSTONE_KILL_ROUNDS=200 go test -run TestAConsumer -v    rounds; 20 unless set
//	FLAGSTONE_KILL_SEED=7 go test -run TestAConsumer -v        choices as in the run that printed 7

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const (
	replayTable    = "Replay"
	replayWriters  = 6
	replayRows     = 40 // per writer, and as many that all share
	replayVersions = 3
)

// replica is the model: by row, by column, by version.
type replica map[string]map[string]map[int64]any

// apply carries out one record, as the table's rules say: it keeps so many
// versions, the largest, and the row exists also without a column.
func (m replica) apply(r *ots.StreamRecord) error {
	id := keyText(r.PrimaryKey)
	switch r.Type {
	case ots.AT_Delete:
		delete(m, id)
		return nil
	case ots.AT_Put:
		m[id] = map[string]map[int64]any{}
	}
	columns, exists := m[id]
	if !exists {
		columns = map[string]map[int64]any{}
	}
	puts := exists
	for _, c := range r.Columns {
		versions := columns[*c.Name]
		if versions == nil {
			versions = map[int64]any{}
			columns[*c.Name] = versions
		}
		switch c.Type {
		case ots.RCT_Put:
			puts = true
			versions[*c.Timestamp] = c.Value
		case ots.RCT_DeleteOneVersion:
			delete(versions, *c.Timestamp)
		case ots.RCT_DeleteAllVersions:
			clear(versions)
		default:
			return fmt.Errorf("column %s has type %v", *c.Name, c.Type)
		}
	}
	for name, versions := range columns {
		kept := slices.Sorted(maps.Keys(versions))
		for _, v := range kept[:max(len(kept)-replayVersions, 0)] {
			delete(versions, v)
		}
		if len(versions) == 0 {
			delete(columns, name)
		}
	}
	if puts {
		m[id] = columns
	}
	return nil
}

func keyText(k *ots.PrimaryKey) string {
	var parts []string
	for _, c := range k.PrimaryKeys {
		parts = append(parts, fmt.Sprint(c.Value))
	}
	return strings.Join(parts, "/")
}

// show prints a row of the replica.
func (m replica) show(id string) string {
	columns, exists := m[id]
	if !exists {
		return "absent"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		for _, v := range slices.Backward(slices.Sorted(maps.Keys(columns[name]))) {
			fmt.Fprintf(&b, "%s@%d=%v ", name, v, columns[name][v])
		}
	}
	return "(" + b.String() + ")"
}

// replayer is the state of the test over all its rounds.
type replayer struct {
	t      *testing.T
	dir    string
	model  replica
	stream follower
	killed atomic.Bool

	records, early, writes atomic.Int64
}

func TestAConsumerReproducesTheTableAfterKills(t *testing.T) {
	t.Parallel()
	rounds := int(setting(t, "FLAGSTONE_KILL_ROUNDS", 20))
	seed := setting(t, "FLAGSTONE_KILL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("FLAGSTONE_KILL_SEED=%d FLAGSTONE_KILL_ROUNDS=%d", seed, rounds)
	r := &replayer{t: t, dir: keptIfFailed(t), model: replica{}}
	r.make()
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		r.round(round, seed, time.Duration(20+random.IntN(1000))*time.Millisecond)
		if t.Failed() {
			t.Fatalf("in round %d of seed %d", round, seed)
		}
	}
	checkStore(t, r.dir) // as the last kill left it
	s := r.start()
	defer s.Kill()
	r.consumeRest(s)
	r.compare(s)
	fromTheBeginning(t, connect(s), r.model)
	t.Logf("%d kills, %d writes answered, %d records carried out, %d of them while the server was written to; %d rows at the end",
		rounds, r.writes.Load(), r.records.Load(), r.early.Load(), len(r.model))
	if r.records.Load() < r.writes.Load() || r.early.Load() == 0 {
		t.Error("the consumer read too little")
	}
}

func (r *replayer) start() *endpoint.Server {
	r.t.Helper()
	s, err := command.Start(r.dir, killFlags...)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// make creates the table with its stream.
func (r *replayer) make() {
	s := r.start()
	defer s.Kill()
	c := connect(s)
	request := table{versions: replayVersions}.request(replayTable, "s", "i")
	request.StreamSpec = &ots.StreamSpecification{EnableStream: true, ExpirationTime: 24}
	if _, err := c.CreateTable(request); err != nil {
		r.t.Fatalf("%v\n%s", err, s.Log())
	}
	r.stream = newFollower(r.t, c, replayTable)
}

// round starts a server, catches up, compares, and kills the server under
// writers and the consumer.
func (r *replayer) round(round int, seed uint64, after time.Duration) {
	s := r.start()
	defer s.Kill()
	r.consumeRest(s)
	r.compare(s)
	r.killed.Store(false)
	var group sync.WaitGroup
	for w := range replayWriters {
		random := rand.New(rand.NewPCG(seed, uint64(round*replayWriters+w+1)))
		group.Go(func() { r.write(s, w, random) })
	}
	group.Go(func() { r.consume(s) })
	time.Sleep(after)
	r.killed.Store(true)
	s.Kill()
	group.Wait()
	if r.t.Failed() || strings.Contains(s.Log(), "DATA RACE") {
		r.t.Errorf("the server printed:\n%s", s.Log())
	}
}

// page reads and carries out one page of each shard.
func (r *replayer) page(c *ots.TableStoreClient, limit int32) (more bool, err error) {
	return r.stream.page(c, limit, func(record *ots.StreamRecord) {
		r.records.Add(1)
		if err := r.model.apply(record); err != nil {
			r.t.Error(err)
		}
	})
}

// consume reads while the server lives. What it has read is not read again.
func (r *replayer) consume(s *endpoint.Server) {
	c := connect(s)
	for before := r.records.Load(); ; {
		if _, err := r.page(c, 100); err != nil {
			if !r.killed.Load() {
				r.t.Errorf("consumer, while the server lives: %v", err)
			}
			r.early.Add(r.records.Load() - before)
			return
		}
	}
}

func (r *replayer) consumeRest(s *endpoint.Server) {
	c := connect(s)
	for more := true; more; {
		var err error
		if more, err = r.page(c, 1000); err != nil {
			r.t.Fatalf("consumer: %v\n%s", err, s.Log())
		}
	}
}

// write changes rows until the server is gone. Half of them are the writer's
// own, the others all share.
func (r *replayer) write(s *endpoint.Server, w int, random *rand.Rand) {
	c := connect(s)
	for {
		err := r.change(c, w, random)
		if own, ok := err.(*ots.OtsError); ok && own.Code == "OTSConditionCheckFail" {
			err = nil // as it may be
		}
		switch {
		case err == nil:
			r.writes.Add(1)
		case r.killed.Load():
			return
		default:
			r.t.Errorf("writer %d, while the server lives: %v", w, err)
			return
		}
	}
}

func (r *replayer) change(c *ots.TableStoreClient, w int, random *rand.Rand) error {
	row := func() *ots.PrimaryKey {
		if random.IntN(2) == 0 {
			return key("s", "all", "i", random.IntN(replayRows))
		}
		return key("s", fmt.Sprint("writer", w), "i", random.IntN(replayRows))
	}
	one := func() ots.RowChange {
		k := row()
		switch random.IntN(8) {
		case 0:
			return remove(replayTable, k)
		case 1, 2:
			change := put(replayTable, k)
			for i := range random.IntN(4) {
				change.AddColumn(fmt.Sprint("c", i), random.Int64())
			}
			return change
		}
		change := update(replayTable, k)
		change.PutColumn("c0", strings.Repeat("x", random.IntN(300)))
		if random.IntN(2) == 0 {
			change.PutColumnWithTimestamp("c1", random.Float64(), base+int64(random.IntN(6)))
		}
		if random.IntN(3) == 0 {
			change.DeleteColumnWithTimestamp("c2", base+int64(random.IntN(6)))
			change.PutColumnWithTimestamp("c2", []byte{byte(w)}, base+6+int64(random.IntN(6)))
		}
		if random.IntN(4) == 0 {
			change.DeleteColumn("c3")
		}
		return change
	}
	var err error
	switch random.IntN(6) {
	case 0: // an increment, on a condition
		change := update(replayTable, row())
		change.IncrementColumn("n", int64(1+random.IntN(9)))
		change.SetCondition(ots.RowExistenceExpectation(random.IntN(3)))
		_, err = c.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: change})
	case 1:
		request := new(ots.BatchWriteRowRequest)
		for range 1 + random.IntN(10) {
			request.AddRowChange(one())
		}
		_, err = c.BatchWriteRow(request)
	default:
		switch change := one().(type) {
		case *ots.PutRowChange:
			_, err = c.PutRow(&ots.PutRowRequest{PutRowChange: change})
		case *ots.UpdateRowChange:
			_, err = c.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: change})
		case *ots.DeleteRowChange:
			_, err = c.DeleteRow(&ots.DeleteRowRequest{DeleteRowChange: change})
		}
	}
	return err
}

// compare reads the whole table, which nobody changes, and compares it with the
// model.
func (r *replayer) compare(s *endpoint.Server) {
	found := readReplica(r.t, connect(s))
	for id := range found {
		if r.model[id] == nil {
			r.t.Errorf("row %s: the table has %s, the model nothing", id, found.show(id))
		}
	}
	for id := range r.model {
		if got, want := found.show(id), r.model.show(id); got != want {
			r.t.Errorf("row %s:\nthe table has %s\nthe model has %s", id, got, want)
		}
	}
	if r.t.Failed() {
		r.t.Fatalf("the server printed:\n%s", s.Log())
	}
}

func readReplica(t *testing.T, c *ots.TableStoreClient) replica {
	t.Helper()
	found := replica{}
	q := over(replayTable, key("s", lowest, "i", lowest), key("s", highest, "i", highest))
	q.MaxVersion = replayVersions
	for q.StartPrimaryKey != nil {
		resp, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range resp.Rows {
			columns := map[string]map[int64]any{}
			for _, cell := range row.Columns {
				if columns[cell.ColumnName] == nil {
					columns[cell.ColumnName] = map[int64]any{}
				}
				columns[cell.ColumnName][cell.Timestamp] = cell.Value
			}
			found[keyText(row.PrimaryKey)] = columns
		}
		q.StartPrimaryKey = resp.NextStartPrimaryKey
	}
	return found
}

// fromTheBeginning carries out all records once more, on an empty model.
func fromTheBeginning(t *testing.T, c *ots.TableStoreClient, want replica) {
	t.Helper()
	again := replica{}
	records, f := 0, newFollower(t, c, replayTable)
	for more := true; more; {
		var err error
		more, err = f.page(c, 1000, func(r *ots.StreamRecord) {
			records++
			if err := again.apply(r); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(again)), slices.Collect(maps.Keys(want))) {
		if got := again.show(id); got != want.show(id) {
			t.Errorf("row %s, read from the beginning: %s, want %s", id, got, want.show(id))
		}
	}
	t.Logf("%d records of %d shards from the beginning", records, len(f.shards))
}
