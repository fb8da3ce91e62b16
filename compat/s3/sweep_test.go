package s3_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

// TestPartsThatKilledUploadsHaveLeftAreSwept begins uploads, with and without a part, and makes some of them old.
func TestPartsThatKilledUploadsHaveLeftAreSwept(t *testing.T) {
	g, ctx, at := newGateway(t), context.Background(), t.TempDir()
	core := minio.Core{Client: g.client}
	begin := func(key string, parts int) {
		t.Helper()
		id, err := core.NewMultipartUpload(ctx, bucketName, key, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range parts {
			if _, err := core.PutObjectPart(ctx, bucketName, key, id, n+1, bytes.NewReader(make([]byte, 100)), 100, minio.PutObjectPartOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() (keys []string) {
		t.Helper()
		for u := range g.client.ListIncompleteUploads(ctx, bucketName, "", true) {
			if u.Err != nil {
				t.Fatal(u.Err)
			}
			keys = append(keys, u.Key)
		}
		return keys
	}
	// age makes all that uploads have left older than a day, but for those parts that young names.
	age := func(young string) {
		t.Helper()
		old := time.Now().Add(-25 * time.Hour)
		err := filepath.WalkDir(filepath.Join(g.dir, "objects", bucketName, ".sgwtmp", "multipart"), func(path string, e fs.DirEntry, err error) error {
			if err == nil && (e.IsDir() || young == "" || e.Name() != young) {
				err = os.Chtimes(path, old, old)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, env := filepath.Join(at, "store"), g.environment()
	fill(t, env, dir)
	create := []string{"backup", "create", "s3://" + bucketName + "/shop", "--dir", dir}
	object := func(n int) string { return fmt.Sprintf("shop/objects/00/%032d-%016d", n, n) }
	begin(object(0), 0)
	begin(object(1), 2)
	begin("shop/photo", 1) // it and the next one are of other programs
	begin("shopping", 1)
	if out := run(t, env, create...); strings.Contains(out, "uploads") || len(left()) != 4 {
		t.Errorf("a create beside others says %q, and leaves %q", out, left())
	}
	age("2")
	if out := run(t, env, create...); !strings.Contains(out, "parts of 1 uploads") || !slices.Equal(left(), []string{object(1), "shop/photo", "shopping"}) {
		t.Errorf("with an old upload, a create says %q, and leaves %q", out, left())
	}
	for n := range 1100 { // more than a page
		begin(object(2+n), 0)
	}
	age("")
	begin(object(0), 1)
	if out := run(t, env, "backup", "prune", "s3://"+bucketName+"/shop", "--keep", "1"); !strings.Contains(out, "parts of 1101 uploads") || !slices.Equal(left(), []string{object(0), "shop/photo", "shopping"}) {
		t.Errorf("a prune says %q, and leaves %q", out, left())
	}
}
