package admin

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// TestRowsAreTheSameThroughTheDoor changes and reads rows on both sides.
func TestRowsAreTheSameThroughTheDoor(t *testing.T) {
	ctx := context.Background()
	_, home, client := opened(t)
	table := &instances.NewTable{Name: "t", Key: []instances.KeyColumn{{Name: "k", Type: "binary"}, {Name: "n", Type: "integer", AutoIncrement: true}}}
	if err := client.CreateTable(ctx, "demo", table); err != nil {
		t.Fatal(err)
	}
	set := []instances.Cell{
		{Name: "a", Value: instances.Value{Value: row.Double(1)}}, {Name: "b", Value: instances.Value{Value: row.Binary([]byte{0})}},
	}
	key, err := client.Change(ctx, "demo", &instances.Change{Table: "t", Kind: "put", Key: []string{"00ff", instances.AutoValue}, Set: set})
	if err != nil || len(key) != 2 || key[1].Value.Type() != row.TypeInteger {
		t.Fatal(key, err)
	}
	for _, q := range []instances.Query{{Table: "t"}, {Table: "t", Prefix: []string{"00ff"}, KeysOnly: true}, {Table: "t", Prefix: []string{"00ff", key[1].Value.Text()}}} {
		here, err := home.Rows(ctx, "demo", &q)
		there, err2 := client.Rows(ctx, "demo", &q)
		if err != nil || err2 != nil || len(here.Rows) != 1 || !reflect.DeepEqual(here, there) {
			t.Errorf("%+v: here %+v, %v, there %+v, %v", q, here, err, there, err2)
		}
	}
	if err := client.AlterTable(ctx, "demo", "t", &instances.TableChange{MaxVersions: new(int32(7))}); err != nil {
		t.Error(err)
	}
	here, err := home.Tables(ctx, "demo")
	there, err2 := client.Tables(ctx, "demo")
	if err != nil || err2 != nil || len(here) != 1 || here[0].MaxVersions != 7 || !reflect.DeepEqual(here, there) {
		t.Errorf("here %+v, %v, there %+v, %v", here, err, there, err2)
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"a change that finds the row", second(client.Change(ctx, "demo", &instances.Change{Table: "t", Kind: "delete", Key: []string{"00ff", "1"}, Expect: "exists"})), instances.ErrRefused},
		{"no kind", second(client.Change(ctx, "demo", &instances.Change{Table: "t", Key: []string{"00ff", "1"}})), instances.ErrInvalid},
		{"no hexadecimal", second(client.Rows(ctx, "demo", &instances.Query{Table: "t", Prefix: []string{"x"}})), instances.ErrInvalid},
		{"no table", second(client.Rows(ctx, "demo", &instances.Query{Table: "none"})), instances.ErrNotFound},
		{"no instance", second(client.Tables(ctx, "none")), instances.ErrNotFound},
		{"a table again", client.CreateTable(ctx, "demo", table), instances.ErrExists},
		{"next of another key", second(client.Rows(ctx, "demo", &instances.Query{Table: "t", Next: []instances.Value{key[0].Value}})), instances.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	if err := client.DropTable(ctx, "demo", "t"); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestCellsOfAChangeAreBounded(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`{"set": [{"name": "a", "value": 1}]}`, true}, {`{"set": []}`, true},
		{`{"set": 5}`, false}, {`{"set": [{"nam": "a"}]}`, false}, {`{"set": [` + strings.Repeat("{},", 10_000) + `{}]}`, false},
	} {
		var change instances.Change
		if err := json.Unmarshal([]byte(c.text), &change); (err == nil) != c.ok || err != nil && strings.Contains(err.Error(), "%!") {
			t.Errorf("%.40s: %v", c.text, err)
		}
	}
}

func TestAChangeThatIsInterruptedHasAnUnknownOutcome(t *testing.T) {
	_, _, client := opened(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	change := &instances.Change{Table: "t", Kind: "put", Key: []string{"1"}}
	if _, err := client.Change(ctx, "demo", change); !errors.Is(err, flagstone.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := client.Change(context.Background(), "demo", change); !errors.Is(err, instances.ErrNotFound) {
		t.Errorf("of a table that is not there: %v", err)
	}
}
