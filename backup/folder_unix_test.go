//go:build unix

package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestNoCallFollowsALinkOutOfTheFolder plants links at each level of a repository. Nothing outside changes.
func TestNoCallFollowsALinkOutOfTheFolder(t *testing.T) {
	for _, link := range []string{"objects", "objects/aa", "objects/aa/file", "partial", "plans", "plans/file", "backups", "unfinished", "abandoned", "doubts"} {
		outside := t.TempDir()
		precious := filepath.Join(outside, "precious")
		repo := filepath.Join(t.TempDir(), "repo")
		name := filepath.Join(repo, filepath.FromSlash(link))
		target := outside
		if filepath.Base(link) == "file" {
			target = precious
		}
		err := errors.Join(os.WriteFile(precious, []byte("precious"), 0o600), os.MkdirAll(filepath.Dir(name), 0o700), os.Symlink(target, name))
		if err != nil {
			t.Fatal(err)
		}
		f := NewFolder(nil, repo)
		ctx := t.Context()
		if err := f.List(ctx, "", func(string, int64) error { return nil }); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("%s: list all: %v", link, err)
		}
		if target == outside {
			for call, err := range map[string]error{
				"list":   f.List(ctx, link+"/", func(string, int64) error { return nil }),
				"put":    f.Put(ctx, link+"/new", func(io.Writer) error { return nil }),
				"delete": f.Delete(ctx, link+"/precious"),
				"sync":   f.Sync(ctx, []string{link + "/precious"}),
			} {
				if !errors.Is(err, vfs.ErrNotRegular) {
					t.Errorf("%s: %s: %v", link, call, err)
				}
			}
		}
		err = putText(ctx, NewFolder(nil, filepath.Join(repo, "other")), markerName, markerKind, plain+"\n")
		if err == nil {
			err = os.Rename(filepath.Join(repo, "other", markerName), filepath.Join(repo, markerName))
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := Open(ctx, f, nil)
		if err != nil {
			t.Fatal(err)
		}
		later := clocktest.NewManual(time.Now().Add(1000 * time.Hour).UnixMilli())
		if _, err := a.Prune(ctx, PruneOptions{Keep: 1, Clock: later}); !errors.Is(err, vfs.ErrNotRegular) {
			t.Errorf("%s: prune: %v", link, err)
		}
		left, err := os.ReadDir(outside)
		if content, failed := os.ReadFile(precious); err != nil || failed != nil || len(left) != 1 || !strings.HasPrefix(string(content), "precious") {
			t.Errorf("%s: outside are %v, %v, %v", link, left, err, failed)
		}
	}
}
