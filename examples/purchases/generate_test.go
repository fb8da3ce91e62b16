package main

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"
)

func TestTheSameSeedMakesTheSameRecords(t *testing.T) {
	if !slices.Equal(generate(5000, 7), generate(5000, 7)) {
		t.Error("two runs differ")
	}
	if slices.Equal(generate(5000, 7), generate(5000, 8)) {
		t.Error("two seeds make the same")
	}
}

func TestOrdersAreNumberedInTheOrderOfTime(t *testing.T) {
	for _, n := range []int{1, 2, 99, 100, 101, 20_000} {
		records := generate(n, 1)
		if len(records) != n {
			t.Fatalf("%d records; want %d", len(records), n)
		}
		for i := range records {
			p := &records[i]
			if i > 0 && (p.OrderNumber <= records[i-1].OrderNumber || p.At.Before(records[i-1].At)) {
				t.Fatalf("%d records: %v comes after %v", n, p, &records[i-1])
			}
			if h := p.At.Hour(); dayNumber(p.At) != p.OrderNumber/ordersPerDay || h < opens || h > closes {
				t.Fatalf("%v is of %v", p, p.At)
			}
		}
	}
}

func TestSomeCardsAndTillsAreBusierThanOthers(t *testing.T) {
	cards, tills := map[int64]int{}, map[int64]int{}
	records := generate(40_000, 1)
	for _, p := range records {
		cards[p.CardID]++
		tills[p.DeviceID]++
	}
	most := func(counts map[int64]int) (n int) {
		for _, c := range counts {
			n = max(n, c)
		}
		return n
	}
	if n := most(cards); n < 3*ordersPerCard || len(cards) < 900 {
		t.Errorf("%d cards, the busiest with %d purchases", len(cards), n)
	}
	if n := most(tills); n < len(records)/10 || len(tills) < 15 {
		t.Errorf("%d tills, the busiest with %d sales", len(tills), n)
	}
}

// TestSplicedKeysSortAsTheirParts is what padding and connector are for.
func TestSplicedKeysSortAsTheirParts(t *testing.T) {
	for i := range sellers {
		if strings.Trim(sellers[i].id, "abcdefghijklmnopqrstuvwxyz-_") != "" {
			t.Errorf("seller %s has a character that may sort before the connector", sellers[i].id)
		}
	}
	for _, l := range []*layout{&spliced, &byOrder} {
		records := generate(3000, 2)
		slices.SortFunc(records, func(a, b purchase) int { return l.compare(&a, &b) })
		for i := 1; i < len(records); i++ {
			a, b := l.key(&records[i-1])[0].(string), l.key(&records[i])[0].(string)
			if a >= b {
				t.Fatalf("%s: %v has the key %s, %v has %s", l.table, &records[i-1], a, &records[i], b)
			}
		}
	}
}

// TestKeysAreUnique: two purchases with one key would be one row.
func TestKeysAreUnique(t *testing.T) {
	records := generate(5000, 3)
	for i := range layouts {
		slices.SortFunc(records, func(a, b purchase) int { return layouts[i].compare(&a, &b) })
		for j := 1; j < len(records); j++ {
			if layouts[i].compare(&records[j-1], &records[j]) == 0 {
				t.Errorf("%s: %v twice", layouts[i].table, &records[j])
			}
		}
	}
}

// TestHashPrefixesSpreadConsecutiveOrders: a thousand orders that follow each
// other fall into all sixteenths of the key space.
func TestHashPrefixesSpreadConsecutiveOrders(t *testing.T) {
	var parts [16]int
	for _, p := range generate(200_000, 1)[199_000:] {
		parts[bytes.IndexByte([]byte("0123456789abcdef"), prefix(p.OrderNumber)[0])]++
	}
	if least := slices.MinFunc(parts[:], cmp.Compare[int]); least < 30 {
		t.Errorf("the parts get %v", parts)
	}
}
