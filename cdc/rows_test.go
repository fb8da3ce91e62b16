package cdc

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// cellsOf are the cells of a change, as a reader finds them.
func cellsOf(t interface{ Fatal(...any) }, c *row.Change) []row.Cell {
	var m row.Mutation
	if err := c.Mutation(&m); err != nil {
		t.Fatal(err)
	}
	return m.Cells
}

// stored makes the cells of a row of a change log, and checks the bound of each entry's size.
func stored(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, shard, seq uint64, micros int64, entries ...Entry) (cells []row.Cell) {
	for _, e := range entries {
		c := e.Change(7, shard, seq, micros)
		if size := memtable.EstimateSize(c); size > e.Size() {
			t.Fatalf("an entry takes %d bytes, the bound is %d", size, e.Size())
		}
		key, err := row.DecodeKey(c.Key, 2)
		if err != nil || c.Table != 7 || key[0].Int64() != int64(shard) || key[1].Int64() != int64(seq) {
			t.Fatalf("table %d, key %v, %v", c.Table, key, err)
		}
		for _, cell := range cellsOf(t, c) {
			if cell.Version != max(micros/1000, 0) {
				t.Fatalf("version %d of a commit at %d us", cell.Version, micros)
			}
			cells = append(cells, cell)
		}
	}
	return cells
}

func TestARowOfTheLogSaysWhatTheChangeDid(t *testing.T) {
	packed := []byte(strings.Repeat("packed ", 100))
	rapid.Check(t, func(t *rapid.T) {
		key, err := row.AppendKey(nil, 2, row.String("k"), row.Integer(5))
		if err != nil {
			t.Fatal(err)
		}
		c := &row.Change{Table: 3, Key: key}
		c.DeleteRow = rapid.Bool().Draw(t, "delete")
		c.PutRow = c.DeleteRow && rapid.Bool().Draw(t, "put row")
		var want []row.Cell
		wrote := false
		for _, column := range []string{"a", "b", "c", "d"} {
			switch rapid.IntRange(0, 4).Draw(t, column) {
			case 0: // a trim of the engine
				err = c.Add(column, 1000, row.KindTrim)
			case 1: // a delete of the column
				err = c.Add(column, row.MaxVersion, row.KindTrim)
				want = append(want, row.Cell{Column: []byte(column), Version: row.MaxVersion, Kind: row.KindTrim})
			case 2:
				err = c.Put(column, 1000, row.String("v"))
				want, wrote = append(want, put(column, 1000, row.String("v"))), true
			case 3:
				if !valuefile.PackTo(packed, func(packed []byte) { err = c.PutPacked(column, 1000, row.TypeBinary, packed) }) {
					t.Fatal("the value is not packed")
				}
				want, wrote = append(want, put(column, 1000, row.Binary(packed))), true
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Normalize(); err != nil {
			t.Fatal(err)
		}
		seq, micros := rapid.Uint64Range(1, 1<<40).Draw(t, "seq"), rapid.Int64Range(-5, 1<<50).Draw(t, "time")
		entries := []Entry{NewRecord(c)}
		before := []row.Cell{put("a", 1, row.Integer(7))}
		if rapid.Bool().Draw(t, "before") {
			b, err := AppendBefore(nil, before)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, NewBefore(b))
		} else {
			before = nil
		}
		r, err := ReadRow(Key(2, seq), stored(t, 2, seq, micros, entries...), 2)
		if err != nil {
			t.Fatal(err)
		}
		action := Update
		if c.DeleteRow {
			if action = Delete; c.PutRow || wrote {
				action = Put
			}
		}
		if r.Sequence != seq || r.Micros != micros || r.Action != action || r.Key[0].Text() != "k" || r.Key[1].Int64() != 5 ||
			show(r.Cells) != show(want) || show(r.Before) != show(before) {
			t.Fatalf("read %+v, want action %d, %s, before %s", r, action, show(want), show(before))
		}
	})
}

// TestALongRecordIsStoredInPieces: pieces are of 4 MiB, and only the last is shorter.
func TestALongRecordIsStoredInPieces(t *testing.T) {
	for _, size := range []int{0, 1, 1 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1, 9 << 20} {
		before := bytes.Repeat([]byte("x"), size)
		cells := stored(t, 1, 1, 5000, NewBefore(before))
		if want := max((size+4<<20-1)/(4<<20), 1); len(cells) != want {
			t.Fatalf("%d bytes are in %d pieces, want %d", size, len(cells), want)
		}
		var joined []byte
		for i, c := range cells {
			if want := string([]byte{'b', '0', '0' + byte(i)}); string(c.Column) != want {
				t.Errorf("piece %d is in column %q", i, c.Column)
			}
			joined = append(joined, c.Value...)
		}
		carrier, err := Carry(7, before)
		if err != nil {
			t.Fatal(err)
		}
		carried, err := Carried(carrier)
		if err != nil || !bytes.Equal(carried, before) || !bytes.Equal(joined, before) {
			t.Errorf("%d bytes: %d are carried, %d stored, %v", size, len(carried), len(joined), err)
		}
	}
}

func TestADamagedRowIsReported(t *testing.T) {
	key, err := row.AppendKey(nil, 1, row.String("k"))
	if err != nil {
		t.Fatal(err)
	}
	c := row.Change{Key: key}
	if err := c.PutPacked("c", 1, row.TypeBinary, []byte("no packed value")); err != nil {
		t.Fatal(err)
	}
	good := appendRecord(nil, change(t, put("a", 1, row.Integer(5))))
	for what, cells := range map[string][]row.Cell{
		"no cells":                  nil,
		"a record cut short":        {put("r00", 1, row.Binary(good[:len(good)-1]))},
		"a packed value":            {put("r00", 1, row.Binary(appendRecord(nil, &c)))},
		"what the columns held":     {put("b00", 1, row.Binary([]byte{9})), put("r00", 1, row.Binary(good))},
		"a key of too few columns":  {put("r00", 1, row.Binary(good))},
		"only what the columns had": {put("b00", 1, row.Binary([]byte{2, 0}))},
	} {
		columns := 1
		if strings.Contains(what, "too few") {
			columns = 2
		}
		if _, err := ReadRow(Key(0, 7), cells, columns); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestTheFirstRowSinceATimeIsFound(t *testing.T) {
	failure := errors.New("damage")
	rapid.Check(t, func(t *rapid.T) {
		var rows []Row
		seq, micros := uint64(0), int64(100)
		for range rapid.IntRange(0, 30).Draw(t, "rows") {
			seq += rapid.Uint64Range(1, 10).Draw(t, "seq")
			micros += rapid.Int64Range(0, 3).Draw(t, "time")
			rows = append(rows, Row{Sequence: seq, Micros: micros})
		}
		last := seq + rapid.Uint64Range(0, 5).Draw(t, "behind")
		since := rapid.Int64Range(95, 200).Draw(t, "since")
		fail := rapid.IntRange(-20, 5).Draw(t, "fail")
		calls := 0
		got, err := FirstSince(since, last, func(after uint64) (*Row, error) {
			if calls++; calls == fail {
				return nil, failure
			}
			for i := range rows {
				if rows[i].Sequence > after {
					return &rows[i], nil
				}
			}
			return nil, nil
		})
		if fail > 0 && calls >= fail {
			if !errors.Is(err, failure) {
				t.Fatalf("the error of call %d is lost: %v", fail, err)
			}
			return
		}
		var want *Row
		for i := range rows {
			if want == nil && rows[i].Micros >= since {
				want = &rows[i]
			}
		}
		if err != nil || got != want {
			t.Fatalf("since %d: %v, %v, want %v of %v", since, got, err, want, rows)
		}
	})
}

func TestTheTableOfALogIsHidden(t *testing.T) {
	before := []string{"c"}
	table := NewTable(9, 4, manifest.ChangeLog{Of: 8, After: 100, Before: before}, 3600, 5000, []byte("note"))
	before[0] = "changed"
	if !strings.HasPrefix(table.Name, HiddenPrefix) || table.ID != 9 || table.Log.Of != 8 || table.Log.Before[0] != "c" ||
		table.Partitions[0].ID != 4 || table.Partitions[0].FlushedSeq != 100 || table.Options.TTLSeconds != 3600 || table.CreatedMillis != 5000 {
		t.Errorf("%+v", table)
	}
}
