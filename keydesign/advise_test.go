package keydesign

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// orders is a table of 2000 sampled rows keyed by till and order. The first till has a share of
// them; orders rise with time.
func orders(part float64) *Statistics {
	st := &Statistics{
		Table: "orders", Bytes: 2000 << 20,
		Columns: []Column{{"Till", row.TypeInteger}, {"Order", row.TypeInteger}},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range int64(2000) {
		till := int64(500)
		if rng.Float64() >= part {
			till = 501 + rng.Int64N(1000)
		}
		st.Sample = append(st.Sample, Row{Key: []row.Value{row.Integer(till), row.Integer(20260000 + i)}, Bytes: 1 << 20, Version: 1 + i})
	}
	slices.SortFunc(st.Sample, func(a, b Row) int {
		if d := a.Key[0].Int64() - b.Key[0].Int64(); d != 0 {
			return int(d)
		}
		return int(a.Key[1].Int64() - b.Key[1].Int64())
	})
	return st
}

func TestAHeavyPartitionKeyIsFoundAndDivided(t *testing.T) {
	r := Advise(orders(0.3))
	if !r.Size.Heavy || math.Abs(r.Size.largest()-0.3) > 0.03 || r.Size.Top[0].Key != "500" {
		t.Errorf("size %+v", r.Size)
	}
	if r.Load != nil || r.Newest == nil || r.Newest.Crowded && r.Newest.InTenth > 0.5 {
		t.Errorf("load %+v, newest %+v", r.Load, r.Newest)
	}
	if len(r.Proposals) != 2 {
		t.Fatalf("%+v", r.Proposals)
	}
	splice, salt := r.Proposals[0], r.Proposals[1]
	if splice.Largest > 0.001 || splice.Even < 1999 ||
		splice.Go != `keydesign.NewSplice(',', keydesign.Unsigned("Till", 6), keydesign.Unsigned("Order", 10))` {
		t.Errorf("splice %+v", splice)
	}
	if !strings.Contains(splice.Cost, "the width of an Unsigned number cannot change") {
		t.Errorf("the splice costs %s", splice.Cost)
	}
	// 0.3 of the table over 32 prefixes.
	if salt.Largest > 0.02 || !strings.Contains(salt.What, "32 prefixes") || !strings.Contains(salt.Cost, "32 ranges") {
		t.Errorf("salt %+v", salt)
	}
	text := r.Text()
	for _, part := range []string{"Size: CONCENTRATED", "Newest rows: spread", "should have 1.0 GiB at most", "the first has that when the table has 3.", "Proposal 2: put one of 32 prefixes"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// TestAPartitionKeyOfAGigabyteIsWarnedOf, even if it is a small share of its table.
func TestAPartitionKeyOfAGigabyteIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		table int64
		large bool
	}{{20 << 30, false}, {40 << 30, true}} {
		st := orders(0.04)
		st.Bytes = c.table // the first till has 0.0375 of it
		r := Advise(st)
		text := r.Text()
		if r.Size.Heavy || r.Size.Large != c.large || (len(r.Proposals) > 0) != c.large || strings.Contains(text, "Size: TOO LARGE") != c.large {
			t.Errorf("%d bytes: %+v\n%s", c.table, r.Size, text)
		}
	}
}

func TestAnEvenTableIsLeftAlone(t *testing.T) {
	r := Advise(orders(0))
	if r.Size.Heavy || r.Newest == nil || r.Newest.Crowded || len(r.Proposals) != 0 {
		t.Errorf("%+v", r)
	}
	if text := r.Text(); !strings.Contains(text, "Nothing to propose.") {
		t.Error(text)
	}
}

// TestASpliceTakesNoMoreColumnsThanItNeeds also checks that binary columns are not spliced.
func TestASpliceTakesNoMoreColumnsThanItNeeds(t *testing.T) {
	st := orders(0.5)
	st.Columns = []Column{{"Till", row.TypeInteger}, {"Day", row.TypeString}, {"Order", row.TypeInteger}}
	for i := range st.Sample {
		k := st.Sample[i].Key
		st.Sample[i].Key = []row.Value{k[0], row.String(fmt.Sprintf("2026-%03d", k[1].Int64()%365)), row.Integer(-k[1].Int64())}
	}
	if r := Advise(st); r.Proposals[0].Go != `keydesign.NewSplice(',', keydesign.Unsigned("Till", 6), keydesign.Text("Day"))` {
		t.Errorf("%+v", r.Proposals[0])
	}
	for i := range st.Sample {
		st.Sample[i].Key[1] = row.String("one day")
	}
	if r := Advise(st); r.Proposals[0].Go != `keydesign.NewSplice('\x00', keydesign.Unsigned("Till", 6), keydesign.Text("Day"), keydesign.Integer("Order"))` &&
		strings.Contains(r.Proposals[0].What, "splice") {
		t.Errorf("a text with a blank leaves no connector, but: %+v", r.Proposals[0])
	}
	for i := range st.Sample {
		st.Sample[i].Key[1] = row.Binary([]byte{1})
	}
	st.Columns[1].Type = row.TypeBinary
	for _, p := range Advise(st).Proposals {
		if strings.Contains(p.What, "splice") {
			t.Errorf("a binary column: %+v", p)
		}
	}
}

// TestAHashOfOnePartitionKeyIsNoProposal: every row of it has the same prefix.
func TestAHashOfOnePartitionKeyIsNoProposal(t *testing.T) {
	r := Advise(orders(1))
	if r.Newest == nil || !r.Newest.Crowded || len(r.Proposals) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Proposals {
		if strings.Contains(p.What, "a hash of Till") {
			t.Errorf("%+v", p)
		}
	}
}

// TestRowsThatAreWrittenSideBySideAreFound uses rows keyed by time.
func TestRowsThatAreWrittenSideBySideAreFound(t *testing.T) {
	st := &Statistics{Table: "log", Bytes: 1 << 30, Columns: []Column{{"At", row.TypeInteger}}}
	for i := range int64(1000) {
		st.Sample = append(st.Sample, Row{Key: []row.Value{row.Integer(1_700_000_000 + i)}, Bytes: 1 << 20, Version: 1 + i})
	}
	r := Advise(st)
	if r.Size.Heavy || r.Newest == nil || !r.Newest.Crowded || r.Newest.InTenth != 1 || len(r.Proposals) != 1 {
		t.Fatalf("%+v", r)
	}
	if p := r.Proposals[0]; !strings.Contains(p.What, "a hash of At") || p.InTenth > 0.4 {
		t.Errorf("%+v", p)
	}
	for i := range st.Sample {
		st.Sample[i].Version = 5
	}
	if r := Advise(st); r.Newest != nil || !strings.Contains(r.Text(), "all were written at once") {
		t.Errorf("%+v", r.Newest)
	}
}

func TestLoadIsJudgedIfThereIsEnough(t *testing.T) {
	st := orders(0)
	st.Load = []KeyLoad{{Key: row.Integer(777), Units: 400}, {Key: row.Integer(501), Units: 40}}
	st.LoadUnits = 999
	if r := Advise(st); r.Load != nil || len(r.Proposals) != 0 {
		t.Errorf("of %d units: %+v", st.LoadUnits, r.Load)
	}
	st.LoadUnits, st.LoadOver = 1000, 90*time.Second
	r := Advise(st)
	if r.Load == nil || !r.Load.Heavy || r.Load.Top[0].Key != "777" || r.Load.Top[0].Part != 0.4 || len(r.Proposals) == 0 {
		t.Fatalf("%+v, %+v", r.Load, r.Proposals)
	}
	text := r.Text()
	for _, want := range []string{
		"Load: CONCENTRATED", "at these shares the table gets 25000", "\n  11 capacity units per second, on average over about the last 1m30s\n", "4.4 units/s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
}

func TestLittleDataIsNotJudged(t *testing.T) {
	st := orders(0.9)
	st.Sample = st.Sample[:leastSample-1]
	if r := Advise(st); r.Size.Heavy || !strings.Contains(r.Text(), "Too few rows") {
		t.Errorf("%+v", r)
	}
}

func TestListsOfAReportAreNeverNull(t *testing.T) {
	for _, st := range []*Statistics{{Table: "t", Columns: orders(0).Columns}, {Table: "t", Columns: orders(0).Columns, Sample: orders(0).Sample, LoadUnits: LeastLoad}} {
		text, err := json.Marshal(Advise(st))
		if err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// TestTheLoadAfterAProposalIsThatOfTheRowsOfBusyKeys has a busy key of many rows, and one of too few.
func TestTheLoadAfterAProposalIsThatOfTheRowsOfBusyKeys(t *testing.T) {
	for _, c := range []struct {
		rows int
		want string
	}{
		{200, "  load: the busiest partition key about 0.25% instead of 50%"},
		{9, "  load: not known; only 9 rows of a busy partition key were found"},
	} {
		st := orders(0)
		busy := KeyLoad{Key: row.Integer(777), Units: 500}
		for i := range c.rows {
			busy.Rows = append(busy.Rows, Row{Key: []row.Value{busy.Key, row.Integer(int64(i))}, Bytes: 1})
		}
		st.Load, st.LoadUnits = []KeyLoad{busy}, 1000
		if text := Advise(st).Text(); !strings.Contains(text, "Proposal 1: splice") || !strings.Contains(text, c.want) {
			t.Errorf("%d rows:\n%s", c.rows, text)
		}
	}
}

// TestRefusalsDeletedAndLargeRowsAreSaidOfLittleDataToo: none has to do with how the key spreads the rows.
func TestRefusalsDeletedAndLargeRowsAreSaidOfLittleDataToo(t *testing.T) {
	st := &Statistics{Table: "t", Columns: orders(0).Columns, RowBytes: 300 << 10, Refused: Refusals{Rate: 126, Code: "OTSCapacityUnitExhausted", Key: `"hot"`}}
	for i := range int64(3) {
		st.Sample = append(st.Sample, Row{Key: []row.Value{row.String(strings.Repeat("k", int(60*i))), row.Integer(i)}, Bytes: 300, Own: i % 2 * 1 << 20})
	}
	st.Passed = Passed{Rate: 681_401, Returned: 0.4}
	text := Advise(st).Text()
	for _, want := range []string{"Reads pass over DELETED ROWS: 681401/s, and return 0.4/s\n", "flagstone table compact t\n",
		`Requests to "hot" are REFUSED: 126/s lately, OTSCapacityUnitExhausted`, "Rows: LARGE", "300.0 KiB on average",
		"Largest row of the sample: 1.0 MiB  \"" + strings.Repeat("k", 59) + "...\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	st.RowBytes, st.Refused.Rate, st.Passed.Rate = largeRow-1, 0, 0
	if text := Advise(st).Text(); strings.Contains(text, "REFUSED") || strings.Contains(text, "DELETED") || strings.Contains(text, "LARGE") {
		t.Error(text)
	}
}

// TestALoadWithoutABusyKeyStaysSo: with no proposal is the load unknown, since there is no busy key whose rows would matter. The
// rows rise with time in few partition keys.
func TestALoadWithoutABusyKeyStaysSo(t *testing.T) {
	st := orders(0.3)
	for i := range st.Sample {
		st.Sample[i].Version = 1 + int64(i)
	}
	st.LoadUnits = 1000
	if text := Advise(st).Text(); strings.Count(text, "Proposal") != 3 || strings.Count(text, "  load: no partition key is busy, as now\n") != 3 ||
		strings.Contains(text, "not known") {
		t.Error(text)
	}
	st.Load = []KeyLoad{{Key: row.Integer(501), Units: 40}}
	if text := Advise(st).Text(); strings.Count(text, "  load: the busiest partition key about 4.0% instead of 4.0%\n") != 3 {
		t.Error(text)
	}
}
