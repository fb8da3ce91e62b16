package gosdk_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// increments returns an UpdateRow that adds to columns, given as name, delta in
// turn, and returns them.
func increments(name string, k *ots.PrimaryKey, namesAndDeltas ...any) *ots.UpdateRowChange {
	c := update(name, k)
	c.SetReturnIncrementValue()
	for i := 0; i < len(namesAndDeltas); i += 2 {
		c.IncrementColumn(namesAndDeltas[i].(string), value(namesAndDeltas[i+1]).(int64))
		c.AppendIncrementColumnToReturn(namesAndDeltas[i].(string))
	}
	return c
}

func incremented(c *ots.UpdateRowChange) (string, error) {
	r, err := client.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: c})
	if err != nil {
		return "", err
	}
	return text(key("s", "r"), r.Columns), nil
}

func TestIncrements(t *testing.T) {
	name := create(t, table{versions: 2}, "s")
	k := key("s", "r")
	write(t, put(name, key("s", "other"), "str", "1", "d", 1.5, "max", int64(math.MaxInt64)))
	for _, c := range []struct {
		change *ots.UpdateRowChange
		want   string
	}{
		{increments(name, k, "n", 5), "(r) n=5"},
		{increments(name, k, "n", -7), "(r) n=-2"},
		{increments(name, k, "n", 1, "m", 10), "(r) m=10 n=-1"},
	} {
		got, err := incremented(c.change)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "returned", got, c.want)
	}
	silent := increments(name, k, "n", 1, "m", 1)
	silent.ColumnNamesToReturn = []string{"m"}
	got, err := incremented(silent)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "only what was asked for", got, "(r) m=11")
	for _, c := range []struct {
		what   string
		change *ots.UpdateRowChange
		code   string
	}{
		{"a string", increments(name, key("s", "other"), "str", 1), "OTSParameterInvalid"},
		{"a double", increments(name, key("s", "other"), "d", 1), "OTSParameterInvalid"},
		{"beyond 64 bits", increments(name, key("s", "other"), "n", 1, "max", 1), "OTSParameterInvalid"},
		{"a column twice", increments(name, k, "n", 1, "n", 1), "OTSParameterInvalid"},
	} {
		_, err := incremented(c.change)
		wantError(t, c.what, err, c.code, "")
	}
	wrong := increments(name, k, "n", 1)
	wrong.AppendIncrementColumnToReturn("m")
	_, err = incremented(wrong)
	wantError(t, "a column that is not incremented", err, "OTSParameterInvalid", "")
	guarded := increments(name, k, "n", 1)
	guarded.SetColumnCondition(where("n", ots.CT_LESS_THAN, 0))
	_, err = incremented(guarded)
	wantError(t, "a condition", err, "OTSConditionCheckFail", "")
	r := get(t, name, k)
	want(t, "the row", text(&r.PrimaryKey, r.Columns), "(r) m=11 n=0")

	const writers, each = 8, 25
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if _, err := incremented(increments(name, k, "n", 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r = get(t, name, k)
	want(t, "after many writers", text(&r.PrimaryKey, r.Columns), fmt.Sprintf("(r) m=11 n=%d", writers*each))

	batch := writeBatch(t, increments(name, k, "n", 1), put(name, key("s", "third"), "c", 1))
	want(t, "in a batch", outcomes(batch), "[ok ok]")
	want(t, "returned in a batch", text(k, batch[0].Columns), "(r) n=201")
	_, err = client.BatchWriteRow(&ots.BatchWriteRowRequest{RowChangesGroupByTable: map[string][]ots.RowChange{name: {increments(name, k, "n", 1), increments(name, k, "n", 1)}}})
	wantError(t, "twice in a batch", err, "OTSParameterInvalid", "Repeated rows")
}

// generating asks for a table with a generated key column "i" after "s".
func generating(name string) *ots.CreateTableRequest {
	request := table{}.request(name, "s")
	request.TableMeta.AddPrimaryKeyColumnOption("i", ots.PrimaryKeyType_INTEGER, ots.AUTO_INCREMENT)
	return request
}

// generated returns a PutRow whose key is completed by the server, and
// returned.
func generated(name, partition string, namesAndValues ...any) *ots.PutRowChange {
	c := put(name, key("s", partition), namesAndValues...)
	c.PrimaryKey.AddPrimaryKeyColumnWithAutoIncrement("i")
	c.SetReturnPk()
	return c
}

// insert puts a row with a generated key and returns the key's value.
func insert(t *testing.T, c *ots.TableStoreClient, name, partition string) int64 {
	t.Helper()
	r, err := c.PutRow(&ots.PutRowRequest{PutRowChange: generated(name, partition, "c", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.PrimaryKey.PrimaryKeys) != 2 {
		t.Fatalf("returned key %v", r.PrimaryKey)
	}
	return r.PrimaryKey.PrimaryKeys[1].Value.(int64)
}

func TestGeneratedKeys(t *testing.T) {
	const name = "Generated"
	if _, err := client.CreateTable(generating(name)); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name})
	d, err := client.DescribeTable(&ots.DescribeTableRequest{TableName: name})
	if err != nil {
		t.Fatal(err)
	}
	if option := d.TableMeta.SchemaEntry[1].Option; option == nil || *option != ots.AUTO_INCREMENT {
		t.Errorf("described with option %v", option)
	}
	last := int64(0)
	for range 5 {
		if n := insert(t, client, name, "a"); n <= last {
			t.Errorf("key %d after %d", n, last)
		} else {
			last = n
		}
	}
	r := get(t, name, key("s", "a", "i", last))
	want(t, "a row by its generated key", text(&r.PrimaryKey, r.Columns), fmt.Sprintf("(a %d) c=1", last))
	results := writeBatch(t, generated(name, "a"), generated(name, "a"), generated(name, "b"))
	for i, r := range results {
		if !r.IsSucceed || len(r.PrimaryKey.PrimaryKeys) != 2 {
			t.Fatalf("row %d of a batch: %+v", i, r)
		}
	}
	first, second := results[0].PrimaryKey.PrimaryKeys[1].Value.(int64), results[1].PrimaryKey.PrimaryKeys[1].Value.(int64)
	if first <= last || second <= first {
		t.Errorf("a batch got %d and %d after %d", first, second, last)
	}
	write(t, update(name, key("s", "a", "i", last), "c", 2), remove(name, key("s", "a", "i", second)), put(name, key("s", "a", "i", 7), "c", 3))
	want(t, "the rows", len(pages(t, over(name, key("s", "a", "i", lowest), key("s", "a", "i", highest)))[0]), 7)

	const condition = "Can't set condition when modify row with pk auto increment."
	expecting := generated(name, "a")
	expecting.SetCondition(ots.RowExistenceExpectation_EXPECT_NOT_EXIST)
	wantError(t, "an expectation", apply(expecting), "OTSParameterInvalid", condition)
	guarded := generated(name, "a")
	guarded.SetColumnCondition(where("c", ots.CT_EQUAL, 1))
	wantError(t, "a condition", apply(guarded), "OTSParameterInvalid", condition)
	unnamed := remove(name, key("s", "a"))
	unnamed.PrimaryKey.AddPrimaryKeyColumnWithAutoIncrement("i")
	wantError(t, "a delete", apply(unnamed), "OTSParameterInvalid", "")
	plain := create(t, table{}, "s", "i")
	wantError(t, "a table that generates none", apply(generated(plain, "a")), "OTSInvalidPK", "")

	option := ots.AUTO_INCREMENT
	for message, change := range map[string]func(*ots.TableMeta){
		"First primary key can't be auto increment, table: Bad.": func(m *ots.TableMeta) { m.SchemaEntry[0].Option = &option },
		"AUTO_INCREMENT primary key must be integer.":            func(m *ots.TableMeta) { *m.SchemaEntry[1].Type = ots.PrimaryKeyType_STRING },
		"AUTO_INCREMENT primary key count must <= 1.": func(m *ots.TableMeta) {
			m.AddPrimaryKeyColumnOption("j", ots.PrimaryKeyType_INTEGER, ots.AUTO_INCREMENT)
		},
	} {
		request := generating("Bad")
		change(request.TableMeta)
		_, err := client.CreateTable(request)
		wantError(t, "a table", err, "OTSParameterInvalid", message)
	}
}

// TestGeneratedKeysSurviveKills: keys rise over restarts, and a key that was
// returned is there.
func TestGeneratedKeysSurviveKills(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for round := range 4 {
		s, err := command.Start(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := connect(s)
		if round == 0 {
			if _, err := c.CreateTable(generating("T")); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			if n := insert(t, c, "T", "a"); n <= last {
				t.Errorf("round %d: key %d after %d", round, n, last)
			} else {
				last = n
			}
		}
		r, err := c.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: key("s", "a", "i", last), MaxVersion: 1}})
		if err != nil || len(r.PrimaryKey.PrimaryKeys) == 0 {
			t.Errorf("row %d: %v", last, err)
		}
		s.Kill()
	}
}

func TestAtomicBatches(t *testing.T) {
	name := create(t, table{}, "s", "i")
	write(t, put(name, key("s", "a", "i", 1), "c", 1))
	atomic := func(changes ...ots.RowChange) string {
		r, err := client.BatchWriteRow(&ots.BatchWriteRowRequest{IsAtomic: true, RowChangesGroupByTable: map[string][]ots.RowChange{name: changes}})
		if err != nil {
			t.Fatal(err)
		}
		return outcomes(r.TableToRowsResult[name])
	}
	whole := func() string {
		return rowTexts(pages(t, over(name, key("s", lowest, "i", lowest), key("s", highest, "i", highest)))[0])
	}
	expecting := put(name, key("s", "a", "i", 1), "c", 9)
	expecting.SetCondition(ots.RowExistenceExpectation_EXPECT_NOT_EXIST)
	want(t, "one that fails", atomic(put(name, key("s", "a", "i", 2), "c", 2), expecting), "[OTSConditionCheckFail OTSConditionCheckFail]")
	want(t, "the table", whole(), "(a 1) c=1")
	want(t, "two partition keys", atomic(put(name, key("s", "a", "i", 2), "c", 2), put(name, key("s", "b", "i", 2), "c", 2)), "[OTSDataOutOfRange OTSDataOutOfRange]")
	want(t, "the table", whole(), "(a 1) c=1")
	guarded := update(name, key("s", "a", "i", 1), "c", 5)
	guarded.SetColumnCondition(where("c", ots.CT_EQUAL, 1))
	want(t, "all of it", atomic(put(name, key("s", "a", "i", 2), "c", 2), guarded, increments(name, key("s", "a", "i", 3), "n", 4)), "[ok ok ok]")
	want(t, "the table", whole(), "(a 1) c=5 (a 2) c=2 (a 3) n=4")
	r, err := client.BatchWriteRow(&ots.BatchWriteRowRequest{IsAtomic: true, RowChangesGroupByTable: map[string][]ots.RowChange{name: {put(name, key("s", "a", "i", 2)), put(name, key("s", "b", "i", 2))}}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the message", r.TableToRowsResult[name][0].Error.Message, "Data out of scope of atomic. Atomic PartKey:a. Data PartKey:b")
}
