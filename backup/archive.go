package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	markerKind = "flagstone-backups"
	plain      = "plain" // the text of the marker of a repository that is not encrypted
	nameLayout = "20060102T150405.000Z"
)

// backupName matches the name of a backup: when it was begun, in UTC, and four random bytes.
var backupName = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}$`)

// newName makes the name of a backup that begins now.
func newName(nowMillis int64) string {
	random := make([]byte, 4)
	rand.Read(random)
	return time.UnixMilli(nowMillis).UTC().Format(nameLayout) + "-" + hex.EncodeToString(random)
}

// begunMillis returns when a backup was begun, by its name. REQUIRES: it is the name of one.
func begunMillis(name string) int64 {
	begun, _ := time.Parse(nameLayout, name[:len(nameLayout)]) // a name of impossible digits is very old
	return begun.UnixMilli()
}

// Archive is an open repository. Its methods are safe for concurrent use.
type Archive struct {
	repo     Repository
	unsealer Unsealer
}

// Open opens a repository to read, or to prune. unsealer is nil if it is not encrypted. The error matches
// ErrNotRepository if there is none.
func Open(ctx context.Context, repo Repository, unsealer Unsealer) (*Archive, error) {
	kind, err := readMarker(ctx, repo)
	switch {
	case isMissing(err):
		return nil, fmt.Errorf("%w: it has no object %q", ErrNotRepository, markerName)
	case err != nil:
		return nil, err
	case kind == plain:
		unsealer = nil // an identity too many does no harm
	case unsealer == nil:
		return nil, fmt.Errorf("%w: it is encrypted, and no identity was given", ErrNotRepository)
	}
	return &Archive{repo, unsealer}, nil
}

// prepare makes the marker of an empty repository, or compares the one that is there.
func prepare(ctx context.Context, repo Repository, sealer Sealer) error {
	want := plain
	if sealer != nil {
		want = sealer.Name()
	}
	kind, err := readMarker(ctx, repo)
	if isMissing(err) {
		foreign, failed := firstObject(ctx, repo)
		if failed != nil {
			return failed
		}
		if foreign == "" {
			return putText(ctx, repo, markerName, markerKind, want+"\n")
		}
		// Another create may have made it meanwhile.
		if kind, err = readMarker(ctx, repo); isMissing(err) {
			return fmt.Errorf("%w: it has %q, but no object %q", ErrNotRepository, foreign, markerName)
		}
	}
	switch {
	case err != nil:
		return err
	case kind == want:
		return nil
	case kind == plain:
		return fmt.Errorf("%w: it is not encrypted; create an encrypted one elsewhere", ErrNotRepository)
	case want == plain:
		return fmt.Errorf("%w: it is encrypted; name the recipients", ErrNotRepository)
	}
	return fmt.Errorf("%w: it is encrypted for other recipients; name the same ones, or create another repository", ErrNotRepository)
}

// firstObject returns the name of an object, "" if there is none. What a Put that was killed has left does not count.
func firstObject(ctx context.Context, repo Repository) (found string, err error) {
	err = repo.List(ctx, "", func(name string, _ int64) error {
		if found == "" && !strings.HasPrefix(name, partialPrefix) {
			found = name
		}
		return nil
	})
	return found, err
}

func readMarker(ctx context.Context, repo Repository) (kind string, err error) {
	text, err := getText(ctx, repo, markerName, markerKind)
	return strings.TrimSuffix(text, "\n"), err
}

// Names returns the names of the backups, oldest first.
func (a *Archive) Names(ctx context.Context) ([]string, error) { return backupNames(ctx, a.repo) }

func backupNames(ctx context.Context, repo Repository) ([]string, error) {
	list, err := names(ctx, repo, backupsPrefix)
	list = slices.DeleteFunc(list, func(name string) bool { return !backupName.MatchString(name) })
	slices.Sort(list)
	return list, err
}

// Find returns the name of a backup, which may be shortened as long as one is meant; "" is the newest. Errors match
// ErrNoBackup.
func (a *Archive) Find(ctx context.Context, short string) (string, error) {
	all, err := a.Names(ctx)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%w: the repository has none", ErrNoBackup)
	}
	if short == "" {
		return all[len(all)-1], nil
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, short) })
	switch len(all) {
	case 0:
		return "", fmt.Errorf("%w: %q", ErrNoBackup, short)
	case 1:
		return all[0], nil
	}
	return "", fmt.Errorf("%w: %q is the beginning of %d names", ErrNoBackup, short, len(all))
}

// Info describes a backup.
type Info struct {
	Name string `json:"name"`
	// CreatedMillis is when the backup was begun, in milliseconds since the epoch.
	CreatedMillis int64 `json:"created_millis"`
	Files         int   `json:"files"`
	Bytes         int64 `json:"bytes"`       // of all files
	AddedBytes    int64 `json:"added_bytes"` // of those that the repository did not have before
}

// Info reads the description of a backup. Errors match ErrDamaged, or are those of the repository.
func (a *Archive) Info(ctx context.Context, name string) (Info, error) {
	d, err := a.description(ctx, name)
	if err != nil {
		return Info{}, err
	}
	return d.info(), nil
}

// description reads and checks the description of a backup.
func (a *Archive) description(ctx context.Context, name string) (*description, error) {
	content, err := getAll(ctx, a.repo, backupsPrefix+name, a.unsealer)
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", name, err)
	}
	d, err := decodeDescription(content)
	if err == nil && d.name != name {
		err = fmt.Errorf("%w: it is that of backup %q", ErrDamaged, d.name)
	}
	if err != nil {
		return nil, fmt.Errorf("backup %s: its description %s%s: %w", name, backupsPrefix, name, err)
	}
	return d, nil
}
