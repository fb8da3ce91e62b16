package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"io"

	"github.com/minio/minio-go/v7"
)

const (
	// partSize is how many bytes are held in memory and sent at once. With maxParts, a file may have 156 GiB.
	partSize = 16 << 20
	// maxParts is S3's limit.
	maxParts = 10_000
	// noSuchUpload is S3's code of an upload in parts that was completed, aborted or never begun.
	noSuchUpload = "NoSuchUpload"
)

var errNoUpload = errors.New("no such upload")

// upload collects the bytes of an object, and sends each part that is full.
type upload struct {
	ctx   context.Context
	repo  *Repository
	name  string
	id    string // of an upload in parts; "" before its first part
	parts []minio.CompletePart
	sent  int64 // bytes in parts
	held  []byte
}

// Put implements backup.Repository. A process that dies within an upload in parts leaves parts, which make no object:
// Sweep deletes them.
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
		err := u.repo.retry(u.ctx, func() error {
			u.id, err = core.NewMultipartUpload(u.ctx, bucket, u.key(), minio.PutObjectOptions{})
			return u.repo.explain(u.ctx, u.name, err)
		})
		if err != nil {
			return err
		}
		if u.id == "" {
			return u.repo.broken(u.name, "the server names no upload")
		}
	}
	number, options := len(u.parts)+1, minio.PutObjectPartOptions{Md5Base64: u.heldMD5()}
	var part minio.ObjectPart
	err = u.repo.retry(u.ctx, func() error {
		part, err = core.PutObjectPart(u.ctx, bucket, u.key(), u.id, number, bytes.NewReader(u.held), int64(len(u.held)), options)
		return u.repo.explain(u.ctx, u.name, err)
	})
	if err != nil {
		return err
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: part.ETag})
	u.sent += int64(len(u.held))
	u.held = u.held[:0]
	return nil
}

// heldMD5 is what the server compares with what comes, also over TLS, where the client signs no bytes. Buckets with
// Object Lock ask for it.
func (u *upload) heldMD5() string {
	sum := md5.Sum(u.held)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// finish makes the object.
func (u *upload) finish() error {
	if u.id == "" {
		sum := u.heldMD5()
		return u.repo.retry(u.ctx, func() error {
			_, err := u.repo.core.PutObject(u.ctx, u.repo.bucket, u.key(), bytes.NewReader(u.held), int64(len(u.held)), sum, "", minio.PutObjectOptions{})
			return u.repo.explain(u.ctx, u.name, err)
		})
	}
	if err := u.sendPart(); err != nil {
		return err
	}
	return u.repo.retry(u.ctx, u.join)
}

// join makes an object of the parts. If the answer to it was lost, the upload is no more, and the object is there. Objects
// of parts are put once under a name, so one of the right size is this one.
func (u *upload) join() error {
	_, err := u.repo.core.CompleteMultipartUpload(u.ctx, u.repo.bucket, u.key(), u.id, u.parts, minio.PutObjectOptions{})
	if err = u.repo.explain(u.ctx, u.name, err); !isPassing(err) && !errors.Is(err, errNoUpload) {
		return err
	}
	there := false
	failed := u.repo.List(u.ctx, u.name, func(name string, size int64) error {
		there = there || name == u.name && size == u.sent
		return nil
	})
	if failed != nil {
		return failed
	}
	if there {
		return nil
	}
	return err
}

// abort deletes the parts that were sent. u.ctx may have ended.
func (u *upload) abort() error {
	if u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortPatience)
	defer cancel()
	return u.repo.abort(ctx, u.name, u.id)
}
