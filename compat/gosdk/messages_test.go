package gosdk_test

import (
	"math"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// TestMessagesAreSpelledAsTheServiceSpellsThem provokes messages that no other
// test compares through the SDK. There are more that it refuses to provoke.
func TestMessagesAreSpelledAsTheServiceSpellsThem(t *testing.T) {
	name := create(t, table{}, "s", "i")
	k := func() *ots.PrimaryKey { return key("s", "r", "i", 1) }
	generated := key("s", "r")
	generated.AddPrimaryKeyColumnWithAutoIncrement("i")
	read := func(change func(*ots.SingleRowQueryCriteria)) error {
		q := &ots.SingleRowQueryCriteria{TableName: name, PrimaryKey: k(), MaxVersion: 1}
		change(q)
		_, err := client.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: q})
		return err
	}
	batch := func(rows ...ots.RowChange) error {
		b := new(ots.BatchWriteRowRequest)
		for _, r := range rows {
			b.AddRowChange(r)
		}
		_, err := client.BatchWriteRow(b)
		return err
	}
	scan := func(start, end *ots.PrimaryKey) error {
		q := over(name, start, end)
		_, err := client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		return err
	}
	elsewhere := func(instance string) error {
		c := ots.NewClientWithConfig(shared.URL, instance, endpoint.KeyID, endpoint.KeySecret, "", noRetries())
		_, err := c.ListTable()
		return err
	}
	megabytes := func(row string) ots.RowChange {
		return put(name, key("s", row, "i", 1), "c", strings.Repeat("x", 3<<19))
	}
	invalid, badKey := "OTSParameterInvalid", "OTSInvalidPK"
	for _, c := range []struct {
		err           error
		code, message string
	}{
		{read(func(q *ots.SingleRowQueryCriteria) { q.TimeRange = &ots.TimeRange{Specific: base} }), invalid, "Specific tiemstamp and max versions cannot be given at the same time."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = generated }), invalid, "PKAutoIncr can't be used for read operations."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = key("s", lowest, "i", 1) }), invalid, "VT_INF_MIN is an invalid type for the primary key."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = key("s", highest, "i", 1) }), invalid, "VT_INF_MAX is an invalid type for the primary key."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = key("s", "r") }), badKey, "Validate PK size fail. Input: 1, Meta: 2."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = key("s", "r", "j", 1) }), badKey, "Validate PK name fail. Input: j, Meta: i."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.PrimaryKey = key("s", "r", "i", []byte{1}) }), badKey, "Validate PK type fail. Input: VT_BLOB, Meta: VT_INTEGER."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.TableName = "9" }), invalid, "Invalid table name: '9'."},
		{read(func(q *ots.SingleRowQueryCriteria) { q.AddColumnToGet("a-b") }), invalid, "Invalid column name: 'a-b'."},
		{scan(key("s", "b", "i", 1), key("s", "a", "i", 1)), invalid, "Begin key must less than end key in FORWARD"},
		{apply(put(name, generated, "c", 1)), badKey, "Validate PK type fail. Input: VT_AUTO_INCREMENT, Meta: VT_INTEGER."},
		{apply(put(name, k(), "c", "\xff")), invalid, "Value of column c must be UTF8 encoding."},
		{apply(put(name, key("s", "\xff", "i", 1))), invalid, "Value of column s must be UTF8 encoding."},
		{apply(put(name, k(), "c", math.NaN())), invalid, "NaN can't be set to double value."},
		{apply(put(name, k(), "c", math.Inf(-1))), invalid, "Infinity can't be set to double value."},
		{apply(put(name, k(), "c@-90000000", 1)), invalid, "Invalid timestamp. Cell:c."},
		{apply(put(name, k(), "i", 1)), invalid, "Duplicated attribute column name with primary key column: 'i'."},
		{apply(update(name, k())), invalid, "Invalid update row request: missing cells in request."},
		{batch(megabytes("a"), megabytes("b"), megabytes("c")), invalid, "The total data size of BatchWriteRow request exceeds the limit, limit size: 4194304, data size: "},
		{elsewhere("9-"), invalid, "Invalid instance name: '9-'."},
		{func() error {
			_, err := client.SQLQuery(&ots.SQLQueryRequest{Query: "select 1"})
			return err
		}(), invalid, "Unsupported operation: 'SQLQuery'."},
		{func() error {
			_, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: name})
			return err
		}(), invalid, "No parameter is specified in table options."},
		{func() error {
			_, err := client.BatchWriteRow(&ots.BatchWriteRowRequest{RowChangesGroupByTable: map[string][]ots.RowChange{name: {}}})
			return err
		}(), invalid, "No operation is specified for table: '" + name + "'."},
	} {
		wantError(t, c.message, c.err, c.code, c.message)
	}
}
