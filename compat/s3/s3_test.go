package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bucket"
)

// part is the size of a part of an object.
const part = 16 << 20

func TestObjectsOfAllSizesComeBack(t *testing.T) {
	ctx, r := context.Background(), newGateway(t).repository(t, "a/b")
	content := make([]byte, 2*part+5)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content) // never fails
	var names []string
	for _, size := range []int{0, 1, part - 1, part, part + 1, len(content)} {
		name := fmt.Sprintf("objects/%08d", size)
		names = append(names, name)
		err := r.Put(ctx, name, func(w io.Writer) error {
			for from := 0; from < size; from += 1 << 20 {
				if _, err := w.Write(content[from:min(size, from+1<<20)]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
		o, err := r.Get(ctx, name)
		if err != nil {
			t.Fatalf("get %d bytes: %v", size, err)
		}
		got, err := io.ReadAll(o)
		if err := errors.Join(err, o.Close()); err != nil || !bytes.Equal(got, content[:size]) {
			t.Errorf("%d bytes come back as %d, %v", size, len(got), err)
		}
	}
	if got := list(t, r, "objects/"); !slices.Equal(got, names) {
		t.Errorf("list: %v", got)
	}
	own := errors.New("of the writer")
	for _, size := range []int{1, part + 1} {
		err := r.Put(ctx, "objects/refused", func(w io.Writer) error {
			_, err := w.Write(content[:size])
			return errors.Join(err, own)
		})
		if !errors.Is(err, own) {
			t.Errorf("a writer that fails behind %d bytes: %v", size, err)
		}
	}
	if _, err := r.Get(ctx, "objects/refused"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was refused: %v", err)
	}
	for _, name := range append(names, "objects/never") {
		if err := r.Delete(ctx, name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
	if got := list(t, r, ""); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err := r.List(ended, "", func(string, int64) error { return nil })
	if _, got := r.Get(ended, "x"); !errors.Is(got, context.Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, %v", got, err)
	}
}

// list returns the names behind a prefix.
func list(t *testing.T, r *bucket.Repository, prefix string) (names []string) {
	t.Helper()
	err := r.List(context.Background(), prefix, func(name string, _ int64) error {
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// run runs a command line that must succeed.
func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	r, err := command.Run(env, args...)
	if err != nil || r.Status != 0 {
		t.Fatalf("%v: status %d, %v\n%s%s", args, r.Status, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// fill makes a store of some files.
func fill(t *testing.T, env []string, dir string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	run(t, env, "instance", "create", "other", "--dir", dir) // makes the store, too
	run(t, env, "table", "create", "t", "--key", "k:integer", "--dir", dir)
	for i := range 12 {
		var text strings.Builder
		for text.Len() < 60_000 {
			fmt.Fprintf(&text, "%016x", random.Uint64())
		}
		run(t, env, "put", "t", strconv.Itoa(i), "-s", "c="+text.String(), "--dir", dir)
		run(t, env, "table", "flush", "t", "--dir", dir)
	}
}

func scan(t *testing.T, env []string, dir string) string {
	t.Helper()
	return run(t, env, "scan", "t", "--limit", "0", "--json", "--dir", dir)
}

// TestTheCommandsOfThePageDo runs what docs/backup.md has of buckets.
func TestTheCommandsOfThePageDo(t *testing.T) {
	text, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^    flagstone (.+ s3://.+)$`).FindAllStringSubmatch(string(text), -1)
	if len(lines) != 6 {
		t.Fatalf("the page has %d commands", len(lines))
	}
	env, at := newGateway(t).environment(), t.TempDir()
	dir, restored := filepath.Join(at, "store"), filepath.Join(at, "restored")
	fill(t, env, dir)
	for _, line := range lines {
		args := strings.Fields(strings.ReplaceAll(line[1], "./restored", restored))
		if slices.Contains(args, "create") {
			args = append(args, "--dir", dir)
		}
		run(t, env, args...)
	}
	if got, want := scan(t, env, restored), scan(t, env, dir); got != want || strings.Count(got, "\n") != 12 {
		t.Errorf("restored are %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
	wrong := append(slices.Clone(env), "AWS_SECRET_ACCESS_KEY=wrong")
	if r, err := command.Run(wrong, "backup", "list", "s3://backups/shop"); err != nil || r.Status != 1 || !strings.Contains(r.Stderr, "refuses") || strings.Contains(r.Stderr, "wrong") {
		t.Errorf("with a wrong key: %+v, %v", r, err)
	}
	if r, err := command.Run(env, "backup", "create", "s3://elsewhere", "--dir", dir); err != nil || r.Status != 1 || !strings.Contains(r.Stderr, "NoSuchBucket") {
		t.Errorf("without a bucket: %+v, %v", r, err)
	}
}

// TestAMomentIsRestored keeps a log in a bucket.
func TestAMomentIsRestored(t *testing.T) {
	env, at := newGateway(t).environment(), t.TempDir()
	dir, restored := filepath.Join(at, "store"), filepath.Join(at, "restored")
	fill(t, env, dir)
	run(t, env, "backup", "create", "s3://backups/logged", "--keep-log", "1GiB", "--dir", dir)
	run(t, env, "put", "t", "100", "-s", "c=before", "--dir", dir)
	want, moment := scan(t, env, dir), time.Now().UTC().Format(time.RFC3339Nano)
	run(t, env, "put", "t", "100", "-s", "c=after", "--dir", dir)
	for range 4 { // those of an idle store replace each other
		run(t, env, "backup", "log", "s3://backups/logged", "--dir", dir)
	}
	run(t, env, "backup", "verify", "s3://backups/logged")
	run(t, env, "restore", "s3://backups/logged", "--at", moment, "--to", restored)
	if got := scan(t, env, restored); got != want || !strings.Contains(got, "before") {
		t.Errorf("restored are %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
}

// valueFiles counts the objects of value files. All others are small, and may not be used again: those of the
// checkpoint, and table files, which are merged.
func valueFiles(t *testing.T, r *bucket.Repository) (n int) {
	t.Helper()
	err := r.List(context.Background(), "objects/", func(_ string, size int64) error {
		if size > 20_000 {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestABackupGoesOnAfterKills kills a create, and then the server within another one, which goes on when the server is
// back. It goes on with what is there, and what is restored is the store.
func TestABackupGoesOnAfterKills(t *testing.T) {
	g, at := newGateway(t), t.TempDir()
	env, dir, restored, r := g.environment(), filepath.Join(at, "store"), filepath.Join(at, "restored"), g.repository(t, "shop")
	const place = "s3://" + bucketName + "/shop"
	fill(t, env, dir)
	// begin starts a create, and returns when it has put three value files, and how it will end.
	begin := func(out io.Writer) (create *exec.Cmd, ended chan error) {
		before := valueFiles(t, r)
		create, ended = exec.Command(command.Path(), "backup", "create", place, "--dir", dir, "--rate", "200KiB"), make(chan error, 1)
		create.Env, create.Stdout, create.Stderr = append(os.Environ(), env...), out, out
		if err := create.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ended <- create.Wait() }()
		for valueFiles(t, r) < before+3 {
			select {
			case err := <-ended:
				t.Fatalf("it ends too early: %v", err)
			default:
			}
		}
		return create, ended
	}
	create, ended := begin(io.Discard)
	_ = create.Process.Kill()
	if err := <-ended; err == nil {
		t.Error("a create succeeds that was killed")
	}
	if out := run(t, env, "backup", "list", place, "--json"); out != "" {
		t.Errorf("there is %s", out)
	}
	var out bytes.Buffer
	_, ended = begin(&out)
	g.kill()
	g.start(t)
	if err := <-ended; err != nil {
		t.Fatalf("the server was away for a moment: %v, %s", err, &out)
	}
	if all := regexp.MustCompile(`, (\S+ \S+), of which (\S+ \S+) are new`).FindStringSubmatch(out.String()); all == nil || all[1] == all[2] {
		t.Errorf("the second backup goes on with nothing: %s", &out)
	}
	run(t, env, "backup", "verify", place)
	run(t, env, "restore", place, "--to", restored)
	if got, want := scan(t, env, restored), scan(t, env, dir); got != want || strings.Count(got, "\n") != 12 {
		t.Errorf("restored are %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
	// A damaged object is refused by name.
	for _, name := range list(t, r, "objects/") {
		err := r.Put(context.Background(), name, func(w io.Writer) error {
			_, err := io.WriteString(w, "nonsense")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if v, err := command.Run(env, "backup", "verify", place); err != nil || v.Status != 1 || !strings.Contains(v.Stdout, "damaged") {
		t.Errorf("verify of damage: %+v, %v", v, err)
	}
}
