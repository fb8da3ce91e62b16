//go:build linux || darwin

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
)

// snapshot describes every file and directory below dir: mode, time and content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if st.Mode().IsRegular() {
			if content, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%s %v %v %d %x\n", name, st.Mode(), st.ModTime(), st.Size(), bytes.TrimRight(content, "\x00"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCommandsThatOnlyReadChangeNothing(t *testing.T) {
	for _, locks := range []bool{true, false} { // a copied store may have no lock files
		dir := newHome(t)
		if !locks {
			for _, name := range []string{filepath.Join(dir, "LOCK"), filepath.Join(dir, instances.CapacityDir, "LOCK")} {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := snapshot(t, dir)
		for _, args := range [][]string{
			{"check"}, {"instance", "list"}, {"instance", "key", "list", "demo"}, {"advise", "t"}, {"partition", "list", "t"},
		} {
			status, _, errOut := command(t, append(args, "--dir", dir)...)
			if status != 0 {
				t.Errorf("%v: status %d, %s", args, status, errOut)
			}
			if after := snapshot(t, dir); after != before {
				t.Fatalf("%v changed\n%.3000s\nto\n%.3000s", args, before, after)
			}
		}
	}
}

func TestCheckDoesNotWriteWhereALinkNamedLOCKLeads(t *testing.T) {
	dir := newHome(t)
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, "LOCK")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, lock); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check"}, {"instance", "create", "another"}} {
		status, _, errOut := command(t, append(args, "--dir", dir)...)
		if status != 1 || !strings.Contains(errOut, lock) || !strings.Contains(errOut, "symbolic link") {
			t.Errorf("%v: status %d, %s", args, status, errOut)
		}
		if content, err := os.ReadFile(precious); err != nil || string(content) != "precious" {
			t.Errorf("%v: the file holds %q, %v", args, content, err)
		}
	}
}

// TestFilesThatAreNotWhatTheyShouldBeAreRefused plants files that once took all memory, or made
// the command wait forever.
func TestFilesThatAreNotWhatTheyShouldBeAreRefused(t *testing.T) {
	plant := map[string]func(name string) error{
		"link to an endless file": func(name string) error { return os.Symlink("/dev/zero", name) },
		"pipe":                    func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"large file of holes": func(name string) error {
			f, err := os.Create(name)
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Truncate(1 << 40)
		},
	}
	manifests := func(dir string) string {
		found, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return filepath.Base(found[0])
	}
	for what, make := range plant {
		for _, file := range []string{"CURRENT", "MANIFEST", instances.RegistryName, "admin", credentialsFile} {
			dir := newHome(t)
			if file == "MANIFEST" {
				file = manifests(dir)
			}
			name := filepath.Join(dir, file)
			if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if err := make(name); err != nil {
				t.Fatal(err)
			}
			refused := func(args, said string) {
				if !strings.Contains(said, file) {
					t.Errorf("%s as %s: %s says %q", file, what, args, said)
				}
			}
			if file == credentialsFile {
				_, err := loadCredentials(dir, func(string) string { return "" })
				refused("serve", fmt.Sprint(err))
				into := filepath.Join(t.TempDir(), "copy")
				_, _, errOut := command(t, "clock", "--dir", dir, "--into", into)
				refused("clock", errOut)
				if exists(into) || exists(into+".partial") {
					t.Error("a copy was begun")
				}
			} else {
				_, _, errOut := command(t, "instance", "list", "--dir", dir)
				refused("instance list", errOut)
			}
			status, out, errOut := command(t, "check", "--quiet", "--dir", dir)
			if refused("check", out+errOut); status != 1 {
				t.Errorf("%s as %s: check ends with %d", file, what, status)
			}
		}
	}
}

// TestSpareLogFilesThatAreNoneAreReported checks files with which serve does not start.
func TestSpareLogFilesThatAreNoneAreReported(t *testing.T) {
	dir := newHome(t)
	for name, plant := range map[string]func(name string) error{
		"spare-000008.log": func(name string) error { return os.Symlink("/dev/zero", name) },
		"spare-000009.log": func(name string) error { return syscall.Mkfifo(name, 0o600) },
	} {
		planted := filepath.Join(dir, "wal", name)
		if err := plant(planted); err != nil {
			t.Fatal(err)
		}
		status, out, errOut := command(t, "check", "--quiet", "--dir", dir)
		if status != 1 || !strings.Contains(out, planted) {
			t.Errorf("%s: status %d, %s%s", name, status, out, errOut)
		}
		if _, err := instances.Open(dir, instances.Options{}); err == nil || !strings.Contains(err.Error(), planted) {
			t.Errorf("%s: opening says %v", name, err)
		}
		if err := os.Remove(planted); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecretsThatAreEasyToComeByAreWarnedOf(t *testing.T) {
	dir := newHome(t)
	warned := func(c credentials) string {
		var b bytes.Buffer
		c.warn(dir, slog.New(slog.NewTextHandler(&b, nil)))
		return b.String()
	}
	strong := instances.NewKey()
	if said := warned(credentials{id: strong.ID, secret: strong.Secret}); said != "" {
		t.Errorf("a good key: %s", said)
	}
	for _, secret := range []string{"aksecret", "short", "0000000000000000", "abababababababababab", "passwordpassword", "Testsecret-secret", "the-id-of-the-key"} {
		said := warned(credentials{id: "the-id-of-the-key", secret: secret, from: "the environment"})
		if !strings.Contains(said, "easily guessed") || secret != "the-id-of-the-key" && strings.Contains(said, secret) {
			t.Errorf("%s: %q", secret, said)
		}
	}
	for _, file := range []string{credentialsFile, instances.RegistryName} {
		name := filepath.Join(dir, file)
		if file == credentialsFile {
			if _, err := loadCredentials(dir, func(string) string { return "" }); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(name, 0o640); err != nil {
			t.Fatal(err)
		}
		if said := warned(credentials{id: strong.ID, secret: strong.Secret}); !strings.Contains(said, name) {
			t.Errorf("%s: %q", name, said)
		}
		said := warned(credentials{id: strong.ID, secret: strong.Secret, from: fromEnvironment})
		if used := file != credentialsFile; strings.Contains(said, name) != used {
			t.Errorf("%s, with a key from the environment: %q", name, said)
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, credentialsFile)
	if err := os.Rename(name, name+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name+".old", name); err != nil {
		t.Fatal(err)
	}
	if said := warned(credentials{id: strong.ID, secret: strong.Secret}); said != "" {
		t.Errorf("a link: %q", said)
	}
	if _, err := loadCredentials(dir, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
}

func TestAnErrorNamesTheCommandOnceAndHintsAtWhatItIsAbout(t *testing.T) {
	const hint = "this user may write to"
	serve := func(dir string) string {
		t.Helper()
		status, _, errOut := command(t, "serve", "--dir", dir, "--addr", "127.0.0.1:0")
		lines := strings.Split(strings.TrimSpace(errOut), "\n")
		last := lines[len(lines)-1]
		if status != 1 || !strings.HasPrefix(last, "flagstone: ") || strings.Count(last, "flagstone: ") != 1 {
			t.Errorf("status %d, %q", status, errOut)
		}
		return last
	}
	dir := newHome(t)
	store, err := flagstone.Open(dir, flagstone.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if said := serve(dir); !strings.Contains(said, "in use") || strings.Contains(said, hint) {
		t.Error(said)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if said := serve(filepath.Join(dir, "CURRENT")); !strings.Contains(said, hint) { // not a directory
		t.Error(said)
	}
	registry := filepath.Join(dir, instances.RegistryName)
	for content, want := range map[string]string{"flagstone-instances 9 0\n": "version 9", strings.Repeat("x", 2<<20): "too large"} {
		if err := os.WriteFile(registry, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if said := serve(dir); !strings.Contains(said, want) || strings.Contains(said, hint) {
			t.Error(said)
		}
	}
	if err := os.Remove(filepath.Join(dir, "CURRENT")); err != nil {
		t.Fatal(err)
	}
	if _, _, said := command(t, "check", "--dir", dir); strings.Count(said, "flagstone: ") != 1 {
		t.Error(said)
	}
	if said := serve(dir); strings.Contains(said, hint) {
		t.Error(said)
	}
}
