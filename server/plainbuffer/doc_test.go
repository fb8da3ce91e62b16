package plainbuffer

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

func TestExampleOfTheDocumentationIsWhatTheEncoderMakes(t *testing.T) {
	const version = 1466676354000
	example := ots.Row{
		Key: []ots.KeyValue{{Name: "uid", Value: row.String("row1")}},
		Cells: []ots.Cell{
			{Name: "n", Value: row.Integer(7), Version: version, HasVersion: true},
			{Name: "d", Op: ots.OpDeleteOneVersion, Version: version, HasVersion: true},
			{Name: "i", Value: row.Integer(-5), Op: ots.OpIncrement},
		},
	}
	doc, err := os.ReadFile("../../docs/format-server.md")
	if os.IsNotExist(err) { // the pages of all formats may have become one
		doc, err = os.ReadFile("../../docs/format.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	encoded := AppendRow(AppendHeader(nil), &example, nil)
	for _, block := range regexp.MustCompile("(?s)```hex\n(.*?)```").FindAllSubmatch(doc, -1) {
		if b, err := hex.DecodeString(strings.Join(strings.Fields(string(block[1])), "")); err == nil && string(b) == string(encoded) {
			return
		}
	}
	t.Errorf("the documentation does not have %x", encoded)
}
