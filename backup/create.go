package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/valuefile"
)

// chunk is how many bytes of a file are read at a time. It is a multiple of every alignment.
const chunk = 256 << 10

// CreateOptions configure Create.
type CreateOptions struct {
	// Sealer encrypts the backup; nil does not.
	Sealer Sealer
	// BytesPerSecond bounds how fast files are read; 0 is no bound.
	BytesPerSecond int64
	// Clock is that of the machine if nil.
	Clock clock.Clock
	// Beside are files from elsewhere that belong to the home: those named credentials.
	Beside []string
	// Progress, if not nil, is called after each piece of a file.
	Progress func(Progress)
}

// Progress is how far a backup, or the reading of one, has come.
type Progress struct {
	Files, AllFiles int
	Bytes, AllBytes int64
}

// Create makes a backup of the checkpoint of a store in dir, and of those in directories of it. fsys is that of the
// machine if nil. It makes the repository if there is none. Files that the repository has already are not read.
// Each file is compared with what the manifest says of it. After an error the repository has no new backup, unless
// only the end could not be noted; what was put stays for the next Create, until Archive.Prune deletes it.
func Create(ctx context.Context, repo Repository, fsys vfs.FS, dir string, opts CreateOptions) (Info, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System()
	}
	fsys = orMachine(fsys)
	entries, err := listSource(fsys, dir, opts.Beside)
	if err != nil {
		return Info{}, err
	}
	if err := prepare(ctx, repo, opts.Sealer); err != nil {
		return Info{}, err
	}
	now := opts.Clock.NowMillis()
	c := creator{
		repo: repo, fs: fsys, opts: opts, buffer: vfs.AlignedBuffer(chunk),
		d: &description{name: newName(now), createdMillis: now, entries: entries},
	}
	if opts.BytesPerSecond > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(opts.BytesPerSecond), chunk)
		if err := c.limiter.WaitN(ctx, chunk); err != nil { // the first chunk is not for free
			return Info{}, err
		}
	}
	c.notice = notice{repo, c.d.name, now}
	if err := c.notice.put(ctx); err != nil {
		return Info{}, err
	}
	err = c.create(ctx)
	// Without the notice, a prune need not wait. ctx may have ended.
	if err = errors.Join(err, c.notice.remove(context.WithoutCancel(ctx))); err != nil {
		return Info{}, err
	}
	return c.d.info(), nil
}

// creator makes one backup.
type creator struct {
	repo    Repository
	fs      vfs.FS
	opts    CreateOptions
	limiter *rate.Limiter // nil: no limit
	buffer  []byte
	notice  notice
	d       *description
	done    Progress
}

func (c *creator) create(ctx context.Context) error {
	missing, err := c.reuse(ctx)
	if err != nil {
		return err
	}
	for _, e := range missing {
		c.done.AllFiles++
		c.done.AllBytes += e.size
	}
	for _, e := range missing {
		if err := c.notice.renew(ctx, c.opts.Clock.NowMillis()); err != nil {
			return err
		}
		if err := c.put(ctx, e); err != nil {
			return err
		}
		c.d.added += e.size
		c.done.Files++
		c.report()
	}
	return c.publish(ctx)
}

// reuse gives the entries the names of objects that are there, and returns the others, with names of objects to come.
func (c *creator) reuse(ctx context.Context) (missing []*entry, err error) {
	spared, err := planned(ctx, c.repo) // before objects are listed: see doc.go
	if err != nil {
		return nil, err
	}
	wanted := map[string][]*entry{}
	for i := range c.d.entries {
		e := &c.d.entries[i]
		wanted[e.identity()] = append(wanted[e.identity()], e)
	}
	err = c.repo.List(ctx, objectsPrefix, func(name string, size int64) error {
		identity, suffix, ok := parseObject(name[len(objectsPrefix):])
		list := wanted[identity]
		if !ok || list == nil || spared[name] || !c.whole(list[0], size) {
			return nil
		}
		for _, e := range list {
			e.suffix = suffix
		}
		delete(wanted, identity)
		return nil
	})
	for i := range c.d.entries {
		e := &c.d.entries[i]
		list := wanted[e.identity()]
		if len(list) == 0 || list[0] != e {
			continue
		}
		missing = append(missing, e)
		rand.Read(e.suffix[:])
		for _, same := range list {
			same.suffix = e.suffix
		}
	}
	return missing, err
}

// whole compares the size of an object with that of the file, as far as encryption allows.
func (c *creator) whole(e *entry, size int64) bool {
	want := headerSize + e.size + trailerSize
	return size == want || size > want && c.opts.Sealer != nil
}

// put puts the object of an entry.
func (c *creator) put(ctx context.Context, e *entry) error {
	return c.repo.Put(ctx, e.object(), func(w io.Writer) error {
		return writeObject(w, c.opts.Sealer, &e.file, func(w io.Writer) error { return c.copy(ctx, e, w) })
	})
}

// copy copies a file to w, and compares it with what is known of it.
func (c *creator) copy(ctx context.Context, e *entry, w io.Writer) (err error) {
	f, err := c.fs.Open(e.from, vfs.OpenOptions{Sequential: true, Sparing: true})
	if isMissing(err) {
		return fmt.Errorf("%w: %s has gone, as it does when its server stops: %w", ErrSource, e.from, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err := f.Size(); err != nil || size != e.size {
		return errors.Join(err, fmt.Errorf("%w: %s has %d bytes, want %d", ErrSource, e.from, size, e.size))
	}
	sum := xxhash.New()
	for off := int64(0); off < e.size; off += chunk {
		n := int(min(chunk, e.size-off))
		if err := c.wait(ctx, int64(n)); err != nil {
			return err
		}
		if got, err := f.ReadAt(c.buffer, off); got < n {
			return fmt.Errorf("%w: read %s at offset %d: %w", ErrSource, e.from, off, err)
		}
		_, _ = sum.Write(c.buffer[:n]) // never fails
		if _, err := w.Write(c.buffer[:n]); err != nil {
			return err
		}
		c.done.Bytes += int64(n)
		c.report()
	}
	if e.kind == tableFile && sum.Sum64() != e.sum {
		return fmt.Errorf("%w: %s does not fit the checksum in the manifest; run 'flagstone check'", ErrSource, e.from)
	}
	if e.kind == valueFile {
		return c.verifyValues(ctx, e)
	}
	return nil
}

// verifyValues reads a value file once more and verifies each of its values: the manifest has no checksum of all
// its bytes.
func (c *creator) verifyValues(ctx context.Context, e *entry) error {
	f, err := c.fs.Open(e.from, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return err
	}
	r, err := valuefile.Open(f, valuefile.ReaderOptions{FileName: e.from, Want: e.value})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrSource, err), f.Close())
	}
	mean := e.size / int64(max(e.value.Values, 1))
	err = r.Verify(func() error { return c.wait(ctx, mean) })
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrSource, err)
	}
	return errors.Join(err, r.Close())
}

// wait waits until n bytes more may be read.
func (c *creator) wait(ctx context.Context, n int64) error {
	if c.limiter == nil {
		return ctx.Err()
	}
	for ; n > 0; n -= chunk {
		if err := c.limiter.WaitN(ctx, int(min(n, chunk))); err != nil {
			return err
		}
	}
	return nil
}

func (c *creator) report() {
	if c.opts.Progress != nil {
		c.opts.Progress(c.done)
	}
}

// publish makes the backup exist, unless a prune has taken the create for abandoned.
func (c *creator) publish(ctx context.Context) error {
	content, err := c.d.encode()
	if err != nil {
		return err
	}
	if err := c.notice.check(ctx); err != nil { // spares what follows; the second look decides
		return err
	}
	name := backupsPrefix + c.d.name
	err = c.repo.Put(ctx, name, func(w io.Writer) error {
		if c.opts.Sealer == nil {
			_, err := w.Write(content)
			return err
		}
		sealed, err := c.opts.Sealer.Seal(w)
		if err == nil {
			_, err = sealed.Write(content)
		}
		if err == nil {
			err = sealed.Close()
		}
		return err
	})
	if err == nil {
		err = c.notice.check(ctx)
	}
	if err != nil { // it may be there, and a prune may have deleted what it needs
		err = errors.Join(err, c.repo.Delete(context.WithoutCancel(ctx), name))
	}
	return err
}
