package tunnel

import (
	"cmp"
	"container/heap"
	"slices"
)

// Seat is a channel that can be read, and the client that has it.
type Seat struct {
	Channel string
	Client  string // empty: none
	Closing bool   // the client was told to give the channel back
}

// share is what a client has.
type share struct {
	client string
	order  int      // of the client in the arguments
	load   int      // channels that it has or will get
	held   []string // channels that could be taken back
}

// shares is a heap: the client with the least load is first, and the earliest of equals.
type shares []*share

func (s shares) Len() int           { return len(s) }
func (s shares) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s shares) Less(i, j int) bool { return s.compare(s[i], s[j]) < 0 }
func (s *shares) Push(any)          { panic("tunnel: the number of clients is fixed") }
func (s *shares) Pop() any          { panic("tunnel: the number of clients is fixed") }

func (shares) compare(a, b *share) int {
	return cmp.Or(cmp.Compare(a.load, b.load), cmp.Compare(a.order, b.order))
}

// fill gives a channel to the client with the least load, and returns the client.
func (s shares) fill() string {
	least := s[0]
	least.load++
	heap.Fix(&s, 0)
	return least.client
}

// Assign decides which client gets each channel that no client has, and which channels clients
// have to give back, so that in the end the numbers of channels of any two clients differ by at
// most one. It moves no more channels than that needs. A channel that is being given back counts
// for the client that will get it. The answer depends on the order of the arguments and on nothing
// else.
func Assign(clients []string, seats []Seat) (give map[string]string, takeBack []string) {
	if len(clients) == 0 {
		return nil, nil
	}
	all := make(shares, len(clients))
	byClient := make(map[string]*share, len(clients))
	for i, c := range clients {
		all[i] = &share{client: c, order: i}
		byClient[c] = all[i]
	}
	for _, s := range seats {
		if of := byClient[s.Client]; of != nil && !s.Closing {
			of.load++
			of.held = append(of.held, s.Channel)
		}
	}
	heap.Init(&all)
	give = map[string]string{}
	for _, s := range seats {
		if s.Client == "" {
			give[s.Channel] = all.fill()
		}
	}
	total := 0
	for _, s := range seats {
		if s.Closing {
			all.fill()
		}
		if s.Closing || s.Client == "" || byClient[s.Client] != nil {
			total++
		}
	}
	// The clients with the largest loads keep the remainder. A load above its target consists of
	// channels that the client had before: what was filled in went to the least loads.
	slices.SortFunc(all, func(a, b *share) int { return cmp.Or(cmp.Compare(b.load, a.load), cmp.Compare(a.order, b.order)) })
	for i, s := range all {
		target := total / len(all)
		if i < total%len(all) {
			target++
		}
		for range s.load - target {
			last := len(s.held) - 1
			takeBack = append(takeBack, s.held[last])
			s.held = s.held[:last]
		}
	}
	return give, takeBack
}
