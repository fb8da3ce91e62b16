package row

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func drawAttribute(t *rapid.T, label string) Value {
	switch rapid.IntRange(1, 5).Draw(t, label+" type") {
	case 1:
		return Integer(rapid.Int64().Draw(t, label))
	case 2:
		return Double(math.Float64frombits(rapid.Uint64().Draw(t, label)))
	case 3:
		return Boolean(rapid.Bool().Draw(t, label))
	case 4:
		return StringBytes(drawBytes(t, label))
	}
	return Binary(drawBytes(t, label))
}

func TestPayloadValueInvertsAppendPayload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawAttribute(t, "value")
		payload := v.AppendPayload(nil)
		if len(payload) != v.Size() {
			t.Fatalf("%v has size %d and a payload of %d bytes", v, v.Size(), len(payload))
		}
		got, err := PayloadValue(v.Type(), payload)
		if err != nil || !got.Equal(v) {
			t.Fatalf("%v is stored as %x and read as %v, %v", v, payload, got, err)
		}
	})
}

func TestPayloadValueRefusesWhatItsTypeDoesNotAllow(t *testing.T) {
	for _, c := range []struct {
		typ     Type
		payload []byte
	}{
		{TypeInteger, nil}, {TypeInteger, make([]byte, 7)}, {TypeInteger, make([]byte, 9)},
		{TypeDouble, make([]byte, 4)},
		{TypeBoolean, nil}, {TypeBoolean, []byte{2}}, {TypeBoolean, []byte{1, 0}},
		{TypeNone, nil}, {TypeMin, nil}, {TypeMax, nil}, {6, nil}, {13, make([]byte, 8)},
	} {
		if v, err := PayloadValue(c.typ, c.payload); !errors.Is(err, ErrBadValue) {
			t.Errorf("%s of %x: value %v, error %v", c.typ, c.payload, v, err)
		}
	}
}

func TestAccessorsOfOtherTypesGiveZero(t *testing.T) {
	for _, v := range []Value{{}, Integer(7), Double(7), Boolean(true), String("7"), Binary([]byte("7")), Min(), Max()} {
		if got := v.Int64(); (got != 0) != (v.Type() == TypeInteger) {
			t.Errorf("Int64 of %v is %d", v, got)
		}
		if got := v.Float64(); (got != 0) != (v.Type() == TypeDouble) {
			t.Errorf("Float64 of %v is %g", v, got)
		}
		if got := v.Bool(); got != (v.Type() == TypeBoolean) {
			t.Errorf("Bool of %v is %v", v, got)
		}
		if got := v.Text(); (got != "") != (v.Type() == TypeString || v.Type() == TypeBinary) {
			t.Errorf("Text of %v is %q", v, got)
		}
	}
}

func TestEqualComparesTypesAndDoublesByTheirBits(t *testing.T) {
	nan := Double(math.NaN())
	if !nan.Equal(nan) {
		t.Error("a NaN differs from itself")
	}
	for _, pair := range [][2]Value{
		{Double(0), Double(math.Copysign(0, -1))},
		{Integer(1), Boolean(true)},
		{String("a"), Binary([]byte("a"))},
		{Min(), Max()},
		{{}, String("")},
	} {
		if pair[0].Equal(pair[1]) {
			t.Errorf("%s %v equals %s %v", pair[0].Type(), pair[0], pair[1].Type(), pair[1])
		}
	}
}

func TestACloneSharesNoMemory(t *testing.T) {
	data := []byte("abc")
	v := Binary(data)
	cell := Cell{Column: data, Kind: KindPut, Type: TypeBinary, Value: data}
	w, cellCopy := v.Clone(), cell.Clone()
	data[0] = 'x'
	if w.Text() != "abc" || v.Text() != "xbc" {
		t.Errorf("clone %v of %v", w, v)
	}
	if string(cellCopy.Column) != "abc" || string(cellCopy.Value) != "abc" {
		t.Errorf("clone %v", &cellCopy)
	}
}

func TestStringsForPeople(t *testing.T) {
	put := Cell{Column: []byte("c"), Version: 5, Seq: 9, Kind: KindPut, Type: TypeInteger, Value: Integer(7).AppendPayload(nil)}
	bad := put
	bad.Value = nil
	del := Cell{Version: MaxVersion, Seq: 3, Kind: KindDeleteRow}
	for _, c := range []struct{ got, want string }{
		{Integer(-1).String(), "-1"},
		{Double(2.5).String(), "2.5"},
		{Boolean(true).String(), "true"},
		{String("a\x00").String(), `"a\x00"`},
		{Binary([]byte{0xAB}).String(), "0xab"},
		{Min().String() + Max().String() + Value{}.String(), "minmaxnone"},
		{Type(9).String() + Kind(9).String(), "type(9)kind(9)"},
		{put.String(), "c@5#9:put=7"},
		{bad.String(), "c@5#9:put=?"},
		{del.String(), "@max#3:delete-row"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestKindsAndTypesAreClassed(t *testing.T) {
	for k := Kind(0); k < 8; k++ {
		valid := k >= 1 && k <= 5
		tombstone := k == KindDeleteRow || k == KindTrim || k == KindDeleteVersion
		rowLevel := k == KindDeleteRow || k == KindRowMarker
		if k.Valid() != valid || k.IsTombstone() != tombstone || k.IsRowLevel() != rowLevel {
			t.Errorf("%s: valid %v, tombstone %v, row level %v", k, k.Valid(), k.IsTombstone(), k.IsRowLevel())
		}
	}
	for typ := Type(0); typ < 16; typ++ {
		key := typ == TypeInteger || typ == TypeString || typ == TypeBinary
		attribute := typ >= TypeInteger && typ <= TypeBinary
		if typ.IsKeyType() != key || typ.IsAttributeType() != attribute {
			t.Errorf("%s: key type %v, attribute type %v", typ, typ.IsKeyType(), typ.IsAttributeType())
		}
	}
}
