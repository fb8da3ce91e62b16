package server

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

// filterBytes encodes a filter node of type t around the message m.
func filterBytes(t otspb.FilterType, m proto.Message) []byte {
	inner, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	b, err := proto.Marshal(&otspb.Filter{Type: &t, Filter: inner})
	if err != nil {
		panic(err)
	}
	return b
}

func compositeBytes(op otspb.LogicalOperator, subs ...[]byte) []byte {
	m := &otspb.CompositeColumnValueFilter{Combinator: &op}
	for _, b := range subs {
		sub := new(otspb.Filter)
		if err := proto.Unmarshal(b, sub); err != nil {
			panic(err)
		}
		m.SubFilters = append(m.SubFilters, sub)
	}
	return filterBytes(otspb.FilterType_FT_COMPOSITE_COLUMN_VALUE, m)
}

func comparison(change func(*otspb.SingleColumnValueFilter)) []byte {
	m := &otspb.SingleColumnValueFilter{
		Comparator: otspb.ComparatorType_CT_EQUAL.Enum(), ColumnName: ptr("c"), ColumnValue: []byte{2, 1},
		FilterIfMissing: ptr(true), LatestVersionOnly: ptr(false),
	}
	change(m)
	return filterBytes(otspb.FilterType_FT_SINGLE_COLUMN_VALUE, m)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestFiltersDecode(t *testing.T) {
	first := &ots.Filter{Type: ots.FilterSingleColumn, Comparator: ots.CompareEqual, Column: "Col0", Value: row.Integer(0), FilterIfMissing: true, LatestVersionOnly: true}
	second := &ots.Filter{Type: ots.FilterSingleColumn, Comparator: ots.CompareGreater, Column: "Col1", Value: row.String("abc"), LatestVersionOnly: true}
	leaf := ots.Filter{Type: ots.FilterSingleColumn, Comparator: ots.CompareEqual, Column: "c", Value: row.Boolean(true), FilterIfMissing: true}
	with := func(change func(*ots.Filter)) *ots.Filter { f := leaf; change(&f); return &f }
	cases := map[string]struct {
		bytes []byte
		want  *ots.Filter
	}{
		"none": {nil, nil},
		"a comparison, of the protocol's examples": {unhex("0801121708011204436f6c301a0900000000000000000020012801"), first},
		"a composite, of the protocol's examples": {
			unhex("0802123b0802121b0801121708011204436f6c301a0900000000000000000020012801121a0801121608031204436f6c311a08030300000061626320002801"),
			&ots.Filter{Type: ots.FilterComposite, Operator: ots.LogicalAnd, Subs: []*ots.Filter{first, second}}},
		"a pagination, of the protocol's examples": {testFilterBytes, testFilter},
		"presence, without a value": {comparison(func(m *otspb.SingleColumnValueFilter) {
			m.Comparator, m.ColumnValue = otspb.ComparatorType_CT_NOT_EXIST.Enum(), []byte{}
		}), with(func(f *ots.Filter) { f.Comparator, f.Value = ots.CompareNotExists, row.Value{} })},
	}
	for kind, want := range map[otspb.VariantType]row.Type{
		otspb.VariantType_VT_INTEGER: row.TypeInteger, otspb.VariantType_VT_DOUBLE: row.TypeDouble,
		otspb.VariantType_VT_STRING: row.TypeString, otspb.VariantType_VT_BLOB: row.TypeNone,
	} {
		c := cases[kind.String()]
		c.bytes = comparison(func(m *otspb.SingleColumnValueFilter) {
			m.ValueTransRule = &otspb.ValueTransferRule{Regex: ptr("x"), CastType: &kind}
		})
		c.want = with(func(f *ots.Filter) { f.Transfer = &ots.ValueTransferRule{Regex: "x", Cast: want} })
		cases["cast to "+kind.String()] = c
	}
	for name, c := range cases {
		got, err := decodeFilter(c.bytes)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestBrokenFiltersAreRefusedBeforeTheyCostMuch(t *testing.T) {
	const broken, tooMany = "Deserialize filter failed", "The count of filter exceeds the max: 32."
	leaf := comparison(func(*otspb.SingleColumnValueFilter) {})
	nested := func(composites int) []byte {
		b := leaf
		for range composites {
			b = compositeBytes(otspb.LogicalOperator_LO_NOT, b)
		}
		return b
	}
	wide := func(leaves int) []byte {
		subs := make([][]byte, leaves)
		for i := range subs {
			subs[i] = leaf
		}
		return compositeBytes(otspb.LogicalOperator_LO_AND, subs...)
	}
	empties := make([]byte, 2_000_000) // a million sub-filters of no bytes
	for i := 0; i < len(empties); i += 2 {
		empties[i] = 0x12
	}
	kind := otspb.FilterType_FT_COMPOSITE_COLUMN_VALUE
	million, err := proto.Marshal(&otspb.Filter{Type: &kind, Filter: append([]byte{8, 2}, empties...)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bytes   []byte
		message string
	}{
		"garbage":                           {[]byte{0xff}, broken},
		"unknown type":                      {[]byte{0x08, 0x09, 0x12, 0x00}, broken},
		"nothing within":                    {[]byte{0x08, 0x01, 0x12, 0x00}, broken},
		"pagination without a limit":        {[]byte{0x08, 0x03, 0x12, 0x02, 0x08, 0x01}, broken},
		"composite without operator":        {[]byte{0x08, 0x02, 0x12, 0x00}, broken},
		"broken within a composite":         {[]byte{0x08, 0x02, 0x12, 0x04, 0x08, 0x02, 0x12, 0x09}, broken},
		"unknown comparator":                {comparison(func(m *otspb.SingleColumnValueFilter) { m.Comparator = otspb.ComparatorType(9).Enum() }), broken},
		"a value cut short":                 {comparison(func(m *otspb.SingleColumnValueFilter) { m.ColumnValue = []byte{0, 1} }), broken},
		"no value":                          {comparison(func(m *otspb.SingleColumnValueFilter) { m.ColumnValue = []byte{} }), broken},
		"a placeholder for a value":         {comparison(func(m *otspb.SingleColumnValueFilter) { m.ColumnValue = []byte{0x0B} }), broken},
		"a name that is no UTF-8":           {comparison(func(m *otspb.SingleColumnValueFilter) { m.ColumnName = ptr("\xff") }), broken},
		"an operator that is one in 8 bits": {filterBytes(otspb.FilterType_FT_COMPOSITE_COLUMN_VALUE, &otspb.CompositeColumnValueFilter{Combinator: otspb.LogicalOperator(257).Enum()}), broken},
		"as deep as may be":                 {nested(31), ""},
		"deeper":                            {nested(32), tooMany},
		"far deeper":                        {nested(2000), tooMany},
		"as wide as may be":                 {wide(31), ""},
		"wider":                             {wide(32), tooMany},
		"a million of nothing within":       {million, tooMany},
	} {
		_, err := decodeFilter(c.bytes)
		got := ""
		if e, ok := err.(*ots.Error); ok {
			got = e.Message
		}
		if got != c.message {
			t.Errorf("%s: got %v, want %q", name, err, c.message)
		}
	}
	allocated := testing.AllocsPerRun(5, func() { _, _ = decodeFilter(million) })
	if allocated > 50 {
		t.Errorf("a million of nothing took %v pieces of memory", allocated)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(testFilterBytes)
	f.Add(unhex("0802123b0802121b0801121708011204436f6c301a0900000000000000000020012801121a0801121608031204436f6c311a08030300000061626320002801"))
	f.Fuzz(func(t *testing.T, b []byte) {
		filter, err := decodeFilter(b)
		if err != nil || filter == nil {
			return
		}
		nodes := 0
		var count func(*ots.Filter)
		count = func(f *ots.Filter) {
			nodes++
			for _, sub := range f.Subs {
				count(sub)
			}
		}
		count(filter)
		if nodes > ots.MaxFilterNodes {
			t.Fatalf("%d nodes", nodes)
		}
	})
}

// TestABatchOfManyTableEntriesIsRefusedBeforeItsFiltersAreDecoded sends entries without rows,
// each with a filter.
func TestABatchOfManyTableEntriesIsRefusedBeforeItsFiltersAreDecoded(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.BatchGetRowResponse{})
	filter := comparison(func(m *otspb.SingleColumnValueFilter) {
		m.ValueTransRule = &otspb.ValueTransferRule{Regex: ptr("(a{1,100}){1,9}")}
	})
	gets, writes := &otspb.BatchGetRowRequest{}, &otspb.BatchWriteRowRequest{}
	for range 3000 {
		gets.Tables = append(gets.Tables, &otspb.TableInBatchGetRowRequest{TableName: ptr("t"), MaxVersions: ptr(int32(1)), Filter: filter})
		writes.Tables = append(writes.Tables, &otspb.TableInBatchWriteRowRequest{TableName: ptr("t"), Rows: []*otspb.RowInBatchWriteRowRequest{{
			Type: otspb.OperationType_PUT.Enum(), RowChange: blob(testKeyRow),
			Condition: &otspb.Condition{RowExistence: otspb.RowExistenceExpectation_IGNORE.Enum(), ColumnCondition: filter},
		}}})
	}
	for op, m := range map[string]proto.Message{"BatchGetRow": gets, "BatchWriteRow": writes} {
		if status, code, text := callRefused(t, s, op, m); code != ots.CodeParameterInvalid || !strings.HasPrefix(text, "Rows count exceeds") {
			t.Errorf("%s: %d %s %q", op, status, code, text)
		}
	}
	if n := fake.calls.Load(); n != 0 {
		t.Errorf("the service was called %d times", n)
	}
}

func TestEqualFiltersOfARequestAreOne(t *testing.T) {
	s, fake := newTestServer(t, nil)
	fake.answer(&ots.BatchGetRowResponse{Tables: make([]ots.TableReadResults, 3)})
	other := comparison(func(m *otspb.SingleColumnValueFilter) { m.ColumnName = ptr("d") })
	gets := &otspb.BatchGetRowRequest{}
	for _, filter := range [][]byte{testFilterBytes, other, testFilterBytes} {
		gets.Tables = append(gets.Tables, &otspb.TableInBatchGetRowRequest{TableName: ptr("t"), MaxVersions: ptr(int32(1)), Filter: filter})
	}
	call(t, s, "BatchGetRow", gets, &otspb.BatchGetRowResponse{})
	got := fake.lastRequest().(*ots.BatchGetRowRequest).Tables
	if got[0].Filter != got[2].Filter || got[0].Filter == got[1].Filter {
		t.Errorf("filters %p, %p, %p", got[0].Filter, got[1].Filter, got[2].Filter)
	}
}
