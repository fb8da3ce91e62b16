package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

const (
	// UnfinishedAfter is how old the notice of a create must be before a prune takes the create for dead. A create that
	// runs renews it every half an hour, also within a file.
	UnfinishedAfter = 24 * time.Hour
	// LeastUnfinishedAfter leaves room for a device that hangs, and for clocks that differ.
	LeastUnfinishedAfter = 2 * time.Hour
)

// PruneOptions say what to delete. Keep or OlderThan must be given; a backup is deleted if both that are given
// agree. The newest of each store is never deleted.
type PruneOptions struct {
	// Keep is how many of the newest backups of each store stay; 0 is not given.
	Keep int
	// OlderThan is the age from which backups are deleted; 0 is not given.
	OlderThan time.Duration
	// UnfinishedAfter replaces the constant of that name; 0 is the constant. It is at least LeastUnfinishedAfter.
	UnfinishedAfter time.Duration
	// Clock is that of the machine if nil.
	Clock clock.Clock
}

// PruneReport is what Prune deleted.
type PruneReport struct {
	Backups []string
	Objects int
	Bytes   int64
	// Unfinished is the name of a backup that is being made, or was just made. While there is one, objects stay
	// that no backup refers to.
	Unfinished string
}

// planKind is the first word of a plan.
const planKind = "flagstone-prune-plan"

const (
	// maxPlan is how many objects one Prune deletes, so that its plan is shorter than maxText.
	maxPlan = 500_000
	// maxPlans is how many plans a create holds in memory.
	maxPlans = 16
)

// partialName matches what a Put of a Folder that was killed has left, behind the prefix.
var partialName = regexp.MustCompile(`^[A-Z2-7]{26}\.[0-9]{1,18}$`)

// Prune deletes backups, and then objects that no backup refers to. It may run beside Create and other calls of Prune,
// and may be killed: the next one goes on. It deletes nothing if the description of a backup that is to stay cannot be
// read.
func (a *Archive) Prune(ctx context.Context, opts PruneOptions) (report PruneReport, err error) {
	if opts.Keep < 0 || opts.OlderThan < 0 || opts.Keep == 0 && opts.OlderThan == 0 {
		return report, errors.New("backup: prune needs a number of backups to keep, or an age")
	}
	if a.store != "" {
		return report, errors.New("backup: an archive of one store cannot be pruned")
	}
	if opts.Clock == nil {
		opts.Clock = clock.System()
	}
	if opts.UnfinishedAfter == 0 {
		opts.UnfinishedAfter = UnfinishedAfter
	}
	if opts.UnfinishedAfter < LeastUnfinishedAfter {
		return report, fmt.Errorf("backup: prune takes a backup for dead after %v at the earliest", LeastUnfinishedAfter)
	}
	// Plans first: a plan that is listed names only objects that no backup listed later needs, or it was given up.
	plans, err := names(ctx, a.repo, plansPrefix)
	if err != nil {
		return report, err
	}
	p := pruner{repo: a.repo, unsealer: a.unsealer, opts: opts, report: &report}
	all, begun, err := p.state(ctx)
	if err != nil {
		return report, err
	}
	finished := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return begun[name] })
	stores, err := a.stores(ctx, finished)
	if err != nil {
		return report, err
	}
	drop := opts.choose(finished, stores, opts.Clock.NowMillis())
	p.kept = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(drop, name) })
	if p.used, p.oldest, err = a.used(ctx, p.kept); err != nil {
		return report, err
	}
	for _, name := range drop {
		if err := a.repo.Delete(ctx, backupsPrefix+name); err != nil {
			return report, err
		}
		report.Backups = append(report.Backups, name)
	}
	return report, p.objects(ctx, plans)
}

// state returns the names of the backups, and of those that have a notice or are in doubt. Such a backup may lose its
// standing, so it counts neither as one to keep nor as one to delete. state deletes descriptions that do not count.
func (p *pruner) state(ctx context.Context) (all []string, begun map[string]bool, err error) {
	begun = map[string]bool{}
	all, abandoned, err := listBackups(ctx, p.repo, func() error {
		for _, prefix := range []string{unfinishedPrefix, doubtsPrefix} { // in this order: see doc.go
			list, err := names(ctx, p.repo, prefix)
			if err != nil {
				return err
			}
			for _, name := range list {
				begun[name[:min(len(name), nameLength)]] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range abandoned {
		if err := p.repo.Delete(ctx, backupsPrefix+name); err != nil {
			return nil, nil, err
		}
	}
	return all, begun, nil
}

// choose returns the backups to delete. names are those that are finished, oldest first. Those that do not say of which
// store they are count as those of one more. One that cannot be read goes if enough of any stores are newer.
func (o *PruneOptions) choose(names []string, stores map[string]string, nowMillis int64) (drop []string) {
	newer := map[string]int{} // by store
	for i, name := range slices.Backward(names) {
		store, readable := stores[name]
		if !readable {
			store = "unreadable"
			newer[store] = len(names) - 1 - i
		}
		if newer[store] >= max(o.Keep, 1) && (o.OlderThan == 0 || nowMillis-begunMillis(name) > o.OlderThan.Milliseconds()) {
			drop = append(drop, name)
		}
		newer[store]++
	}
	slices.Reverse(drop)
	return drop
}

// used returns the names of all objects to which backups refer, and the first segment that they need of the logs of
// stores.
func (a *Archive) used(ctx context.Context, backups []string) (used map[string]bool, oldest map[string]uint64, err error) {
	used, oldest = map[string]bool{}, map[string]uint64{}
	for _, name := range backups {
		d, err := a.description(ctx, name)
		if isMissing(err) { // another prune has deleted it, unless the repository is wrong
			there, failed := exists(ctx, a.repo, backupsPrefix+name)
			if failed != nil {
				return nil, nil, failed
			}
			if there {
				return nil, nil, fmt.Errorf("the repository lists %s%s, and gives it to no read: %s", backupsPrefix, name, err)
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		for i := range d.entries {
			used[d.entries[i].object()] = true
		}
		for _, o := range d.origins {
			store := storeName(o.store)
			if n, has := oldest[store]; !has || o.segment < n {
				oldest[store] = o.segment
			}
		}
	}
	return used, oldest, nil
}

// pruner deletes objects.
type pruner struct {
	repo     Repository
	unsealer Unsealer
	opts     PruneOptions
	kept     []string
	used     map[string]bool
	oldest   map[string]uint64
	report   *PruneReport
}

// objects deletes objects that no backup refers to, and then the plans of earlier prunes.
func (p *pruner) objects(ctx context.Context, plans []string) error {
	if free, err := p.alone(ctx); err != nil || !free {
		return err
	}
	plan, sizes, err := p.unused(ctx)
	if err != nil {
		return err
	}
	own := plansPrefix + newName(p.opts.Clock.NowMillis())
	if len(plan) > 0 {
		if err := putText(ctx, p.repo, own, planKind, strings.Join(plan, "\n")+"\n"); err != nil {
			return err
		}
	}
	// From here on, a create that begins uses none of them. Look for those that began before.
	if free, err := p.alone(ctx); err != nil || !free {
		return errors.Join(err, p.repo.Delete(ctx, own))
	}
	for i, name := range plan {
		if err := p.repo.Delete(ctx, name); err != nil {
			return err
		}
		p.report.Objects++
		p.report.Bytes += sizes[i]
	}
	if err := errors.Join(p.removePartials(ctx), p.pruneLogs(ctx)); err != nil {
		return err
	}
	if err := p.repo.Delete(ctx, own); err != nil || len(plan) == maxPlan {
		return err
	}
	for _, name := range plans {
		if err := p.removePlan(ctx, plansPrefix+name); err != nil {
			return err
		}
	}
	return nil
}

// alone reports whether no create runs, and none has ended since the backups were listed. It settles what becomes of
// creates whose notices are too old.
func (p *pruner) alone(ctx context.Context) (bool, error) {
	list, err := names(ctx, p.repo, unfinishedPrefix)
	if err != nil {
		return false, err
	}
	notices := map[string][]string{} // by backup
	for _, n := range list {
		backup, millis := parseDated(n)
		if !p.old(millis) {
			p.report.Unfinished = backup
			return false, nil
		}
		notices[backup] = append(notices[backup], unfinishedPrefix+n)
	}
	for backup, list := range notices {
		if err := p.abandon(ctx, backup, list); err != nil {
			return false, err
		}
	}
	if err := p.removeDoubts(ctx); err != nil {
		return false, err
	}
	// After the notices: a create whose notice has gone has put its backup before.
	backups, _, err := listBackups(ctx, p.repo, nil)
	for _, name := range backups {
		if !slices.Contains(p.kept, name) {
			p.report.Unfinished = name
			return false, err
		}
	}
	return true, err
}

// old reports whether something was put so long ago, or so far ahead by a wrong clock, that its process is dead.
func (p *pruner) old(millis int64) bool {
	age := p.opts.Clock.NowMillis() - millis
	return max(age, -age) > p.opts.UnfinishedAfter.Milliseconds()
}

// abandon ends a create that is dead, or will fail: its backup does not count unless it is there already. The steps
// and their order are in doc.go.
func (p *pruner) abandon(ctx context.Context, backup string, notices []string) error {
	doubt := doubtsPrefix + dated(backup+"-"+rand.Text(), p.opts.Clock.NowMillis())
	if backupName.MatchString(backup) {
		if err := putEmpty(ctx, p.repo, doubt); err != nil {
			return err
		}
		there, err := exists(ctx, p.repo, backupsPrefix+backup)
		if err == nil && !there {
			err = putEmpty(ctx, p.repo, abandonedPrefix+backup)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range append(notices, doubt) { // the doubt last
		if err := p.repo.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// removeDoubts deletes the doubts of prunes that are dead.
func (p *pruner) removeDoubts(ctx context.Context) error {
	list, err := names(ctx, p.repo, doubtsPrefix)
	for _, name := range list {
		if _, millis := parseDated(name); err == nil && p.old(millis) {
			err = p.repo.Delete(ctx, doubtsPrefix+name)
		}
	}
	return err
}

// removePartials deletes what killed calls of Put have left. A Put that is under way is younger.
func (p *pruner) removePartials(ctx context.Context) error {
	list, err := names(ctx, p.repo, partialPrefix)
	for _, name := range list {
		if _, millis := parseDated(name); err == nil && partialName.MatchString(name) && p.old(millis) {
			err = p.repo.Delete(ctx, partialPrefix+name)
		}
	}
	return err
}

// unused lists the objects that no backup refers to, with their sizes.
func (p *pruner) unused(ctx context.Context) (list []string, sizes []int64, err error) {
	err = p.repo.List(ctx, objectsPrefix, func(name string, size int64) error {
		if _, _, ok := parseObject(name[len(objectsPrefix):]); ok && !p.used[name] && len(list) < maxPlan {
			list, sizes = append(list, name), append(sizes, size)
		}
		return nil
	})
	return list, sizes, err
}

// removePlan deletes the plan of an earlier prune, which may still be running, unless an object that it names is
// there: creates must not use that.
func (p *pruner) removePlan(ctx context.Context, plan string) error {
	list, err := readPlan(ctx, p.repo, plan)
	switch {
	case isMissing(err):
		return nil
	case err != nil && !errors.Is(err, ErrDamaged):
		return err
	case slices.ContainsFunc(list, func(name string) bool { return p.used[name] }):
		return nil
	}
	return p.repo.Delete(ctx, plan)
}

func readPlan(ctx context.Context, repo Repository, plan string) ([]string, error) {
	text, err := getText(ctx, repo, plan, planKind)
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n"), err
}

// planned returns the objects that prunes are about to delete.
func planned(ctx context.Context, repo Repository) (map[string]bool, error) {
	plans, err := names(ctx, repo, plansPrefix)
	if err != nil {
		return nil, err
	}
	if len(plans) > maxPlans {
		return nil, fmt.Errorf("the repository has the plans of %d prunes; run 'flagstone backup prune' again", len(plans))
	}
	spared := map[string]bool{}
	for _, plan := range plans {
		list, err := readPlan(ctx, repo, plansPrefix+plan)
		if isMissing(err) {
			continue // done or given up, before objects are listed
		}
		if err != nil {
			return nil, fmt.Errorf("the plan of a prune cannot be read; run 'flagstone backup prune' again: %w", err)
		}
		for _, name := range list {
			spared[name] = true
		}
	}
	return spared, nil
}
