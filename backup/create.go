package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

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
	// Beside are files from elsewhere that belong to the home: those named credentials and digest.
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
// Each file is compared with what the manifest says of it. After an error the repository has no new backup, or a
// whole one whose end could not be noted, or that a prune met; what was put stays for the next Create, until
// Archive.Prune deletes it.
func Create(ctx context.Context, repo Repository, fsys vfs.FS, dir string, opts CreateOptions) (Info, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System()
	}
	fsys = orMachine(fsys)
	entries, origins, store, err := listSource(fsys, dir, opts.Beside)
	if err != nil {
		return Info{}, err
	}
	if err := prepare(ctx, repo, opts.Sealer); err != nil {
		return Info{}, err
	}
	c := creator{repo: repo, fs: fsys, opts: opts, buffer: vfs.AlignedBuffer(chunk)}
	if opts.BytesPerSecond > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(opts.BytesPerSecond), chunk)
		if err := c.limiter.WaitN(ctx, chunk); err != nil { // the first chunk is not for free
			return Info{}, err
		}
	}
	now := opts.Clock.NowMillis() // after the first wait
	c.d = &description{name: newName(now), createdMillis: now, entries: entries, origins: origins, store: store}
	c.notice = notice{repo, c.d.name, now, now}
	if err := c.notice.put(ctx); err != nil {
		return Info{}, err
	}
	end := ctx
	if err = c.create(ctx); err != nil {
		var cancel context.CancelFunc // ctx may have ended
		end, cancel = context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
	}
	if c.unsettled { // the put of the description has failed, and may still be carried out: see doc.go
		if failed := putEmpty(end, repo, abandonedPrefix+c.d.name); failed != nil {
			return Info{}, errors.Join(err, failed) // the notice stays
		}
	}
	// Without the notice, a prune need not wait.
	failed := c.notice.remove(end)
	switch {
	case err != nil:
		return Info{}, errors.Join(err, failed)
	case failed != nil:
		return Info{}, fmt.Errorf("backup %s is complete, but the notice that it was being made cannot be deleted, and prunes wait for that: %w", c.d.name, failed)
	}
	return c.d.info(), nil
}

// endPatience bounds what a create does after an error, also if the repository hangs.
const endPatience = time.Minute

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
	// unsettled is set if the put of the description has failed, and may still be carried out.
	unsettled bool
}

func (c *creator) create(ctx context.Context) error {
	missing, reused, err := c.reuse(ctx)
	if err != nil {
		return err
	}
	if err := c.repo.Sync(ctx, append(reused, markerName)); err != nil {
		return err
	}
	for _, e := range missing {
		c.done.AllFiles++
		c.done.AllBytes += e.size
	}
	for _, e := range missing {
		if err := c.wait(ctx, 0); err != nil {
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

// reuse gives the entries the names of objects that are there, which it returns, and the others names of objects to
// come.
func (c *creator) reuse(ctx context.Context) (missing []*entry, reused []string, err error) {
	spared, err := planned(ctx, c.repo) // before objects are listed: see doc.go
	if err != nil {
		return nil, nil, err
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
		reused = append(reused, name)
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
	return missing, reused, err
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
	f, err := c.fs.Open(e.source.name, vfs.OpenOptions{Sequential: true, Sparing: true})
	if isMissing(err) {
		return fmt.Errorf("%w: %s has gone, as it does when its server stops: %w", ErrSource, e.source.name, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err := f.Size(); err != nil || size != e.size {
		return errors.Join(err, fmt.Errorf("%w: %s has %d bytes, want %d", ErrSource, e.source.name, size, e.size))
	}
	sum := xxhash.New()
	for off := int64(0); off < e.size; off += chunk {
		n := int(min(chunk, e.size-off))
		if err := c.wait(ctx, int64(n)); err != nil {
			return err
		}
		if got, err := f.ReadAt(c.buffer, off); got < n {
			return fmt.Errorf("%w: read %s at offset %d: %w", ErrSource, e.source.name, off, err)
		}
		_, _ = sum.Write(c.buffer[:n]) // never fails
		if _, err := w.Write(c.buffer[:n]); err != nil {
			return err
		}
		c.done.Bytes += int64(n)
		c.report()
	}
	if e.kind == tableFile && sum.Sum64() != e.sum {
		return fmt.Errorf("%w: %s of the store does not fit the checksum in the manifest; run 'flagstone check'", ErrSource, e.path)
	}
	if e.kind == valueFile {
		return c.verifyValues(ctx, e, sum.Sum64())
	}
	return nil
}

// verifyValues reads a value file once more and verifies each of its values: the manifest has no checksum of all
// its bytes. What was verified must have the checksum of what was copied.
func (c *creator) verifyValues(ctx context.Context, e *entry, copied uint64) error {
	f, err := c.fs.Open(e.source.name, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return err
	}
	r, err := valuefile.Open(f, valuefile.ReaderOptions{FileName: e.source.name, Want: e.source.value})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrSource, err), f.Close())
	}
	mean := e.size / int64(max(e.source.value.Values, 1))
	var stopped error
	verified, err := r.Verify(func() error {
		stopped = c.wait(ctx, mean)
		return stopped
	})
	if err == nil && verified != copied {
		err = fmt.Errorf("%s was read twice, with different bytes", e.source.name)
	}
	if err != nil && stopped == nil {
		err = fmt.Errorf("%w: %w", ErrSource, err)
	}
	return errors.Join(err, r.Close())
}

// pace waits until n bytes more may be read. limiter is nil if there is no bound.
func pace(ctx context.Context, limiter *rate.Limiter, n int64) error {
	for ; limiter != nil && n > 0; n -= chunk {
		if err := limiter.WaitN(ctx, int(min(n, chunk))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// wait waits until n bytes more may be read. It shows prunes that the create lives.
func (c *creator) wait(ctx context.Context, n int64) error {
	if err := pace(ctx, c.limiter, n); err != nil {
		return err
	}
	return c.notice.renew(ctx, c.opts.Clock.NowMillis())
}

func (c *creator) report() {
	if c.opts.Progress != nil {
		c.opts.Progress(c.done)
	}
}

// publish makes the backup exist. It returns an error if a prune takes the create for dead: then that prune, and not
// this create, decides whether the backup counts.
func (c *creator) publish(ctx context.Context) error {
	content, err := c.d.encode()
	if err != nil {
		return err
	}
	if err := checkMarker(ctx, c.repo, c.opts.Sealer); err != nil { // of two first creates, the other one may have won
		return err
	}
	if err := c.notice.check(ctx); err != nil { // spares what follows; the second look decides
		return err
	}
	wrote := false // what is not written as a whole is not put
	err = c.repo.Put(ctx, backupsPrefix+c.d.name, func(w io.Writer) error {
		err := writeSealed(w, c.opts.Sealer, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		wrote = err == nil
		return err
	})
	c.unsettled = err != nil && wrote && !errors.Is(err, errNotPut)
	if err == nil {
		err = c.notice.check(ctx)
	}
	return err
}
