package instances

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// A filter is written as
//
//	state == "paid" and (total > 10.0 or not note exists)
//
// A comparison is a column, one of == != > >= < <=, and a value: a string in double quotes, a number (with a
// point or an exponent it is a double), true or false, or bytes as x"00ff". "exists" asks whether the row has the
// column. A name that is not a word, or is one of the words above, is written in backquotes. A string has Go's
// escapes. A comparison with a missing column, or with a value of another type, is false, also !=. Of a column with
// several versions the newest counts.

type (
	anyOf struct {
		All []*allOf `parser:"@@ ( 'or':Word @@ )*"`
	}
	allOf struct {
		Terms []*term `parser:"@@ ( 'and':Word @@ )*"`
	}
	term struct {
		Not        *term       `parser:"  'not':Word @@"`
		Group      *anyOf      `parser:"| '(' @@ ')'"`
		Comparison *comparison `parser:"| @@"`
	}
	comparison struct {
		Column string   `parser:"@( Word | Name )"`
		Exists bool     `parser:"( @'exists':Word"`
		With   *literal `parser:"| @@ )"`
	}
	literal struct {
		Operator string  `parser:"@Operator"`
		String   *string `parser:"( @String"`
		Binary   *string `parser:"| @Binary"`
		Double   *string `parser:"| @Double"`
		Integer  *string `parser:"| @Integer"`
		Boolean  *string `parser:"| @( 'true':Word | 'false':Word ) )"`
	}
)

var filterParser = participle.MustBuild[anyOf](
	participle.Lexer(lexer.MustSimple([]lexer.SimpleRule{
		{Name: "Binary", Pattern: `x"[0-9a-fA-F]*"`},
		{Name: "String", Pattern: `"(\\.|[^"\\])*"`},
		{Name: "Name", Pattern: "`[^`]+`"},
		{Name: "Double", Pattern: `[-+]?\d+(\.\d+([eE][-+]?\d+)?|[eE][-+]?\d+)`},
		{Name: "Integer", Pattern: `[-+]?\d+`},
		{Name: "Operator", Pattern: `==|!=|>=|<=|>|<`},
		{Name: "Word", Pattern: `[\pL_][\pL\pN_.:-]*`},
		{Name: "Paren", Pattern: `[()]`},
		{Name: "space", Pattern: `\s+`},
	})),
	participle.Unquote("String"),
	participle.UseLookahead(2),
)

// maxFilter bounds the text of a filter, in bytes.
const maxFilter = 4 << 10

// ParseFilter reads a filter, and returns the columns that it looks at. Errors match ErrInvalid.
func ParseFilter(text string) (f *ots.Filter, columns []string, err error) {
	if len(text) > maxFilter {
		return nil, nil, fmt.Errorf("%w: a filter of %d bytes, at most %d", ErrInvalid, len(text), maxFilter)
	}
	parsed, err := filterParser.ParseString("", text)
	if err == nil {
		f, err = parsed.filter(&columns)
	} else {
		err = filterMistake(text, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the filter: %w", ErrInvalid, err)
	}
	return f, columns, nil
}

// filterMistake says what is wrong where the parser stopped.
func filterMistake(text string, err error) error {
	stopped, ok := errors.AsType[participle.Error](err)
	if !ok {
		return err
	}
	rest := text[min(stopped.Position().Offset, len(text)):]
	if rest == "" {
		return errors.New("it ends too early: write NAME == VALUE, and more of them with and, or, not")
	}
	if _, unread := errors.AsType[*lexer.Error](err); unread {
		switch rest[0] {
		case '=':
			return fmt.Errorf("at %q: write == for equal", rest)
		case '\'':
			return fmt.Errorf("at %q: write a string in double quotes", rest)
		case '"':
			return fmt.Errorf("at %q: a quote is not closed", rest)
		}
		return fmt.Errorf("at %q: this has no meaning; strings are in double quotes", rest)
	}
	return fmt.Errorf("at %q: %s", rest, stopped.Message())
}

func (o *anyOf) filter(columns *[]string) (*ots.Filter, error) {
	return join(ots.LogicalOr, o.All, func(a *allOf) (*ots.Filter, error) {
		return join(ots.LogicalAnd, a.Terms, func(t *term) (*ots.Filter, error) { return t.filter(columns) })
	})
}

func join[T any](with ots.LogicalOperator, parts []T, filter func(T) (*ots.Filter, error)) (*ots.Filter, error) {
	joined := &ots.Filter{Type: ots.FilterComposite, Operator: with}
	for _, part := range parts {
		f, err := filter(part)
		if err != nil {
			return nil, err
		}
		joined.Subs = append(joined.Subs, f)
	}
	if len(joined.Subs) == 1 {
		return joined.Subs[0], nil
	}
	return joined, nil
}

func (t *term) filter(columns *[]string) (*ots.Filter, error) {
	switch {
	case t.Not != nil:
		f, err := t.Not.filter(columns)
		return &ots.Filter{Type: ots.FilterComposite, Operator: ots.LogicalNot, Subs: []*ots.Filter{f}}, err
	case t.Group != nil:
		return t.Group.filter(columns)
	}
	c := t.Comparison
	c.Column = strings.Trim(c.Column, "`")
	if !slices.Contains(*columns, c.Column) {
		*columns = append(*columns, c.Column)
	}
	f := &ots.Filter{Type: ots.FilterSingleColumn, Column: c.Column, Comparator: ots.CompareExists, FilterIfMissing: true, LatestVersionOnly: true}
	if c.Exists {
		return f, nil
	}
	f.Comparator = comparators[c.With.Operator]
	var err error
	f.Value, err = c.With.value()
	return f, err
}

var comparators = map[string]ots.Comparator{
	"==": ots.CompareEqual, "!=": ots.CompareNotEqual, ">": ots.CompareGreater, ">=": ots.CompareGreaterEqual,
	"<": ots.CompareLess, "<=": ots.CompareLessEqual,
}

func (l *literal) value() (row.Value, error) {
	switch {
	case l.String != nil:
		return row.String(*l.String), nil
	case l.Binary != nil:
		return ParseValue(row.TypeBinary, (*l.Binary)[len(`x"`):len(*l.Binary)-1])
	case l.Double != nil:
		return ParseValue(row.TypeDouble, *l.Double)
	case l.Integer != nil:
		return ParseValue(row.TypeInteger, *l.Integer)
	}
	return ParseValue(row.TypeBoolean, *l.Boolean)
}
