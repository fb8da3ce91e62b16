package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
)

// Repository keeps objects by name. Names are paths with slashes, of letters, digits, dots and hyphens. A call that
// returned is seen by every later call, also of other processes.
type Repository interface {
	// Put makes an object of what write writes, durably. It is there as a whole or not at all, also if the process
	// dies. An object with the name is replaced. An error of write is returned, and nothing is put. After another
	// error the object may be there, or come to be there later. write may call other methods.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object. The error matches fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List calls each for all objects whose names begin with prefix, with their sizes in bytes. prefix is a name,
	// or ends in a slash, or is empty. An error of each ends it.
	List(ctx context.Context, prefix string, each func(name string, size int64) error) error
	// Sync makes objects durable that List shows: the process that put them may have died before its Put returned.
	Sync(ctx context.Context, names []string) error
	// Delete deletes an object, durably. It is no error if there is none. After an error the object may go later.
	Delete(ctx context.Context, name string) error
}

// Sealer encrypts what goes into a repository.
type Sealer interface {
	// Name says how and for whom it encrypts, in letters, digits, spaces, colons and hyphens. A repository has one
	// name.
	Name() string
	// Seal returns a writer that encrypts to w. Its Close ends the encrypted object, and does not close w.
	Seal(w io.Writer) (io.WriteCloser, error)
}

// Unsealer decrypts what a Sealer encrypted, and refuses what was changed or cut off.
type Unsealer interface {
	Unseal(r io.Reader) (io.Reader, error)
}

// Errors that callers distinguish.
var (
	// ErrDamaged reports an object that is not what was put, or that is missing.
	ErrDamaged = errors.New("damaged")
	// ErrNotRepository reports that there is no repository, or that it is of another kind.
	ErrNotRepository = errors.New("no repository of backups that can be used")
	// ErrNoBackup reports that the repository has no such backup.
	ErrNoBackup = errors.New("no such backup")
	// ErrNoTable reports that a backup has no such table.
	ErrNoTable = errors.New("no such table in the backup")
	// ErrIdentity reports that an object is encrypted for others. An Unsealer returns it.
	ErrIdentity = errors.New("no identity fits")
	// ErrSource reports that the files to be backed up are not those of a whole store.
	ErrSource = errors.New("cannot be backed up")
)

// errNotPut is matched by errors of a Put that has had no effect, and will have none, though write has succeeded.
var errNotPut = errors.New("nothing was put")

// What a repository has, by the beginnings of names.
const (
	markerName       = "repository"
	backupsPrefix    = "backups/"    // descriptions
	objectsPrefix    = "objects/"    // files of backups
	unfinishedPrefix = "unfinished/" // notices of creates
	plansPrefix      = "plans/"      // of prunes
	doubtsPrefix     = "doubts/"     // of prunes that look whether a create is dead
	abandonedPrefix  = "abandoned/"  // backups that do not count, as a prune has taken their create for dead
	partialPrefix    = "partial/"    // what a Put that was killed has left, if the repository shows it
)

// MayHaveParts reports whether a repository can have a large object of a name, whose Put may send it in parts.
func MayHaveParts(name string) bool {
	kind, rest, _ := strings.Cut(name, "/")
	switch kind + "/" {
	case objectsPrefix:
		_, _, ok := parseObject(rest)
		return ok
	case logPrefix:
		_, ok := parseLogPart(name)
		return ok
	case backupsPrefix, plansPrefix:
		return backupName.MatchString(rest)
	}
	return false
}

// isMissing reports that an object or a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// exists reports whether a repository has an object.
func exists(ctx context.Context, repo Repository, name string) (found bool, err error) {
	err = repo.List(ctx, name, func(listed string, _ int64) error {
		found = found || listed == name
		return nil
	})
	return found, err
}

// names lists the names behind a prefix, without it.
func names(ctx context.Context, repo Repository, prefix string) (list []string, err error) {
	err = repo.List(ctx, prefix, func(name string, _ int64) error {
		list = append(list, name[len(prefix):])
		return nil
	})
	return list, err
}
