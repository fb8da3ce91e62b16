package ots

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

func exampleAttributes() attributes {
	a := newAttributes(1500000000)
	a.Defined = []definedAttributes{{Name: "score", Type: uint8(row.TypeDouble)}}
	a.ReservedRead, a.ReservedWrite, a.LastDecreaseTime = 5, 6, 1500000120
	a.AllowUpdate, a.UpdateFullRow = false, true
	a.BloomFilterType, a.BlockSize, a.EnableLocalTxn = ptr(int32(3)), ptr(int32(64)), ptr(true)
	return a
}

func TestTheFormatDocumentShowsAnnotationsAsTheyAreWritten(t *testing.T) {
	document, err := os.ReadFile("../docs/format-ots.md")
	if err != nil {
		t.Fatal(err)
	}
	a := exampleAttributes()
	plain := newAttributes(1500000000)
	for _, encoded := range []string{string(a.encode()), string(plain.encode())} {
		if !strings.Contains(string(document), encoded) {
			t.Errorf("the document does not show\n%s", encoded)
		}
	}
}

func TestAttributesDecodeToWhatWasEncoded(t *testing.T) {
	a := exampleAttributes()
	info := flagstone.TableInfo{TableSpec: flagstone.TableSpec{Annotations: a.encode()}}
	got, err := decodeAttributes(&info)
	if err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, a)
	}
}

func TestAttributesThatAnOlderProgramLeftOutKeepTheirDefaults(t *testing.T) {
	info := flagstone.TableInfo{CreatedMillis: 7_000}
	info.Annotations = []byte(`{"version":1,"unknown":[1,2]}`)
	got, err := decodeAttributes(&info)
	if err != nil || !reflect.DeepEqual(got, newAttributes(7)) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzDecodeAttributes(f *testing.F) {
	a := exampleAttributes()
	f.Add(a.encode())
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":99}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		info := flagstone.TableInfo{TableSpec: flagstone.TableSpec{Annotations: b}}
		a, err := decodeAttributes(&info)
		if err != nil {
			return
		}
		info.Annotations = a.encode()
		again, err := decodeAttributes(&info)
		if err != nil || !bytes.Equal(again.encode(), info.Annotations) {
			t.Errorf("%q decodes to %+v, which decodes to %+v, %v", b, a, again, err)
		}
	})
}
