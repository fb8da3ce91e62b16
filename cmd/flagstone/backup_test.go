package main

import (
	"bufio"
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
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/flagstone-db/flagstone/instances"
)

// succeed runs a command line that succeeds, and returns what it prints.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errOut := command(t, args...)
	if status != 0 {
		t.Fatalf("%v: status %d\n%s\n%s", args, status, out, errOut)
	}
	return out
}

// TestBackupPageDoes runs the commands in the first lines of docs/backup.md beside a server, with instances of both
// types, and serves what is restored.
func TestBackupPageDoes(t *testing.T) {
	text, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^    flagstone (.+)$`).FindAllStringSubmatch(string(text), 7)
	if len(lines) != 7 {
		t.Fatalf("the page begins with %d commands", len(lines))
	}
	at := t.TempDir()
	dir, restored := filepath.Join(at, "store"), filepath.Join(at, "restored")
	_, stop := serving(t, "--dir", dir, "--sync", "none")
	stop = sync.OnceValue(stop)
	defer stop()
	succeed(t, "instance", "create", "archive", "--type", "capacity", "--dir", dir)
	key := succeed(t, "instance", "key", "add", "archive", "--dir", dir)
	for _, instance := range []string{"demo", "archive"} {
		succeed(t, "table", "create", "orders", "--key", "customer:string", "--dir", dir, "--instance", instance)
		succeed(t, "put", "orders", "anna", "-s", "of="+instance, "--dir", dir, "--instance", instance)
	}
	for _, line := range lines {
		args := strings.Fields(strings.NewReplacer("/mnt/backups", filepath.Join(at, "backups"), "./restored", restored).Replace(line[1]))
		if slices.Contains(args, "create") || slices.Contains(args, "--as") {
			args = append(args, "--dir", dir)
		}
		out := succeed(t, args...)
		if slices.Contains(args, "rehearse") && (!regexp.MustCompile(`demo/orders +1\n`).MatchString(out) || !regexp.MustCompile(`archive/orders +1\n`).MatchString(out)) {
			t.Errorf("rehearse prints %s", out)
		}
	}
	if out := succeed(t, "get", "orders_of_monday", "anna", "--dir", dir); !strings.Contains(out, "demo") {
		t.Errorf("the restored table has %s", out)
	}
	if status := stop(); status != 0 {
		t.Errorf("the server ends with %d", status)
	}
	if left, err := os.ReadDir(filepath.Join(dir, instances.CheckpointsDir)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
	same(t, dir, restored, credentialsFile)
	_, stopRestored := serving(t, "--dir", restored)
	defer stopRestored()
	for _, instance := range []string{"demo", "archive"} {
		if out := succeed(t, "get", "orders", "anna", "--dir", restored, "--instance", instance); !strings.Contains(out, instance) {
			t.Errorf("%s: %s", instance, out)
		}
	}
	id := regexp.MustCompile(`flagstone\w+`).FindString(key)
	if out := succeed(t, "instance", "key", "list", "archive", "--dir", restored); id == "" || !strings.Contains(out, id) {
		t.Errorf("the key %q is not among %s", id, out)
	}
}

func same(t *testing.T, a, b, name string) {
	t.Helper()
	one, err1 := os.ReadFile(filepath.Join(a, name))
	two, err2 := os.ReadFile(filepath.Join(b, name))
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("%s differs: %v, %v", name, err1, err2)
	}
}

// TestStoresShareARepository: the commands tell them apart.
func TestStoresShareARepository(t *testing.T) {
	at := t.TempDir()
	repo := filepath.Join(at, "backups")
	dirs := []string{filepath.Join(at, "one"), filepath.Join(at, "two")}
	for _, dir := range dirs {
		_, stop := serving(t, "--dir", dir)
		stop()
	}
	names := make([]string, 4)
	for i := range names {
		status, out, errOut := command(t, "backup", "create", repo, "--dir", dirs[i/2])
		names[i], _, _ = strings.Cut(out, ":")
		if status != 0 || strings.Contains(errOut, "another store") != (i == 2) {
			t.Fatalf("create %d: status %d, %q, %q", i, status, out, errOut)
		}
	}
	list := regexp.MustCompile(`(?m)^2\S+  ([0-9a-f]{8})  `).FindAllStringSubmatch(succeed(t, "backup", "list", repo), -1)
	if len(list) != 4 || list[0][1] != list[1][1] || list[2][1] != list[3][1] || list[1][1] == list[2][1] {
		t.Fatalf("listed are %q", list)
	}
	for _, args := range [][]string{{"restore", repo, "--to", filepath.Join(at, "any")}, {"backup", "rehearse", repo}} {
		if status, out, errOut := command(t, args...); status != 1 || !strings.Contains(errOut, names[1]) || exists(filepath.Join(at, "any")) {
			t.Errorf("%q: status %d, %q, %q", args, status, out, errOut)
		}
	}
	for _, want := range []string{"interrupted; nothing of the restore is left", "interrupted; there.partial is left, and can be deleted"} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		var errOut bytes.Buffer
		status := run(ctx, []string{"restore", repo, "--store", list[0][1], "--to", filepath.Join(at, "there")}, &output{out: io.Discard, err: &errOut})
		if got := strings.ReplaceAll(errOut.String(), at+string(filepath.Separator), ""); status != 1 || got != "flagstone: "+want+"\n" {
			t.Errorf("status %d, %q, want %q", status, got, want)
		}
		if err := os.MkdirAll(filepath.Join(at, "there.partial"), 0o700); err != nil { // as if it could not be removed
			t.Fatal(err)
		}
	}
	if out := succeed(t, "restore", repo, "--store", list[0][1], "--to", filepath.Join(at, "restored")); !strings.Contains(out, names[1]) {
		t.Errorf("restored is %q", out)
	}
	if out := succeed(t, "backup", "prune", repo, "--keep", "1"); strings.Contains(out, names[1]) || !strings.Contains(out, names[0]) {
		t.Errorf("prune says %q", out)
	}
}

// TestBackupsAreEncrypted runs all commands with and without keys, on a folder that no process has open.
func TestBackupsAreEncrypted(t *testing.T) {
	at := t.TempDir()
	dir, repo, key, other := newHome(t), filepath.Join(at, "backups"), filepath.Join(at, "key"), filepath.Join(at, "other")
	var public string
	for _, file := range []string{other, key} {
		identity, err := age.GenerateX25519Identity()
		if err == nil {
			err = os.WriteFile(file, []byte(identity.String()+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		public = identity.Recipient().String()
	}
	succeed(t, "table", "create", "orders", "--key", "customer:string", "--dir", dir)
	succeed(t, "put", "orders", "anna", "-s", "state=secretive", "--dir", dir)
	succeed(t, "backup", "create", repo, "--dir", dir, "--recipient", public)
	if out := succeed(t, "backup", "create", repo, "--dir", dir, "--recipient", public); strings.Contains(out, " B, of which") {
		t.Errorf("the second backup says %s", out)
	}
	with := func(args ...string) []string { return append(args, "--identity", key) }
	if out := succeed(t, with("backup", "list", repo, "--json")...); strings.Count(out, `"name"`) != 2 {
		t.Errorf("list prints %s", out)
	}
	succeed(t, with("backup", "verify", repo)...)
	succeed(t, with("backup", "rehearse", repo, "--scratch", at)...)
	succeed(t, with("restore", repo, "--to", filepath.Join(at, "restored"))...)
	if out := succeed(t, "get", "orders", "anna", "--dir", filepath.Join(at, "restored")); !strings.Contains(out, "secretive") {
		t.Errorf("restored is %s", out)
	}
	for _, args := range [][]string{
		{"backup", "create", repo, "--dir", dir}, {"backup", "create", repo, "--dir", dir, "--recipient", "age1nonsense"}, {"backup", "list", repo},
		{"backup", "verify", repo}, {"backup", "list", repo, "--identity", other}, {"restore", repo, "--to", filepath.Join(at, "x"), "--identity", other},
		{"backup", "prune", repo, "--keep", "1", "--identity", other}, {"backup", "list", repo, "--identity", filepath.Join(at, "none")},
	} {
		if status, out, errOut := command(t, args...); status == 0 {
			t.Errorf("%v: %s%s", args, out, errOut)
		}
	}
	if _, out, errOut := command(t, "backup", "list", repo, "--identity", other); !strings.Contains(out, "no identity fits") || strings.Contains(out, "damaged") {
		t.Errorf("with another identity: %s%s", out, errOut)
	}
	flipEach(t, repo, func(name string) {
		status, out, errOut := command(t, with("backup", "verify", repo)...)
		if base := filepath.Base(name); status != 1 || !strings.Contains(out+errOut, base) {
			t.Errorf("with a flipped byte in %s: status %d, %s%s", name, status, out, errOut)
		}
	})
	succeed(t, with("backup", "prune", repo, "--keep", "1")...)
	succeed(t, with("backup", "verify", repo)...)
	left, err := filepath.Glob(filepath.Join(at, "flagstone-rehearsal-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the rehearsal left %v, %v", left, err)
	}
}

// TestARehearsalComparesRows rehearses a backup with a digest, and compares others with it.
func TestARehearsalComparesRows(t *testing.T) {
	at, dir := t.TempDir(), newHome(t)
	repo, restored := filepath.Join(at, "backups"), filepath.Join(at, "restored")
	succeed(t, "table", "create", "orders", "--key", "customer:string", "--versions", "3", "--ttl", "86400", "--dir", dir)
	succeed(t, "put", "orders", "anna", "-s", "state=new", "-s", "n:integer=1", "--dir", dir)
	succeed(t, "update", "orders", "anna", "-s", "state=paid", "--dir", dir)
	if out := succeed(t, "backup", "create", repo, "--dir", dir); out == "" {
		t.Error("create prints nothing")
	}
	if out := succeed(t, "backup", "rehearse", repo, "--scratch", at); !strings.Contains(out, "compared with nothing") {
		t.Errorf("without a digest: %s", out)
	}
	succeed(t, "backup", "create", repo, "--dir", dir, "--digest")
	if out := succeed(t, "backup", "rehearse", repo, "--scratch", at); !strings.Contains(out, "all 2 tables are as they were") || !regexp.MustCompile(`demo/orders +1\n`).MatchString(out) {
		t.Errorf("with a digest: %s", out)
	}
	succeed(t, "restore", repo, "--to", restored)
	compare := func() (string, error) {
		var out bytes.Buffer
		err := compareDigest(context.Background(), &output{out: &out, err: &out}, restored)
		return out.String(), err
	}
	if out, err := compare(); err != nil {
		t.Errorf("as restored: %s, %v", out, err)
	}
	for _, line := range []string{"update orders anna -s state=late", "put orders bert -s state=new", "table create more --key k:string", "table drop orders --yes"} {
		succeed(t, append(strings.Fields(line), "--dir", restored)...)
		out, err := compare()
		if err == nil || !strings.Contains(out, "table demo/") {
			t.Errorf("after %s: %s, %v", line, out, err)
		}
	}
	file := filepath.Join(restored, digestFile)
	content, err := os.ReadFile(file)
	if err == nil {
		content[len(content)/2] ^= 1
		err = os.WriteFile(file, content, 0o600)
	}
	if _, got := compare(); err != nil || got == nil || !strings.Contains(got.Error(), "damaged") {
		t.Errorf("a damaged digest: %v, %v", got, err)
	}
}

// flipEach flips a byte in the middle of each file of a directory in turn, and calls look.
func flipEach(t *testing.T, dir string, look func(name string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		flipped := slices.Clone(content)
		flipped[len(flipped)/2] ^= 1
		if err := os.WriteFile(name, flipped, 0o600); err != nil {
			return err
		}
		look(name)
		return os.WriteFile(name, content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMistakesOfBackupCommandsAreRefused(t *testing.T) {
	at, dir := t.TempDir(), newHome(t)
	repo := filepath.Join(at, "backups")
	succeed(t, "backup", "create", repo, "--dir", dir)
	succeed(t, "backup", "create", repo, "--dir", dir)
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"backup create ftp://me:secret@host --dir " + dir, 2, "ftp:// is no repository"},
		{"backup create " + dir + "/backups --dir " + dir, 2, "lies in the store's folder"},
		{"backup create " + dir + " --dir " + dir, 2, "lies in the store's folder"},
		{"backup create " + repo + " --dir " + t.TempDir(), 1, "no store"},
		{"backup create " + repo + " --rate 0 --dir " + dir, 2, "rate"},
		{"backup create " + repo + " --rate 65535 --dir " + dir, 2, "at least 64KiB per second"},
		{"backup log " + repo + " --rate 1 --dir " + dir, 2, "at least 64KiB per second"},
		{"check --rate 1 --dir " + dir, 2, "at least 64KiB per second"},
		{"backup rehearse " + repo + " --at yesterday", 2, "no time"},
		{"backup list " + at + "/none", 1, "no repository"},
		{"backup prune " + repo, 2, "--keep"},
		{"backup prune " + repo + " --keep -1", 2, "--keep"},
		{"backup prune " + repo + " --keep 1 --unfinished-after 1h", 2, "2h"},
		{"backup verify " + repo + " 1999", 1, "no such backup"},
		{"backup verify " + repo + " 2", 1, "2 names"},
		{"restore " + repo, 2, "--to"},
		{"restore " + repo + " --at yesterday --to " + at + "/none", 2, "no time"},
		{"restore " + repo + " 2 --at 2026-11-27T10:00:00Z --to " + at + "/none", 1, "2 names"},
		{"restore " + repo + " --at 2026-11-27T10:00:00Z --to " + at + "/none", 1, "no backup before it has kept its log; what can be: nothing"},
		{"backup create " + repo + " --keep-log 1XB --dir " + dir, 2, "--keep-log"},
		{"backup log " + repo + " --every -1m --dir " + dir, 2, "--every"},
		{"backup log " + repo + " --dir " + dir, 1, "does not keep its log; 'flagstone backup create"},
		{"restore " + repo + " --to " + dir, 1, "not empty"},
		{"backup rehearse " + repo + " --scratch " + at + "/none", 1, "no such file"},
	} {
		status, out, errOut := command(t, strings.Fields(c.line)...)
		if status != c.status || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: status %d, %s%s", c.line, status, out, errOut)
		}
	}
	descriptions, err := filepath.Glob(filepath.Join(repo, "backups", "*"))
	if err != nil || len(descriptions) != 2 || os.WriteFile(descriptions[0], []byte("\x1b[31mnonsense"), 0o600) != nil {
		t.Fatal(descriptions, err)
	}
	status, out, errOut := command(t, "backup", "list", repo)
	if good, bad := filepath.Base(descriptions[1]), filepath.Base(descriptions[0]); status != 1 || strings.Count(out, "\n") != 3 || !strings.Contains(out, good) || !strings.Contains(out, bad+"  backup") || !strings.Contains(errOut, "1 backups") {
		t.Errorf("list with a damaged backup: status %d, %s%s", status, out, errOut)
	}
	memory := filepath.Join(at, "memory")
	if _, err := os.Stat(memory); err == nil {
		t.Error("a refused command made something")
	}
}

// process starts a command line in a process of its own.
func process(t *testing.T, args ...string) (cmd *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(stdout)
}

// TestABackupThatIsKilledIsContinued kills processes that make backups of a server's store, when they have put some
// files, and then the server. No checkpoint and no half file is left in the end, and the backup that is made then
// is that of the store.
func TestABackupThatIsKilledIsContinued(t *testing.T) {
	const rows, kills = 200, 3
	random := rand.New(rand.NewPCG(1, 1))
	at := t.TempDir()
	dir, repo := filepath.Join(at, "store"), filepath.Join(at, "backups")
	start := func() *exec.Cmd {
		server, said := process(t, "serve", "--addr", "127.0.0.1:0", "--dir", dir, "--table-file-size", "64KiB")
		if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "serving") {
			t.Fatalf("the server says %q, %v", line, err)
		}
		return server
	}
	server := start()
	succeed(t, "table", "create", "t", "--key", "k:integer", "--dir", dir)
	for i := range rows {
		var text strings.Builder
		for text.Len() < 16000 {
			fmt.Fprintf(&text, "%016x", random.Uint64())
		}
		succeed(t, "put", "t", strconv.Itoa(i), "-s", "c="+text.String(), "--dir", dir)
	}
	succeed(t, "table", "flush", "t", "--dir", dir)
	for kill := range kills {
		// The rate is so low that it is not done before it is killed.
		backing, _ := process(t, "backup", "create", repo, "--dir", dir, "--rate", strconv.Itoa(256<<10))
		ended := make(chan error, 1)
		go func() { ended <- backing.Wait() }()
		for n := 0; n <= kill+5; { // the first are of the checkpoint, and not used again
			select {
			case err := <-ended:
				t.Fatalf("it ends before it is killed: %v", err)
			default:
			}
			objects, err := filepath.Glob(filepath.Join(repo, "objects", "*", "*"))
			if err != nil {
				t.Fatal(err)
			}
			n = len(objects)
		}
		if err := backing.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended
		if out := succeed(t, "backup", "list", repo, "--json"); out != "" {
			t.Fatalf("the killed one made %s", out)
		}
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // it was killed
	server = start()
	defer func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, instances.CheckpointsDir)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("left is %v, %v", left, err)
		}
	}()
	out := succeed(t, "backup", "create", repo, "--dir", dir)
	if all := regexp.MustCompile(`, (\S+ \S+), of which (\S+ \S+) are new`).FindStringSubmatch(out); all == nil || all[1] == all[2] {
		t.Errorf("the last backup goes on with nothing: %s", out)
	}
	succeed(t, "backup", "verify", repo)
	makeOld(t, repo)
	succeed(t, "backup", "prune", repo, "--keep", "1")
	for _, leftover := range []string{"partial", "unfinished", "plans"} {
		if left, err := os.ReadDir(filepath.Join(repo, leftover)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("in %s is %v, %v", leftover, left, err)
		}
	}
	restored := filepath.Join(at, "restored")
	succeed(t, "restore", repo, "--to", restored)
	if got, want := succeed(t, "scan", "t", "--limit", "0", "--json", "--dir", restored), succeed(t, "scan", "t", "--limit", "0", "--json", "--dir", dir); got != want || strings.Count(got, "\n") != rows {
		t.Errorf("restored are %d lines, want %d of %d rows", strings.Count(got, "\n"), strings.Count(want, "\n"), rows)
	}
}

// makeOld lets what killed creates have left in a repository say that it is very old.
func makeOld(t *testing.T, repo string) {
	t.Helper()
	for _, pattern := range []string{"partial", "unfinished"} {
		left, err := filepath.Glob(filepath.Join(repo, pattern, "*"))
		if err != nil || pattern == "unfinished" && len(left) == 0 {
			t.Fatalf("%s has %v, %v", pattern, left, err)
		}
		for _, name := range left {
			if err := os.Rename(name, name[:strings.LastIndexByte(name, '.')]+".1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAServerStopsBesideABackup stops it while a backup reads its checkpoint: the server does not wait, and the
// backup fails or was done.
func TestAServerStopsBesideABackup(t *testing.T) {
	at := t.TempDir()
	dir := filepath.Join(at, "store")
	_, stop := serving(t, "--dir", dir)
	succeed(t, "table", "create", "t", "--key", "k:integer", "--dir", dir)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 8 { // the backup takes 8 seconds
		var text strings.Builder
		for text.Len() < 64<<10 {
			fmt.Fprintf(&text, "%c", 'a'+random.IntN(26))
		}
		succeed(t, "put", "t", strconv.Itoa(i), "-s", "c="+text.String(), "--dir", dir)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	status := make(chan int, 1)
	go func() {
		var o, e bytes.Buffer
		status <- run(ctx, []string{"backup", "create", filepath.Join(at, "backups"), "--dir", dir, "--rate", "64KiB"}, &output{out: &o, err: &e})
	}()
	for {
		select {
		case status := <-status:
			t.Fatalf("the backup ends with %d", status)
		default:
		}
		if made, err := filepath.Glob(filepath.Join(dir, instances.CheckpointsDir, "*", "CURRENT")); err != nil || len(made) > 0 {
			break
		}
	}
	if status := stop(); status != 0 {
		t.Errorf("the server ends with %d", status)
	}
	cancel()
	<-status
	if left, err := os.ReadDir(filepath.Join(dir, instances.CheckpointsDir)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
}

// TestAFlippedByteOfTheStoreIsRefused flips one in a table file, and one in a value file.
func TestAFlippedByteOfTheStoreIsRefused(t *testing.T) {
	for _, pattern := range []string{"sst/*/*.sst", "val/*/*.val"} {
		dir, repo := newHome(t), filepath.Join(t.TempDir(), "backups")
		random := rand.New(rand.NewPCG(1, 1))
		var text strings.Builder
		for text.Len() < 60_000 {
			fmt.Fprintf(&text, "%016x", random.Uint64())
		}
		succeed(t, "table", "create", "orders", "--key", "customer:string", "--dir", dir)
		succeed(t, "put", "orders", "anna", "-s", "c="+text.String(), "--dir", dir)
		succeed(t, "table", "flush", "orders", "--dir", dir)
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		content, err := os.ReadFile(files[0])
		if err == nil {
			content[len(content)/3] ^= 1
			err = os.WriteFile(files[0], content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		status, out, errOut := command(t, "backup", "create", repo, "--dir", dir)
		if base := filepath.Base(files[0]); status != 1 || !strings.Contains(errOut, base) {
			t.Errorf("create with a flipped byte in %s: status %d, %s%s", base, status, out, errOut)
		}
		if out := succeed(t, "backup", "list", repo, "--json"); out != "" {
			t.Errorf("there is %s", out)
		}
	}
}

func TestProgressIsDueEveryFewSeconds(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	due, never := new(quietly).due(clock), (&quietly{Quiet: true}).due(clock)
	for i := range 3 {
		now = now.Add(progressEvery - 1)
		if _, ok := due(); ok {
			t.Errorf("line %d is early", i)
		}
		now = now.Add(1)
		want := time.Duration(i+1) * progressEvery
		if took, ok := due(); !ok || took != want {
			t.Errorf("line %d: due %t after %v, want %v", i, ok, took, want)
		}
		if _, ok := never(); ok {
			t.Error("a line although it is quiet")
		}
	}
}
