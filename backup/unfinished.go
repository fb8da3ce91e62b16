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

// notice announces a create to prunes. Its object is empty: the name says which backup is being made, and when the
// notice was put.
type notice struct {
	repo   Repository
	backup string
	millis int64
}

func (n *notice) name() string {
	return unfinishedPrefix + n.backup + "." + strconv.FormatInt(n.millis, 10)
}

// parseNotice returns of which backup a notice is, and when it was put, by its name behind the prefix. That is 0
// for a name that is none.
func parseNotice(name string) (backup string, millis int64) {
	i := strings.LastIndexByte(name, '.')
	millis, err := strconv.ParseInt(name[i+1:], 10, 64)
	if i < 0 || err != nil {
		return name, 0
	}
	return name[:i], millis
}

func (n *notice) put(ctx context.Context) error {
	return n.repo.Put(ctx, n.name(), func(io.Writer) error { return nil })
}

// renew replaces the notice by a newer one. The new one is there before the old one is looked for, so a prune that
// deletes the old one as old either finds the new one, or is noticed here.
func (n *notice) renew(ctx context.Context, nowMillis int64) error {
	if nowMillis-n.millis < renewAfter {
		return nil
	}
	old := *n
	n.millis = nowMillis
	if err := n.put(ctx); err != nil {
		return err
	}
	if err := old.check(ctx); err != nil {
		return err
	}
	return old.remove(ctx)
}

// check returns an error if a prune has deleted the notice.
func (n *notice) check(ctx context.Context) error {
	found, err := exists(ctx, n.repo, n.name())
	if err == nil && !found {
		err = fmt.Errorf("backup %s: a prune has taken it for abandoned; create another one, which goes on with the files that are left", n.backup)
	}
	return err
}

func (n *notice) remove(ctx context.Context) error { return n.repo.Delete(ctx, n.name()) }
