package mvcc_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

func TestDeletesGetTheTrimsThatTheyNeed(t *testing.T) {
	del := func(column string, version int64) row.Cell {
		return row.Cell{Column: []byte(column), Version: version, Kind: row.KindDeleteVersion}
	}
	put := row.Cell{Column: []byte("b"), Version: 50, Kind: row.KindPut, Type: row.TypeString, Value: []byte("x")}
	shown := map[string][]int64{"full": {9, 7, 5}, "few": {9, 7}, "b": {50, 40, 30}}
	for _, c := range []struct {
		what, want string
		asked      int // how often a column's versions were read
		cells      []row.Cell
	}{
		{"no delete", "", 0, []row.Cell{put}},
		{"a full column", "full@4 ", 1, []row.Cell{del("full", 7)}},
		{"a column with room", "", 1, []row.Cell{del("few", 7)}},
		{"a version that is not there", "", 1, []row.Cell{del("full", 8)}},
		{"a surplus version", "full@4 ", 1, []row.Cell{del("full", 3)}},
		{"several of one column", "full@4 ", 1, []row.Cell{del("full", 9), del("full", 8), del("full", 7)}},
		{"one that is not there, and one that is", "full@4 ", 1, []row.Cell{del("full", 8), del("full", 7)}},
		{"several columns", "b@29 full@4 ", 3, []row.Cell{put, del("b", 40), del("few", 9), del("full", 9)}},
		{"a column that shows nothing", "", 1, []row.Cell{del("absent", 9), del("absent", 8)}},
	} {
		asked := 0
		m := row.Mutation{Cells: c.cells}
		err := mvcc.AddTrims(&m, func(column []byte) ([]int64, int, error) {
			asked++
			return shown[string(column)], 3, nil
		})
		got := ""
		for _, cell := range m.Cells[len(c.cells):] {
			if cell.Kind != row.KindTrim {
				t.Errorf("%s: added %s", c.what, cell.String())
			}
			got += fmt.Sprintf("%s@%d ", cell.Column, cell.Version)
		}
		if err != nil || got != c.want || asked != c.asked {
			t.Errorf("%s: trims %q after %d reads, %v, want %q after %d", c.what, got, asked, err, c.want, c.asked)
		}
	}
	failure := errors.New("damage")
	m := row.Mutation{Cells: []row.Cell{del("full", 7)}}
	if err := mvcc.AddTrims(&m, func([]byte) ([]int64, int, error) { return nil, 0, failure }); !errors.Is(err, failure) {
		t.Errorf("the error of a read is lost: %v", err)
	}
}
