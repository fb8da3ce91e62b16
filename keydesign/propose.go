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
	// What is one sentence. Go is the code that makes the key.
	What string `json:"what"`
	Go   string `json:"go"`
	// Cost is what the proposal loses.
	Cost string `json:"cost"`
	// Largest is the share of the heaviest partition key that the sample would have. Even is as
	// in Spread.
	Largest float64 `json:"largest"`
	Even    float64 `json:"even"`
	// Load is the load share of the busiest partition key, if enough rows of today's are known to
	// see how they would be divided; nil otherwise, and LoadRows are those that are known.
	Load     *float64 `json:"load,omitempty"`
	LoadRows int      `json:"load_rows,omitempty"`
	// InTenth is as in Crowding; 0 if unknown.
	InTenth float64 `json:"in_tenth,omitempty"`
}

// propose adds what would be better than the present key.
func (r *Report) propose(st *Statistics) {
	if r.Size.Heavy || r.Size.Large || r.Load != nil && r.Load.Heavy {
		r.proposeSplice(st)
		r.proposeSalt(st)
	}
	if r.Newest != nil && r.Newest.Crowded {
		r.proposeHash(st)
	}
}

// proposeSplice proposes the shortest splice of leading columns that divides heavy partition
// keys well enough, or else the splice of all columns.
func (r *Report) proposeSplice(st *Statistics) {
	for columns := 2; columns <= len(st.Columns); columns++ {
		name := func(s *Row) string { return joined(s.Key[:columns]) }
		spread := spreadOf(st.Sample, name)
		load, rows := r.loadAfter(st, name)
		if columns < len(st.Columns) && (spread.largest() > goodShare || load != nil && *load > goodShare) {
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
		cost := fmt.Sprintf("ranges over %s stay one range; atomic batches and transactions reach only rows that agree in all of it", names[0])
		if strings.Contains(code, "keydesign.Unsigned") {
			cost += "; the width of an Unsigned number cannot change once there are rows, and longer numbers are refused"
		}
		p := Proposal{
			What: "splice " + strings.Join(names, ", ") + " into one partition key",
			Go:   code,
			Cost: cost,
		}
		p.Largest, p.Even, p.Load, p.LoadRows = spread.largest(), spread.Even, load, rows
		if r.Newest != nil {
			p.InTenth = r.Newest.InTenth // the order stays
		}
		r.Proposals = append(r.Proposals, p)
		return
	}
}

// proposeSalt proposes prefixes, made from the rest of the key, that divide every partition key.
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
	p.Largest, p.Even = spread.largest(), spread.Even
	p.Load, p.LoadRows = r.loadAfter(st, name)
	p.crowd(st, bucket)
	r.Proposals = append(r.Proposals, p)
}

// proposeHash proposes prefixes, made from the partition key, that separate partition keys that
// are written together.
func (r *Report) proposeHash(st *Statistics) {
	prefix, _ := NewPrefix(16) // 16 is a valid number
	bucket := func(s *Row) int { return prefix.bucket(joined(s.Key[:1])) }
	p := Proposal{
		What:    fmt.Sprintf("put one of %d prefixes, a hash of %s, before it", prefix.buckets, st.Columns[0].Name),
		Go:      prefixCode(prefix, st.Columns[:1], st.Columns[0]),
		Cost:    fmt.Sprintf("a range over several values of %s becomes %d ranges; one value is found as before", st.Columns[0].Name, prefix.buckets),
		Largest: r.Size.largest(), Even: r.Size.Even,
	}
	if r.Load != nil {
		largest := r.Load.largest() // a partition key keeps its rows
		p.Load = &largest
	}
	p.crowd(st, bucket)
	if p.InTenth >= r.Newest.InTenth { // few partition keys have few hashes
		return
	}
	r.Proposals = append(r.Proposals, p)
}

// crowd looks for the new rows in the key order that prefixes would make.
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

// loadAfter is the load share of the busiest new partition key, if the load of today's busy keys is divided as
// their rows are. It is nil if too few rows of a busy key are known; then known is their number.
func (r *Report) loadAfter(st *Statistics, name func(*Row) string) (most *float64, known int) {
	if r.Load == nil {
		return nil, 0
	}
	const least = 10 // rows
	most = new(float64)
	for _, busy := range st.Load {
		part := float64(busy.Units) / float64(st.LoadUnits)
		if len(busy.Rows) >= least {
			divided := spreadOf(busy.Rows, name)
			part *= divided.largest()
		} else if part > heavyShare {
			return nil, len(busy.Rows)
		}
		*most = max(*most, part)
	}
	return most, 0
}

// prefixFor uses the smallest power of two of buckets, up to 256, that brings a share down to
// goodShare.
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

// joined encodes a tuple of values so that different tuples differ.
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

// spliceCode is Go code that splices the first columns. ok is false for binary columns, and for
// texts that leave no room for a connector.
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

// prefixCode is Go code that makes a prefix from columns and puts it before one.
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
