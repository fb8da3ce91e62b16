package main

// This file makes the records: what the students and staff of a university buy
// with their cards in one term. The same seed always makes the same records.

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"
)

// purchase is one record.
type purchase struct {
	CardID      int64  // who paid
	SellerID    string // where; some names begin with others
	DeviceID    int64  // at which till
	OrderNumber int64  // the day as YYYYMMDD, and the number of the order on that day

	At      time.Time
	Amount  int64 // cents
	Item    string
	Kilos   float64 // of what is sold by weight, else 0
	Student bool    // pays the student's price
	Receipt [16]byte
}

// seller is a shop or canteen with its tills.
type seller struct {
	id     string
	tills  int
	weight int // share of all purchases
	items  []item
}

type item struct {
	name     string
	cents    int64
	byWeight bool
}

// sellers are those of the campus. Two canteens take most of the purchases, and
// a till in a canteen is busier than one in the bookshop.
var sellers = []seller{
	{"canteen", 6, 46, []item{{"noodles", 320, false}, {"rice bowl", 380, false}, {"salad", 1290, true}, {"soup", 180, false}}},
	{"canteen-north", 4, 27, []item{{"dumplings", 350, false}, {"stir fry", 1150, true}, {"tea", 90, false}}},
	{"cafe", 2, 12, []item{{"coffee", 210, false}, {"bun", 160, false}}},
	{"cafe_library", 1, 6, []item{{"coffee", 220, false}, {"water", 100, false}}},
	{"shop", 2, 5, []item{{"fruit", 540, true}, {"milk", 150, false}, {"soap", 240, false}}},
	{"shop-books", 1, 2, []item{{"textbook", 4200, false}, {"notebook", 280, false}}},
	{"laundry", 3, 2, []item{{"wash", 400, false}}},
}

// term is the day that the records begin.
var term = time.Date(2026, time.September, 1, 0, 0, 0, 0, time.UTC)

const (
	termDays      = 100
	opens, closes = 7, 21 // o'clock
	// ordersPerCard is how many purchases a card makes on average.
	ordersPerCard = 40
	firstCard     = 900 // so that card numbers differ in length
	firstTill     = 500
	// ordersPerDay is one more than the last possible order of a day.
	ordersPerDay = 1_000_000
)

// generate makes n records in the order of time.
func generate(n int, seed uint64) []purchase {
	r := rand.New(rand.NewPCG(seed, 0))
	cards := max(1, n/ordersPerCard)
	// A card's share falls with its rank: few people eat on campus three
	// times a day, many come once a week. Ranks are spread over the numbers.
	zipf := rand.NewZipf(r, 1.1, float64(cards)/8+1, uint64(cards-1))
	numbers := r.Perm(cards)
	out := make([]purchase, n)
	for i := range out {
		day := i * termDays / n
		first := (day*n + termDays - 1) / termDays
		ofDay := i - first // the n-th order of its day
		today := max(1, (day+1)*n/termDays-first)
		date := term.AddDate(0, 0, day)
		open := (closes - opens) * int64(time.Hour/time.Millisecond)
		s, till := pickSeller(r)
		p := &out[i]
		*p = purchase{
			CardID:      firstCard + int64(numbers[zipf.Uint64()])*7,
			SellerID:    s.id,
			DeviceID:    till,
			OrderNumber: dayNumber(date)*ordersPerDay + int64(ofDay) + 1,
			At:          date.Add(opens*time.Hour + time.Duration(open*int64(ofDay)/int64(today))*time.Millisecond),
		}
		p.buy(r, s)
	}
	return out
}

// dayNumber is the date as YYYYMMDD.
func dayNumber(d time.Time) int64 {
	return int64(d.Year()*10_000 + int(d.Month())*100 + d.Day())
}

// pickSeller chooses a seller by its share, and one of its tills: the one next
// to the door twice as often as the others.
func pickSeller(r *rand.Rand) (seller, int64) {
	n := r.IntN(100)
	till := int64(firstTill)
	for _, s := range sellers {
		if n < s.weight {
			return s, till + int64(max(0, r.IntN(s.tills+1)-1))
		}
		n -= s.weight
		till += int64(s.tills)
	}
	panic("the sellers' shares do not make 100")
}

// buy fills in what was bought.
func (p *purchase) buy(r *rand.Rand, s seller) {
	bought := s.items[r.IntN(len(s.items))]
	p.Item, p.Amount, p.Student = bought.name, bought.cents, p.CardID%10 != 0
	if bought.byWeight {
		p.Kilos = float64(100+r.IntN(600)) / 1000
		p.Amount = int64(float64(bought.cents) * p.Kilos)
	}
	if !p.Student {
		p.Amount += p.Amount / 2
	}
	var order [8]byte
	binary.BigEndian.PutUint64(order[:], uint64(p.OrderNumber))
	p.Receipt = md5.Sum(order[:])
}

func (p *purchase) String() string {
	return fmt.Sprintf("order %d of card %d at %s, till %d", p.OrderNumber, p.CardID, p.SellerID, p.DeviceID)
}
