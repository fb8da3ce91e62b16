// Package ycsb puts load on a table of rows and measures what it takes: the workloads A to F of the Yahoo! Cloud Serving
// Benchmark (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010), and each operation by itself.
//
// Rows have a string key and columns of random letters. Their keys are hashes of the numbers 0, 1, 2, ..., so rows are
// loaded in random order, and neighbours in the table were not loaded one after the other.
package ycsb

import (
	"context"
	"encoding/binary"
	"encoding/hex"
)

// Row is a key and the values of all columns.
type Row struct {
	Key    string
	Values [][]byte
}

// Table is what is measured. Several goroutines use it. An error ends the run.
type Table interface {
	// Put puts rows whole, whether they exist or not.
	Put(ctx context.Context, rows []Row) error
	// Update puts one column of a row.
	Update(ctx context.Context, key string, column int, value []byte) error
	// Get reads all columns of a row, and returns false if there is no row.
	Get(ctx context.Context, key string) (found bool, err error)
	// Scan reads up to limit rows from a key on, and returns how many it read.
	Scan(ctx context.Context, key string, limit int) (rows int, err error)
}

// Kind is a kind of operation.
type Kind int

// The kinds.
const (
	Get    Kind = iota // a row
	Put                // a whole row over one that exists
	Update             // one column
	Insert             // a new row
	Scan               // rows one after the other
	Modify             // a row is read, then one column of it is updated
	kinds
)

func (k Kind) String() string {
	return [...]string{"get", "put", "update", "insert", "scan", "modify"}[k]
}

// choice is how the rows of operations are chosen.
type choice int

const (
	uniform choice = iota
	skewed         // by Zipf's law, the frequent ones spread over the table
	latest         // by Zipf's law, the newest most often
)

// Workload is a mixture of operations.
type Workload struct {
	// Name is what a user calls it, About what it is.
	Name, About string
	percent     [kinds]int
	chosen      choice
	// A scan reads as many rows as a uniform number of [shortest, longest].
	shortest, longest int
}

// Workloads are all there are.
var Workloads = []Workload{
	{Name: "a", About: "YCSB A: half gets, half updates of a column, skewed", percent: [kinds]int{Get: 50, Update: 50}, chosen: skewed},
	{Name: "b", About: "YCSB B: 95% gets, 5% updates of a column, skewed", percent: [kinds]int{Get: 95, Update: 5}, chosen: skewed},
	{Name: "c", About: "YCSB C: gets, skewed", percent: [kinds]int{Get: 100}, chosen: skewed},
	{Name: "d", About: "YCSB D: 95% gets of the newest rows, 5% new rows", percent: [kinds]int{Get: 95, Insert: 5}, chosen: latest},
	{Name: "e", About: "YCSB E: 95% scans of 1 to 100 rows, 5% new rows, skewed", percent: [kinds]int{Scan: 95, Insert: 5}, chosen: skewed, shortest: 1, longest: 100},
	{Name: "f", About: "YCSB F: half gets, half gets with an update of a column after them, skewed", percent: [kinds]int{Get: 50, Modify: 50}, chosen: skewed},
	{Name: "get", About: "gets of any row", percent: [kinds]int{Get: 100}},
	{Name: "put", About: "any row overwritten whole", percent: [kinds]int{Put: 100}},
	{Name: "update", About: "one column of any row", percent: [kinds]int{Update: 100}},
	{Name: "insert", About: "new rows", percent: [kinds]int{Insert: 100}},
	{Name: "scan", About: "100 rows from any row on", percent: [kinds]int{Scan: 100}, shortest: 100, longest: 100},
}

// Find returns the workload of a name.
func Find(name string) (Workload, bool) {
	for _, w := range Workloads {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// mix is a permutation of the numbers that looks random: the end of Steele et al., "Fast splittable pseudorandom number
// generators" (OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// keyOf is the key of row i.
func keyOf(i int64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(uint64(i)+1))
	return "user" + hex.EncodeToString(b[:])
}
