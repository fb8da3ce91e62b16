// Package share divides something scarce, such as memory or connections, between competing
// users, so that a user that takes all it can get leaves enough for the others.
//
// The rule needs no list of users and no configured parts: a group that takes must leave as much
// as it then holds. With one greedy group, half of the whole stays free. With k greedy groups,
// each holds a k+1st part, and as much stays free for the next. Within a group the same rule
// divides the group's part between its users, so a user alone in its group gets a third of the
// whole.
package share

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// User is a user of a group. Groups compete with groups, and the users of a group with each
// other. A user without a name competes only with other groups. A user without a group does not
// compete: it may take all there is.
type User struct{ Group, Name string }

// Pool is the amount that is divided. Its methods are safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	total   int64
	used    int64
	groups  map[string]*group // those that hold something
	waiting []*queue          // one for each user with waiters
}

type group struct {
	used  int64
	users map[string]int64
}

// queue is the waiters of one user in the order in which they came; it is never empty. Give
// looks at each waiting user, not at each waiter.
type queue struct {
	user    User
	waiters list.List // of *waiter
}

type waiter struct {
	n       int64
	granted chan struct{} // closed, under mu, when the waiter has its n
}

// NewPool returns a pool of the given amount.
func NewPool(total int64) *Pool {
	return &Pool{total: total, groups: make(map[string]*group)}
}

// allows reports whether a user may take n. REQUIRES: mu is held.
func (p *Pool) allows(u User, n int64) bool {
	left := p.total - p.used - n // for all other users
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

// TryTake takes n for a user, or returns false if the user's share does not allow it.
func (p *Pool) TryTake(u User, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.allows(u, n) {
		return false
	}
	p.take(u, n)
	return true
}

// Take takes n for a user, and waits until the user's share allows it. A caller waits behind
// earlier callers of the same user, but not behind those of others. The error is the context's.
// A waiting caller should not hold what another one waits for.
func (p *Pool) Take(ctx context.Context, u User, n int64) error {
	p.mu.Lock()
	i := slices.IndexFunc(p.waiting, func(q *queue) bool { return q.user == u })
	if i < 0 && p.allows(u, n) {
		p.take(u, n)
		p.mu.Unlock()
		return nil
	}
	if i < 0 {
		i = len(p.waiting)
		p.waiting = append(p.waiting, &queue{user: u})
	}
	q := p.waiting[i]
	w := &waiter{n: n, granted: make(chan struct{})}
	place := q.waiters.PushBack(w)
	p.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.granted: // just now
		return nil
	default:
	}
	q.waiters.Remove(place)
	p.grant() // waiters behind it may be due
	return ctx.Err()
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

// grant serves the waiters that are due, one of each user in turn, and forgets empty queues.
// REQUIRES: mu is held.
func (p *Pool) grant() {
	for i := 0; i < len(p.waiting); {
		q := p.waiting[i]
		first := q.waiters.Front()
		if first != nil && !p.allows(q.user, first.Value.(*waiter).n) {
			i++
			continue
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		if first == nil {
			continue
		}
		w := q.waiters.Remove(first).(*waiter)
		p.take(q.user, w.n)
		close(w.granted)
		if q.waiters.Len() > 0 {
			p.waiting = append(p.waiting, q)
		}
	}
}

// Used is how much is taken altogether.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Total is the amount that is divided.
func (p *Pool) Total() int64 { return p.total }
