package ots

// This file holds filters as requests carry them: trees of comparisons with
// columns (PROTOCOL section 4). The same tree filters the rows of a read and
// is the column condition of a write. How a row is judged is in judge.go.

import (
	"regexp"
	"regexp/syntax"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/row"
)

// FilterType says what a Filter is; the numbers are the protocol's.
type FilterType uint8

// Filter types.
const (
	FilterSingleColumn FilterType = 1
	FilterComposite    FilterType = 2
	FilterPagination   FilterType = 3
)

// Comparator says how a column is compared; the numbers are the protocol's.
type Comparator uint8

// Comparators. The last two ask for presence and compare nothing.
const (
	CompareEqual        Comparator = 1
	CompareNotEqual     Comparator = 2
	CompareGreater      Comparator = 3
	CompareGreaterEqual Comparator = 4
	CompareLess         Comparator = 5
	CompareLessEqual    Comparator = 6
	CompareExists       Comparator = 7
	CompareNotExists    Comparator = 8
)

// LogicalOperator joins filters; the numbers are the protocol's.
type LogicalOperator uint8

// Logical operators.
const (
	LogicalNot LogicalOperator = 1
	LogicalAnd LogicalOperator = 2
	LogicalOr  LogicalOperator = 3
)

// MaxFilterNodes is the largest number of nodes of a filter, composites and
// leaves together, in every edition of the limits: decoders may stop there.
const MaxFilterNodes = 32

// Filter is a node of a filter tree; Type says which of its fields count.
type Filter struct {
	Type FilterType

	// FilterSingleColumn: the column compared with the value.
	Comparator        Comparator
	Column            string
	Value             row.Value // TypeNone: none was given
	FilterIfMissing   bool      // a row without the column does not pass
	LatestVersionOnly bool      // else any version that compares true will do
	Transfer          *ValueTransferRule

	// FilterComposite.
	Operator LogicalOperator
	Subs     []*Filter

	// FilterPagination: of the row's columns, by name, skip Offset and keep
	// Limit.
	Offset, Limit int32
}

// ValueTransferRule takes a part out of a string before it is compared: the
// first group of the expression if it has one, else all that it matches.
type ValueTransferRule struct {
	Regex string
	// Cast is what the part is turned into: integer, double or string. What
	// does not turn compares false.
	Cast row.Type
}

// filterTooLarge refuses a tree of too many nodes.
func filterTooLarge(limit int) *Error {
	return invalid("The count of filter exceeds the max: %d.", limit)
}

// checkFilter checks a filter and makes of it what rows are judged by; nil of
// nil. A pagination is no judgement: it is allowed for reads only, and only by
// itself.
func (l *Limits) checkFilter(f *Filter, read bool) (*predicate, *Error) {
	if f == nil {
		return nil, nil
	}
	if f.Type == FilterPagination && read {
		if f.Offset < 0 {
			return nil, invalid("Offset in ColumnPaginationFilter must be greater than or equal to 0.")
		}
		if f.Limit <= 0 {
			return nil, invalid("Limit in ColumnPaginationFilter must be greater than 0.")
		}
		return &predicate{filter: f}, nil
	}
	check := filterCheck{limits: l}
	p, err := check.node(f)
	if err != nil {
		return nil, err
	}
	if l.FilterConditions > 0 && check.conditions > l.FilterConditions {
		return nil, filterTooLarge(l.FilterConditions)
	}
	p.spent = new(atomic.Int64)
	return &p, nil
}

// instructions are those of all expressions of a predicate.
func (p *predicate) instructions() (n int64) {
	if p.part != nil {
		n = p.part.instructions
	}
	for i := range p.subs {
		n += p.subs[i].instructions()
	}
	return n
}

// filterCheck counts while it descends; the count bounds the depth as well.
type filterCheck struct {
	limits     *Limits
	nodes      int
	conditions int // leaves
}

func (k *filterCheck) node(f *Filter) (predicate, *Error) {
	if k.nodes++; k.nodes > k.limits.FilterNodes {
		return predicate{}, filterTooLarge(k.limits.FilterNodes)
	}
	if f == nil {
		return predicate{}, invalid("Deserialize filter failed")
	}
	switch f.Type {
	case FilterSingleColumn:
		k.conditions++
		return k.limits.checkComparison(f)
	case FilterComposite:
		return k.composite(f)
	case FilterPagination:
		return predicate{}, invalid("ColumnPaginationFilter can only be given alone, as the filter of a read.")
	}
	return predicate{}, invalid("Deserialize filter failed")
}

func (k *filterCheck) composite(f *Filter) (predicate, *Error) {
	switch f.Operator {
	case LogicalNot:
		if len(f.Subs) != 1 {
			return predicate{}, invalid("Invalid NOT operator: the number of sub-filters must be 1.")
		}
	case LogicalAnd, LogicalOr:
		if len(f.Subs) < 2 {
			return predicate{}, invalid("Invalid AND/OR operator: the number of sub-filters must be more than 1.")
		}
	default:
		return predicate{}, invalid("Deserialize filter failed")
	}
	p := predicate{filter: f, subs: make([]predicate, len(f.Subs))}
	for i, sub := range f.Subs {
		var err *Error
		if p.subs[i], err = k.node(sub); err != nil {
			return predicate{}, err
		}
	}
	return p, nil
}

func (l *Limits) checkComparison(f *Filter) (predicate, *Error) {
	p := predicate{filter: f, keyColumn: -1}
	if err := l.checkColumnName(f.Column); err != nil {
		return p, err
	}
	switch f.Comparator {
	case CompareEqual, CompareNotEqual, CompareGreater, CompareGreaterEqual, CompareLess, CompareLessEqual:
		if !f.Value.Type().IsAttributeType() {
			return p, invalid("Deserialize filter failed")
		}
		if err := l.checkAttribute(f.Column, f.Value); err != nil {
			return p, err
		}
	case CompareExists, CompareNotExists:
	default:
		return p, invalid("Deserialize filter failed")
	}
	if f.Transfer == nil {
		return p, nil
	}
	var err *Error
	p.part, err = l.checkTransfer(f.Transfer)
	return p, err
}

// maxRegexInstructions bounds what an expression compiles to, and
// maxRequestInstructions what all of a request do. Repetitions of repetitions make a
// megabyte of a few characters; the largest expression of 256 bytes without counted
// repetitions makes some hundred.
const (
	maxRegexInstructions   = 1_000
	maxRequestInstructions = 100_000
)

func (l *Limits) checkTransfer(rule *ValueTransferRule) (*expression, *Error) {
	if n := len(rule.Regex); n > l.FilterRegexBytes {
		return nil, invalid("The length of regex in ValueTransferRule exceeds the MaxLength:%d with CurrentLength:%d.",
			l.FilterRegexBytes, n)
	}
	switch rule.Cast {
	case row.TypeInteger, row.TypeDouble, row.TypeString:
	default:
		return nil, invalid("Invalid cast type in ValueTransferRule, only INTEGER,DOUBLE,STRING is allowed.")
	}
	refused := invalid("Invalid regex in ValueTransferRule: '%s'.", printable(rule.Regex))
	parsed, err := syntax.Parse(rule.Regex, syntax.Perl)
	if err != nil {
		return nil, refused
	}
	tooLarge := invalid("The regex in ValueTransferRule is too large: more than %d instructions.", maxRegexInstructions)
	if regexSize(parsed) > longestEstimate {
		return nil, tooLarge
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, refused
	}
	n := int64(len(program.Inst))
	if n > maxRegexInstructions {
		return nil, tooLarge
	}
	part, err := regexp.Compile(rule.Regex)
	if err != nil {
		return nil, refused
	}
	// The ends of all groups go along with each instruction.
	const groupEnds = 16
	return &expression{part, n, n * int64(1+program.NumCap/groupEnds)}, nil
}

// longestEstimate is what regexSize says of nothing that has less than
// maxRegexInstructions: a range of characters counts for two, and is a part of one.
const longestEstimate = 10 * maxRegexInstructions

// regexSize is at least about how many instructions an expression compiles to, or
// anything above longestEstimate. The parser bounds the depth.
func regexSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size += regexSize(sub)
		if size > longestEstimate {
			return size
		}
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1) // at most 1000; the product fits
	}
	return size
}
