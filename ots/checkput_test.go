package ots

import (
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// TestCheckPutRefusesARowAboveTheSizeOfAPut has a row of three values that are allowed by themselves.
func TestCheckPutRefusesARowAboveTheSizeOfAPut(t *testing.T) {
	limits := Current()
	r := Row{Key: []KeyValue{{Name: "k", Value: row.Integer(1)}}}
	for _, name := range []string{"a", "b", "c"} {
		r.Cells = append(r.Cells, Cell{Name: name, Value: row.String(strings.Repeat("x", 2<<20-1000)), Version: 1, HasVersion: true})
		err := limits.CheckPut(&r)
		if large := len(r.Cells) == 3; large != (err != nil) {
			t.Errorf("%d cells: %v", len(r.Cells), err)
		}
	}
}
