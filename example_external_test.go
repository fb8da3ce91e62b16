package flagstone_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// memoryLog is an external log in memory, which two stores follow.
type memoryLog struct {
	mu       sync.Mutex
	entries  []flagstone.Entry
	replicas []*flagstone.Store // the first one proposes
}

// Propose appends an entry, which is committed at once. It stays in the log if its writer gives up.
func (l *memoryLog) Propose(ctx context.Context, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(len(l.entries))
	l.entries = append(l.entries, flagstone.Entry{Index: n + 1, Prev: n, Payload: payload})
	var answer error
	for i, s := range l.replicas {
		results, err := s.ApplyEntries(context.WithoutCancel(ctx), l.entries[n:])
		if err != nil { // a better owner would try again
			return fmt.Errorf("%w: %w", flagstone.ErrOutcomeUnknown, err)
		}
		if i == 0 {
			answer = results[0]
		}
	}
	return answer
}

func ExampleExternal() {
	ctx, entries := context.Background(), new(memoryLog)
	for _, opts := range []flagstone.External{{Propose: entries.Propose}, {}} {
		dir, err := os.MkdirTemp("", "replica")
		if err != nil {
			log.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := flagstone.Open(dir, flagstone.Options{External: &opts})
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		entries.replicas = append(entries.replicas, s)
	}
	people, err := entries.replicas[0].CreateTable(ctx, flagstone.TableSpec{
		Name: "people", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := people.Put(ctx, flagstone.Key("alice"), "city", flagstone.Now, row.String("Vienna")); err != nil {
		log.Fatal(err)
	}
	copied, err := entries.replicas[1].Table("people")
	if err != nil {
		log.Fatal(err)
	}
	alice, err := copied.Get(ctx, flagstone.Key("alice"), flagstone.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(alice.Text("city"), entries.replicas[1].AppliedIndex())
	// Output: Vienna 3
}
