package backup

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// renewAfter is how old a notice may become, in milliseconds, before a create replaces it.
const renewAfter = 30 * 60 * 1000

// notice announces a create to prunes. Its objects are empty: a name says which backup is being made, and when the
// object was put. The first one stays until the create ends, and a later one beside it shows that the create lives.
type notice struct {
	repo        Repository
	backup      string
	first, last int64 // when the two were put; equal if there is one
}

// dated returns the name of what was put at a time.
func dated(name string, millis int64) string { return name + "." + strconv.FormatInt(millis, 10) }

// parseDated is the inverse of dated. The time is 0 for a name that has none.
func parseDated(name string) (what string, millis int64) {
	i := strings.LastIndexByte(name, '.')
	millis, err := strconv.ParseInt(name[i+1:], 10, 64)
	if i < 0 || err != nil {
		return name, 0
	}
	return name[:i], millis
}

func (n *notice) name(millis int64) string { return unfinishedPrefix + dated(n.backup, millis) }

// putEmpty puts an object whose name says everything.
func putEmpty(ctx context.Context, repo Repository, name string) error {
	return repo.Put(ctx, name, func(io.Writer) error { return nil })
}

func (n *notice) put(ctx context.Context) error { return putEmpty(ctx, n.repo, n.name(n.last)) }

// renew replaces the later object by a newer one.
func (n *notice) renew(ctx context.Context, nowMillis int64) error {
	if age := nowMillis - n.last; max(age, -age) < renewAfter {
		return nil
	}
	previous := n.last
	n.last = nowMillis
	if err := n.put(ctx); err != nil {
		return err
	}
	if previous != n.first {
		if err := n.repo.Delete(ctx, n.name(previous)); err != nil {
			return err
		}
	}
	return n.check(ctx)
}

// check returns an error if a prune takes the create for dead. It looks for doubts before it looks for the first
// object: see doc.go.
func (n *notice) check(ctx context.Context) error {
	doubts, err := names(ctx, n.repo, doubtsPrefix+n.backup)
	if err != nil {
		return err
	}
	there, err := exists(ctx, n.repo, n.name(n.first))
	if err == nil && (len(doubts) > 0 || !there) {
		err = fmt.Errorf("backup %s: a prune has taken it for abandoned; create another one, which goes on with the files that are left", n.backup)
	}
	return err
}

func (n *notice) remove(ctx context.Context) error {
	if n.last != n.first {
		if err := n.repo.Delete(ctx, n.name(n.last)); err != nil {
			return err
		}
	}
	return n.repo.Delete(ctx, n.name(n.first))
}
