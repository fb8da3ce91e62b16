package plainbuffer

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/server/otspb"
)

// vector is one entry of testdata/plainbuffer_vectors.json: bytes and their meaning.
type vector struct {
	ID, Kind, Hex string
	Length        int
	Decoded       json.RawMessage
}

type vectorRow struct {
	PrimaryKey   []vectorCell `json:"primary_key"`
	Cells        []vectorCell
	DeleteMarker bool             `json:"delete_marker"`
	Extension    *vectorExtension // of stream records
	Trailing     int              `json:"trailing_bytes"`
}

type vectorExtension struct {
	Epoch     int32
	Timestamp int64
	RowIndex  int32 `json:"row_index"`
}

type vectorCell struct {
	Name, Type, Op string
	Value          json.RawMessage
	Hex            string `json:"value_hex"`
	Timestamp      *int64
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/plainbuffer_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func (v *vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil || len(b) != v.Length {
		t.Fatalf("%s: %d bytes of %d: %v", v.ID, len(b), v.Length, err)
	}
	return b
}

func (c *vectorCell) value(t testing.TB) row.Value {
	t.Helper()
	text := string(c.Value)
	if unquoted := ""; json.Unmarshal(c.Value, &unquoted) == nil {
		text = unquoted // numbers that a double cannot hold are quoted
	}
	switch c.Type {
	case "":
		return row.Value{}
	case "INTEGER":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return row.Integer(n)
	case "DOUBLE":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return row.Double(f)
	case "BOOLEAN":
		return row.Boolean(text == "true")
	case "STRING":
		return row.String(text)
	case "BINARY":
		b, err := hex.DecodeString(c.Hex)
		if err != nil {
			t.Fatal(err)
		}
		return row.Binary(b)
	case "INF_MIN":
		return row.Min()
	case "INF_MAX":
		return row.Max()
	}
	t.Fatalf("unknown type %q", c.Type)
	return row.Value{}
}

func (v *vectorRow) row(t testing.TB) ots.Row {
	t.Helper()
	r := ots.Row{DeleteMarker: v.DeleteMarker}
	for _, c := range v.PrimaryKey {
		if c.Type == "AUTO_INCREMENT" {
			r.Key = append(r.Key, ots.KeyValue{Name: c.Name, AutoIncrement: true})
			continue
		}
		r.Key = append(r.Key, ots.KeyValue{Name: c.Name, Value: c.value(t)})
	}
	ops := map[string]ots.CellOp{"": ots.OpPut, "DELETE_ALL_VERSION": ots.OpDeleteAllVersion,
		"DELETE_ONE_VERSION": ots.OpDeleteOneVersion, "INCREMENT": ots.OpIncrement}
	for _, c := range v.Cells {
		cell := ots.Cell{Name: c.Name, Value: c.value(t), Op: ops[c.Op]}
		if c.Timestamp != nil {
			cell.Version, cell.HasVersion = *c.Timestamp, true
		}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

func equalRows(a, b *ots.Row) bool {
	return a.DeleteMarker == b.DeleteMarker &&
		slices.EqualFunc(a.Key, b.Key, func(x, y ots.KeyValue) bool {
			return x.Name == y.Name && x.AutoIncrement == y.AutoIncrement && x.Value.Equal(y.Value)
		}) &&
		slices.EqualFunc(a.Cells, b.Cells, func(x, y ots.Cell) bool {
			return x.Name == y.Name && x.Op == y.Op && x.Version == y.Version &&
				x.HasVersion == y.HasVersion && x.Value.Equal(y.Value)
		})
}

func TestEveryVectorDecodesToItsMeaningAndEncodesToItsBytes(t *testing.T) {
	vectors := loadVectors(t)
	if len(vectors) != 27 {
		t.Fatalf("%d vectors, want 27", len(vectors))
	}
	for i := range vectors {
		v := &vectors[i]
		t.Run(v.ID, func(t *testing.T) {
			b := v.bytes(t)
			switch v.Kind {
			case "variant_value":
				checkVariant(t, v, b)
			case "filter":
				checkFilter(t, v, b)
			case "matrix":
				checkMatrix(t, v, b)
			case "get_range_rows":
				var want struct{ Rows []vectorRow }
				unmarshal(t, v.Decoded, &want)
				checkRows(t, b, want.Rows...)
			default:
				var want vectorRow
				unmarshal(t, v.Decoded, &want)
				checkRows(t, b[:len(b)-want.Trailing], want)
				if want.Extension == nil {
					checkSingleRow(t, b, &want)
				}
			}
		})
	}
}

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func checkRows(t *testing.T, b []byte, want ...vectorRow) {
	t.Helper()
	rows, exts, err := DecodeRows(b)
	if err != nil || len(rows) != len(want) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	encoded := AppendHeader(nil)
	for i := range rows {
		wantRow := want[i].row(t)
		if !equalRows(&rows[i], &wantRow) {
			t.Errorf("row %d:\n got %+v\nwant %+v", i, rows[i], wantRow)
		}
		var wantExt *Extension
		if e := want[i].Extension; e != nil {
			ext := Extension(*e)
			wantExt = &ext
		}
		if (exts[i] == nil) != (wantExt == nil) || wantExt != nil && *exts[i] != *wantExt {
			t.Errorf("extension %+v, want %+v", exts[i], wantExt)
		}
		encoded = AppendRow(encoded, &wantRow, wantExt)
	}
	if string(encoded) != string(b) {
		t.Errorf("encoded:\n got %x\nwant %x", encoded, b)
	}
}

func checkSingleRow(t *testing.T, b []byte, want *vectorRow) {
	t.Helper()
	r, err := DecodeRow(b)
	wantRow := want.row(t)
	if err != nil || !equalRows(&r, &wantRow) {
		t.Errorf("single row:\n got %+v, %v\nwant %+v", r, err, wantRow)
	}
	if size := RowSize(&r) + 4; size < len(b)-want.Trailing {
		t.Errorf("RowSize says %d, the encoding has %d bytes", size, len(b)-want.Trailing)
	}
}

func checkVariant(t *testing.T, v *vector, b []byte) {
	t.Helper()
	var want vectorCell
	unmarshal(t, v.Decoded, &want)
	got, err := DecodeVariant(b)
	if err != nil || !got.Equal(want.value(t)) {
		t.Errorf("got %s, %v", got, err)
	}
	if enc := AppendVariant(nil, want.value(t)); string(enc) != string(b) {
		t.Errorf("encoded %x", enc)
	}
}

type vectorFilter struct {
	Type, Comparator, Combinator string
	ColumnName                   string         `json:"column_name"`
	ColumnValue                  vectorCell     `json:"column_value"`
	FilterIfMissing              bool           `json:"filter_if_missing"`
	LatestVersionOnly            bool           `json:"latest_version_only"`
	SubFilters                   []vectorFilter `json:"sub_filters"`
	Offset, Limit                int32
}

// message builds the protobuf message of the filter.
func (f *vectorFilter) message(t *testing.T) *otspb.Filter {
	t.Helper()
	var inner proto.Message
	switch f.Type {
	case "FT_SINGLE_COLUMN_VALUE":
		inner = &otspb.SingleColumnValueFilter{
			Comparator:        otspb.ComparatorType(otspb.ComparatorType_value[f.Comparator]).Enum(),
			ColumnName:        &f.ColumnName,
			ColumnValue:       AppendVariant(nil, f.ColumnValue.value(t)),
			FilterIfMissing:   &f.FilterIfMissing,
			LatestVersionOnly: &f.LatestVersionOnly,
		}
	case "FT_COMPOSITE_COLUMN_VALUE":
		composite := &otspb.CompositeColumnValueFilter{
			Combinator: otspb.LogicalOperator(otspb.LogicalOperator_value[f.Combinator]).Enum(),
		}
		for i := range f.SubFilters {
			composite.SubFilters = append(composite.SubFilters, f.SubFilters[i].message(t))
		}
		inner = composite
	case "FT_COLUMN_PAGINATION":
		inner = &otspb.ColumnPaginationFilter{Offset: &f.Offset, Limit: &f.Limit}
	default:
		t.Fatalf("unknown filter type %q", f.Type)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(inner)
	if err != nil {
		t.Fatal(err)
	}
	return &otspb.Filter{Type: otspb.FilterType(otspb.FilterType_value[f.Type]).Enum(), Filter: b}
}

func checkFilter(t *testing.T, v *vector, b []byte) {
	t.Helper()
	var want vectorFilter
	unmarshal(t, v.Decoded, &want)
	var got otspb.Filter
	if err := proto.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	message := want.message(t)
	if !proto.Equal(&got, message) {
		t.Errorf("got %v, want %v", &got, message)
	}
}

func checkMatrix(t *testing.T, v *vector, b []byte) {
	t.Helper()
	var want struct {
		Keys []string `json:"columns_pk"`
		Attr []string `json:"columns_attr"`
		Rows [][]any
	}
	unmarshal(t, v.Decoded, &want)
	var rows []ots.Row
	for _, fields := range want.Rows {
		var r ots.Row
		for i, f := range fields {
			var val row.Value
			switch f := f.(type) {
			case nil:
				continue
			case string:
				val = row.String(f)
			case bool:
				val = row.Boolean(f)
			case float64:
				if val = row.Double(f); i < len(want.Keys) {
					val = row.Integer(int64(math.Round(f)))
				}
			}
			if i < len(want.Keys) {
				r.Key = append(r.Key, ots.KeyValue{Name: want.Keys[i], Value: val})
			} else {
				r.Cells = append(r.Cells, ots.Cell{Name: want.Attr[i-len(want.Keys)], Value: val})
			}
		}
		rows = append(rows, r)
	}
	enc, ok := AppendMatrix(nil, rows, true, len(b))
	if !ok || string(enc) != string(b) {
		t.Errorf("encoded:\n got %x\nwant %x", enc, b)
	}
	if enc, ok := AppendMatrix([]byte("before"), rows, true, len(b)-1); ok || string(enc) != "before" {
		t.Errorf("a block of %d bytes was made where %d are allowed", len(b), len(b)-1)
	}
	// Older versions of a column must be left out.
	rows[0].Cells = append(rows[0].Cells, ots.Cell{Name: "a", Value: row.Double(9)})
	if enc, _ := AppendMatrix([]byte("before"), rows, true, len(b)); string(enc) != "before"+string(b) {
		t.Errorf("with an older version:\n got %x\nwant %x", enc, b)
	}
}
