package s3_test

// This file keeps backups in buckets that do not let objects go.

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

const lockedRepository = "s3://locked/shop"

// twoBackups makes a bucket with Object Lock, and two backups of different rows in it.
func twoBackups(t *testing.T, g *gateway, days uint) (env []string, dir string) {
	t.Helper()
	ctx := context.Background()
	if err := g.client.MakeBucket(ctx, "locked", minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
		t.Fatal(err)
	}
	if mode, unit := minio.Compliance, minio.Days; days > 0 {
		if err := g.client.SetBucketObjectLockConfig(ctx, "locked", &mode, &days, &unit); err != nil {
			t.Fatal(err)
		}
	}
	env, dir = g.environment(), filepath.Join(t.TempDir(), "store")
	fill(t, env, dir)
	run(t, env, "backup", "create", lockedRepository, "--dir", dir)
	run(t, env, "put", "t", "100", "-s", "c=later", "--dir", dir)
	run(t, env, "backup", "create", lockedRepository, "--dir", dir)
	return env, dir
}

// backups returns the names that the command lists.
func backups(t *testing.T, env []string) (names []string) {
	t.Helper()
	for line := range strings.Lines(run(t, env, "backup", "list", lockedRepository)) {
		if name := strings.Fields(line)[0]; name != "NAME" {
			names = append(names, name)
		}
	}
	return names
}

// TestWhatAPruneDeletesOfALockedBucketComesBack prunes a bucket that keeps each version for a day: deletes hide objects. It
// then deletes the markers that hide them.
func TestWhatAPruneDeletesOfALockedBucketComesBack(t *testing.T) {
	g, ctx := newGateway(t, versionsDir), context.Background()
	env, _ := twoBackups(t, g, 1)
	before := backups(t, env)
	if said := run(t, env, "backup", "prune", lockedRepository, "--keep", "1"); !strings.Contains(said, "deleted "+before[0]) {
		t.Errorf("prune says %s", said)
	}
	if after := backups(t, env); len(after) != 1 || after[0] != before[1] {
		t.Errorf("of %q are left %q", before, after)
	}
	run(t, env, "backup", "verify", lockedRepository)
	shown := 0
	for _, prefix := range []string{"shop/backups/", "shop/objects/"} {
		for o := range g.client.ListObjects(ctx, "locked", minio.ListObjectsOptions{Prefix: prefix, Recursive: true, WithVersions: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			err := g.client.RemoveObject(ctx, "locked", o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID})
			switch {
			case o.IsDeleteMarker && err != nil:
				t.Error(err)
			case o.IsDeleteMarker:
				shown++
			case err == nil:
				t.Errorf("the version of %s could be deleted", o.Key)
			}
		}
	}
	if again := backups(t, env); shown < 3 || len(again) != 2 {
		t.Errorf("%d objects are back, and the backups %q", shown, again)
	}
	run(t, env, "backup", "verify", lockedRepository)
}

// TestRefusedDeletesAreToldAndLoseNothing holds the objects of a bucket without versions, so that the server refuses to delete
// them: first all, then all but the descriptions. The end releases them.
func TestRefusedDeletesAreToldAndLoseNothing(t *testing.T) {
	g, ctx := newGateway(t), context.Background()
	env, dir := twoBackups(t, g, 0)
	hold := func(prefix string, status minio.LegalHoldStatus) {
		t.Helper()
		for o := range g.client.ListObjects(ctx, "locked", minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if err := g.client.PutObjectLegalHold(ctx, "locked", o.Key, minio.PutObjectLegalHoldOptions{Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(names string, args ...string) {
		t.Helper()
		r, err := command.Run(env, append(args, lockedRepository)...)
		if err != nil || r.Status != 1 || !strings.Contains(r.Stderr, lockedRepository+"/"+names) || !strings.Contains(r.Stderr, "AccessDenied") {
			t.Errorf("%q: %+v, %v", args, r, err)
		}
	}
	before := backups(t, env)
	hold("shop/", minio.LegalHoldEnabled)
	refused("backups/"+before[0], "backup", "prune", "--keep", "1")
	if after := backups(t, env); len(after) != 2 {
		t.Errorf("of %q are left %q", before, after)
	}
	run(t, env, "backup", "verify", lockedRepository)
	hold("shop/backups/", minio.LegalHoldDisabled)
	refused("objects/", "backup", "prune", "--keep", "1")
	if after := backups(t, env); len(after) != 1 || after[0] != before[1] {
		t.Errorf("of %q are left %q", before, after)
	}
	run(t, env, "backup", "create", lockedRepository, "--dir", dir)
	run(t, env, "backup", "verify", lockedRepository)
	hold("shop/objects/", minio.LegalHoldDisabled)
	if said := run(t, env, "backup", "prune", lockedRepository, "--keep", "1"); strings.Contains(said, "deleted 0 objects") {
		t.Errorf("released, prune says %s", said)
	}
	run(t, env, "backup", "verify", lockedRepository)
	// A rule of the bucket holds what is new, also the note that a backup is being made.
	mode, days, unit := minio.Compliance, uint(1), minio.Days
	if err := g.client.SetBucketObjectLockConfig(ctx, "locked", &mode, &days, &unit); err != nil {
		t.Fatal(err)
	}
	r, err := command.Run(env, "backup", "create", lockedRepository, "--dir", dir)
	if err != nil || r.Status != 1 || !strings.Contains(r.Stderr, "is complete") || !strings.Contains(r.Stderr, lockedRepository+"/unfinished/") {
		t.Errorf("create under a rule: %+v, %v", r, err)
	}
	if after := backups(t, env); len(after) != 2 {
		t.Errorf("it is not listed: %q", after)
	}
}
