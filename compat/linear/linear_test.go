package linear_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/anishathalye/porcupine"

	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const (
	clients   = 16
	rows      = 6  // of a history
	each      = 40 // operations of a client
	tableName = "Linear"
	// patience is how long a history may be searched for an order.
	patience = 2 * time.Minute
)

// flags make stores that flush, merge and rotate their logs all the time.
var flags = []string{"--memtable-size", "64KiB", "--wal-segment-size", "256KiB", "--table-file-size", "128KiB", "--log-level", "warn"}

// setting reads a number from the environment.
func setting(t *testing.T, name string, unset uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// service is the server of the moment, which is killed and started again.
type service struct {
	command *endpoint.Command
	dir     string
	start   time.Time // of the test: the clock of all histories

	mu      sync.Mutex
	back    sync.Cond // a server was started, or none will be
	server  *endpoint.Server
	started int // servers so far
	failed  error
}

// launch starts a server and lets everybody use it.
func (s *service) launch() error {
	server, err := s.command.Start(s.dir, flags...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.failed = server, err
	s.started++
	s.back.Broadcast()
	return err
}

// restart kills the server and starts the next.
func (s *service) restart() error {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	server.Kill()
	return s.launch()
}

// client returns a client of a server that is not one of the first so many, and
// its number, when it is there. A client repeats nothing by itself.
func (s *service) client(after int) (*ots.TableStoreClient, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.started <= after && s.failed == nil {
		s.back.Wait()
	}
	if s.failed != nil {
		return nil, 0, s.failed
	}
	config := ots.NewDefaultTableStoreConfig()
	config.RetryTimes = 0
	return ots.NewClientWithConfig(s.server.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "", config), s.started, nil
}

func open(t *testing.T) *service {
	command, err := endpoint.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Remove() })
	s := &service{command: command, dir: filepath.Join(t.TempDir(), "store"), start: time.Now()}
	s.back.L = &s.mu
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.server.Kill() })
	c, _, err := s.client(0)
	if err != nil {
		t.Fatal(err)
	}
	meta := &ots.TableMeta{TableName: tableName}
	meta.AddPrimaryKeyColumn("history", ots.PrimaryKeyType_INTEGER)
	meta.AddPrimaryKeyColumn("row", ots.PrimaryKeyType_INTEGER)
	if _, err := c.CreateTable(&ots.CreateTableRequest{TableMeta: meta, TableOption: ots.NewTableOption(-1, 1), ReservedThroughput: &ots.ReservedThroughput{}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// history runs sixteen clients on rows of their own, kills the server so many
// times under them, and returns what they asked for and were answered.
func (s *service) history(t *testing.T, number, kills int, random *rand.Rand) []porcupine.Operation {
	var answered atomic.Int64
	var moments []int64 // at so many answers the server is killed
	for range kills {
		moments = append(moments, 1+random.Int64N(clients*each*9/10))
	}
	slices.Sort(moments)
	reached := make([]chan struct{}, kills)
	for i := range reached {
		reached[i] = make(chan struct{})
	}
	all := make([][]porcupine.Operation, clients)
	var running sync.WaitGroup
	for i := range clients {
		random := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		running.Go(func() {
			var c *ots.TableStoreClient
			server := 0
			known := make([]int64, rows) // the last v that the client knows of a row
			for n := range each {
				if c == nil {
					var err error
					if c, server, err = s.client(server); err != nil {
						t.Error(err)
						return
					}
				}
				r := choose(random, known, int64(i*each+n+1))
				op := porcupine.Operation{ClientId: i, Input: r, Call: int64(time.Since(s.start))}
				a, err := send(c, number, r)
				op.Output, op.Return = a, int64(time.Since(s.start))
				switch {
				case err != nil && !lost(err):
					t.Errorf("%+v: %v", r, err)
					return
				case err != nil:
					c, op.Return = nil, never
				case r.kind == read:
					known[r.row] = a.found.v
				}
				if err == nil || r.kind != read { // a read without an answer says nothing
					all[i] = append(all[i], op)
				}
				at := answered.Add(1)
				for k, moment := range moments {
					if at == moment {
						close(reached[k])
					}
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		running.Wait()
		close(over)
	}()
	for k := range moments {
		select {
		case <-reached[k]:
			if err := s.restart(); err != nil {
				t.Fatal(err)
			}
		case <-over: // clients have failed
		}
	}
	<-over
	if t.Failed() {
		t.FailNow()
	}
	history := slices.Concat(all...)
	// What is there in the end, one read for each row.
	c, _, err := s.client(0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range rows {
		r := request{row: n, kind: read}
		call := int64(time.Since(s.start))
		a, err := send(c, number, r)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, porcupine.Operation{ClientId: 0, Input: r, Call: call, Output: a, Return: int64(time.Since(s.start))})
	}
	return history
}

// lost reports whether an error leaves open what became of the request: no answer,
// or one of a server that is going down.
func lost(err error) bool {
	var own *ots.OtsError
	return !errors.As(err, &own) || own.HttpStatusCode >= 500
}

// choose makes a request; value is one that no other writes to v.
func choose(random *rand.Rand, known []int64, value int64) request {
	r := request{row: random.IntN(rows), value: value}
	switch n := random.IntN(100); {
	case n < 30:
		r.kind = read
	case n < 38:
		r.kind = put
	case n < 48:
		r.kind = update
	case n < 54:
		r.kind = remove
	case n < 62:
		r.kind = insert
	case n < 66:
		r.kind = replace
	case n < 80:
		r.kind, r.before = exchange, known[r.row]
		if r.before == 0 {
			r.before = 1 // which may be there, or not
		}
	default:
		r.kind, r.value = increment, 1+random.Int64N(3)
	}
	return r
}

// send carries out a request. An error is that of the SDK, except for conditions
// that do not hold.
func send(c *ots.TableStoreClient, history int, r request) (answer, error) {
	key := new(ots.PrimaryKey)
	key.AddPrimaryKeyColumn("history", int64(history))
	key.AddPrimaryKeyColumn("row", int64(r.row))
	answered := answer{outcome: done}
	var err error
	expect := ots.RowExistenceExpectation_IGNORE
	switch r.kind {
	case read:
		var got *ots.GetRowResponse
		got, err = c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{TableName: tableName, PrimaryKey: key, MaxVersion: 1}})
		if err == nil && len(got.PrimaryKey.PrimaryKeys) > 0 {
			answered.found = rowOf(got.Columns)
		}
	case insert, replace, put:
		switch r.kind {
		case insert:
			expect = ots.RowExistenceExpectation_EXPECT_NOT_EXIST
		case replace:
			expect = ots.RowExistenceExpectation_EXPECT_EXIST
		}
		change := &ots.PutRowChange{TableName: tableName, PrimaryKey: key}
		change.AddColumn("v", r.value)
		change.SetCondition(expect)
		_, err = c.PutRow(&ots.PutRowRequest{PutRowChange: change})
	case remove:
		change := &ots.DeleteRowChange{TableName: tableName, PrimaryKey: key}
		change.SetCondition(expect)
		_, err = c.DeleteRow(&ots.DeleteRowRequest{DeleteRowChange: change})
	case update, exchange, increment:
		change := &ots.UpdateRowChange{TableName: tableName, PrimaryKey: key}
		change.SetCondition(expect)
		if r.kind == increment {
			change.IncrementColumn("n", r.value)
			change.SetReturnIncrementValue()
			change.AppendIncrementColumnToReturn("n")
		} else {
			change.PutColumn("v", r.value)
		}
		if r.kind == exchange {
			condition := ots.NewSingleColumnCondition("v", ots.CT_EQUAL, r.before)
			condition.FilterIfMissing = true
			change.SetColumnCondition(condition)
		}
		var got *ots.UpdateRowResponse
		got, err = c.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: change})
		if err == nil && r.kind == increment {
			answered.found = rowOf(got.Columns)
		}
	}
	var own *ots.OtsError
	switch {
	case err == nil:
		return answered, nil
	case errors.As(err, &own) && own.Code == "OTSConditionCheckFail":
		return answer{outcome: refused}, nil
	}
	return answer{outcome: unknown}, err
}

func rowOf(columns []*ots.AttributeColumn) row {
	r := row{exists: true}
	for _, c := range columns {
		switch c.ColumnName {
		case "v":
			r.v = c.Value.(int64)
		case "n":
			r.n = c.Value.(int64)
		}
	}
	return r
}

func TestSingleRowOperationsAreLinearizableAcrossKills(t *testing.T) {
	histories := int(setting(t, "FLAGSTONE_HISTORIES", 10))
	seed := setting(t, "FLAGSTONE_HISTORIES_SEED", uint64(time.Now().UnixNano()))
	t.Logf("FLAGSTONE_HISTORIES_SEED=%d FLAGSTONE_HISTORIES=%d", seed, histories)
	random := rand.New(rand.NewPCG(seed, 0))
	s := open(t)
	operations, lost, conditions, kills := 0, 0, 0, 0
	var checking, longest time.Duration
	for number := range histories {
		k := random.IntN(3)
		history := s.history(t, number, k, random)
		if t.Failed() {
			return
		}
		kills += k
		operations += len(history)
		for _, op := range history {
			switch op.Output.(answer).outcome {
			case unknown:
				lost++
			case refused:
				conditions++
			}
		}
		begin := time.Now()
		switch result := porcupine.CheckOperationsTimeout(model(), history, patience); result {
		case porcupine.Ok:
		default:
			t.Fatalf("history %d of seed %d: %s\n%s", number, seed, result, written(t, history))
		}
		took := time.Since(begin)
		checking += took
		longest = max(longest, took)
	}
	t.Logf("%d histories in %v: %d operations, %d of them refused by their condition and %d without an answer; %d kills; checked in %v, one in at most %v",
		histories, time.Since(s.start).Round(time.Second), operations, conditions, lost, kills, checking.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// written puts a history where it can be looked at.
func written(t *testing.T, history []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model(), history, patience)
	file, err := os.CreateTemp("", "flagstone-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := porcupine.Visualize(model(), info, file); err != nil {
		return err.Error()
	}
	return "the history is in " + file.Name()
}

// stale returns a copy of a history in which a read at the end, whose place it
// returns too, finds the value of a write that was answered before another write
// of the row began; -1 if there are no two such writes.
func stale(history []porcupine.Operation) ([]porcupine.Operation, int) {
	sets := func(op porcupine.Operation) bool {
		k := op.Input.(request).kind
		return (k == put || k == update) && op.Output.(answer).outcome == done
	}
	for i := len(history) - rows; i < len(history); i++ {
		n := history[i].Input.(request).row
		for _, first := range history {
			for _, second := range history {
				if sets(first) && sets(second) && first.Input.(request).row == n && second.Input.(request).row == n && first.Return < second.Call {
					changed := slices.Clone(history)
					found := changed[i].Output.(answer).found
					changed[i].Output = answer{done, row{exists: true, v: first.Input.(request).value, n: found.n}}
					return changed, i
				}
			}
		}
	}
	return nil, -1
}

// TestWrongAnswersAreRefuted takes a history as it was recorded and tells single
// answers wrong. A checker that accepts that would accept anything.
func TestWrongAnswersAreRefuted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	s := open(t)
	history := s.history(t, 0, 1, random)
	check := func(what string, history []porcupine.Operation, want porcupine.CheckResult) {
		t.Helper()
		if got := porcupine.CheckOperationsTimeout(model(), history, patience); got != want {
			t.Errorf("%s: %s; want %s", what, got, want)
		}
	}
	check("as it was recorded", history, porcupine.Ok)
	// find returns a copy of the history and the place of an operation in it.
	find := func(is func(r request, a answer) bool) ([]porcupine.Operation, int) {
		for i, op := range history {
			if is(op.Input.(request), op.Output.(answer)) {
				return slices.Clone(history), i
			}
		}
		t.Fatal("the history has no such operation")
		return nil, 0
	}
	changed, i := find(func(r request, a answer) bool { return r.kind == read && a.found.v != 0 })
	changed[i].Output = answer{done, row{exists: true, v: 1_000_000, n: changed[i].Output.(answer).found.n}}
	check("a read finds what nobody wrote", changed, porcupine.Illegal)

	changed, i = find(func(r request, a answer) bool { return r.kind == increment && a.outcome == done })
	changed[i].Output = answer{done, row{exists: true, n: 1_000_000}}
	check("an increment returns a sum that cannot be", changed, porcupine.Illegal)

	changed, i = stale(history)
	if i < 0 {
		t.Fatal("no row was written twice")
	}
	check("a read in the end finds what was overwritten before", changed, porcupine.Illegal)

	// Three operations on a row of their own, one after the other.
	at := func(n int, k kind, value int64, a answer) porcupine.Operation {
		return porcupine.Operation{Input: request{row: rows, kind: k, value: value}, Call: int64(10 * n), Output: a, Return: int64(10*n + 5)}
	}
	with := func(ops ...porcupine.Operation) []porcupine.Operation { return append(slices.Clone(history), ops...) }
	one, two := answer{done, row{exists: true, n: 1}}, answer{done, row{exists: true, n: 2}}
	check("two increments", with(at(1, increment, 1, one), at(2, increment, 1, two)), porcupine.Ok)
	check("an increment is lost", with(at(1, increment, 1, one), at(2, increment, 1, one)), porcupine.Illegal)
	check("a row is inserted twice", with(at(1, insert, 1, answer{outcome: done}), at(2, insert, 2, answer{outcome: done})), porcupine.Illegal)
	check("a row that is missing is not inserted", with(at(1, insert, 1, answer{outcome: refused})), porcupine.Illegal)
	check("an acknowledged write is lost", with(at(1, put, 1, answer{outcome: done}), at(2, read, 0, answer{outcome: done})), porcupine.Illegal)

	// A request without an answer may be left out, or not: both is allowed.
	lost := porcupine.Operation{Input: request{row: 0, kind: update, value: 2_000_000}, Call: 0, Output: answer{outcome: unknown}, Return: never}
	check("a write without an answer that nobody saw", append(slices.Clone(history), lost), porcupine.Ok)
	seen := append(slices.Clone(history), lost, porcupine.Operation{
		Input: request{row: rows, kind: read}, Call: 1, Output: answer{done, row{exists: true, v: 2_000_000}}, Return: 2})
	seen[len(history)].Input = request{row: rows, kind: update, value: 2_000_000}
	check("a write without an answer that somebody saw", seen, porcupine.Ok)
	seen = append(seen, porcupine.Operation{Input: request{row: rows, kind: read}, Call: 3, Output: answer{done, row{}}, Return: 4})
	check("a write without an answer that came and went", seen, porcupine.Illegal)
}
