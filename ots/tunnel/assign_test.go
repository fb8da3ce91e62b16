package tunnel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// seatsOf makes seats of "channel" (free), "channel=client" and "channel=client!" (closing).
func seatsOf(text string) (seats []Seat) {
	for field := range strings.FieldsSeq(text) {
		field, closing := strings.CutSuffix(field, "!")
		channel, client, _ := strings.Cut(field, "=")
		seats = append(seats, Seat{channel, client, closing})
	}
	return seats
}

func TestAssign(t *testing.T) {
	for _, c := range []struct{ clients, seats, give, takeBack string }{
		{"", "1 2", "", ""},
		{"a", "", "", ""},
		{"a", "1 2 3", "1=a 2=a 3=a", ""},
		{"a b", "1 2 3", "1=a 2=b 3=a", ""},
		{"a b", "1=a 2=a", "", "2"},
		{"a b", "1=a 2=a 3=b", "", ""},
		{"a b", "1=a 2=a 3=a 4", "4=b", "3"},
		{"a b", "1=a 2=a 3=a! 4=a!", "", ""},
		{"a b c", "1=a 2=a 3=a 4=a 5=b 6=b", "", "4 3"},
		{"a b c d", "1=a!", "", ""},
		{"b", "1=a!", "", ""},
	} {
		give, takeBack := Assign(strings.Fields(c.clients), seatsOf(c.seats))
		var given []string
		for _, channel := range slices.Sorted(maps.Keys(give)) {
			given = append(given, channel+"="+give[channel])
		}
		if got := strings.Join(given, " "); got != c.give {
			t.Errorf("%s, %s: gives %q, want %q", c.clients, c.seats, got, c.give)
		}
		if got := strings.Join(takeBack, " "); got != c.takeBack {
			t.Errorf("%s, %s: takes back %q, want %q", c.clients, c.seats, got, c.takeBack)
		}
	}
}

// TestAssignmentsBecomeEven carries out what Assign says for random seats, until it says nothing more: after one
// round of closing, channels are even, and no channel moved needlessly.
func TestAssignmentsBecomeEven(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 3000 {
		var clients []string
		for i := range 1 + rng.IntN(6) {
			clients = append(clients, fmt.Sprint("c", i))
		}
		var seats []Seat
		load := map[string]int{}
		for i := range rng.IntN(40) {
			s := Seat{Channel: fmt.Sprint(i)}
			if rng.IntN(3) > 0 {
				s.Client = clients[rng.IntN(len(clients))*rng.IntN(2)]
				s.Closing = rng.IntN(4) == 0
			}
			if !s.Closing {
				load[s.Client]++
			}
			seats = append(seats, s)
		}
		surplus := 0 // channels above a fair share, which are all that may move
		for _, c := range clients {
			surplus += max(0, load[c]-len(seats)/len(clients))
		}
		for step := range 2 {
			give, takeBack := Assign(clients, seats)
			if len(takeBack) > surplus || step > 0 && len(takeBack) > 0 {
				t.Fatalf("seed %d, round %d, step %d: %d of %d surplus channels are taken back", seed, round, step, len(takeBack), surplus)
			}
			for i := range seats {
				s := &seats[i]
				switch {
				case s.Client == "" && give[s.Channel] == "":
					t.Fatalf("seed %d, round %d: channel %s is given to no client", seed, round, s.Channel)
				case s.Client == "":
					s.Client = give[s.Channel]
				case give[s.Channel] != "":
					t.Fatalf("seed %d, round %d: channel %s is given away", seed, round, s.Channel)
				case s.Closing || slices.Contains(takeBack, s.Channel):
					*s = Seat{Channel: s.Channel} // the client has closed it
				}
			}
		}
		clear(load)
		for _, s := range seats {
			if s.Client != "" {
				load[s.Client]++
			}
		}
		least, most := len(seats), 0
		for _, c := range clients {
			least, most = min(least, load[c]), max(most, load[c])
		}
		if most-least > 1 {
			t.Fatalf("seed %d, round %d: %v", seed, round, load)
		}
	}
}
