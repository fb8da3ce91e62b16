package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	markerKind = "flagstone-backups"
	plain      = "plain" // the text of the marker of a repository that is not encrypted
	nameLayout = "20060102T150405.000Z"
	nameLength = len(nameLayout) + 9
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
	store    string    // the id of the only store whose backups it has; "": it has all
	known    *sync.Map // ids of stores by the names of backups that were read, whose descriptions do not change
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
	case kind == plain && unsealer != nil: // anything that writes to the repository can replace the marker
		return nil, fmt.Errorf("%w: its marker says that it is not encrypted, and an identity was given; leave out --identity if it never was encrypted", ErrNotRepository)
	case kind != plain && unsealer == nil:
		return nil, fmt.Errorf("%w: it is encrypted, and no identity was given", ErrNotRepository)
	}
	return &Archive{repo: repo, unsealer: unsealer, known: new(sync.Map)}, nil
}

// kindOf returns the text of the marker of a repository.
func kindOf(sealer Sealer) string {
	if sealer == nil {
		return plain
	}
	return sealer.Name()
}

// prepare makes the marker of an empty repository, or compares the one that is there.
func prepare(ctx context.Context, repo Repository, sealer Sealer) error {
	err := checkMarker(ctx, repo, sealer)
	if !isMissing(err) {
		return err
	}
	foreign, err := firstObject(ctx, repo)
	if err != nil {
		return err
	}
	if foreign == "" {
		if err := putText(ctx, repo, markerName, markerKind, kindOf(sealer)+"\n"); err != nil {
			return err
		}
	}
	// Another create may have made, or replaced, the marker meanwhile.
	if err = checkMarker(ctx, repo, sealer); isMissing(err) {
		return fmt.Errorf("%w: it has %q, but no object %q", ErrNotRepository, foreign, markerName)
	}
	return err
}

// checkMarker compares the marker of a repository with what a create does. An error of a missing one matches
// fs.ErrNotExist.
func checkMarker(ctx context.Context, repo Repository, sealer Sealer) error {
	want := kindOf(sealer)
	kind, err := readMarker(ctx, repo)
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

// errFound ends a listing.
var errFound = errors.New("found")

// firstObject returns the name of an object, "" if there is none. What a Put that was killed has left does not count.
func firstObject(ctx context.Context, repo Repository) (found string, err error) {
	err = repo.List(ctx, "", func(name string, _ int64) error {
		if strings.HasPrefix(name, partialPrefix) {
			return nil
		}
		found = name
		return errFound
	})
	if errors.Is(err, errFound) {
		return found, nil
	}
	return "", err
}

// CheckMarker returns an error if Create would refuse the repository for what its marker says. A repository that does not
// exist yet is none. It spares the caller work that a Create would throw away.
func CheckMarker(ctx context.Context, repo Repository, sealer Sealer) error {
	if err := checkMarker(ctx, repo, sealer); !isMissing(err) {
		return err
	}
	return nil
}

func readMarker(ctx context.Context, repo Repository) (kind string, err error) {
	text, err := getText(ctx, repo, markerName, markerKind)
	return strings.TrimSuffix(text, "\n"), err
}

// Names returns the names of the backups, oldest first. For an Archive of one store these are also those that cannot be
// read: they may be of this store, and an older one must not take their place unseen.
func (a *Archive) Names(ctx context.Context) ([]string, error) {
	list, _, err := listBackups(ctx, a.repo, nil)
	if err != nil || a.store == "" {
		return list, err
	}
	stores, err := a.stores(ctx, list)
	return slices.DeleteFunc(list, func(name string) bool {
		id, known := stores[name]
		return known && id != a.store
	}), err
}

// Of returns an Archive that reads the backups of one store, by the beginning of its id as Info has it. Errors
// match ErrNoBackup.
func (a *Archive) Of(ctx context.Context, store string) (*Archive, error) {
	list, err := a.Names(ctx)
	if err != nil {
		return nil, err
	}
	stores, err := a.stores(ctx, list)
	if err != nil {
		return nil, err
	}
	ids := slices.DeleteFunc(distinct(stores), func(id string) bool { return !strings.HasPrefix(id, store) })
	if len(ids) != 1 {
		return nil, fmt.Errorf("%w: %q is the beginning of the ids of %d stores", ErrNoBackup, store, len(ids))
	}
	return &Archive{a.repo, a.unsealer, ids[0], a.known}, nil
}

// stores returns the ids of the stores of backups, by name; "" of those that do not say it. Those that cannot be read are
// left out.
func (a *Archive) stores(ctx context.Context, backups []string) (map[string]string, error) {
	stores := map[string]string{}
	for _, name := range backups {
		id, ok := a.known.Load(name)
		if !ok {
			d, err := a.description(ctx, name)
			if isUnreadable(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			id = d.info().Store
			a.known.Store(name, id)
		}
		stores[name] = id.(string)
	}
	return stores, nil
}

// distinct returns each store that is known once.
func distinct(stores map[string]string) []string {
	ids := slices.Compact(slices.Sorted(maps.Values(stores)))
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// ofOne returns an error if backups, oldest first, are of several stores, or if the newest that can be read does not say
// of which, and others do. It matches ErrNoBackup.
func (a *Archive) ofOne(ctx context.Context, backups []string) error {
	if a.store != "" {
		return nil
	}
	stores, err := a.stores(ctx, backups)
	ids := distinct(stores)
	if err != nil || len(ids) == 0 {
		return err
	}
	readable := slices.DeleteFunc(slices.Clone(backups), func(name string) bool { _, ok := stores[name]; return !ok })
	if len(ids) == 1 && stores[readable[len(readable)-1]] == ids[0] {
		return nil
	}
	for i, id := range ids {
		for _, name := range slices.Backward(backups) {
			if stores[name] == id {
				ids[i] = fmt.Sprintf("%.8s (newest %s)", id, name)
				break
			}
		}
	}
	return fmt.Errorf("%w: the repository has those of several stores, or of one that is not known; name a backup, or one of these stores: %s", ErrNoBackup, strings.Join(ids, ", "))
}

// listBackups returns the names of the backups, oldest first, and of descriptions that do not count. between, if not
// nil, is called after the descriptions were listed, and before what takes their standing away: see doc.go.
func listBackups(ctx context.Context, repo Repository, between func() error) (list, abandoned []string, err error) {
	list, err = names(ctx, repo, backupsPrefix)
	if err == nil && between != nil {
		err = between()
	}
	if err != nil {
		return nil, nil, err
	}
	dead, err := names(ctx, repo, abandonedPrefix)
	if err != nil {
		return nil, nil, err
	}
	isDead := map[string]bool{}
	for _, name := range dead {
		isDead[name] = true
	}
	list = slices.DeleteFunc(list, func(name string) bool {
		if isDead[name] {
			abandoned = append(abandoned, name)
		}
		return isDead[name] || !backupName.MatchString(name)
	})
	slices.Sort(list)
	return list, abandoned, nil
}

// Find returns the name of a backup, which may be shortened as long as one is meant; "" is the newest, if all are of one
// store. Errors match ErrNoBackup.
func (a *Archive) Find(ctx context.Context, short string) (string, error) {
	all, err := a.Names(ctx)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%w: the repository has none", ErrNoBackup)
	}
	if short == "" {
		return all[len(all)-1], a.ofOne(ctx, all)
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
	// Store is the id of the store, 32 hexadecimal digits; "" if the backup is older than this field.
	Store string `json:"store,omitempty"`
	// CreatedMillis is when the backup was begun, in milliseconds since the epoch.
	CreatedMillis int64 `json:"created_millis"`
	Files         int   `json:"files"`
	Bytes         int64 `json:"bytes"`       // of all files
	AddedBytes    int64 `json:"added_bytes"` // of those that the repository did not have before
}

// Info reads the description of a backup, by its name as Names or Find returns it. Errors match ErrDamaged or
// ErrIdentity, or are those of the repository: fs.ErrNotExist, if the backup was pruned.
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
