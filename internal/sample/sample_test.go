package sample_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/sample"
	"github.com/flagstone-db/flagstone/row"
)

func numbered(n int, bytes int64) sample.Row {
	return sample.Row{Key: fmt.Appendf(nil, "%06d", n), Bytes: bytes, Version: int64(n)}
}

func sum(rows []sample.Row) (total int64) {
	for _, r := range rows {
		total += r.Bytes
	}
	return total
}

func ordered(rows []sample.Row) bool {
	return slices.IsSortedFunc(rows, func(a, b sample.Row) int { return bytes.Compare(a.Key, b.Key) })
}

func TestARowWeighsItsKeyItsCellsAndWhatTheyReferTo(t *testing.T) {
	cells := []row.Cell{
		{Column: []byte("ab"), Version: 5, Value: []byte("12345")},
		{Column: []byte("c"), Version: 9, Value: []byte("x")},
	}
	key := []byte("key")
	got := sample.Of(key, cells)
	if key[0] = 'x'; string(got.Key) != "key" || got.Bytes != 3+2+5+1+1 || got.Own != got.Bytes || got.Version != 9 {
		t.Errorf("%+v", got)
	}
	ref := row.Reference{File: 1, Offset: 8, Stored: 1000, Raw: 2000}
	cells[0].Separate, cells[0].Value = true, ref.Append(nil)
	got = sample.Of(key, cells)
	if want := int64(3 + 2 + len(cells[0].Value) + 1000 + 1 + 1); got.Bytes != want || got.Own != 3+2+2000+1+1 {
		t.Errorf("with a reference: %+v, want %d bytes", got, want)
	}
	if got := sample.Of(key, nil); got.Version != 0 || got.Bytes != 3 {
		t.Errorf("without cells: %+v", got)
	}
}

func TestASampleOfAllRowsStandsForAllBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []sample.Row
		for i := range rapid.IntRange(1, 300).Draw(t, "rows") {
			rows = append(rows, numbered(i, rapid.Int64Range(1, 1000).Draw(t, "bytes")))
		}
		n := rapid.IntRange(1, 40).Draw(t, "n")
		size := rapid.Int64Range(1, 2).Draw(t, "factor") * sum(rows)
		got := sample.OfAll(slices.Values(rows), n, size)
		if len(got) > 2*n || len(got) < min(n, len(rows)) || len(rows) < 2*n && len(got) != len(rows) || !ordered(got) {
			t.Fatalf("%d rows of %d, asked for %d, ordered %v", len(got), len(rows), n, ordered(got))
		}
		if total := sum(got); total < size-int64(len(got)) || total > size+int64(len(got)) {
			t.Fatalf("the sample stands for %d of %d bytes", total, size)
		}
		for _, r := range got {
			if want := rows[r.Version]; !bytes.Equal(r.Key, want.Key) {
				t.Fatalf("%q is no row", r.Key)
			}
		}
	})
}

func TestALargeRowIsChosenRatherThanItsNeighbours(t *testing.T) {
	var rows []sample.Row
	for i := range 1000 {
		size := int64(10)
		if i%25 == 7 {
			size = 100_000
		}
		rows = append(rows, numbered(i, size))
	}
	var large int64
	got := sample.OfAll(slices.Values(rows), 100, sum(rows))
	for _, r := range got {
		if r.Version%25 == 7 {
			large += r.Bytes
		}
	}
	if large < sum(rows)*9/10 {
		t.Errorf("the large rows have %d of %d bytes", large, sum(rows))
	}
}

// table is a model of a table: rows in order, with an anchor after each step bytes.
type table struct {
	rows []sample.Row
	step int64
}

func (m table) anchors() iter.Seq2[[]byte, int64] {
	return func(yield func([]byte, int64) bool) {
		var since int64
		for _, r := range m.rows {
			if since += r.Bytes; since >= m.step {
				if !yield(r.Key, since) {
					return
				}
				since = 0
			}
		}
	}
}

func (m table) before(place []byte, since, apart int64, many bool) ([]sample.Row, error) {
	return sample.Before(func(yield func(sample.Row) bool) {
		for _, r := range slices.Backward(m.rows) {
			if bytes.Compare(r.Key, place) <= 0 && !yield(r) {
				return
			}
		}
	}, since, apart, many), nil
}

func TestPlacesAreSpreadOverTheBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := table{step: 100}
		large := rapid.IntRange(1, 30).Draw(t, "large")
		for i := range rapid.IntRange(200, 1000).Draw(t, "rows") {
			size := int64(10)
			if i%37 < large && i%37 > 5 {
				size = rapid.Int64Range(10, 3000).Draw(t, "bytes")
			}
			m.rows = append(m.rows, numbered(i, size))
		}
		n, size := rapid.IntRange(2, 20).Draw(t, "n"), sum(m.rows)
		got, err := sample.At(m.anchors(), n, size, m.step, m.before)
		if err != nil || !ordered(got) {
			t.Fatalf("ordered %v, %v", ordered(got), err)
		}
		// What comes after the last place is less than the distance, and no row stands for it.
		rest := size/int64(n) + m.step + int64(len(got))
		if total := sum(got); total < size-rest || total > size+int64(len(got)) {
			t.Fatalf("%d places stand for %d of %d bytes", len(got), total, size)
		}
		for i := range got {
			if i > 0 && bytes.Equal(got[i-1].Key, got[i].Key) {
				t.Fatalf("%q twice", got[i].Key)
			}
		}
	})
}

func TestARowThatIsFoundTwiceIsJoined(t *testing.T) {
	m := table{step: 10, rows: []sample.Row{numbered(1, 10), numbered(2, 10), numbered(3, 10), numbered(4, 10)}}
	got, err := sample.At(m.anchors(), 4, 40, m.step, func(place []byte, since, _ int64, _ bool) ([]sample.Row, error) {
		return []sample.Row{{Key: []byte(strings.Repeat("a", int(place[5]-'0')%2+1)), Bytes: since}}, nil
	})
	if err != nil || len(got) != 2 || got[0].Bytes != 20 || got[1].Bytes != 20 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAPlaceWithoutRowsAddsToTheNextOne(t *testing.T) {
	m := table{step: 10, rows: []sample.Row{numbered(1, 10), numbered(2, 10), numbered(3, 10)}}
	var asked []int64
	got, err := sample.At(m.anchors(), 3, 30, m.step, func(place []byte, since, _ int64, many bool) ([]sample.Row, error) {
		if asked = append(asked, since); len(asked) == 1 {
			return nil, nil
		}
		if many != (since >= 20) {
			t.Errorf("%d bytes are many: %v", since, many)
		}
		return []sample.Row{{Key: place, Bytes: since}}, nil
	})
	if err != nil || !slices.Equal(asked, []int64{10, 20, 10}) || len(got) != 2 || sum(got) != 30 {
		t.Errorf("asked for %v, got %v, %v", asked, got, err)
	}
	failure := errors.New("damage")
	if _, err := sample.At(m.anchors(), 3, 30, m.step, func([]byte, int64, int64, bool) ([]sample.Row, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("the error of a read is lost: %v", err)
	}
}
