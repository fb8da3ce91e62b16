package row

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// compareTuples orders tuples as the documentation says, without encoding them. It returns 0 if
// one is a prefix of the other.
func compareTuples(a, b []Value) int {
	for i := range min(len(a), len(b)) {
		if c := compareColumn(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func compareColumn(v, w Value) int {
	rank := func(v Value) int {
		return map[Type]int{TypeMin: 0, TypeInteger: 1, TypeString: 2, TypeBinary: 3, TypeMax: 4}[v.Type()]
	}
	if c := cmp.Compare(rank(v), rank(w)); c != 0 {
		return c
	}
	if v.Type() == TypeInteger {
		return cmp.Compare(v.Int64(), w.Int64())
	}
	return bytes.Compare(v.Bytes(), w.Bytes())
}

// drawBytes prefers bytes that are hard to encode: zeros, FF, shared prefixes, nothing.
func drawBytes(t *rapid.T, label string) []byte {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 0x01, 'a', 0xFE, 0xFF}), 0, 5).Draw(t, label)
}

func drawColumn(t *rapid.T, typ Type, label string) Value {
	switch typ {
	case TypeInteger:
		return Integer(rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{
			math.MinInt64, math.MinInt64 + 1, -256, -1, 0, 1, 255, 256, math.MaxInt64,
		})).Draw(t, label))
	case TypeString:
		return StringBytes(drawBytes(t, label))
	}
	return Binary(drawBytes(t, label))
}

func drawSchema(t *rapid.T) []Type {
	return rapid.SliceOfN(rapid.SampledFrom([]Type{TypeInteger, TypeString, TypeBinary}), 1, MaxKeyColumns).Draw(t, "schema")
}

func drawTuple(t *rapid.T, schema []Type, label string) []Value {
	var tuple []Value
	for _, typ := range schema {
		tuple = append(tuple, drawColumn(t, typ, label))
	}
	return tuple
}

// drawNear draws a tuple that shares some first columns with another one, so that the later
// columns decide.
func drawNear(t *rapid.T, schema []Type, other []Value, label string) []Value {
	shared := rapid.IntRange(0, len(schema)).Draw(t, label+" shared")
	return append(append([]Value(nil), other[:shared]...), drawTuple(t, schema[shared:], label)...)
}

func mustKey(t interface{ Fatalf(string, ...any) }, columns int, tuple ...Value) []byte {
	key, err := AppendKey(nil, columns, tuple...)
	if err != nil {
		t.Fatalf("AppendKey(%v): %v", tuple, err)
	}
	return key
}

func sameTuple(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Equal(b[i]) {
			return false
		}
	}
	return true
}

func TestKeysSortAsTheirTuples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t)
		a := drawTuple(t, schema, "a")
		b := drawNear(t, schema, a, "b")
		x, y := mustKey(t, len(schema), a...), mustKey(t, len(schema), b...)
		if got, want := bytes.Compare(x, y), compareTuples(a, b); got != want {
			t.Fatalf("keys %x and %x compare as %d, tuples %v and %v as %d", x, y, got, a, b, want)
		}
	})
}

func TestDecodeKeyInvertsAppendKeyAlsoForBoundsAndPartialTuples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t)
		tuple := drawTuple(t, schema, "tuple")
		for i := range tuple {
			switch rapid.IntRange(0, 5).Draw(t, "bound") {
			case 0:
				tuple[i] = Min()
			case 1:
				tuple[i] = Max()
			}
		}
		tuple = tuple[:rapid.IntRange(0, len(tuple)).Draw(t, "columns given")]
		key := mustKey(t, len(schema), tuple...)
		got, err := DecodeKey(key, len(schema))
		if err != nil || !sameTuple(got, tuple) {
			t.Fatalf("%v encodes as %x and decodes as %v, %v", tuple, key, got, err)
		}
	})
}

func TestAPartialTupleBoundsItsExtensionsAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t)
		a := drawTuple(t, schema, "a")
		n := rapid.IntRange(0, len(schema)-1).Draw(t, "columns given")
		bound := mustKey(t, len(schema), a[:n]...)
		above := Successor(bound)
		b := drawNear(t, schema, a, "b")
		key := mustKey(t, len(schema), b...)

		want := compareTuples(b, a[:n])
		inside := bytes.HasPrefix(key, bound)
		below := bytes.Compare(key, bound) < 0
		beyond := above != nil && bytes.Compare(key, above) >= 0
		if inside != (want == 0) || below != (want < 0) || beyond != (want > 0) {
			t.Fatalf("bound %x of %v, key %x of %v: inside %v, below %v, beyond %v, want order %d",
				bound, a[:n], key, b, inside, below, beyond, want)
		}
	})
}

func TestMinAndMaxBoundEveryValueAtEveryPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t)
		a := drawTuple(t, schema, "a")
		at := rapid.IntRange(0, len(schema)-1).Draw(t, "position")
		bound, order := Min(), -1
		if rapid.Bool().Draw(t, "maximum") {
			bound, order = Max(), 1
		}
		tuple := append(append([]Value(nil), a[:at]...), bound)
		tuple = append(tuple, drawTuple(t, schema[at+1:], "rest")...)
		tuple = tuple[:rapid.IntRange(at+1, len(tuple)).Draw(t, "columns given")]
		x, y := mustKey(t, len(schema), tuple...), mustKey(t, len(schema), a...)
		if got := bytes.Compare(x, y); got != order {
			t.Fatalf("bound %v (%x) compares as %d with %v (%x)", tuple, x, got, a, y)
		}
	})
}

func TestPartitionPrefixIsTheFirstColumn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := drawSchema(t)
		a := drawTuple(t, schema, "a")
		b := drawNear(t, schema, a, "b")
		x, okX := PartitionPrefix(mustKey(t, len(schema), a...), len(schema))
		y, okY := PartitionPrefix(mustKey(t, len(schema), b...), len(schema))
		if !okX || !okY {
			t.Fatalf("no prefix of %v or %v", a, b)
		}
		if want := mustKey(t, len(schema), a[0]); !bytes.Equal(x, want) {
			t.Fatalf("prefix of %v is %x, want %x", a, x, want)
		}
		if bytes.Equal(x, y) != a[0].Equal(b[0]) {
			t.Fatalf("%v and %v have the prefixes %x and %x", a, b, x, y)
		}
	})
}

func TestPartitionPrefixRefusesWhatIsNoKey(t *testing.T) {
	for _, key := range [][]byte{nil, {}, {0x00}, {0xFF}, {0x10, 1, 2}, {0x20, 'a'}, {0x20, 'a', 0x00}, {0x20, 0x00, 0x02}} {
		if prefix, ok := PartitionPrefix(key, 2); ok {
			t.Errorf("%x has the prefix %x", key, prefix)
		}
	}
}

func TestSuccessorIsTheSmallestKeyAboveAPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, want []byte }{
		{[]byte{}, nil},
		{[]byte{0x00}, []byte{0x01}},
		{[]byte{0x20, 0xFF}, []byte{0x21}},
		{[]byte{0xFF, 0xFF}, nil},
		{[]byte{'a', 0xFE, 0xFF, 0xFF}, []byte{'a', 0xFF}},
	} {
		prefix := bytes.Clone(c.prefix)
		if got := Successor(c.prefix); !bytes.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("Successor(%x) = %x, want %x", c.prefix, got, c.want)
		}
		if !bytes.Equal(prefix, c.prefix) {
			t.Errorf("Successor changed its argument %x", prefix)
		}
	}
}

func TestAppendKeyRefusesWhatIsNoKey(t *testing.T) {
	long := make([]byte, MaxKeyColumnBytes+1)
	for _, c := range []struct {
		name    string
		columns int
		tuple   []Value
	}{
		{"no columns", 0, nil},
		{"five columns", 5, nil},
		{"more values than columns", 1, []Value{Integer(1), Integer(2)}},
		{"double", 1, []Value{Double(1)}},
		{"boolean", 1, []Value{Boolean(true)}},
		{"no value", 1, []Value{{}}},
		{"long string", 1, []Value{StringBytes(long)}},
		{"long binary", 2, []Value{Binary(long)}},
	} {
		if key, err := AppendKey(nil, c.columns, c.tuple...); !errors.Is(err, ErrBadKey) {
			t.Errorf("%s: key %x, error %v", c.name, key, err)
		}
	}
}

func TestTheLongestKeyFitsTheLimit(t *testing.T) {
	zeros := Binary(make([]byte, MaxKeyColumnBytes))
	key := mustKey(t, MaxKeyColumns, zeros, zeros, zeros, zeros)
	// The last column is raw, so that even this key stays below the bound.
	if want := MaxKeyBytes - MaxKeyColumnBytes - 2; len(key) != want || MaxKeyBytes > math.MaxUint16 {
		t.Errorf("longest key has %d bytes, want %d of at most %d", len(key), want, MaxKeyBytes)
	}
	if _, err := DecodeKey(key, MaxKeyColumns); err != nil {
		t.Error(err)
	}
}

func TestDecodeKeyRefusesDamagedKeys(t *testing.T) {
	tooLong := append([]byte{tagString}, make([]byte, MaxKeyColumnBytes+1)...)
	for _, c := range []struct {
		name    string
		columns int
		key     []byte
	}{
		{"unknown tag", 1, []byte{0x11}},
		{"tag FF", 1, []byte{0xFF}},
		{"short integer", 1, []byte{tagInteger, 1, 2, 3, 4, 5, 6, 7}},
		{"bytes after the last column", 1, []byte{tagInteger, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"unterminated string", 2, []byte{tagString, 'a'}},
		{"string that ends in an escape", 2, []byte{tagString, 'a', 0x00}},
		{"unknown escape", 2, []byte{tagString, 'a', 0x00, 0x02}},
		{"long string", 1, tooLong},
		{"long escaped string", 2, append(bytes.Repeat([]byte{tagString}, MaxKeyColumnBytes+2), 0x00, 0x01)},
	} {
		if tuple, err := DecodeKey(c.key, c.columns); !errors.Is(err, ErrBadKey) {
			t.Errorf("%s: tuple %v, error %v", c.name, tuple, err)
		}
	}
}

func FuzzDecodeKey(f *testing.F) {
	for _, c := range goldenKeys {
		f.Add(mustKey(f, c.columns, c.tuple...), c.columns)
	}
	f.Add([]byte{tagString, 0x00, 0x02}, 2)
	f.Fuzz(func(t *testing.T, key []byte, columns int) {
		if columns < 1 || columns > MaxKeyColumns {
			return
		}
		tuple, err := DecodeKey(key, columns)
		if err != nil {
			if !errors.Is(err, ErrBadKey) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if again := mustKey(t, columns, tuple...); !bytes.Equal(again, key) {
			t.Fatalf("%x decodes as %v, which encodes as %x", key, tuple, again)
		}
		if prefix, ok := PartitionPrefix(key, columns); ok != (len(key) > 0) || !bytes.HasPrefix(key, prefix) {
			t.Fatalf("prefix of %x is %x, %v", key, prefix, ok)
		}
	})
}

func BenchmarkAppendKey(b *testing.B) {
	user := String("user-0123456789abcdef")
	for _, c := range []struct {
		name  string
		tuple []Value
	}{
		{"one string", []Value{user}},
		{"string, integer", []Value{user, Integer(1234567890)}},
		{"four columns", []Value{user, Integer(1), Binary([]byte{0, 1, 2, 3}), user}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 256)
			for b.Loop() {
				var err error
				if buf, err = AppendKey(buf[:0], len(c.tuple), c.tuple...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
