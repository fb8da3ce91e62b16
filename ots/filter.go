package ots

// This file holds the filters of requests: trees of comparisons with columns (PROTOCOL section
// 4). A filter selects the rows of a read, or is the column condition of a write. judge.go
// evaluates filters.

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

// Comparators. The last two test presence and compare nothing.
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

// MaxFilterNodes is the largest number of nodes of a filter, composites and leaves together, in
// every edition of the limits. Decoders may stop there.
const MaxFilterNodes = 32

// Filter is a node of a filter tree; Type says which of its fields apply.
type Filter struct {
	Type FilterType

	// FilterSingleColumn: the column compared with the value.
	Comparator        Comparator
	Column            string
	Value             row.Value // TypeNone: not given
	FilterIfMissing   bool      // a row without the column does not pass
	LatestVersionOnly bool      // else any version may match
	Transfer          *ValueTransferRule

	// FilterComposite.
	Operator LogicalOperator
	Subs     []*Filter

	// FilterPagination: skip the first Offset columns of the row, by name, and keep Limit.
	Offset, Limit int32
}

// ValueTransferRule extracts a part of a string for the comparison: the first group of the
// expression if it has one, else the whole match.
type ValueTransferRule struct {
	Regex string
	// Cast is the type to convert the part to: integer, double or string. If that fails, the
	// comparison is false.
	Cast row.Type
}

// filterTooLarge refuses a tree of too many nodes.
func filterTooLarge(limit int) *Error {
	return invalid("The count of filter exceeds the max: %d.", limit)
}

// checkFilter checks a filter and compiles it into a predicate; nil gives nil. A pagination is
// allowed for reads only, and only as the whole filter.
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

// costly reports whether a predicate, which may be nil, has a regular expression.
func (p *predicate) costly() bool { return p != nil && p.instructions() > 0 }

// instructions counts the instructions of all expressions of a predicate.
func (p *predicate) instructions() (n int64) {
	if p.part != nil {
		n = p.part.instructions
	}
	for i := range p.subs {
		n += p.subs[i].instructions()
	}
	return n
}

// filterCheck counts nodes while it descends; the count also bounds the depth.
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

// maxRegexInstructions bounds the compiled size of one expression, maxRequestInstructions that
// of all expressions of a request. Nested repetitions turn a few characters into a megabyte;
// without counted repetitions, 256 bytes make some hundred instructions at most.
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
	// The matcher copies the ends of all groups along with each instruction.
	const groupEnds = 16
	return &expression{part, n, n * int64(1+program.NumCap/groupEnds)}, nil
}

// longestEstimate is above regexSize of every expression with fewer than maxRegexInstructions:
// a range of characters counts as two here, and is a part of one instruction.
const longestEstimate = 10 * maxRegexInstructions

// regexSize estimates how many instructions an expression compiles to, roughly from above. It
// stops counting above longestEstimate. The parser bounds the depth.
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
