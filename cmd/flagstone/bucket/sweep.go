package bucket

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// sweepPage is how many uploads or parts one request lists: S3's limit.
const sweepPage = 1000

// Sweep deletes the parts that killed processes have left below the prefix: uploads in parts that were begun, and got
// their newest part, before a time of the server's clock. It returns how many uploads it deleted. One that goes on
// meanwhile loses its parts, and its Put fails.
//
// Pages go on behind a key. Of several uploads of one key, some may so be left to the next sweep; but servers do not go on
// behind an upload that is no more, and versitygw behind none.
func (r *Repository) Sweep(ctx context.Context, before time.Time) (swept int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.listPatience)
	defer cancel()
	var page minio.ListMultipartUploadsResult
	for {
		after := page.NextKeyMarker
		err := r.retry(ctx, func() (err error) {
			page, err = r.core.ListMultipartUploads(ctx, r.bucket, r.prefix, after, "", "", sweepPage)
			return r.explain(ctx, "", err)
		})
		if err != nil {
			return swept, err
		}
		for _, u := range page.Uploads {
			done, err := r.sweepUpload(ctx, u, before)
			if err != nil {
				return swept, err
			}
			if done {
				swept++
			}
		}
		if !page.IsTruncated {
			return swept, nil
		}
	}
}

// sweepUpload deletes an upload if it was begun, and got its newest part, before a time.
func (r *Repository) sweepUpload(ctx context.Context, u minio.ObjectMultipartInfo, before time.Time) (done bool, err error) {
	name, ok := strings.CutPrefix(u.Key, r.prefix)
	if !ok {
		return false, r.broken("", "the server lists an upload of %q, which does not begin so", shorten(u.Key))
	}
	if !u.Initiated.Before(before) {
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
			if !part.LastModified.Before(since) {
				return false, nil
			}
		}
		if !page.IsTruncated {
			return true, nil
		}
	}
}

// abort deletes the parts of an upload.
func (r *Repository) abort(ctx context.Context, name, id string) error {
	return r.retry(ctx, func() error {
		return r.explain(ctx, name, r.core.AbortMultipartUpload(ctx, r.bucket, r.prefix+name, id))
	})
}
