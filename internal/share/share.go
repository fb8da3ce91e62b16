// Package share divides something scarce, such as memory or connections,
// between users who compete for it, so that one who takes all it can get leaves
// enough for the others.
//
// The rule needs no list of users and no configured parts: whoever takes must
// leave as much as it then holds. With one greedy group, half of the whole stays
// free; with k of them, each holds a k+1st part, and as much stays free for the
// next one. Within a group the same rule divides what the group may take between
// its users, so that a user that is alone in its group gets a third of the whole.
package share

import (
	"context"
	"slices"
	"sync"
)

// User is one who takes: a user of a group. Groups compete with groups, and the
// users of a group with each other; a user without a name only with other groups,
// and one of no group with nobody: it may take all that there is.
type User struct{ Group, Name string }

// Pool is what is divided. Its methods are safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	total   int64
	used    int64
	groups  map[string]*group // those that hold something
	waiting []*waiter         // in the order in which they came
}

type group struct {
	used  int64
	users map[string]int64
}

type waiter struct {
	user    User
	n       int64
	granted chan struct{} // closed, under mu, when it has what it waits for
}

// NewPool returns a pool of the given amount.
func NewPool(total int64) *Pool {
	return &Pool{total: total, groups: make(map[string]*group)}
}

// allows reports whether a user may take n. REQUIRES: mu is held.
func (p *Pool) allows(u User, n int64) bool {
	left := p.total - p.used - n // for everybody else
	if u.Group == "" {
		return left >= 0
	}
	g := p.groups[u.Group]
	if g == nil {
		return n <= left
	}
	mine := g.used + n
	return mine <= left && (u.Name == "" || g.users[u.Name]+n <= left-mine)
}

func (p *Pool) take(u User, n int64) {
	g := p.groups[u.Group]
	if g == nil {
		g = &group{users: make(map[string]int64)}
		p.groups[u.Group] = g
	}
	p.used += n
	g.used += n
	g.users[u.Name] += n
}

// TryTake takes n for a user, or returns false if that would be more than its
// share.
func (p *Pool) TryTake(u User, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.allows(u, n) {
		return false
	}
	p.take(u, n)
	return true
}

// Take takes n for a user and waits until that is within its share: behind those
// of the same user who came before, and past all others. The error is the
// context's. A caller who waits should not hold what another one waits for.
func (p *Pool) Take(ctx context.Context, u User, n int64) error {
	p.mu.Lock()
	if !p.waits(u) && p.allows(u, n) {
		p.take(u, n)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{user: u, n: n, granted: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return nil // granted just now
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.grant() // those behind it may be due
	return ctx.Err()
}

// waits reports whether a user waits already. REQUIRES: mu is held.
func (p *Pool) waits(u User) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.user == u })
}

// Give gives back n of what a user holds.
func (p *Pool) Give(u User, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[u.Group]
	if g == nil || g.users[u.Name] < n {
		panic("share: more is given back than was taken")
	}
	p.used -= n
	g.used -= n
	if g.users[u.Name] -= n; g.users[u.Name] == 0 {
		delete(g.users, u.Name)
	}
	if len(g.users) == 0 {
		delete(p.groups, u.Group)
	}
	p.grant()
}

// grant lets those have their part whose turn has come. REQUIRES: mu is held.
func (p *Pool) grant() {
	if len(p.waiting) == 0 {
		return
	}
	var blocked map[User]bool
	kept := p.waiting[:0]
	for _, w := range p.waiting {
		if !blocked[w.user] && p.allows(w.user, w.n) {
			p.take(w.user, w.n)
			close(w.granted)
			continue
		}
		if blocked == nil {
			blocked = make(map[User]bool)
		}
		blocked[w.user] = true
		kept = append(kept, w)
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
}

// Used is how much is taken altogether.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Total is the amount that is divided.
func (p *Pool) Total() int64 { return p.total }
