package gosdk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

const (
	splitKeys    = 64 // partition keys
	splitRows    = 4  // of each; each row of a key has one writer
	splitReaders = 4
)

// splitTable is a table whose partitions are split and merged. It knows the last number that was acknowledged
// for each row; a reader must not see a smaller one.
type splitTable struct {
	name  string
	acked [splitKeys][splitRows]atomic.Int64
}

// TestSplitsAndMergesUnderClients splits and merges partitions, FLAGSTONE_REPLACEMENTS times, while four clients
// write and four read rows and ranges.
func TestSplitsAndMergesUnderClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := command.Start(dir, "--log-level", "warn", "--memtable-size", "64KiB", "--memory-budget", "1MiB", "--partition-split-size", "1TiB")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	c := connect(server)
	s := &splitTable{name: "split"}
	if _, err := c.CreateTable(table{}.request(s.name, "s", "i")); err != nil {
		t.Fatal(err)
	}
	for p := range splitKeys {
		for n := range splitRows {
			if err := s.write(c, p, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	seed := setting(t, "FLAGSTONE_SEED", rand.Uint64())
	t.Logf("FLAGSTONE_SEED=%d", seed)
	var group sync.WaitGroup
	var stop atomic.Bool
	var steps [3]atomic.Int64
	loop := func(kind int, number uint64, step func(c *ots.TableStoreClient, rng *rand.Rand) error) {
		group.Go(func() {
			c, rng := connect(server), rand.New(rand.NewPCG(seed, number))
			for !stop.Load() {
				if err := step(c, rng); err != nil {
					t.Error(err)
					stop.Store(true)
				}
				steps[kind].Add(1)
			}
		})
	}
	for n := range splitRows {
		loop(0, uint64(n), func(c *ots.TableStoreClient, rng *rand.Rand) error { return s.write(c, rng.IntN(splitKeys), n) })
	}
	for n := range splitReaders {
		reader := uint64(splitRows + n)
		if n%2 == 0 {
			loop(1, reader, func(c *ots.TableStoreClient, rng *rand.Rand) error {
				return s.get(c, rng.IntN(splitKeys), rng.IntN(splitRows))
			})
			continue
		}
		loop(2, reader, func(c *ots.TableStoreClient, rng *rand.Rand) error { return s.scan(c, int32(1+rng.IntN(100))) })
	}
	done := s.replace(t, dir, rand.New(rand.NewPCG(seed, 1000)), int(setting(t, "FLAGSTONE_REPLACEMENTS", 40)), &stop)
	stop.Store(true)
	group.Wait()
	if err := s.scan(c, 1000); err != nil {
		t.Error(err)
	}
	t.Logf("%d splits and merges beside %d writes, %d reads of rows and %d of all rows", done, steps[0].Load(), steps[1].Load(), steps[2].Load())
	if err := server.Stop(); err != nil {
		t.Error(err, server.Log())
	}
}

// replace splits and merges partitions by the command, and returns how often.
func (s *splitTable) replace(t *testing.T, dir string, rng *rand.Rand, count int, stop *atomic.Bool) (done int) {
	var cuts []int
	for done < count && !stop.Load() {
		what, i := "split", rng.IntN(splitKeys)
		merge := len(cuts) > rng.IntN(24)
		at := i
		if merge {
			i = rng.IntN(len(cuts))
			what, at = "merge", cuts[i]
		}
		result, err := command.Run(nil, "partition", what, "--dir", dir, s.name, splitKey(at))
		if err != nil {
			t.Errorf("%s at %s: %v", what, splitKey(at), err)
			return done
		}
		if result.Status != 0 { // partitions that are written all the time
			t.Logf("%s at %s: %s", what, splitKey(at), result.Stderr)
			continue
		}
		if merge {
			cuts = append(cuts[:i], cuts[i+1:]...)
		} else {
			cuts = append(cuts, at)
		}
		done++
	}
	return done
}

func splitKey(p int) string { return fmt.Sprintf("p%02d", p) }

func (s *splitTable) write(c *ots.TableStoreClient, p, n int) error {
	next := s.acked[p][n].Load() + 1
	_, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put(s.name, key("s", splitKey(p), "i", n), "c", next)})
	if err != nil {
		return fmt.Errorf("write row %d of %s: %w", n, splitKey(p), err)
	}
	s.acked[p][n].Store(next)
	return nil
}

func (s *splitTable) get(c *ots.TableStoreClient, p, n int) error {
	floor := s.acked[p][n].Load()
	resp, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{
		TableName: s.name, PrimaryKey: key("s", splitKey(p), "i", n), MaxVersion: 1,
	}})
	if err != nil {
		return fmt.Errorf("read row %d of %s: %w", n, splitKey(p), err)
	}
	return atLeast(resp.Columns, floor, p, n)
}

func atLeast(columns []*ots.AttributeColumn, floor int64, p, n int) error {
	if len(columns) != 1 || columns[0].Value.(int64) < floor {
		return fmt.Errorf("row %d of %s has %v, want at least %d", n, splitKey(p), columns, floor)
	}
	return nil
}

// scan reads all rows by pages, forwards or backwards.
func (s *splitTable) scan(c *ots.TableStoreClient, page int32) error {
	var floor [splitKeys][splitRows]int64
	for p := range splitKeys {
		for n := range splitRows {
			floor[p][n] = s.acked[p][n].Load()
		}
	}
	low, high := new(ots.PrimaryKey), new(ots.PrimaryKey)
	for _, name := range []string{"s", "i"} {
		low.AddPrimaryKeyColumnWithMinValue(name)
		high.AddPrimaryKeyColumnWithMaxValue(name)
	}
	from, to, direction, at, step := low, high, ots.FORWARD, 0, 1
	if page%2 == 0 {
		from, to, direction, at, step = high, low, ots.BACKWARD, splitKeys*splitRows-1, -1
	}
	for from != nil {
		resp, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &ots.RangeRowQueryCriteria{
			TableName: s.name, StartPrimaryKey: from, EndPrimaryKey: to, Direction: direction, MaxVersion: 1, Limit: page,
		}})
		if err != nil {
			return fmt.Errorf("read a range: %w", err)
		}
		for _, r := range resp.Rows {
			p, n := at/splitRows, at%splitRows
			got := r.PrimaryKey.PrimaryKeys
			if at < 0 || at >= splitKeys*splitRows || got[0].Value != splitKey(p) || got[1].Value != int64(n) {
				return fmt.Errorf("a range has row %v/%v at place %s", got[0].Value, got[1].Value, strconv.Itoa(at))
			}
			if err := atLeast(r.Columns, floor[p][n], p, n); err != nil {
				return err
			}
			at += step
		}
		from = resp.NextStartPrimaryKey
	}
	if at != -1 && at != splitKeys*splitRows {
		return errors.New("a range ended at place " + strconv.Itoa(at))
	}
	return nil
}
