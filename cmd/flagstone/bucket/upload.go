package bucket

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/minio/minio-go/v7"
)

const (
	// partSize is how many bytes are held in memory and sent at once. With maxParts, a file may have 156 GiB.
	partSize = 16 << 20
	// maxParts is S3's limit.
	maxParts = 10_000
)

// upload collects the bytes of an object, and sends each part that is full.
type upload struct {
	ctx   context.Context
	repo  *Repository
	name  string
	id    string // of an upload in parts; "" before its first part
	parts []minio.CompletePart
	held  []byte
}

// Put implements backup.Repository. A process that dies within an upload in parts leaves parts, which make no object;
// the server deletes them if the bucket has a rule for that.
func (r *Repository) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	u := &upload{ctx: ctx, repo: r, name: name}
	err := write(u)
	if err == nil {
		err = u.finish()
	}
	if err != nil {
		return errors.Join(err, u.abort())
	}
	return nil
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.held) == partSize {
			if err := u.sendPart(); err != nil {
				return n, err
			}
		}
		part := p[n:min(len(p), n+partSize-len(u.held))]
		u.held = append(u.held, part...)
		n += len(part)
	}
	return n, nil
}

func (u *upload) key() string { return u.repo.prefix + u.name }

// sendPart sends what is held.
func (u *upload) sendPart() (err error) {
	core, bucket := u.repo.core, u.repo.bucket
	if len(u.parts) == maxParts {
		return u.repo.broken(u.name, "it has more than %d parts of %d bytes", maxParts, partSize)
	}
	if u.id == "" {
		if u.id, err = core.NewMultipartUpload(u.ctx, bucket, u.key(), minio.PutObjectOptions{}); err != nil {
			return u.repo.explain(u.ctx, u.name, err)
		}
		if u.id == "" {
			return u.repo.broken(u.name, "the server names no upload")
		}
	}
	number := len(u.parts) + 1
	part, err := core.PutObjectPart(u.ctx, bucket, u.key(), u.id, number, bytes.NewReader(u.held), int64(len(u.held)), minio.PutObjectPartOptions{})
	if err != nil {
		return u.repo.explain(u.ctx, u.name, err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	u.held = u.held[:0]
	return nil
}

// finish makes the object.
func (u *upload) finish() (err error) {
	core, bucket, options := u.repo.core, u.repo.bucket, minio.PutObjectOptions{}
	if u.id == "" {
		_, err = core.PutObject(u.ctx, bucket, u.key(), bytes.NewReader(u.held), int64(len(u.held)), "", "", options)
		return u.repo.explain(u.ctx, u.name, err)
	}
	if err := u.sendPart(); err != nil {
		return err
	}
	_, err = core.CompleteMultipartUpload(u.ctx, bucket, u.key(), u.id, u.parts, options)
	return u.repo.explain(u.ctx, u.name, err)
}

// abort deletes the parts that were sent. u.ctx may have ended.
func (u *upload) abort() error {
	if u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortPatience)
	defer cancel()
	return u.repo.explain(ctx, u.name, u.repo.core.AbortMultipartUpload(ctx, u.repo.bucket, u.key(), u.id))
}
