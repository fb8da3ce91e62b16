package bucket

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"
)

// perRetry is how many bytes of an object must come for one more retry, in addition to tries.
const perRetry = 64 << 20

// object reads an object. When an answer breaks off, it asks for the rest of the same object.
type object struct {
	ctx      context.Context
	repo     *Repository
	name     string
	body     io.ReadCloser
	etag     string
	at, size int64
	retries  int64
}

// Get implements backup.Repository.
func (r *Repository) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	o := &object{ctx: ctx, repo: r, name: name}
	if err := o.open(); err != nil {
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

// Read implements io.Reader.
func (o *object) Read(p []byte) (n int, err error) {
	n, err = o.body.Read(p)
	o.at += int64(n)
	if err == nil || err == io.EOF && o.at == o.size {
		return n, err
	}
	if o.retries++; o.ctx.Err() != nil || o.retries > tries+o.at/perRetry || o.at == o.size {
		return n, o.repo.explain(o.ctx, o.name, fmt.Errorf("at byte %d of %d: %w", o.at, o.size, err))
	}
	_ = o.body.Close() // it is broken
	o.body = io.NopCloser(strings.NewReader(""))
	return n, o.open()
}

// Close implements io.Closer.
func (o *object) Close() error { return o.body.Close() }
