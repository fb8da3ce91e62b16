package keydesign

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flagstone-db/flagstone/row"
)

// Proposal is another partition key and what it would change.
type Proposal struct {
	// What is one sentence, Go the code that makes the key.
	What string `json:"what"`
	Go   string `json:"go"`
	// Cost is what is lost by it.
	Cost string `json:"cost"`
	// Largest is the part of the heaviest partition key that the sample would
	// have, Even as in Spread.
	Largest float64 `json:"largest"`
	Even    float64 `json:"even"`
	// Load is the part of the load of the busiest partition key, as far as the
	// sample says how its rows would be divided; 0 if it does not.
	Load float64 `json:"load,omitempty"`
	// InTenth is as in Crowding; 0 if that is not known.
	InTenth float64 `json:"in_tenth,omitempty"`
}

// propose fills in what would be better than the present key.
func (r *Report) propose(st *Statistics) {
	if r.Size.Heavy || r.Size.Large || r.Load != nil && r.Load.Heavy {
		r.proposeSplice(st)
		r.proposeSalt(st)
	}
	if r.Newest != nil && r.Newest.Crowded {
		r.proposeHash(st)
	}
}

// proposeSplice offers the shortest splice of leading columns that divides heavy
// partition keys well enough, or else that of all columns.
func (r *Report) proposeSplice(st *Statistics) {
	for columns := 2; columns <= len(st.Columns); columns++ {
		name := func(s *Row) string { return joined(s.Key[:columns]) }
		spread := spreadOf(st.Sample, name)
		load := r.loadAfter(st, name)
		if columns < len(st.Columns) && (spread.largest() > goodShare || load > goodShare) {
			continue
		}
		var names []string
		for _, c := range st.Columns[:columns] {
			names = append(names, c.Name)
		}
		code, ok := spliceCode(st, columns)
		if !ok {
			return
		}
		p := Proposal{
			What: "splice " + strings.Join(names, ", ") + " into one partition key",
			Go:   code,
			Cost: fmt.Sprintf("ranges over %s stay one range; atomic batches and transactions reach only rows that agree in all of it", names[0]),
		}
		p.Largest, p.Even, p.Load = spread.largest(), spread.Even, load
		if r.Newest != nil {
			p.InTenth = r.Newest.InTenth // the order stays
		}
		r.Proposals = append(r.Proposals, p)
		return
	}
}

// proposeSalt offers prefixes, made of the rest of the key, that divide every
// partition key.
func (r *Report) proposeSalt(st *Statistics) {
	if len(st.Columns) < 2 {
		return
	}
	heaviest := r.Size.largest()
	if r.Load != nil {
		heaviest = max(heaviest, r.Load.largest())
	}
	prefix := prefixFor(heaviest)
	bucket := func(s *Row) int { return prefix.bucket(joined(s.Key[1:])) }
	name := func(s *Row) string { return prefix.show(bucket(s)) + joined(s.Key[:1]) }
	spread := spreadOf(st.Sample, name)
	p := Proposal{
		What: fmt.Sprintf("put one of %d prefixes, a hash of the other key columns, before %s", prefix.buckets, st.Columns[0].Name),
		Go:   prefixCode(prefix, st.Columns[1:], st.Columns[0]),
		Cost: fmt.Sprintf("a range over %s becomes %d ranges", st.Columns[0].Name, prefix.buckets),
	}
	p.Largest, p.Even, p.Load = spread.largest(), spread.Even, r.loadAfter(st, name)
	p.crowd(st, bucket)
	r.Proposals = append(r.Proposals, p)
}

// proposeHash offers prefixes, made of the partition key, that keep those that
// are written together apart.
func (r *Report) proposeHash(st *Statistics) {
	prefix, _ := NewPrefix(16) // a constant that is allowed
	bucket := func(s *Row) int { return prefix.bucket(joined(s.Key[:1])) }
	p := Proposal{
		What:    fmt.Sprintf("put one of %d prefixes, a hash of %s, before it", prefix.buckets, st.Columns[0].Name),
		Go:      prefixCode(prefix, st.Columns[:1], st.Columns[0]),
		Cost:    fmt.Sprintf("a range over several values of %s becomes %d ranges; one value is found as before", st.Columns[0].Name, prefix.buckets),
		Largest: r.Size.largest(), Even: r.Size.Even,
	}
	p.crowd(st, bucket)
	if p.InTenth >= r.Newest.InTenth { // few partition keys have few hashes
		return
	}
	r.Proposals = append(r.Proposals, p)
}

// crowd looks for the new rows in the order that prefixes would make.
func (p *Proposal) crowd(st *Statistics, bucket func(*Row) int) {
	order := make([]int, len(st.Sample))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(bucket(&st.Sample[a]), bucket(&st.Sample[b]))
	})
	if c := crowdingOf(st.Sample, order); c != nil {
		p.InTenth = c.InTenth
	}
}

// loadAfter is the part of the load that the busiest of the new partition keys
// would have, if the load of the busy keys of today is divided as their rows
// are; 0 if too few of those are in the sample.
func (r *Report) loadAfter(st *Statistics, name func(*Row) string) (most float64) {
	if r.Load == nil {
		return 0
	}
	const least = 10 // rows
	for _, busy := range r.Load.Top {
		var rows []Row
		for i := range st.Sample {
			if st.Sample[i].Key[0].String() == busy.Key {
				rows = append(rows, st.Sample[i])
			}
		}
		if len(rows) < least {
			if busy.Part > heavyShare {
				return 0
			}
			most = max(most, busy.Part)
			continue
		}
		divided := spreadOf(rows, name)
		most = max(most, busy.Part*divided.largest())
	}
	return most
}

// prefixFor is the smallest power of two of buckets, up to 256, that brings a
// share down to what is good.
func prefixFor(share float64) *Prefix {
	buckets := 2
	for buckets < 256 && share/float64(buckets) > goodShare {
		buckets *= 2
	}
	p, err := NewPrefix(buckets)
	if err != nil {
		panic("keydesign: a number of buckets within bounds is refused: " + err.Error())
	}
	return p
}

// joined tells tuples of values apart.
func joined(values []row.Value) string {
	var b strings.Builder
	for _, v := range values {
		text := v.String()
		b.WriteString(strconv.Itoa(len(text)))
		b.WriteByte(':')
		b.WriteString(text)
	}
	return b.String()
}

// spliceCode is how the first columns are spliced. It is not known how for
// binary columns, and for texts that leave no room for a connector.
func spliceCode(st *Statistics, columns int) (code string, ok bool) {
	var fields, texts []string
	for i, c := range st.Columns[:columns] {
		switch c.Type {
		case row.TypeInteger:
			fields = append(fields, integerField(st, i))
		case row.TypeString:
			fields = append(fields, fmt.Sprintf("keydesign.Text(%q)", c.Name))
			if i < columns-1 {
				for j := range st.Sample {
					texts = append(texts, st.Sample[j].Key[i].Text())
				}
			}
		default:
			return "", false
		}
	}
	connector, ok := SafeConnector(texts...)
	return fmt.Sprintf("keydesign.NewSplice(%q, %s)", rune(connector), strings.Join(fields, ", ")), ok
}

// integerField allows for numbers a hundred times as large as the sample's.
func integerField(st *Statistics, i int) string {
	name, width := st.Columns[i].Name, 0
	for j := range st.Sample {
		n := st.Sample[j].Key[i].Int64()
		if n < 0 {
			return fmt.Sprintf("keydesign.Integer(%q)", name)
		}
		width = max(width, len(strconv.FormatInt(n, 10)))
	}
	return fmt.Sprintf("keydesign.Unsigned(%q, %d)", name, min(width+2, 19))
}

// prefixCode is how a prefix is made of columns and put before one.
func prefixCode(p *Prefix, of []Column, before Column) string {
	var names []string
	for _, c := range of {
		names = append(names, c.Name)
	}
	what := names[0]
	if len(names) > 1 || of[0].Type != row.TypeString {
		what = "fmt.Sprint(" + strings.Join(names, `, ",", `) + ")"
	}
	key := before.Name
	if before.Type != row.TypeString {
		key = "fmt.Sprint(" + key + ")"
	}
	return fmt.Sprintf("p, _ := keydesign.NewPrefix(%d); p.Of(%s) + %q + %s", p.buckets, what, string(DefaultConnector), key)
}
