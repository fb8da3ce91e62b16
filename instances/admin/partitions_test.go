package admin

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// TestPartitionsAreSplitAndMergedThroughTheDoor has a table for each type of partition keys.
func TestPartitionsAreSplitAndMergedThroughTheDoor(t *testing.T) {
	ctx := context.Background()
	_, home, client := opened(t)
	for _, c := range []struct {
		of      row.Type
		at, bad string
	}{
		{row.TypeString, "ä\"/ ", ""}, {row.TypeInteger, "-17", "1.5"}, {row.TypeBinary, "00ff", "f"},
	} {
		name := c.of.String()
		makeTable(t, home, name, c.of)
		if err := client.Split(ctx, "demo", name, c.at); err != nil {
			t.Fatal(name, err)
		}
		here, err := home.Partitions(ctx, "demo", name)
		there, err2 := client.Partitions(ctx, "demo", name)
		if err != nil || err2 != nil || len(here) != 2 || !reflect.DeepEqual(here, there) {
			t.Fatalf("%s: here %+v, %v, there %+v, %v", name, here, err, there, err2)
		}
		if here[0].Start != nil || *here[0].End != c.at || *here[1].Start != c.at || here[1].End != nil || !here[1].Cut {
			t.Errorf("%s: %+v", name, here)
		}
		if c.bad != "" {
			err := client.Split(ctx, "demo", name, c.bad)
			if !errors.Is(err, instances.ErrInvalid) {
				t.Errorf("%s split at %q: %v", name, c.bad, err)
			}
		}
		if err := client.Merge(ctx, "demo", name, c.at); err != nil {
			t.Fatal(name, err)
		}
		if here, err = home.Partitions(ctx, "demo", name); err != nil || len(here) != 1 {
			t.Errorf("%s: %+v, %v", name, here, err)
		}
	}
}

func makeTable(t *testing.T, home *instances.Home, name string, of row.Type) {
	t.Helper()
	engine, instance, ok := home.Service("demo")
	if !ok {
		t.Fatal("no instance")
	}
	if err := engine.CreateTable(context.Background(), instance, &ots.CreateTableRequest{
		Table: name, PrimaryKey: []ots.KeyColumn{{Name: "k", Type: of}},
		Options: &ots.TableOptions{TimeToLive: new(int32(-1)), MaxVersions: new(int32(1))},
	}); err != nil {
		t.Fatal(err)
	}
}
