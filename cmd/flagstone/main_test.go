package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// command runs a command line and returns its result.
func command(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(context.Background(), args, &output{out: &o, err: &e})
	return status, o.String(), e.String()
}

func TestSizesAreBytesOrHaveAUnit(t *testing.T) {
	for text, want := range map[string]size{
		"1": 1, "4096": 4096, "7B": 7, "64KiB": 64 << 10, "512MiB": 512 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
	} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%s: got %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "KiB", "1.5GiB", "64KB", "9999999999GiB", "1 MiBs"} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken for %d bytes", text, s)
		}
	}
}

func TestServeSaysWhenToCompressTheLog(t *testing.T) {
	for args, want := range map[string]flagstone.LogCompression{
		"serve":                          flagstone.LogCompressionAuto,
		"serve --log-compression=auto":   flagstone.LogCompressionAuto,
		"serve --log-compression=always": flagstone.LogCompressionAlways,
		"serve --log-compression=never":  flagstone.LogCompressionNever,
	} {
		var cli commands
		parser, err := newParser(t.Context(), &cli, &output{})
		if err == nil {
			_, err = parser.Parse(strings.Fields(args))
		}
		if got := cli.Serve.options(testAids{}, nil).LogCompression; err != nil || got != want {
			t.Errorf("%s: %d, expected %d, %v", args, got, want, err)
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"check", "--help"}, {"version", "--help"},
		{"instance", "--help"}, {"instance", "create", "--help"}, {"instance", "key", "add", "--help"}, {"advise", "--help"},
		{"table", "--help"}, {"table", "list", "--help"}, {"table", "describe", "--help"}, {"table", "create", "--help"}, {"table", "alter", "--help"},
		{"table", "drop", "--help"}, {"table", "compact", "--help"}, {"get", "--help"}, {"scan", "--help"}, {"count", "--help"},
		{"import", "--help"}, {"export", "--help"}, {"stream", "--help"}, {"stream", "tail", "--help"}, {"tunnel", "--help"}, {"tunnel", "create", "--help"}, {"top", "--help"}, {"put", "--help"}, {"update", "--help"}, {"delete", "--help"},
		{"backup", "--help"}, {"backup", "create", "--help"}, {"backup", "list", "--help"}, {"backup", "verify", "--help"}, {"backup", "prune", "--help"},
		{"backup", "rehearse", "--help"}, {"restore", "--help"}, {"partition", "--help"}, {"partition", "list", "--help"}, {"partition", "split", "--help"}, {"partition", "merge", "--help"}} {
		if status, out, _ := command(t, args...); status != 0 || !strings.Contains(out, "Usage: flagstone") {
			t.Errorf("%v: status %d, %q", args, status, out)
		}
	}
}

func TestAMistakeInTheCommandLineIsOneLineAndStatusTwo(t *testing.T) {
	for _, args := range [][]string{{}, {"serv"}, {"serve", "--cache-size", "big"}, {"serve", "--sync", "maybe"}, {"check", "extra"}} {
		status, out, errOut := command(t, args...)
		if status != 2 || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: status %d, output %q, %q", args, status, out, errOut)
		}
	}
}

func TestVersionNamesTheToolchain(t *testing.T) {
	if status, out, _ := command(t, "version"); status != 0 || !strings.HasPrefix(out, "flagstone ") || !strings.Contains(out, "go1.") {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestCredentialsComeFromTheEnvironmentOrAFileThatIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	none := func(string) string { return "" }
	made, err := loadCredentials(dir, none)
	if err != nil || !made.fresh || len(made.secret) < 40 {
		t.Fatalf("%+v, %v", made, err)
	}
	info, err := os.Stat(filepath.Join(dir, credentialsFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	again, err := loadCredentials(dir, none)
	if err != nil || again.fresh || again.id != made.id || again.secret != made.secret {
		t.Errorf("second start: %+v, %v", again, err)
	}
	env := map[string]string{envKeyID: "id", envKeySecret: "secret"}
	if c, err := loadCredentials(dir, func(k string) string { return env[k] }); err != nil || c.id != "id" || c.secret != "secret" {
		t.Errorf("environment: %+v, %v", c, err)
	}
	delete(env, envKeySecret)
	if _, err := loadCredentials(dir, func(k string) string { return env[k] }); err == nil || !strings.Contains(err.Error(), envKeySecret) {
		t.Errorf("half an environment: %v", err)
	}
	if secret, ok := made.lookup(made.id); !ok || secret != made.secret {
		t.Error("the key is not found by its id")
	}
	if _, ok := made.lookup("other"); ok {
		t.Error("an unknown key was found")
	}
	name := filepath.Join(dir, credentialsFile)
	if err := os.WriteFile(name, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCredentials(dir, none); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged file: %v", err)
	}
}

// serving starts the serve command and returns its address, and a function that stops it.
func serving(t *testing.T, args ...string) (url string, stop func() int) {
	t.Helper()
	url, _, stop = servingWithLog(t, args...)
	return url, stop
}

// servingWithLog also returns what the server has logged so far.
func servingWithLog(t *testing.T, args ...string) (url string, log func() string, stop func() int) {
	t.Helper()
	errOut, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errOut.Close() })
	log = func() string {
		text, err := os.ReadFile(errOut.Name())
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...), &output{out: w, err: errOut})
		w.Close()
	}()
	buffer := make([]byte, 1024)
	n, _ := r.Read(buffer)
	found := regexp.MustCompile(`^flagstone: serving \S+ on (http://127\.0\.0\.1:\d+)\n$`).FindSubmatch(buffer[:n])
	if found == nil {
		cancel()
		t.Fatalf("the server said %q; status %d; %s", buffer[:n], <-status, log())
	}
	return string(found[1]), log, func() int {
		cancel()
		return <-status
	}
}

func TestServeAnswersUntilItIsStoppedAndTheStoreIsWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	url, stop := serving(t, "--dir", dir, "--log-level", "error")
	resp, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", resp.Status)
	}
	if status, out, errOut := command(t, "check", "--dir", dir); status != 0 || !strings.Contains(out, "no problem found") {
		t.Errorf("check beside the server: status %d, %q, %q", status, out, errOut)
	}
	if status, out, errOut := command(t, "serve", "--dir", dir, "--addr", "127.0.0.1:0"); status != 1 || out != "" || !strings.Contains(errOut, dir) {
		t.Errorf("second server: status %d, %q, %q", status, out, errOut)
	}
	if status := stop(); status != 0 {
		t.Errorf("stopped with status %d", status)
	}
	if status, out, errOut := command(t, "check", "--dir", dir); status != 0 || !strings.Contains(out, "no problem found") {
		t.Errorf("check: status %d, %q, %q", status, out, errOut)
	}
}

func TestCheckFindsADamagedTableFile(t *testing.T) {
	dir := t.TempDir()
	store, err := flagstone.Open(dir, flagstone.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	table, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := table.Update(ctx, flagstone.Key(i), func(_ context.Context, tx *flagstone.RowTx) error { tx.PutRow(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "sst", "*", "*.sst"))
	if err != nil || len(files) != 1 {
		t.Fatalf("table files %v, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	content[10] ^= 1
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := command(t, "check", "--quiet", "--dir", dir)
	if status != 1 || !strings.Contains(out, files[0]) || !strings.Contains(errOut, "1 problem found") {
		t.Errorf("status %d, %q, %q", status, out, errOut)
	}
}

func TestCheckRefusesWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{filepath.Join(dir, "absent"), dir} {
		if status, _, errOut := command(t, "check", "--dir", d); status != 1 || !strings.Contains(errOut, d) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %q", d, status, errOut)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the directory was changed: %v, %v", entries, err)
	}
}

func TestALimitBelowZeroIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	status, _, errOut := command(t, "serve", "--dir", dir, "--addr", "127.0.0.1:0", "--instance-units=-5")
	if status != 1 || !strings.Contains(errOut, "--instance-units is -5") {
		t.Errorf("status %d, %q", status, errOut)
	}
}

func TestARefusedInstanceLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, name := range []string{"../x", "", "ab", "1abc", "abc-", "a/b", strings.Repeat("a", 17)} {
		status, _, errOut := command(t, "instance", "create", "--dir", dir, name)
		if status != 1 || !strings.Contains(errOut, "instance name") {
			t.Errorf("%q: status %d, %q", name, status, errOut)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a store was made for a name that cannot be: %v", err)
	}
}

func TestValuesMayBeginWithADash(t *testing.T) {
	dir := newHome(t)
	t.Setenv("FLAGSTONE_DIR", dir)
	done(t, "table", "create", "kb", "--key", "b:binary", "--key", "i:integer", "--key", "s:string")
	for _, line := range []string{
		"put kb -s c=1 00ff -- -1 -a", "put kb -s c=1 00ff -2 -- -s", "put kb 00ff -3 x -s c=1", "put kb -s c=1 00ff -4 -5",
		"put kb -s c=1 -- 00ff -6 --",
	} {
		done(t, strings.Fields(line)...)
	}
	want := "b,i,s,c\n00ff,-6,--,1\n00ff,-4,-5,1\n00ff,-3,x,1\n00ff,-2,-s,1\n00ff,-1,-a,1\n"
	if out := done(t, "scan", "kb", "00ff", "--from", "-9", "--csv", "--columns", "c"); out != want {
		t.Errorf("%s, want %s", out, want)
	}
	done(t, "put", "t", "-7", "-s", "c=1")
	if out := done(t, "get", "t", "-7", "--json"); !strings.Contains(out, "-7") {
		t.Error(out)
	}
	if out := done(t, "export", "kb", "--prefix", "00ff,-4"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"value":-4}`) {
		t.Error(out)
	}
	refused(t, "Invalid column name: '-1'", "scan", "kb", "00ff", "-4", "--columns", "-1,c")
	t.Chdir(t.TempDir())
	for path, line := range map[string]string{"-a": "salvage -- -a b", "-5": "table list --dir -5"} {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "no store in "+path, strings.Fields(line)...)
	}
	refused(t, "--prefix: expected", "export", "kb", "--prefix", "--overwrite")
	refused(t, `2 values were given, ["-7" "--json"]`, "get", "t", "--", "-7", "--json")
	refused(t, "--limit is -1", "scan", "t", "--limit", "-1")
	refused(t, "unexpected argument -1 (", "version", "-1")
}

func TestProgramsOfThisMachineReachAServerThatListensOnAllAddresses(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:80": "http://127.0.0.1:80", "[::]:80": "http://127.0.0.1:80", "[::1]:80": "http://[::1]:80", "10.0.0.1:80": "http://10.0.0.1:80"} {
		if got := localURL(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestASizeWithWhichEachWriteWouldBeAFileIsRefused(t *testing.T) {
	for _, flag := range []string{"--memory-budget", "--memtable-size", "--table-file-size", "--block-size", "--wal-segment-size", "--partition-split-size", "--cache-size"} {
		dir := filepath.Join(t.TempDir(), "data")
		status, _, errOut := command(t, "serve", "--dir", dir, "--addr", "127.0.0.1:0", flag, "10")
		if status != 2 || !strings.Contains(errOut, flag+" is 10 bytes; give ") || exists(dir) {
			t.Errorf("%s: status %d, %q", flag, status, errOut)
		}
	}
}

// TestAServerThatIsStoppedWhileItRecoversEndsInGoodOrder: the signal came before the first record was replayed.
func TestAServerThatIsStoppedWhileItRecoversEndsInGoodOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	server, _ := servingProcess(t, "--dir", dir)
	for _, line := range [][]string{{"table", "create", "t", "--key", "k:string"}, {"put", "t", "a", "-s", "v=1"}} {
		if status, _, errOut := command(t, append(line, "--dir", dir)...); status != 0 {
			t.Fatal(errOut)
		}
	}
	kill(server)
	stopped, stop := context.WithCancel(context.Background())
	stop()
	var out, errOut bytes.Buffer
	status := run(stopped, []string{"serve", "--dir", dir, "--addr", "127.0.0.1:0"}, &output{out: &out, err: &errOut})
	if status != 0 || out.Len() > 0 || !strings.Contains(errOut.String(), "the next start goes on") {
		t.Errorf("status %d, %q, %s", status, &out, &errOut)
	}
	if status, row, errOut := command(t, "get", "t", "a", "--json", "--dir", dir); status != 0 || !strings.Contains(row, `"v"`) {
		t.Errorf("the row afterwards: %q, %s", row, errOut)
	}
}

func TestConnectionsLeaveDescriptorsToTheStore(t *testing.T) {
	for descriptors, want := range map[int]int{0: 4096, 1 << 20: 4096, 4096: 504, 1024: 120, 100: 8, 20: 8} {
		if got := connections(descriptors); got != want {
			t.Errorf("of %d descriptors %d connections, want %d", descriptors, got, want)
		}
	}
}
