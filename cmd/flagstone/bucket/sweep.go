package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// sweepPage is how many uploads or parts one request lists: S3's limit.
	sweepPage = 1000
	// sweepPatience bounds one sweep. A request of it is sent again for firstPatience at most: the next sweep does the rest.
	sweepPatience = 5 * time.Minute
)

// Sweep deletes the parts that killed processes have left: uploads in parts, of names below the prefix that are own, that
// were begun, and got their newest part, before a time of the server's clock. It returns how many uploads it deleted. One
// that goes on meanwhile loses its parts, and its Put fails. An upload that cannot be deleted ends no sweep.
//
// Pages go on behind a key. Of several uploads of one key, some may so be left to the next sweep; but servers do not go on
// behind an upload that is no more, and versitygw behind none.
func (r *Repository) Sweep(ctx context.Context, before time.Time, own func(name string) bool) (swept int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.sweepPatience)
	defer cancel()
	hasty := *r
	hasty.patience = min(r.patience, firstPatience)
	var page minio.ListMultipartUploadsResult
	failed, first := 0, error(nil)
	for {
		after := page.NextKeyMarker
		err := hasty.retry(ctx, func() (err error) {
			page, err = r.core.ListMultipartUploads(ctx, r.bucket, r.prefix, after, "", "", sweepPage)
			return r.explain(ctx, "", err)
		})
		if err != nil {
			return swept, errors.Join(first, err)
		}
		for _, u := range page.Uploads {
			if err := ctx.Err(); err != nil {
				return swept, errors.Join(first, fmt.Errorf("the sweep ended before the upload of %s: %w", u.Key, err))
			}
			done, err := hasty.sweepUpload(ctx, u, before, own)
			if done {
				swept++
			}
			if err != nil {
				failed++
				first = cmp.Or(first, err)
			}
		}
		if !page.IsTruncated {
			break
		}
		if page.NextKeyMarker == "" || page.NextKeyMarker == after {
			return swept, errors.Join(first, r.broken("", "the server lists uploads that go on, and not behind which key"))
		}
	}
	if failed > 1 {
		return swept, fmt.Errorf("%w; and %d more", first, failed-1)
	}
	return swept, first
}

// sweepUpload deletes an upload if its name is own, and it was begun, and got its newest part, before a time.
func (r *Repository) sweepUpload(ctx context.Context, u minio.ObjectMultipartInfo, before time.Time, own func(name string) bool) (done bool, err error) {
	name, ok := strings.CutPrefix(u.Key, r.prefix)
	if !ok || !own(name) || !isBefore(u.Initiated, before) {
		return false, nil
	}
	rests, err := r.rests(ctx, name, u.UploadID, before)
	if err == nil && rests {
		err = r.abort(ctx, name, u.UploadID)
	}
	if errors.Is(err, errNoUpload) { // its process, or another sweep, has ended it
		return false, nil
	}
	return rests && err == nil, err
}

// isBefore reports whether a time of the server is before another. One that the server does not tell is not.
func isBefore(t, before time.Time) bool { return !t.IsZero() && t.Before(before) }

// rests reports whether an upload got no part since a time.
func (r *Repository) rests(ctx context.Context, name, id string, since time.Time) (bool, error) {
	var page minio.ListObjectPartsResult
	for {
		marker := page.NextPartNumberMarker
		err := r.retry(ctx, func() (err error) {
			page, err = r.core.ListObjectParts(ctx, r.bucket, r.prefix+name, id, marker, sweepPage)
			return r.explain(ctx, name, err)
		})
		if err != nil {
			return false, err
		}
		for _, part := range page.ObjectParts {
			if !isBefore(part.LastModified, since) {
				return false, nil
			}
		}
		if !page.IsTruncated {
			return true, nil
		}
		if page.NextPartNumberMarker <= marker {
			return false, r.broken(name, "the server lists parts that go on, and not behind which one")
		}
	}
}

// abort deletes the parts of an upload.
func (r *Repository) abort(ctx context.Context, name, id string) error {
	return r.retry(ctx, func() error {
		return r.explain(ctx, name, r.core.AbortMultipartUpload(ctx, r.bucket, r.prefix+name, id))
	})
}
