package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/ots"
)

// shape writes a filter tree with all its brackets.
func shape(f *ots.Filter) string {
	if f.Type == ots.FilterSingleColumn {
		if f.Comparator == ots.CompareExists {
			return f.Column + " exists"
		}
		return fmt.Sprintf("%s %d %s %s", f.Column, f.Comparator, f.Value.Type(), f.Value)
	}
	var subs []string
	for _, sub := range f.Subs {
		subs = append(subs, shape(sub))
	}
	return fmt.Sprintf("%d(%s)", f.Operator, strings.Join(subs, ", "))
}

func TestFiltersAreRead(t *testing.T) {
	for _, c := range []struct{ text, want, columns string }{
		{`a == "x\"y"`, `a 1 string "x\"y"`, "a"},
		{`a!=1`, "a 2 integer 1", "a"},
		{`a > -1.5`, "a 3 double -1.5", "a"},
		{`a >= 1e3`, "a 4 double 1000", "a"},
		{`a < true`, "a 5 boolean true", "a"},
		{`a <= x"00fF"`, "a 6 binary 0x00ff", "a"},
		{"`b c` exists", "b c exists", "b c"},
		{"`and` == 1 and `not` == 2", "2(and 1 integer 1, not 1 integer 2)", "and not"},
		{"not a exists", "1(a exists)", "a"},
		{"a==1 or b==2 and c==3", "3(a 1 integer 1, 2(b 1 integer 2, c 1 integer 3))", "a b c"},
		{"(a==1 or b==2) and not (a==3)", "2(3(a 1 integer 1, b 1 integer 2), 1(a 1 integer 3))", "a b"},
		{"größe_2.x:y-z == 1", "größe_2.x:y-z 1 integer 1", "größe_2.x:y-z"},
		{"x == 1", "x 1 integer 1", "x"},
	} {
		f, columns, err := ParseFilter(c.text)
		if err != nil || shape(f) != c.want || strings.Join(columns, " ") != c.columns {
			t.Errorf("%s: %v of %v, %v", c.text, f, columns, err)
		}
	}
	for _, text := range []string{
		"", "a", "a ==", "== 1", "a = 1", "a == 1 and", "a == 1 b == 2", "(a == 1", "a == x\"0\"", "a == 99999999999999999999", "a == 1e999",
		"a == 'x'", "a exists exists", "not", "\x00", strings.Repeat("a==1 or ", 3000) + "a==1",
	} {
		if f, _, err := ParseFilter(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q was read as %v, %v", text, f, err)
		}
	}
}

func TestAMistakeInAFilterIsExplained(t *testing.T) {
	for text, want := range map[string]string{
		`a = "1"`: "write == for equal", "a == '1'": "in double quotes", `a == "1`: "a quote is not closed", "a == 1 and": "ends too early",
		"": "ends too early", "a == 1 & b == 2": `at "& b == 2"`, "a == 1 b == 2": `at "b == 2": unexpected token "b"`,
	} {
		if _, _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestDeepFiltersAreRead nests as deeply as the length of a filter allows. The service refuses more than 32 nodes.
func TestDeepFiltersAreRead(t *testing.T) {
	const depth = maxFilter/2 - 4
	if f, _, err := ParseFilter(strings.Repeat("(", depth) + "a==1" + strings.Repeat(")", depth)); err != nil || shape(f) != "a 1 integer 1" {
		t.Error(err)
	}
	if _, _, err := ParseFilter(strings.Repeat("(", maxFilter)); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	home, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	ctx := context.Background()
	if err := home.CreateTable(ctx, "demo", &NewTable{Name: "t", Key: []KeyColumn{{Name: "k", Type: "string"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Rows(ctx, "demo", &Query{Table: "t", Where: strings.Repeat("not ", maxFilter/4-1) + "a==1"}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}
