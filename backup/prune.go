package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// UnfinishedAfter is how old the notice of a create must be before a prune takes the create for dead. A create that
// runs puts a new one every half an hour.
const UnfinishedAfter = 24 * time.Hour

// PruneOptions say what to delete. Keep or OlderThan must be given; a backup is deleted if both that are given
// agree. The newest is never deleted.
type PruneOptions struct {
	// Keep is how many of the newest backups stay; 0 is not given.
	Keep int
	// OlderThan is the age from which backups are deleted; 0 is not given.
	OlderThan time.Duration
	// UnfinishedAfter replaces the constant of that name; 0 is the constant.
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

// maxPlan is how many objects one Prune deletes, so that its plan is shorter than maxText.
const maxPlan = 500_000

// Prune deletes backups, and then objects that no backup refers to. It may run beside Create, and may be killed:
// the next one goes on. It deletes nothing if the description of a backup that is to stay cannot be read.
func (a *Archive) Prune(ctx context.Context, opts PruneOptions) (report PruneReport, err error) {
	if opts.Keep < 0 || opts.OlderThan < 0 || opts.Keep == 0 && opts.OlderThan == 0 {
		return report, errors.New("backup: prune needs a number of backups to keep, or an age")
	}
	if opts.Clock == nil {
		opts.Clock = clock.System()
	}
	if opts.UnfinishedAfter == 0 {
		opts.UnfinishedAfter = UnfinishedAfter
	}
	// Plans first: a plan that is listed names only objects that no backup listed later needs, or it was given up.
	plans, err := names(ctx, a.repo, plansPrefix)
	if err != nil {
		return report, err
	}
	all, err := a.Names(ctx)
	if err != nil {
		return report, err
	}
	// Notices after the backups: a backup without one is finished.
	notices, err := names(ctx, a.repo, unfinishedPrefix)
	if err != nil {
		return report, err
	}
	now := opts.Clock.NowMillis()
	drop := opts.choose(finished(all, notices), now)
	kept := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(drop, name) })
	used, err := a.used(ctx, kept)
	if err != nil {
		return report, err
	}
	for _, name := range drop {
		if err := a.repo.Delete(ctx, backupsPrefix+name); err != nil {
			return report, err
		}
		report.Backups = append(report.Backups, name)
	}
	p := pruner{a.repo, opts, kept, used, &report}
	return report, p.objects(ctx, plans, now)
}

// finished returns the backups that have no notice. One that has may be taken back, so it counts neither as kept
// nor as old.
func finished(backups, notices []string) []string {
	begun := map[string]bool{}
	for _, n := range notices {
		backup, _ := parseNotice(n)
		begun[backup] = true
	}
	return slices.DeleteFunc(slices.Clone(backups), func(name string) bool { return begun[name] })
}

// choose returns the backups to delete. names are those that are finished, oldest first.
func (o *PruneOptions) choose(names []string, nowMillis int64) (drop []string) {
	for _, name := range names[:max(len(names)-max(o.Keep, 1), 0)] {
		if o.OlderThan == 0 || nowMillis-begunMillis(name) > o.OlderThan.Milliseconds() {
			drop = append(drop, name)
		}
	}
	return drop
}

// used returns the names of all objects to which backups refer.
func (a *Archive) used(ctx context.Context, backups []string) (map[string]bool, error) {
	used := map[string]bool{}
	for _, name := range backups {
		d, err := a.description(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range d.entries {
			used[d.entries[i].object()] = true
		}
	}
	return used, nil
}

// pruner deletes objects.
type pruner struct {
	repo   Repository
	opts   PruneOptions
	kept   []string
	used   map[string]bool
	report *PruneReport
}

// objects deletes objects that no backup refers to, and then the plans of earlier prunes.
func (p *pruner) objects(ctx context.Context, plans []string, now int64) error {
	if free, err := p.alone(ctx, now); err != nil || !free {
		return err
	}
	plan, sizes, err := p.unused(ctx)
	if err != nil {
		return err
	}
	own := plansPrefix + newName(now)
	if len(plan) > 0 {
		if err := putText(ctx, p.repo, own, planKind, strings.Join(plan, "\n")+"\n"); err != nil {
			return err
		}
	}
	// From here on, a create that begins uses none of them. Look for those that began before.
	if free, err := p.alone(ctx, now); err != nil || !free {
		return errors.Join(err, p.repo.Delete(ctx, own))
	}
	for i, name := range plan {
		if err := p.repo.Delete(ctx, name); err != nil {
			return err
		}
		p.report.Objects++
		p.report.Bytes += sizes[i]
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

// alone reports whether no create runs, and none has ended since the backups were listed. It deletes notices that
// are too old.
func (p *pruner) alone(ctx context.Context, now int64) (bool, error) {
	notices, err := names(ctx, p.repo, unfinishedPrefix)
	if err != nil {
		return false, err
	}
	for _, n := range notices {
		backup, millis := parseNotice(n)
		if age := now - millis; max(age, -age) <= p.opts.UnfinishedAfter.Milliseconds() { // a clock may have been ahead
			p.report.Unfinished = backup
			return false, nil
		}
		if err := p.repo.Delete(ctx, unfinishedPrefix+n); err != nil {
			return false, err
		}
	}
	// After the notices: a create whose notice has gone has put its backup before.
	backups, err := backupNames(ctx, p.repo)
	for _, name := range backups {
		if !slices.Contains(p.kept, name) {
			p.report.Unfinished = name
			return false, err
		}
	}
	return true, err
}

// unused lists the objects that no backup refers to, and what killed calls have left, with their sizes.
func (p *pruner) unused(ctx context.Context) (list []string, sizes []int64, err error) {
	for _, prefix := range []string{objectsPrefix, partialPrefix} {
		err = errors.Join(err, p.repo.List(ctx, prefix, func(name string, size int64) error {
			if !p.used[name] && len(list) < maxPlan {
				list, sizes = append(list, name), append(sizes, size)
			}
			return nil
		}))
	}
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
