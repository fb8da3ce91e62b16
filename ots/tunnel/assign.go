package tunnel

// Seat is a channel that can be read, and the client that has it.
type Seat struct {
	Channel string
	Client  string // empty: none
	Closing bool   // the client was told to give the channel back
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
	load := make(map[string]int, len(clients))
	held := make(map[string][]string, len(clients)) // channels that could be taken back
	for _, s := range seats {
		if s.Client != "" && !s.Closing {
			load[s.Client]++
			held[s.Client] = append(held[s.Client], s.Channel)
		}
	}
	give = map[string]string{}
	for _, s := range seats {
		if s.Client == "" {
			least, _ := extremes(clients, load)
			give[s.Channel] = least
			load[least]++
		}
	}
	for _, s := range seats {
		if s.Closing {
			least, _ := extremes(clients, load)
			load[least]++
		}
	}
	for {
		least, most := extremes(clients, load)
		if load[most]-load[least] <= 1 || len(held[most]) == 0 {
			return give, takeBack
		}
		last := len(held[most]) - 1
		takeBack = append(takeBack, held[most][last])
		held[most] = held[most][:last]
		load[most]--
		load[least]++
	}
}

// extremes returns the first client with the least load and the first with the most.
func extremes(clients []string, load map[string]int) (least, most string) {
	least, most = clients[0], clients[0]
	for _, c := range clients[1:] {
		if load[c] < load[least] {
			least = c
		}
		if load[c] > load[most] {
			most = c
		}
	}
	return least, most
}
