package plainbuffer

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// TestCellsOfARequestAreBounded counts the cells of all rows of a request, key cells included.
func TestCellsOfARequestAreBounded(t *testing.T) {
	rowOf := func(cells int) []byte {
		r := ots.Row{Key: []ots.KeyValue{{Name: "k", Value: row.Integer(1)}}}
		for range cells {
			r.Cells = append(r.Cells, ots.Cell{Name: "c", Op: ots.OpDeleteAllVersion})
		}
		return AppendRow(AppendHeader(nil), &r, nil)
	}
	const message = "OTSParameterInvalid: The number of cells in the request exceeds the limit, limit count: 210000."
	if _, err := DecodeRow(rowOf(MaxCells - 1)); err != nil {
		t.Error(err)
	}
	if _, err := DecodeRow(rowOf(MaxCells)); err == nil || err.Error() != message {
		t.Error(err)
	}
	var rows RequestRows
	half := rowOf(MaxCells/2 - 1)
	for range 2 {
		if _, err := rows.Row(half); err != nil {
			t.Error(err)
		}
	}
	if _, err := rows.Row(rowOf(1)); err == nil || err.Error() != message {
		t.Error(err)
	}
	key := ots.Row{}
	for range row.MaxKeyColumns + 1 {
		key.Key = append(key.Key, ots.KeyValue{Name: "k", Value: row.Integer(1)})
	}
	blob := AppendRow(AppendHeader(nil), &key, nil)
	blob = append(blob[:len(blob)-2], tagCell) // the decoder must not look at data after the fifth cell
	const wide = "OTSInvalidPK: Validate PK size fail. Input: more than 4, Meta: 4 at most."
	if _, err := DecodeRow(blob); err == nil || err.Error() != wide {
		t.Error(err)
	}
}

// TestRowsOfARequestShareNames: two rows with the same hundred columns take the memory of a
// hundred names, and a column with many versions that of one name.
func TestRowsOfARequestShareNames(t *testing.T) {
	r := ots.Row{Key: []ots.KeyValue{{Name: "k", Value: row.Integer(1)}}}
	for i := range 100 {
		r.Cells = append(r.Cells, ots.Cell{Name: strings.Repeat("c", 1+i/2), Value: row.Integer(1), HasVersion: true, Version: int64(i)})
	}
	blob := AppendRow(AppendHeader(nil), &r, nil)
	var rows RequestRows
	first := testing.AllocsPerRun(1, func() { rows = RequestRows{}; _, _ = rows.Row(blob) })
	if first > 50+20 {
		t.Errorf("a row of 50 columns took %v allocations", first)
	}
	second := testing.AllocsPerRun(1, func() { _, _ = rows.Row(blob) })
	if second > 20 {
		t.Errorf("a row like the one before took %v allocations", second)
	}
	got, err := rows.Row(blob)
	if err != nil || len(got.Cells) != 100 {
		t.Fatal(err)
	}
	for i := range got.Cells {
		if got.Cells[i].Name != r.Cells[i].Name {
			t.Errorf("cell %d is named %q", i, got.Cells[i].Name)
		}
	}
}

func TestChecksumIsTheDocumentedCRC8(t *testing.T) {
	if crc := crcBytes(0, []byte("123456789")); crc != 0xF4 {
		t.Errorf("check value %02x, want f4", crc)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		start := byte(rng.Uint32())
		slow := start
		for _, c := range b {
			slow = crcByte(slow, c)
		}
		if fast := crcBytes(start, b); fast != slow {
			t.Fatalf("%d bytes: %02x by eights, %02x one by one", n, fast, slow)
		}
	}
}

// sealedRow makes a row of hand-made cells with a correct row checksum.
func sealedRow(key []string, cells []string, tail string) []byte {
	b := "\x75\x00\x00\x00\x01" + strings.Join(key, "")
	if len(cells) > 0 {
		b += "\x02" + strings.Join(cells, "")
	}
	var crc byte
	for _, c := range append(append([]string(nil), key...), cells...) {
		crc = crcByte(crc, c[len(c)-1])
	}
	if strings.HasPrefix(tail, "\x08") {
		crc = crcByte(crc, 1)
	} else {
		crc = crcByte(crc, 0)
	}
	return append([]byte(b+tail), 0x09, crc)
}

// sealedCell makes a cell; variant and stamp may be empty, op 0 means none.
func sealedCell(name, variant string, op byte, stamp string) string {
	le32 := func(n int) string { return string([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) }
	b := "\x03\x04" + le32(len(name)) + name
	crc := crcBytes(0, []byte(name))
	if variant != "" {
		b += "\x05" + le32(len(variant)) + variant
		crc = crcBytes(crc, []byte(variant))
	}
	if op != 0 {
		b += "\x06" + string([]byte{op})
	}
	if stamp != "" {
		b += "\x07" + stamp
		crc = crcBytes(crc, []byte(stamp))
	}
	if op != 0 {
		crc = crcByte(crc, op)
	}
	return b + "\x0a" + string([]byte{crc})
}

func TestMalformedRowsAreRefusedWithTheDocumentedMessage(t *testing.T) {
	const int5 = "\x00\x05\x00\x00\x00\x00\x00\x00\x00"
	const stamp = "\x01\x00\x00\x00\x00\x00\x00\x00"
	key := []string{sealedCell("pk", int5, 0, "")}
	cell := sealedCell("c", int5, 0, "")
	good := sealedRow(key, []string{cell}, "")
	if _, err := DecodeRow(good); err != nil {
		t.Fatal(err)
	}
	changed := func(at int, b byte) []byte {
		out := append([]byte(nil), good...)
		out[at] = b
		return out
	}
	const pkBroken, cellBroken = "Input encoded PK broken, ", "Cell data broken, "
	tests := []struct {
		name string
		blob []byte
		want string
	}{
		{"nothing", nil, pkBroken},
		{"header only", good[:4], pkBroken + "expected the key section"},
		{"wrong header", changed(0, 0x76), pkBroken + "wrong header"},
		{"header's upper bytes", changed(3, 1), pkBroken + "wrong header"},
		{"no key section", changed(4, 0x02), pkBroken + "expected the key section"},
		{"key section without cells", sealedRow(nil, nil, ""), pkBroken + "expected a key cell"},
		{"data section without cells", []byte(string(good[:len(good)-2-len(cell)]) + "\x09\x00"), cellBroken + "expected an attribute cell"},
		{"two data sections", sealedRow(key, []string{cell, "\x02" + cell}, ""), cellBroken},
		{"two delete markers", sealedRow(key, nil, "\x08\x08"), cellBroken + "expected row checksum"},
		{"marker before data", sealedRow(key, []string{"\x08" + cell}, ""), cellBroken},
		{"extension in a request", sealedRow(key, nil, "\x0b\x18\x00\x00\x00\x0c\x13\x00\x00\x00\x0d\x01\x00\x00\x00\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00\x00"), cellBroken + "unexpected extension"},
		{"no row checksum", good[:len(good)-2], cellBroken + "expected row checksum"},
		{"row checksum cut", good[:len(good)-1], cellBroken + "row checksum of 1 bytes"},
		{"wrong row checksum", changed(len(good)-1, good[len(good)-1]^1), cellBroken + "wrong row checksum"},
		{"wrong cell checksum", changed(len(good)-3, good[len(good)-3]^1), cellBroken + "wrong cell checksum"},
		{"wrong key checksum", sealedRow([]string{key[0][:len(key[0])-1] + "\x77"}, nil, ""), cellBroken + "wrong cell checksum"},
		{"changed name", changed(11, 'q'), cellBroken + "wrong cell checksum"},
		{"no name", sealedRow([]string{"\x03\x05\x01\x00\x00\x00\x09\x0a\x00"}, nil, ""), pkBroken + "expected a cell name"},
		{"name longer than the input", sealedRow([]string{"\x03\x04\xff\xff\xff\xffab\x0a\x00"}, nil, ""), pkBroken + "cell name of 4294967295 bytes"},
		{"name not UTF-8", sealedRow(key, []string{sealedCell("a\xff", int5, 0, "")}, ""), cellBroken + "cell name that is not UTF-8"},
		{"value longer than the input", sealedRow(key, []string{"\x03\x04\x01\x00\x00\x00a\x05\xf0\xff\xff\xff\x00\x0a\x00"}, ""), cellBroken + "cell value of 4294967280 bytes"},
		{"value without type", sealedRow(key, []string{"\x03\x04\x01\x00\x00\x00a\x05\x00\x00\x00\x00\x0a\x00"}, ""), cellBroken + "value without a type"},
		{"integer of 7 bytes", sealedRow(key, []string{sealedCell("a", int5[:8], 0, "")}, ""), cellBroken + "value of 7 bytes for type 0"},
		{"double of 9 bytes", sealedRow(key, []string{sealedCell("a", "\x01"+int5, 0, "")}, ""), cellBroken + "value of 9 bytes for type 1"},
		{"boolean 2", sealedRow(key, []string{sealedCell("a", "\x02\x02", 0, "")}, ""), cellBroken},
		{"boolean of 2 bytes", sealedRow(key, []string{sealedCell("a", "\x02\x01\x01", 0, "")}, ""), cellBroken},
		{"string with a short inner length", sealedRow(key, []string{sealedCell("a", "\x03\x01\x00\x00\x00xy", 0, "")}, ""), cellBroken + "value whose two lengths differ"},
		{"string with a long inner length", sealedRow(key, []string{sealedCell("a", "\x03\xff\xff\xff\xffxy", 0, "")}, ""), cellBroken + "value whose two lengths differ"},
		{"string without inner length", sealedRow(key, []string{sealedCell("a", "\x03\x00", 0, "")}, ""), cellBroken + "value whose two lengths differ"},
		{"string not UTF-8", sealedRow(key, []string{sealedCell("a", "\x03\x01\x00\x00\x00\xff", 0, "")}, ""), "Value of column a must be UTF8 encoding."},
		{"key string not UTF-8", sealedRow([]string{sealedCell("k", "\x03\x01\x00\x00\x00\xff", 0, "")}, nil, ""), "Value of column k must be UTF8 encoding."},
		{"null", sealedRow(key, []string{sealedCell("a", "\x06", 0, "")}, ""), cellBroken + "unknown value type 6"},
		{"unknown type", sealedRow(key, []string{sealedCell("a", "\x04\x00", 0, "")}, ""), cellBroken + "unknown value type 4"},
		{"minimum with payload", sealedRow([]string{sealedCell("k", "\x09\x00", 0, "")}, nil, ""), pkBroken},
		{"minimum as attribute", sealedRow(key, []string{sealedCell("a", "\x09", 0, "")}, ""), "Invalid type for attribute column: 'a'."},
		{"maximum as attribute", sealedRow(key, []string{sealedCell("a", "\x0a", 0, "")}, ""), "Invalid type for attribute column: 'a'."},
		{"placeholder as attribute", sealedRow(key, []string{sealedCell("a", "\x0b", 0, "")}, ""), "Invalid type for attribute column: 'a'."},
		{"key without value", sealedRow([]string{sealedCell("pk", "", 0, "")}, nil, ""), "No value is given for primary key name 'pk'."},
		{"operation in a key cell", sealedRow([]string{sealedCell("pk", int5, 1, "")}, nil, ""), "OpType cannot be given for primary key"},
		{"timestamp in a key cell", sealedRow([]string{sealedCell("pk", int5, 0, stamp)}, nil, ""), "Timestamp cannot be given for primary key"},
		{"operation 2", sealedRow(key, []string{sealedCell("a", "", 2, "")}, ""), cellBroken + "unknown operation 2"},
		{"operation 5", sealedRow(key, []string{sealedCell("a", "", 5, "")}, ""), cellBroken + "unknown operation 5"},
		{"operation 0 written out", sealedRow(key, []string{"\x03\x04\x01\x00\x00\x00a\x06\x00\x0a\x00"}, ""), cellBroken + "unknown operation 0"},
		{"timestamp before operation", sealedRow(key, []string{"\x03\x04\x01\x00\x00\x00a\x07" + stamp + "\x06\x03\x0a\x00"}, ""), cellBroken + "expected cell checksum"},
		{"timestamp twice", sealedRow(key, []string{sealedCell("a", int5, 0, stamp+"\x07"+stamp)}, ""), cellBroken + "expected cell checksum"},
		{"value twice", sealedRow(key, []string{"\x03\x04\x01\x00\x00\x00a\x05\x02\x00\x00\x00\x02\x01\x05\x02\x00\x00\x00\x02\x01\x0a\x00"}, ""), cellBroken + "expected cell checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeRow(tt.blob)
			var refusal *ots.Error
			if !errors.As(err, &refusal) || refusal.Code != ots.CodeParameterInvalid || !strings.HasPrefix(refusal.Message, tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEveryTruncationOfARowIsRefused(t *testing.T) {
	for _, v := range loadVectors(t) {
		switch v.Kind {
		case "variant_value", "filter", "matrix":
			continue
		}
		b := v.bytes(t)
		rows, _, err := DecodeRows(b)
		for n := range b {
			cut, _, cutErr := DecodeRows(b[:n])
			// A cut between two rows leaves whole rows.
			if n > 0 && cutErr == nil && len(cut) >= len(rows) && err == nil {
				t.Errorf("%s cut to %d bytes decodes", v.ID, n)
			}
		}
	}
}

func TestEveryFlippedBitOfARowIsNoticed(t *testing.T) {
	b, _ := hex.DecodeString("750000000103040300000075696405090000000304000000363535350a40095b")
	for i := range b {
		for bit := range 8 {
			flipped := append([]byte(nil), b...)
			flipped[i] ^= 1 << bit
			if r, err := DecodeRow(flipped); err == nil {
				t.Errorf("bit %d of byte %d: %+v", bit, i, r)
			}
		}
	}
}

func TestLyingLengthsCostNoMemory(t *testing.T) {
	blob := sealedRow([]string{"\x03\x04\xff\xff\xff\x7fab\x0a\x00"}, nil, "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := DecodeRow(blob); err == nil {
			t.Fatal("decoded")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("100 refusals took %d bytes", grown)
	}
}

func TestResultRowsCarryVersionsAndNoOperations(t *testing.T) {
	r := ots.Row{
		Key:          []ots.KeyValue{{Name: "pk", Value: row.Integer(1)}},
		Cells:        []ots.Cell{{Name: "a", Value: row.String("x"), Op: ots.OpIncrement}},
		DeleteMarker: true,
	}
	got, err := DecodeRow(AppendResultRow(AppendHeader(nil), &r))
	if err != nil {
		t.Fatal(err)
	}
	want := ots.Row{Key: r.Key, Cells: []ots.Cell{{Name: "a", Value: row.String("x"), HasVersion: true}}}
	if !equalRows(&got, &want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestKeysOfSplitPointsEncodeAsRowsWithoutCells(t *testing.T) {
	key := []ots.KeyValue{{Name: "a", Value: row.Binary([]byte{0})}, {Name: "b", Value: row.Integer(-1)}}
	got, err := DecodeRow(AppendKey(AppendHeader(nil), key))
	if err != nil || !equalRows(&got, &ots.Row{Key: key}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.bytes(f))
	}
	f.Fuzz(func(t *testing.T, blob []byte) {
		if r, err := DecodeRow(blob); err == nil {
			again := AppendRow(AppendHeader(nil), &r, nil)
			if !strings.HasPrefix(string(blob), string(again)) {
				t.Errorf("%x decodes to %+v, which encodes to %x", blob, r, again)
			}
			if RowSize(&r)+4 < len(again) {
				t.Errorf("RowSize says %d, the encoding has %d bytes", RowSize(&r), len(again)-4)
			}
		}
		if rows, exts, err := DecodeRows(blob); err == nil && len(blob) > 0 {
			again := AppendHeader(nil)
			for i := range rows {
				again = AppendRow(again, &rows[i], exts[i])
			}
			if string(again) != string(blob) {
				t.Errorf("%x decodes to %+v, which encodes to %x", blob, rows, again)
			}
		}
		if v, err := DecodeVariant(blob); err == nil {
			if again := AppendVariant(nil, v); string(again) != string(blob) {
				t.Errorf("%x decodes to %s, which encodes to %x", blob, v, again)
			}
		}
	})
}

func benchmarkRow() *ots.Row {
	r := &ots.Row{Key: []ots.KeyValue{{Name: "pk1", Value: row.String("user-000000042")}, {Name: "pk2", Value: row.Integer(42)}}}
	for _, name := range []string{"field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8", "field9"} {
		r.Cells = append(r.Cells, ots.Cell{Name: name, Value: row.String(strings.Repeat("x", 100)), Version: 1700000000000, HasVersion: true})
	}
	return r
}

func BenchmarkDecodeRowOf10Cells(b *testing.B) {
	blob := AppendRow(AppendHeader(nil), benchmarkRow(), nil)
	b.SetBytes(int64(len(blob)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRow(blob); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeRowOf10Cells(b *testing.B) {
	r := benchmarkRow()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendResultRow(AppendHeader(buf[:0]), r)
	}
	b.SetBytes(int64(len(buf)))
}
