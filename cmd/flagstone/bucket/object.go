package bucket

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"
)

// object reads an object. When an answer breaks off, it asks for the rest of the same object.
type object struct {
	ctx      context.Context
	repo     *Repository
	name     string
	body     io.ReadCloser
	etag     string
	at, size int64
	from     int64 // where waits were begun
	waits    waits
}

// Get implements backup.Repository.
func (r *Repository) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	o := &object{ctx: ctx, repo: r, name: name}
	if err := r.retry(ctx, o.open); err != nil {
		return nil, err
	}
	return o, nil
}

// open asks for the object from where it has been read to.
func (o *object) open() error {
	var opts minio.GetObjectOptions
	if o.at > 0 {
		if err := opts.SetRange(o.at, 0); err != nil {
			return err
		}
		if err := opts.SetMatchETag(o.etag); err != nil {
			return err
		}
	}
	body, info, header, err := o.repo.core.GetObject(o.ctx, o.repo.bucket, o.repo.prefix+o.name, opts)
	if err != nil {
		return o.repo.explain(o.ctx, o.name, err)
	}
	switch want := fmt.Sprintf("bytes %d-", o.at); {
	case info.Size < 0 || header.Get("Content-Length") == "":
		err = o.repo.broken(o.name, "the answer says no length")
	case o.at == 0:
		o.etag, o.size = info.ETag, info.Size
	case !strings.HasPrefix(header.Get("Content-Range"), want) || info.ETag != o.etag:
		err = o.repo.broken(o.name, "the server does not go on at byte %d", o.at)
	}
	if err != nil {
		_ = body.Close() // nothing is read from it
		return err
	}
	o.body = body
	return nil
}

// Read implements io.Reader. It gives up if less than leastBytes have come within the patience of the repository.
func (o *object) Read(p []byte) (n int, err error) {
	n, err = o.body.Read(p)
	o.at += int64(n)
	switch {
	case err == nil:
		return n, nil
	case o.at == o.size:
		return n, io.EOF
	case o.at-o.from >= leastBytes:
		o.from, o.waits = o.at, waits{}
	}
	err = o.repo.explain(o.ctx, o.name, fmt.Errorf("at byte %d of %d: %w", o.at, o.size, err))
	_ = o.body.Close() // it is broken
	o.body = io.NopCloser(strings.NewReader(""))
	for o.waits.again(o.ctx, o.repo, err) {
		if err = o.open(); err == nil {
			break
		}
	}
	return n, err
}

// Close implements io.Closer.
func (o *object) Close() error { return o.body.Close() }
