package gosdk_test

import (
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// times selects versions relative to base.
func times(start, end int64) *ots.TimeRange {
	return &ots.TimeRange{Start: base + start, End: base + end}
}

func at(version int64) *ots.TimeRange { return &ots.TimeRange{Specific: base + version} }

func TestReadsSelectVersions(t *testing.T) {
	name := create(t, table{versions: 4}, "s")
	k := key("s", "r")
	// Out of order, and one more than the table keeps.
	write(t,
		update(name, k, "a@3", 3, "b@2", "y"),
		update(name, k, "a@1", 1, "a@5", 5, "a@2", 2),
		update(name, k, "a@4", 4, "b@1", "x"),
		update(name, k, "a@4", 44)) // the same version again
	for _, c := range []struct {
		what string
		max  int32
		time *ots.TimeRange
		want string
	}{
		{"the newest", 1, nil, "(r) a@5=5 b@2=y"},
		{"two", 2, nil, "(r) a@5=5 a@4=44 b@2=y b@1=x"},
		{"more than there are", 100, nil, "(r) a@5=5 a@4=44 a@3=3 a@2=2 b@2=y b@1=x"},
		{"a time range", 0, times(2, 4), "(r) a@3=3 a@2=2 b@2=y"},
		{"the newest of a time range", 1, times(1, 4), "(r) a@3=3 b@2=y"},
		{"one version", 0, at(4), "(r) a@4=44"},
		{"the surplus version", 0, at(1), "(r) b@1=x"},
		{"an empty time range leaves the key", 0, times(50, 60), "(r)"},
	} {
		r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) { q.MaxVersion, q.TimeRange = c.max, c.time })
		want(t, c.what, versionText(&r.PrimaryKey, r.Columns), c.want)
	}
}

func TestDeletionsOfVersions(t *testing.T) {
	name := create(t, table{versions: 3}, "s")
	k := key("s", "r")
	for _, step := range []struct {
		what   string
		change ots.RowChange
		want   string
	}{
		{"three versions", update(name, k, "a@1", 1, "a@2", 2, "a@3", 3), "(r) a@3=3 a@2=2 a@1=1"},
		{"a fourth hides the first", update(name, k, "a@4", 4), "(r) a@4=4 a@3=3 a@2=2"},
		{"a deletion does not bring it back", update(name, k, "a@3", removal{}), "(r) a@4=4 a@2=2"},
		{"an absent version", update(name, k, "a@9", removal{}), "(r) a@4=4 a@2=2"},
		{"the newest", update(name, k, "a@4", removal{}), "(r) a@2=2"},
		{"written again", update(name, k, "a@3", 33), "(r) a@3=33 a@2=2"},
		{"all", update(name, k, "a", removal{}, "b@1", 1), "(r) b@1=1"},
		{"older than what was deleted", update(name, k, "a@1", 11), "(r) a@1=11 b@1=1"},
		{"put replaces all versions", put(name, k, "a@0", 0), "(r) a@0=0"},
	} {
		write(t, step.change)
		r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) { q.MaxVersion = 100 })
		want(t, step.what, versionText(&r.PrimaryKey, r.Columns), step.want)
	}
}

func TestVersionsByTheServersClock(t *testing.T) {
	name := create(t, table{versions: 100}, "s")
	k := key("s", "r")
	const writes = 20
	for i := range writes {
		write(t, update(name, k, "a", i, "b", i))
	}
	r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) { q.MaxVersion = 100 })
	byColumn := map[string][]*ots.AttributeColumn{}
	for _, c := range r.Columns {
		byColumn[c.ColumnName] = append(byColumn[c.ColumnName], c)
	}
	a, b := byColumn["a"], byColumn["b"]
	if len(a) == 0 || len(a) != len(b) || a[0].Value != int64(writes-1) {
		t.Fatalf("columns written together: %d and %d versions, the newest %v", len(a), len(b), a[0].Value)
	}
	for i := range a {
		if a[i].Timestamp != b[i].Timestamp || a[i].Value != b[i].Value {
			t.Errorf("version %d: a is %v@%d, b is %v@%d", i, a[i].Value, a[i].Timestamp, b[i].Value, b[i].Timestamp)
		}
		if i > 0 && a[i-1].Timestamp <= a[i].Timestamp {
			t.Errorf("version %d is not older than its predecessor", i)
		}
	}
}

func TestTableOptionsDecideWhatIsVisible(t *testing.T) {
	const hour = 3600 * 1000
	name := create(t, table{versions: 5}, "s")
	old, young, mixed := key("s", "old"), key("s", "young"), key("s", "mixed")
	write(t,
		put(name, old, "a@-7200000", "two hours"),
		put(name, young, "a@-1000", "now", "a@-2000", "before"),
		put(name, mixed, "a@-7200000", "two hours", "b@-7200001", "two hours", "b@-60000", "a minute", "c@0", "now"))
	alter := func(ttl, versions int) {
		t.Helper()
		if _, err := client.UpdateTable(&ots.UpdateTableRequest{TableName: name, TableOption: ots.NewTableOption(ttl, versions)}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, wantOld, wantYoung, wantMixed string) {
		t.Helper()
		for _, c := range []struct {
			key  *ots.PrimaryKey
			want string
		}{{old, wantOld}, {young, wantYoung}, {mixed, wantMixed}} {
			r := get(t, name, c.key, func(q *ots.SingleRowQueryCriteria) { q.MaxVersion = 100 })
			want(t, what, versionText(&r.PrimaryKey, r.Columns), c.want)
		}
	}
	check("as written",
		"(old) a@-7200000=two hours",
		"(young) a@-1000=now a@-2000=before",
		"(mixed) a@-7200000=two hours b@-60000=a minute b@-7200001=two hours c@0=now")
	alter(hour/1000, 5)
	check("an hour to live", "", "(young) a@-1000=now a@-2000=before", "(mixed) b@-60000=a minute c@0=now")
	alter(hour/1000, 1)
	check("and one version", "", "(young) a@-1000=now", "(mixed) b@-60000=a minute c@0=now")
}

// TestVersionsMustLieNearTheClock: the versions are relative to the start of
// the tests, so the limits leave some minutes.
func TestVersionsMustLieNearTheClock(t *testing.T) {
	const minute = 60
	narrow := create(t, table{ttl: 100 * minute, offset: 20 * minute}, "s")
	wide := "Wide"
	if _, err := client.CreateTable(table{ttl: 20 * minute, offset: 100 * minute}.request(wide, "s")); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: wide})
	k := key("s", "r")
	const invalid = "OTSParameterInvalid"
	for _, c := range []struct {
		what, table, cell string
		code              string
	}{
		{"now", narrow, "c@0", ""},
		{"two minutes ahead", narrow, "c@120000", ""},
		{"two minutes back", narrow, "c@-120000", ""},
		{"an hour ahead of an offset of 20 minutes", narrow, "c@3600000", invalid},
		{"an hour back of an offset of 20 minutes", narrow, "c@-3600000", invalid},
		{"an hour ahead", wide, "c@3600000", ""},
		{"an hour back with 20 minutes to live", wide, "c@-3600000", invalid},
	} {
		part := ""
		if c.code != "" {
			part = "Invalid timestamp"
		}
		wantError(t, c.what+", put", apply(put(c.table, k, c.cell, 1)), c.code, part)
		wantError(t, c.what+", update", apply(update(c.table, k, c.cell, 1)), c.code, part)
	}
	negative := put(narrow, k)
	negative.AddColumnWithTimestamp("c", "x", -1)
	wantError(t, "a negative version", apply(negative), invalid, "Timestamp must be in range [0, INT64_MAX/1000).")
}
