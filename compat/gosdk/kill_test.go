package gosdk_test

// This file kills servers. Eight writers change their rows through the SDK; the
// server is killed (kill -9) at a random moment, or while it recovers; the next
// one must hold exactly what was acknowledged. The settings are small, so that
// flushes, compactions and log rotations are always under way.
//
//	FLAGSTONE_KILL_ROUNDS=200 go test -run TestKill -v    rounds; 20 unless set
//	FLAGSTONE_KILL_SEED=7 go test -run TestKill -v        choices as in the run that printed 7

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const (
	killWriters = 8
	rowsEach    = 250
	killTable   = "Kill"
	// killVersions is the table's Max Versions: two, so that older versions
	// are checked as well.
	killVersions = 2
)

var killFlags = []string{
	"--memtable-size", "64KiB", "--wal-segment-size", "256KiB", "--table-file-size", "128KiB", "--partition-split-size", "16KiB", "--memory-budget", "2MiB",
}

// killer is the state of a kill test over all its rounds.
type killer struct {
	t    *testing.T
	dir  string
	rows [killWriters * rowsEach]history
	next [killWriters]int64 // numbers used, by writer

	killed atomic.Bool // the server of this round has been sent its kill
	// Figures for the report.
	acknowledged, unanswered, reads, scanned atomic.Int64
	starts, recoveries, stops                int // kills during start, before ready; while stopping
}

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

func TestKilledServersLoseNothingAcknowledged(t *testing.T) {
	t.Parallel()
	rounds := int(setting(t, "FLAGSTONE_KILL_ROUNDS", 20))
	seed := setting(t, "FLAGSTONE_KILL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("FLAGSTONE_KILL_SEED=%d FLAGSTONE_KILL_ROUNDS=%d", seed, rounds)
	k := &killer{t: t, dir: keptIfFailed(t)}
	random := rand.New(rand.NewPCG(seed, 0))
	k.make()
	for round := range rounds {
		if random.IntN(4) == 0 {
			// Most starts are over within some 20 ms: rather soon than late.
			k.killStart(time.Duration(random.IntN(1+random.IntN(200))) * time.Millisecond)
			continue
		}
		k.round(round, seed, time.Duration(50+random.IntN(1450))*time.Millisecond)
		if t.Failed() {
			t.Fatalf("in round %d of seed %d", round, seed)
		}
	}
	checkStore(t, k.dir) // as the last kill left it
	k.finish()
	t.Logf("%d writes acknowledged, %d without an answer, %d rows read back, %d scanned while written",
		k.acknowledged.Load(), k.unanswered.Load(), k.reads.Load(), k.scanned.Load())
	t.Logf("%d kills: %d under writers (%d of them while stopping), %d after a start (%d of them before it was over)",
		rounds, rounds-k.starts, k.stops, k.starts, k.recoveries)
}

// keptIfFailed makes a directory that is deleted at the test's end, unless there
// is something to look into.
func keptIfFailed(t *testing.T) string {
	dir, err := os.MkdirTemp("", "flagstone-kill-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the store is kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// make creates the table.
func (k *killer) make() {
	s := k.start()
	defer s.Kill()
	if _, err := connect(s).CreateTable(table{versions: killVersions}.request(killTable, "i")); err != nil {
		k.t.Fatalf("%v\n%s", err, s.Log())
	}
}

func (k *killer) start() *endpoint.Server {
	k.t.Helper()
	s, err := command.Start(k.dir, killFlags...)
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// killStart starts a server and kills it some time later, ready or not.
func (k *killer) killStart(after time.Duration) {
	s, err := command.Launch(k.dir, killFlags...)
	if err != nil {
		k.t.Fatal(err)
	}
	time.Sleep(after)
	ended := !s.Running()
	s.Kill()
	if ended {
		k.t.Fatalf("the server ended by itself:\n%s", s.Log())
	}
	k.starts++
	if !s.WasReady() {
		k.recoveries++
	}
}

// round starts a server, checks all rows, lets the writers loose and kills the
// server under them; each fifth one has just been told to stop.
func (k *killer) round(round int, seed uint64, after time.Duration) {
	s := k.start()
	defer s.Kill()
	k.verify(s)
	k.killed.Store(false)
	var writers sync.WaitGroup
	for w := range killWriters {
		random := rand.New(rand.NewPCG(seed, uint64(round*killWriters+w+1)))
		writers.Go(func() { k.write(s, w, random) })
	}
	writers.Go(func() { k.scan(s) })
	time.Sleep(after)
	k.killed.Store(true)
	if round%5 == 4 {
		if err := s.Terminate(); err != nil {
			k.t.Error(err)
		}
		time.Sleep(after / 30)
		k.stops++
	}
	s.Kill()
	writers.Wait()
	// With GOFLAGS=-race the server is built with the race detector.
	if k.t.Failed() || strings.Contains(s.Log(), "DATA RACE") {
		k.t.Errorf("the server printed:\n%s", s.Log())
	}
}

// finish checks all rows once more, over a restart in good order, and that the
// store has been through what the test is about.
func (k *killer) finish() {
	for range 2 {
		s := k.start()
		defer s.Kill()
		k.verify(s)
		if err := s.Stop(); err != nil {
			k.t.Error(err)
		}
		checkStore(k.t, k.dir)
	}
	k.inspect()
}

// inspect looks at the files of the store: they must show that there were
// flushes and compactions all the time, and that what these replaced is gone.
func (k *killer) inspect() {
	var size, newest int64
	err := filepath.WalkDir(k.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		if number, ok := strings.CutSuffix(entry.Name(), ".sst"); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return err
			}
			newest = max(newest, n)
		}
		return nil
	})
	k.t.Logf("%d table files made, %d bytes on disk at the end", newest, size)
	if err != nil || newest < 20 || size > 32<<20 {
		k.t.Errorf("%d table files made, %d bytes on disk, %v", newest, size, err)
	}
}

// write changes rows of one writer at random until the server is gone.
func (k *killer) write(s *endpoint.Server, w int, random *rand.Rand) {
	c := connect(s)
	for {
		var err error
		switch n := random.IntN(10); {
		case n < 2:
			err = k.batch(c, w, random)
		case n < 3:
			err = k.readBack(c, w, random)
		default:
			err = k.one(c, w, random)
		}
		switch {
		case err == nil:
		case k.killed.Load(): // as it should
			return
		default:
			k.t.Errorf("writer %d, while the server lives: %v", w, err)
			return
		}
	}
}

// pick chooses a row of a writer, and what it shall hold. Small numbers are
// chosen more often, so that some rows change all the time.
func (k *killer) pick(w int, random *rand.Rand) (rowID int64, s state) {
	n := random.IntN(rowsEach)
	if random.IntN(2) == 0 {
		n = random.IntN(10)
	}
	if random.IntN(8) > 0 {
		k.next[w]++
		s = state(int64(w+1)<<40 + k.next[w])
	}
	return int64(w*rowsEach + n), s
}

// change returns a request that makes a row hold s, and whether it removes all
// that the row held before.
func change(rowID int64, s state, random *rand.Rand) (c ots.RowChange, replaces bool) {
	id := key("i", rowID)
	if s == absent {
		return remove(killTable, id), true
	}
	columns := content(rowID, s)
	if random.IntN(2) == 0 {
		c := put(killTable, id)
		for name, value := range columns {
			c.AddColumn(name, value)
		}
		return c, true
	}
	u := update(killTable, id)
	for name, value := range columns {
		u.PutColumn(name, value)
	}
	if columns["o"] == nil {
		u.DeleteColumn("o")
	}
	return u, false
}

// one changes one row.
func (k *killer) one(c *ots.TableStoreClient, w int, random *rand.Rand) (err error) {
	rowID, s := k.pick(w, random)
	h := &k.rows[rowID]
	row, replaces := change(rowID, s, random)
	h.intend(s, replaces)
	switch request := row.(type) {
	case *ots.PutRowChange:
		_, err = c.PutRow(&ots.PutRowRequest{PutRowChange: request})
	case *ots.UpdateRowChange:
		_, err = c.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: request})
	case *ots.DeleteRowChange:
		_, err = c.DeleteRow(&ots.DeleteRowRequest{DeleteRowChange: request})
	}
	if err != nil {
		k.unanswered.Add(1)
		return err
	}
	h.acknowledge()
	k.acknowledged.Add(1)
	return nil
}

// batch changes some rows by one request.
func (k *killer) batch(c *ots.TableStoreClient, w int, random *rand.Rand) error {
	request := new(ots.BatchWriteRowRequest)
	var changed []*history
	for range 1 + random.IntN(20) {
		rowID, s := k.pick(w, random)
		h := &k.rows[rowID]
		if h.open {
			continue // it is in the batch already
		}
		row, replaces := change(rowID, s, random)
		h.intend(s, replaces)
		changed = append(changed, h)
		request.AddRowChange(row)
	}
	r, err := c.BatchWriteRow(request)
	if err != nil {
		k.unanswered.Add(int64(len(changed)))
		return err
	}
	results := r.TableToRowsResult[killTable]
	if len(results) != len(changed) {
		return fmt.Errorf("%d outcomes for %d rows", len(results), len(changed))
	}
	for i, h := range changed {
		if !results[i].IsSucceed {
			return &ots.OtsError{Code: results[i].Error.Code, Message: results[i].Error.Message}
		}
		h.acknowledge()
		k.acknowledged.Add(1)
	}
	return nil
}

// readBack reads a row of the writer, which nobody else changes.
func (k *killer) readBack(c *ots.TableStoreClient, w int, random *rand.Rand) error {
	rowID, _ := k.pick(w, random)
	r, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{
		TableName: killTable, PrimaryKey: key("i", rowID), MaxVersion: killVersions}})
	if err != nil {
		return err
	}
	k.judge("while written, ", rowID, &r.PrimaryKey, r.Columns)
	return nil
}

// scan reads all rows over and over while they are written, in both
// directions. What they hold changes meanwhile, but they must be whole and in
// order.
func (k *killer) scan(s *endpoint.Server) {
	c := connect(s)
	for direction := ots.FORWARD; ; direction = ots.BACKWARD - direction {
		q := over(killTable, key("i", lowest), key("i", highest))
		if direction == ots.BACKWARD {
			q = over(killTable, key("i", highest), key("i", lowest))
		}
		q.Direction, q.MaxVersion, q.Limit = direction, killVersions, 700
		last := int64(-1)
		for q.StartPrimaryKey != nil {
			r, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
			if err != nil {
				if !k.killed.Load() {
					k.t.Errorf("scan, while the server lives: %v", err)
				}
				return
			}
			for _, row := range r.Rows {
				id := row.PrimaryKey.PrimaryKeys[0].Value.(int64)
				if last >= 0 && (id > last) != (direction == ots.FORWARD) || id == last {
					k.t.Errorf("scan, while written: row %d comes after row %d", id, last)
				}
				if _, err := states(id, row.Columns); err != nil {
					k.t.Errorf("scan, while written: row %d: %v", id, err)
				}
				k.scanned.Add(1)
				last = id
			}
			q.StartPrimaryKey = r.NextStartPrimaryKey
		}
	}
}

// judge compares a row that was read with what is known of it.
func (k *killer) judge(when string, rowID int64, id *ots.PrimaryKey, columns []*ots.AttributeColumn) {
	k.reads.Add(1)
	var found []state
	if len(id.PrimaryKeys) > 0 {
		var err error
		if found, err = states(rowID, columns); err != nil {
			k.t.Errorf("%srow %d: %v; %s", when, rowID, err, &k.rows[rowID])
			return
		}
	}
	if err := k.rows[rowID].observe(found); err != nil {
		k.t.Errorf("%srow %d: %v", when, rowID, err)
	}
}

// verify reads all rows, by one scan and by key, and judges them.
func (k *killer) verify(s *endpoint.Server) {
	c := connect(s)
	scanned := make([]*ots.Row, len(k.rows))
	q := over(killTable, key("i", lowest), key("i", highest))
	q.MaxVersion = killVersions
	for {
		r, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		if err != nil {
			k.t.Fatalf("scan: %v\n%s", err, s.Log())
		}
		for _, row := range r.Rows {
			id, ok := row.PrimaryKey.PrimaryKeys[0].Value.(int64)
			if !ok || id < 0 || id >= int64(len(k.rows)) || scanned[id] != nil {
				k.t.Fatalf("scan: a row %v that was never written, or comes twice", row.PrimaryKey.PrimaryKeys[0].Value)
			}
			scanned[id] = row
		}
		if r.NextStartPrimaryKey == nil {
			break
		}
		q.StartPrimaryKey = r.NextStartPrimaryKey
	}
	for id, row := range scanned {
		if row == nil {
			row = &ots.Row{PrimaryKey: new(ots.PrimaryKey)}
		}
		k.judge("scan, ", int64(id), row.PrimaryKey, row.Columns)
	}
	k.verifyByKey(c)
	if k.t.Failed() {
		k.t.Fatalf("the server printed:\n%s", s.Log())
	}
}

// verifyByKey reads all rows by key, which takes another way through filters
// and indexes than a scan.
func (k *killer) verifyByKey(c *ots.TableStoreClient) {
	const batch = 100
	for first := 0; first < len(k.rows); first += batch {
		q := &ots.MultiRowQueryCriteria{TableName: killTable, MaxVersion: killVersions}
		for id := first; id < first+batch; id++ {
			q.AddRow(key("i", id))
		}
		r, err := c.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{q}})
		if err != nil {
			k.t.Fatalf("read by key: %v", err)
		}
		for i, row := range r.TableToRowsResult[killTable] {
			if !row.IsSucceed {
				k.t.Fatalf("read by key: %+v", row.Error)
			}
			k.judge("by key, ", int64(first+i), &row.PrimaryKey, row.Columns)
		}
	}
}
