package row

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCollectedCellsAndTheirClonesAreCopies(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	var c Collector
	for range 2_000 {
		if rng.IntN(10) == 0 {
			c = Collector{}
		}
		c.Reset()
		var want []string
		for i := range rng.IntN(20) {
			cell := Cell{
				Column: fmt.Appendf(nil, "c%d", i/(1+rng.IntN(3))), Version: int64(i), Kind: KindPut, Type: TypeString,
				Value: []byte(strings.Repeat("v", rng.IntN(1+rng.IntN(200)))),
			}
			want = append(want, cell.String())
			if rng.IntN(3) == 0 {
				added := &c.Extend(1)[0]
				*added = cell
				added.Column, added.Value = c.Copy(cell.Column), c.Copy(cell.Value)
			} else {
				c.Add(&cell)
			}
			clear(cell.Column)
			clear(cell.Value)
		}
		var clone Collector
		key := CopyCells(&clone, c.Cells, []byte("key"))
		foreign := c
		if len(c.Cells) > 0 && rng.IntN(4) == 0 {
			// A cell that its owner has changed.
			foreign.Cells = append([]Cell(nil), c.Cells...)
			foreign.Cells[0].Value = []byte("elsewhere")
			clone = Collector{}
			key = CopyCells(&clone, foreign.Cells, []byte("key"))
			cell := c.Cells[0]
			cell.Value = foreign.Cells[0].Value
			want[0] = cell.String()
		}
		c.Reset()
		clear(c.Bytes(cap(c.bytes)))
		if len(clone.Cells) != len(want) || string(key) != "key" {
			t.Fatalf("%d cells of %q, want %d", len(clone.Cells), key, len(want))
		}
		for i := range want {
			if got := clone.Cells[i].String(); got != want[i] {
				t.Fatalf("cell %d is %s, want %s", i, got, want[i])
			}
			_ = append(clone.Cells[i].Value, 'x') // must not overwrite the next value
			_ = append(clone.Cells[i].Column, 'x')
		}
	}
}

func TestProjection(t *testing.T) {
	names := func(s ...string) (b [][]byte) {
		for _, n := range s {
			b = append(b, []byte(n))
		}
		return b
	}
	for _, test := range []struct {
		p    Projection
		want string
	}{
		{Projection{}, "abcd"},
		{Projection{Columns: names("b", "d", "x")}, "bd"},
		{Projection{Start: []byte("b"), End: []byte("d")}, "bc"},
		{Projection{Columns: names("a", "c"), Start: []byte("b")}, "c"},
		{Projection{End: []byte("a")}, ""},
	} {
		got := ""
		for _, n := range names("a", "b", "c", "d") {
			if test.p.Wants(n) {
				got += string(n)
			}
		}
		if got != test.want || test.p.All() != (got == "abcd") {
			t.Errorf("%+v wants %q, want %q", test.p, got, test.want)
		}
	}
}
