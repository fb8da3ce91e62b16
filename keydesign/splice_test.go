package keydesign

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func splice(t testing.TB, connector byte, fields ...Field) *Splice {
	t.Helper()
	s, err := NewSplice(connector, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSplicedKeysSortAsTheirPartsAndComeApart uses random tuples, and checks the bounds of
// Range.
func TestSplicedKeysSortAsTheirPartsAndComeApart(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := splice(t, ',', Text("seller"), Unsigned("card", 6), Integer("balance"), Text("item"))
	text := func(alphabet string) string {
		var b strings.Builder
		for range rng.IntN(4) {
			b.WriteByte(alphabet[rng.IntN(len(alphabet))])
		}
		return b.String()
	}
	tuple := func() []any {
		balances := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64, rng.Int64() - rng.Int64()}
		return []any{text("-.0aZ\xff"), int64(rng.IntN(12)) * int64(rng.IntN(80000)), balances[rng.IntN(len(balances))], text(",+a\x00\xff")}
	}
	compare := func(a, b []any) int {
		return cmp.Or(cmp.Compare(a[0].(string), b[0].(string)), cmp.Compare(a[1].(int64), b[1].(int64)),
			cmp.Compare(a[2].(int64), b[2].(int64)), cmp.Compare(a[3].(string), b[3].(string)))
	}
	for range 20_000 {
		a, b := tuple(), tuple()
		x, err := s.Join(a...)
		if err != nil {
			t.Fatalf("%q: %v", a, err)
		}
		y, err := s.Join(b...)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if compare(a, b) != cmp.Compare(x, y) {
			t.Fatalf("%q and %q sort otherwise than %q and %q", a, b, x, y)
		}
		if back, err := s.Split(x); err != nil || compare(a, back) != 0 {
			t.Fatalf("%q came apart as %q, %v", x, back, err)
		}
		n := 1 + rng.IntN(3)
		low, high, err := s.Range(b[:n]...)
		if err != nil {
			t.Fatal(err)
		}
		begins := compare(append(append([]any(nil), b[:n]...), a[n:]...), a) == 0
		if in := low <= x && x < high; in != begins {
			t.Fatalf("%q within [%q, %q): %v, want %v", x, low, high, in, begins)
		}
	}
}

func TestValuesThatDoNotFitAreRefused(t *testing.T) {
	s := splice(t, ',', Text("seller"), Unsigned("card", 3))
	for _, c := range []struct {
		values []any
		ok     bool
	}{
		{[]any{"shop", 0}, true},
		{[]any{"shop-books", 999}, true},
		{[]any{"", 1}, true},
		{[]any{"shop", 1000}, false},
		{[]any{"shop", -1}, false},
		{[]any{"a,b", 1}, false},
		{[]any{"a+b", 1}, false}, // sorts below the connector
		{[]any{"shop"}, false},
		{[]any{"shop", "1"}, false},
		{[]any{1, 1}, false},
		{[]any{"shop", 1.0}, false},
	} {
		if got, err := s.Join(c.values...); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrField) {
			t.Errorf("%v: got %q, %v", c.values, got, err)
		}
	}
	for _, key := range []string{"", "shop", "shop,1", "shop,0001", "shop,00x", "shop,-01", "shop,001,2"} {
		if got, err := s.Split(key); !errors.Is(err, ErrKey) {
			t.Errorf("%q came apart as %v, %v", key, got, err)
		}
	}
	for _, values := range [][]any{{}, {"shop", 1}, {"a,b"}} {
		if _, _, err := s.Range(values...); !errors.Is(err, ErrField) {
			t.Errorf("a range of %v: %v", values, err)
		}
	}
	for what, c := range map[string]struct {
		connector byte
		fields    []Field
	}{
		"no fields":         {',', nil},
		"a digit":           {'5', []Field{Text("a")}},
		"a letter":          {'_', []Field{Text("a")}},
		"no digits":         {',', []Field{Unsigned("a", 0)}},
		"more than 64 bits": {',', []Field{Unsigned("a", 20)}},
	} {
		if _, err := NewSplice(c.connector, c.fields...); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestASafeConnectorSortsBelowAllTexts(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{nil, ","}, {[]string{"shop", "shop-books"}, ","}, {[]string{"a,b"}, "+"}, {[]string{"a+b", "x-y"}, "*"},
		{[]string{`a"b`}, "!"}, {[]string{"a!b"}, ""}, {[]string{"a b"}, ""}, {[]string{"a\x00"}, ""}, {[]string{"", "é"}, ","},
	} {
		got, ok := SafeConnector(c.texts...)
		if ok != (c.want != "") || ok && string(rune(got)) != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.texts, got, ok, c.want)
		}
	}
}

// TestPrefixesAreWhatTheyWere: stored keys contain them.
func TestPrefixesAreWhatTheyWere(t *testing.T) {
	for _, c := range []struct {
		buckets    int
		text, want string
	}{{2, "", "1"}, {16, "20261019000494", "13"}, {16, "20261019000495", "11"}, {256, "alice", "073"}, {10000, "alice", "9289"}} {
		p, err := NewPrefix(c.buckets)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Of(c.text); got != c.want {
			t.Errorf("%d buckets, %q: got %s, want %s", c.buckets, c.text, got, c.want)
		}
	}
	for _, n := range []int{-1, 0, 1, MaxBuckets + 1} {
		if _, err := NewPrefix(n); err == nil {
			t.Errorf("%d buckets were accepted", n)
		}
	}
}

func TestPrefixesSpreadNeighboursOverAllBuckets(t *testing.T) {
	p, err := NewPrefix(100)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for i := range 100_000 {
		count[p.Of(fmt.Sprintf("2026%08d", i))]++
	}
	all := p.All()
	if len(all) != 100 || all[0] != "00" || all[99] != "99" || len(count) != 100 {
		t.Errorf("%d prefixes of %v", len(count), all)
	}
	for _, prefix := range all { // 1000 each, give or take 31 by chance
		if n := count[prefix]; n < 800 || n > 1200 {
			t.Errorf("prefix %s has %d", prefix, n)
		}
	}
}

func ExampleSplice() {
	key, _ := NewSplice(DefaultConnector, Unsigned("CardID", 10), Text("SellerID"), Unsigned("OrderNumber", 14))
	spliced, _ := key.Join(907, "canteen", 20260901000123)
	low, high, _ := key.Range(907)
	fmt.Println(spliced)
	fmt.Println("card 907: from", low, "to", high)
	// Output:
	// 0000000907,canteen,20260901000123
	// card 907: from 0000000907, to 0000000907-
}

func ExamplePrefix() {
	p, _ := NewPrefix(16)
	order := "20261019000494"
	fmt.Println(p.Of(order) + "," + order)
	// Output:
	// 13,20261019000494
}
