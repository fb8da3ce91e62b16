package rowfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func TestColumnsOfAFileGetOtherNames(t *testing.T) {
	key := []Column{{"customer", row.TypeString}}
	names := map[string]string{"kunde": "customer", "summe": "total", "note": ""}
	list := `{"key":[{"name":"kunde","value":"a"}],"columns":[{"name":"summe","value":"1"},{"name":"note","value":"x"},{"name":"c","value":"2"}]}`
	good := "a [c=2 total=1]"
	var flat bytes.Buffer
	w, err := NewWriter(&flat, Parquet, &Layout{Key: []Column{{"kunde", row.TypeString}}, Columns: []Column{{"summe", row.TypeString}, {"note", row.TypeString}, {"c", row.TypeString}}})
	if err == nil {
		err = w.Write(&Row{Key: []row.Value{row.String("a")}, Cells: []Cell{
			{"summe", NoVersion, row.String("1")}, {"note", NoVersion, row.String("x")}, {"c", NoVersion, row.String("2")},
		}})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format   Format
		in, want string
	}{
		{CSV, "kunde,summe,note,c\na,1,x,2\n", good},
		{JSON, `{"kunde":"a","summe":"1","note":"x","c":"2"}`, good},
		{JSON, list, good},
		{Parquet, flat.String(), good},
		{CSV, "customer,summe,note\na,1,x\n", "there is no column kunde:string, which the key of the table has; the file has [\"customer\" \"summe\" \"note\"]"},
		{CSV, "kunde,note\na,1\n", "there is no column summe, which is renamed or left out"},
		{CSV, "kunde,summe,note,total\na,1,x,2\n", "line 2: column total has the name that another one is given"},
		{JSON, `{"kunde":"a","customer":"b"}`, "line 1: column customer has the name that another one is given"},
	} {
		r, err := NewReader(bytes.NewReader([]byte(c.in)), int64(len(c.in)), &ReadOptions{Format: c.format, Key: key, Names: names})
		var out Row
		if err == nil {
			err = r.Next(&out)
		}
		got := fmt.Sprint(err)
		if err == nil {
			var cells []string
			for _, cell := range out.Cells {
				cells = append(cells, cell.Name+"="+string(cell.Value.Bytes()))
			}
			slices.Sort(cells)
			got = fmt.Sprint(string(out.Key[0].Bytes()), " ", cells)
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.format, c.in, got, c.want)
		}
	}
}

func TestAColumnHasTheVersions(t *testing.T) {
	key := []Column{{"k", row.TypeString}}
	for _, c := range []struct {
		format   Format
		in, want string
	}{
		{CSV, "k,at,c\na,1764237600000,x\n", "c@1764237600000"},
		{CSV, "k,at:integer,c\na,5,x\n", "c@5"},
		{CSV, "k,at,c\na,2025-11-27T10:00:00Z,x\n", "c@1764237600000"},
		{CSV, "k,at\na,5\n", ""},
		{JSON, `{"k":"a","at":7,"c":"x","d":1}`, "c@7 d@7"},
		{JSON, `{"key":[{"name":"k","value":"a"}],"columns":[{"name":"c","version":3,"value":"x"},{"name":"at","version":9,"value":4}]}`, "c@3"},
		{CSV, "k,c\na,x\n", "there is no column at, which would have the versions"},
		{CSV, "k,at,c\na,,x\n", "line 2: no value for column at, which has the version"},
		{CSV, "k,at,c\na,-1,x\n", "line 2: column at: a version is milliseconds since 1970, or a time as 2026-11-27T10:00:00Z: -1 is not between 1970 and the year 9999"},
		{JSON, `{"k":"a","at":1764237600000000}`, "1764237600000000 is not between 1970 and the year 9999"},
		{JSON, `{"key":[{"name":"k","value":"a"}],"columns":[{"name":"at","version":9,"value":4},{"name":"at","version":8,"value":3}]}`, ""},
		{CSV, "k,at,c\na,yesterday,x\n", `"yesterday" as "2006"`},
		{JSON, `{"k":"a","at":true}`, "a value of type boolean"},
	} {
		r, err := NewReader(bytes.NewReader([]byte(c.in)), int64(len(c.in)), &ReadOptions{Format: c.format, Key: key, Version: "at"})
		var out Row
		if err == nil {
			err = r.Next(&out)
		}
		var cells []string
		for _, cell := range out.Cells {
			cells = append(cells, fmt.Sprint(cell.Name, "@", cell.Version))
		}
		slices.Sort(cells)
		if got := strings.Join(cells, " "); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %s, %v, want %s", c.format, c.in, got, err, c.want)
		}
	}
}
