package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// VerifyReport is what Verify found.
type VerifyReport struct {
	Backups, Objects int
	Bytes            int64
	// Problems are the damage, and what no identity fits: each error names the object, a file, and the backups that
	// need it, or the backup whose description cannot be used. They match ErrDamaged or ErrIdentity.
	Problems []error
}

// maxHurt is how many backups and files a problem names.
const maxHurt = 10

// Verify reads all that backups need, but for logs, and compares it with its checksums. An error says that the repository cannot
// be read, or that ctx has ended; the report has the damage. Backups that are pruned meanwhile are left out. The
// memory that it takes grows with the number of objects, by some 300 bytes for each.
func (a *Archive) Verify(ctx context.Context, backups []string, progress func(Progress)) (report VerifyReport, err error) {
	needed := map[string]*entry{}
	var done Progress
	for _, name := range backups {
		d, err := a.description(ctx, name)
		switch {
		case isMissing(err):
			continue
		case isProblem(err):
			report.Problems = append(report.Problems, err)
			continue
		case err != nil:
			return report, err
		}
		report.Backups++
		for i := range d.entries {
			e := &d.entries[i]
			if object := e.object(); needed[object] == nil {
				copied := *e // the description need not stay in memory
				needed[object] = &copied
				done.AllFiles++
				done.AllBytes += e.size
			}
		}
	}
	damaged := map[string]error{}
	for object, e := range needed {
		err := readObject(ctx, a.repo, a.unsealer, e, io.Discard)
		if isProblem(err) {
			damaged[object] = err
		} else if err != nil {
			return report, err
		}
		report.Objects++
		report.Bytes += e.size
		done.Files++
		done.Bytes += e.size
		if progress != nil {
			progress(done)
		}
	}
	hurt, err := a.hurt(ctx, backups, damaged)
	report.Problems = append(report.Problems, hurt...)
	return report, err
}

// isProblem reports whether an error is of an object, and not of the way to it.
func isProblem(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrIdentity) }

// hurt says which files of which backups are damaged objects. Backups that were pruned meanwhile do not count.
func (a *Archive) hurt(ctx context.Context, backups []string, damaged map[string]error) (problems []error, err error) {
	if len(damaged) == 0 {
		return nil, nil
	}
	still, err := a.Names(ctx)
	if err != nil {
		return nil, err
	}
	paths, users := map[string]string{}, map[string][]string{}
	for _, name := range backups {
		d, err := a.description(ctx, name)
		if err != nil || !slices.Contains(still, name) {
			continue // reported already
		}
		for i := range d.entries {
			object := d.entries[i].object()
			if damaged[object] == nil {
				continue
			}
			paths[object] = d.entries[i].path
			if len(users[object]) <= maxHurt && !slices.Contains(users[object], name) {
				users[object] = append(users[object], name)
			}
		}
	}
	for object, list := range users {
		more := ""
		if len(list) > maxHurt {
			list, more = list[:maxHurt], " and others"
		}
		problems = append(problems, fmt.Errorf("file %s of backup %s%s: %w", paths[object], strings.Join(list, ", "), more, damaged[object]))
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems, nil
}
