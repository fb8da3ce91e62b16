package gosdk_test

// Local transactions: what they show, whom they keep out, and what a kill leaves
// of them.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/sample"
	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// begin starts a transaction of a partition key.
func begin(c *ots.TableStoreClient, name string, partition *ots.PrimaryKey) (*string, error) {
	r, err := c.StartLocalTransaction(&ots.StartLocalTransactionRequest{TableName: name, PrimaryKey: partition})
	if err != nil {
		return nil, err
	}
	return r.TransactionId, nil
}

func mustBegin(t *testing.T, name string, partition *ots.PrimaryKey) *string {
	t.Helper()
	id, err := begin(client, name, partition)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func commit(c *ots.TableStoreClient, id *string) error {
	_, err := c.CommitTransaction(&ots.CommitTransactionRequest{TransactionId: id})
	return err
}

func abort(c *ots.TableStoreClient, id *string) error {
	_, err := c.AbortTransaction(&ots.AbortTransactionRequest{TransactionId: id})
	return err
}

// within makes a row change part of a transaction.
func within[C ots.RowChange](id *string, change C) C {
	switch c := any(change).(type) {
	case *ots.PutRowChange:
		c.TransactionId = id
	case *ots.UpdateRowChange:
		c.TransactionId = id
	case *ots.DeleteRowChange:
		c.TransactionId = id
	}
	return change
}

// rangeText shows the rows of a range that a transaction, or nil, sees.
func rangeText(t *testing.T, id *string, name string, start, end *ots.PrimaryKey) string {
	t.Helper()
	q := over(name, start, end)
	q.TransactionId = id
	r, err := client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, text(row.PrimaryKey, row.Columns))
	}
	return strings.Join(rows, "; ")
}

func TestLocalTransactions(t *testing.T) {
	name := create(t, table{}, "s", "i")
	write(t, put(name, key("s", "a", "i", 1), "c", 1), put(name, key("s", "a", "i", 2), "c", 2), put(name, key("s", "b", "i", 1), "c", 3))
	low, high := key("s", "a", "i", lowest), key("s", "a", "i", highest)
	const before = "(a 1) c=1; (a 2) c=2"
	for _, end := range []string{"abort", "commit"} {
		id := mustBegin(t, name, key("s", "a"))
		write(t,
			within(id, put(name, key("s", "a", "i", 3), "c", 30)),
			within(id, update(name, key("s", "a", "i", 1), "d", 10)),
			within(id, remove(name, key("s", "a", "i", 2))))
		insert := within(id, put(name, key("s", "a", "i", 3), "c", 4))
		insert.SetCondition(ots.RowExistenceExpectation_EXPECT_NOT_EXIST)
		wantError(t, "a row of its own, inserted", apply(insert), "OTSConditionCheckFail", "Condition check failed.")
		counted := within(id, update(name, key("s", "a", "i", 3)))
		counted.IncrementColumn("c", 5)
		write(t, counted)

		r := get(t, name, key("s", "a", "i", 3), func(c *ots.SingleRowQueryCriteria) { c.TransactionId = id })
		want(t, "a row within", text(&r.PrimaryKey, r.Columns), "(a 3) c=35")
		want(t, "the range within", rangeText(t, id, name, low, high), "(a 1) c=1 d=10; (a 3) c=35")
		want(t, "the range outside", rangeText(t, nil, name, low, high), before)

		const conflict = "Data is being modified by the other request."
		for what, change := range map[string]ots.RowChange{
			"put": put(name, key("s", "a", "i", 9)), "update": update(name, key("s", "a", "i", 1), "c", 9), "delete": remove(name, key("s", "a", "i", 1)),
		} {
			wantError(t, what+" outside", apply(change), "OTSRowOperationConflict", conflict)
		}
		_, err := begin(client, name, key("s", "a"))
		wantError(t, "a second start", err, "OTSRowOperationConflict", conflict)
		batch := &ots.BatchWriteRowRequest{}
		batch.AddRowChange(put(name, key("s", "a", "i", 9)))
		batch.AddRowChange(put(name, key("s", "b", "i", 1), "c", 3))
		results, err := client.BatchWriteRow(batch)
		if err != nil {
			t.Fatal(err)
		}
		rows := results.TableToRowsResult[name]
		if rows[0].Error.Code != "OTSRowOperationConflict" || !rows[1].IsSucceed {
			t.Errorf("a batch outside: %+v", rows)
		}
		write(t, put(name, key("s", "b", "i", 2)), remove(name, key("s", "b", "i", 2))) // elsewhere nobody waits

		const scope = "Data out of scope of transaction. Transaction PartKey:a. Data PartKey:b"
		wantError(t, "another partition key", apply(within(id, put(name, key("s", "b", "i", 1)))), "OTSDataOutOfRange", scope)
		q := over(name, low, key("s", "b", "i", lowest))
		q.TransactionId = id
		_, err = client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		wantError(t, "a range to another partition key", err, "OTSDataOutOfRange", scope)

		if end == "abort" {
			wantError(t, "abort", abort(client, id), "", "")
			want(t, "the range, aborted", rangeText(t, nil, name, low, high), before)
		} else {
			wantError(t, "commit", commit(client, id), "", "")
			want(t, "the range, committed", rangeText(t, nil, name, low, high), "(a 1) c=1 d=10; (a 3) c=35")
		}
		const over = "Session not exist or may be timeout."
		wantError(t, "commit afterwards", commit(client, id), "OTSSessionNotExist", over)
		wantError(t, "abort afterwards", abort(client, id), "OTSSessionNotExist", over)
		wantError(t, "a write afterwards", apply(within(id, put(name, key("s", "a", "i", 1)))), "OTSSessionNotExist", over)
		write(t, put(name, key("s", "a", "i", 4)), remove(name, key("s", "a", "i", 4))) // the lock is gone
	}
}

func TestTransactionsThatAreRefused(t *testing.T) {
	name := create(t, table{}, "s", "i")
	disabled := table{}.request(name+"Disabled", "s")
	disabled.EnableLocalTxn = new(bool)
	if _, err := client.CreateTable(disabled); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name + "Disabled"})
	_, err := begin(client, name+"Disabled", key("s", "a"))
	wantError(t, "a table without", err, "OTSParameterInvalid", "Try to call method using explicit transaction on explicit-transaction-disabled table.")
	_, err = begin(client, name, key("s", "a", "i", 1))
	wantError(t, "a whole key", err, "OTSParameterInvalid", "StartLocalTransaction support only one primary key.")
	_, err = begin(client, "", key("s", "a"))
	wantError(t, "no table", err, "OTSParameterInvalid", "Invalid table name: ''.")
	_, err = begin(client, "Nowhere", key("s", "a"))
	wantError(t, "a table that is not there", err, "OTSObjectNotExist", "Requested table does not exist.")
	for _, id := range []string{"", "fake_transaction_id"} {
		wantError(t, "commit "+id, commit(client, &id), "OTSParameterInvalid", "TransactionID is invalid.")
		wantError(t, "abort "+id, abort(client, &id), "OTSParameterInvalid", "TransactionID is invalid.")
		wantError(t, "write in "+id, apply(within(&id, put(name, key("s", "a", "i", 1)))), "OTSParameterInvalid", "TransactionID is invalid.")
	}
	unknown := strings.Repeat("0", 32)
	wantError(t, "an unknown one", commit(client, &unknown), "OTSSessionNotExist", "Session not exist or may be timeout.")
}

func TestATransactionTakesFourMegabytes(t *testing.T) {
	name := create(t, table{}, "s", "i")
	id := mustBegin(t, name, key("s", "a"))
	// Names of key columns, their values and the name of the column are 12 bytes.
	row := func(k, size int) *ots.PutRowChange {
		return within(id, put(name, key("s", "a", "i", k), "c", strings.Repeat("x", size-12)))
	}
	const half = 2 << 20
	write(t, row(1, half))
	wantError(t, "a byte too many", apply(row(2, half+1)), "OTSOutOfTransactionDataSizeLimit", "limit size: 4194304, data size: 4194305.")
	write(t, row(2, half))
	wantError(t, "one row more", apply(row(3, 12)), "OTSOutOfTransactionDataSizeLimit", "data size: 4194316.")
	wantError(t, "commit", commit(client, id), "", "")
	for k := 1; k <= 3; k++ {
		r := get(t, name, key("s", "a", "i", k))
		want(t, fmt.Sprintf("row %d is there", k), len(r.Columns) == 1, k < 3)
	}
}

// TestTheTransactionSampleDoesWhatItSays runs the program that comes with the SDK:
// it puts a row, reads it, puts another with a number that is five larger, and
// commits.
func TestTheTransactionSampleDoesWhatItSays(t *testing.T) {
	name := "TransactionSample"
	sample.PutRowWithTxnSample(client, name)
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name})
	want(t, "the rows", rangeText(t, nil, name, key("userid", "user2", "pk2", lowest), key("userid", "user2", "pk2", highest)),
		"(user2 2) col1=col1data1 col2=3 col3=[116 101 115 116]; (user2 3) col1=col1data1 col2=8 col3=[116 101 115 116]")
}

// TestKilledServersLeaveTransactionsWholeOrNot kills a server while every writer
// rewrites all rows of its partition key in one transaction after the other. The
// next server must hold the rows of one transaction: the last that was committed,
// or the one whose commit had no answer.
//
//	FLAGSTONE_KILL_ROUNDS, FLAGSTONE_KILL_SEED: see kill_test.go
func TestKilledServersLeaveTransactionsWholeOrNot(t *testing.T) {
	t.Parallel()
	const name, writers, rows = "Transactions", 4, 5
	rounds := int(setting(t, "FLAGSTONE_KILL_ROUNDS", 6))
	seed := setting(t, "FLAGSTONE_KILL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("FLAGSTONE_KILL_SEED=%d FLAGSTONE_KILL_ROUNDS=%d", seed, rounds)
	random := rand.New(rand.NewPCG(seed, 1))
	dir := keptIfFailed(t)
	var committed [writers]int // acknowledged
	var asked [writers]int     // of the last commit that was sent
	whole, open := 0, 0
	for round := range rounds + 1 {
		s, err := command.Start(dir, killFlags...)
		if err != nil {
			t.Fatal(err)
		}
		c := connect(s)
		if round == 0 {
			if _, err := c.CreateTable(table{}.request(name, "s", "i")); err != nil {
				t.Fatal(err)
			}
		}
		for w := range writers {
			q := over(name, key("s", fmt.Sprint(w), "i", lowest), key("s", fmt.Sprint(w), "i", highest))
			r, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
			if err != nil {
				t.Fatal(err)
			}
			var found []int
			for _, row := range r.Rows {
				found = append(found, int(row.Columns[0].Value.(int64)))
			}
			n := 0
			if len(found) > 0 {
				n = found[0]
			}
			for _, other := range found {
				if other != n || len(found) != rows {
					t.Fatalf("round %d of seed %d: writer %d finds %v", round, seed, w, found)
				}
			}
			if n != committed[w] && n != asked[w] {
				t.Fatalf("round %d of seed %d: writer %d finds %d; %d was committed, %d asked for last", round, seed, w, n, committed[w], asked[w])
			}
			if asked[w] != committed[w] {
				if open++; n == asked[w] {
					whole++
				}
			}
			committed[w] = n
		}
		if round == rounds {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			break
		}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				c := connect(s)
				for {
					n := asked[w] + 1
					id, err := begin(c, name, key("s", fmt.Sprint(w)))
					for k := 0; k < rows && err == nil; k++ {
						_, err = c.PutRow(&ots.PutRowRequest{PutRowChange: within(id, put(name, key("s", fmt.Sprint(w), "i", k), "n", n, "x", strings.Repeat("x", 300)))})
					}
					if err == nil {
						asked[w] = n
						if err = commit(c, id); err == nil {
							committed[w] = n
						}
					}
					if err != nil {
						var own *ots.OtsError
						if errors.As(err, &own) && own.HttpStatusCode < 500 {
							t.Errorf("writer %d: %v", w, err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(50+random.IntN(600)) * time.Millisecond)
		s.Kill()
		all.Wait()
		if t.Failed() {
			return
		}
	}
	checkStore(t, dir)
	t.Logf("%v transactions were committed; of %d commits without an answer %d are there", committed, open, whole)
}
