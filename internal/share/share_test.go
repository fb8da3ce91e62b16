package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// greed takes one by one for a user until it may take no more, and returns how many it took.
func greed(p *Pool, u User) (n int64) {
	for p.TryTake(u, 1) {
		n++
	}
	return n
}

func TestAGreedyUserLeavesEnoughForTheOthers(t *testing.T) {
	p := NewPool(1200)
	if n := greed(p, User{"a", "k"}); n != 400 {
		t.Errorf("alone it got %d of 1200", n)
	}
	// The second key of the instance, and another instance, get their share at once.
	if n := greed(p, User{"a", "l"}); n < 100 {
		t.Errorf("another key of the instance got %d", n)
	}
	if n := greed(p, User{"b", "k"}); n < 200 {
		t.Errorf("another instance got %d", n)
	}
}

func TestAUserWithoutANameHasTheShareOfItsGroupAndOneWithoutAGroupAll(t *testing.T) {
	p := NewPool(1200)
	if n := greed(p, User{Group: "a"}); n != 600 {
		t.Errorf("the group got %d of 1200", n)
	}
	if n := greed(p, User{}); n != 600 {
		t.Errorf("of the 600 that are left %d were had", n)
	}
}

func TestGreedyGroupsEndUpWithEqualParts(t *testing.T) {
	const groups, total = 5, 6000
	p := NewPool(total)
	held := make([]int64, groups)
	// The users take turns. Each gives back a part of what it holds, and then takes all it can
	// get.
	for turn := range 100 * groups {
		i := turn % groups
		u := User{fmt.Sprint(i), "k"}
		if back := (held[i] + 3) / 4; back > 0 {
			p.Give(u, back)
			held[i] -= back
		}
		held[i] += greed(p, u)
	}
	for i, n := range held {
		// A user alone in its group holds x where x = total - groups*x - x.
		if want := int64(total / (groups + 2)); n < want/2 || n > 2*want {
			t.Errorf("group %d holds %d of %d, want about %d (all: %v)", i, n, total, want, held)
		}
	}
}

func TestMoreThanEverCanBeHadIsRefusedWhenTimeIsUp(t *testing.T) {
	p := NewPool(100)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Take(ctx, User{"a", "k"}, 51); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := p.Take(ctx, User{"a", "k"}, 50); err != nil {
		t.Errorf("half of the whole: %v", err)
	}
	if p.Used() != 50 || len(p.waiting) != 0 {
		t.Errorf("%d used, %d waiting", p.Used(), len(p.waiting))
	}
}

func TestWaitersGetWhatIsGivenBackInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100)
		a, b := User{"a", "k"}, User{"b", "k"}
		if !p.TryTake(a, 50) {
			t.Fatal("refused")
		}
		order := make(chan string, 3)
		wait := func(name string, u User, n int64) {
			go func() {
				if err := p.Take(context.Background(), u, n); err != nil {
					t.Error(err)
				}
				order <- name
			}()
			synctest.Wait()
		}
		wait("large", a, 40)
		wait("small", a, 1) // may not overtake the same user's requests
		if len(order) != 0 {
			t.Errorf("%s did not wait", <-order)
		}
		wait("other", b, 20)
		if len(order) != 1 || <-order != "other" {
			t.Error("the other instance waits for this one")
		}
		p.Give(b, 20)
		p.Give(a, 50)
		synctest.Wait()
		got := map[string]bool{<-order: true}
		if !got["large"] {
			t.Errorf("served %v", got)
		}
		p.Give(a, 40)
		synctest.Wait()
		if <-order != "small" {
			t.Error("the last is missing")
		}
		p.Give(a, 1)
		if p.Used() != 0 || len(p.groups) != 0 {
			t.Errorf("%d used, %d groups", p.Used(), len(p.groups))
		}
	})
}

func TestACancelledWaiterLetsThoseBehindItPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100)
		a := User{"a", "k"}
		ctx, cancel := context.WithCancel(context.Background())
		failed, served := make(chan error, 1), make(chan error, 1)
		go func() { failed <- p.Take(ctx, a, 90) }()
		synctest.Wait()
		go func() { served <- p.Take(context.Background(), a, 10) }()
		synctest.Wait()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatIsGivenBackCostsALookAtEachUser: a user with thousands of waiting requests does not
// delay the others.
func TestWhatIsGivenBackCostsALookAtEachUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100)
		a, b := User{"a", "k"}, User{"b", "k"}
		ctx, cancel := context.WithCancel(context.Background())
		for range 1000 {
			go p.Take(ctx, a, 60)
		}
		go p.Take(ctx, b, 60)
		synctest.Wait()
		if len(p.waiting) != 2 {
			t.Errorf("%d queues of two users", len(p.waiting))
		}
		cancel()
		synctest.Wait()
		if len(p.waiting) != 0 || p.Used() != 0 {
			t.Errorf("%d queues and %d used in the end", len(p.waiting), p.Used())
		}
	})
}

// BenchmarkTakeAndGiveBesideManyWaiters has the waiters of another user.
func BenchmarkTakeAndGiveBesideManyWaiters(b *testing.B) {
	p := NewPool(1 << 30)
	u, other := User{"a", "k"}, User{"b", "k"}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 100_000 {
		all.Go(func() { _ = p.Take(ctx, other, 1<<30) })
	}
	for b.Loop() {
		if p.Take(ctx, u, 100) == nil {
			p.Give(u, 100)
		}
	}
	cancel()
	all.Wait()
}

func BenchmarkTakeAndGive(b *testing.B) {
	p := NewPool(1 << 30)
	u := User{"a", "k"}
	ctx := context.Background()
	for b.Loop() {
		if p.Take(ctx, u, 100) == nil {
			p.Give(u, 100)
		}
	}
}
