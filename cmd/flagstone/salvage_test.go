package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// TestSalvageTellsWhetherSomethingWasLost runs the commands of docs/reliability.md on an intact store, on one
// with damaged files, and on one without its manifest.
func TestSalvageTellsWhetherSomethingWasLost(t *testing.T) {
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for line := range strings.Lines(string(page)) {
		if args, ok := strings.CutPrefix(strings.TrimSpace(line), "flagstone salvage "); ok {
			lines = append(lines, strings.Fields("salvage "+args))
		}
	}
	if len(lines) != 2 {
		t.Fatalf("%d commands in the page", len(lines))
	}
	store := filepath.Join(t.TempDir(), "store")
	makeRows(t, store)
	home, err := instances.Open(store, instances.Options{}) // makes the registry, as a server does
	if err == nil {
		err = home.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	registry := filepath.Join(store, instances.RegistryName)
	secrets := filepath.Join(store, credentialsFile)
	if err := writeSecret(secrets, []byte(credentialLines("id", "secret"))); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(store, "sst", "*", "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	for _, c := range []struct {
		what   string
		damage func() error
		status int
		says   string
	}{
		{"intact", func() error { return nil }, 0, "lost"},
		{"a damaged block", func() error {
			content, err := os.ReadFile(tables[0])
			if err != nil {
				return err
			}
			content[100] ^= 1
			return os.WriteFile(tables[0], content, 0o600)
		}, lossStatus, "orders"},
		{"a registry of a newer version", func() error { return os.WriteFile(registry, []byte("flagstone-instances 99 0\n"), 0o600) }, 1, ""},
		{"a damaged registry", func() error { return os.WriteFile(registry, []byte("?"), 0o600) }, lossStatus, "orders"},
		{"no CURRENT", func() error { return errors.Join(os.Remove(registry), os.Remove(filepath.Join(store, "CURRENT"))) }, lossStatus, "CURRENT"},
		{"access keys that are a directory", func() error { return errors.Join(os.Remove(secrets), os.Mkdir(secrets, 0o700)) }, 1, ""},
		{"no manifest", func() error {
			found, err := filepath.Glob(filepath.Join(store, "*-0*"))
			for _, name := range append(found, secrets) {
				err = errors.Join(err, os.Remove(name))
			}
			return err
		}, 1, ""},
	} {
		if err := c.damage(); err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			target := filepath.Join(t.TempDir(), "target")
			args := strings.Fields(strings.NewReplacer("./flagstone-data", store, "./flagstone-salvaged", target).Replace(strings.Join(line, " ")))
			var out, log bytes.Buffer
			if status := run(context.Background(), args, &output{out: &out, err: &log}); status != c.status || !strings.Contains(out.String(), c.says) {
				t.Errorf("%s: %v: status %d, %s\n%s", c.what, args, status, out.String(), log.String())
			}
			printed := strings.Split(strings.TrimSpace(out.String()), "\n")
			losses, last := len(printed)-1, printed[len(printed)-1]
			if line[len(line)-1] == "--json" {
				for _, text := range printed {
					if c.status != 1 && !json.Valid([]byte(text)) || strings.Contains(text, `"copied"`) != (text == last && c.status != 1) {
						t.Errorf("%s: not JSON, or not the totals: %s", c.what, text)
					}
				}
				if want := fmt.Sprintf(`"losses":%d}`, losses); c.status != 1 && !strings.HasSuffix(last, want) {
					t.Errorf("%s: totals %s, want %s", c.what, last, want)
				}
			} else if want := "lost in all: " + countText(losses, "part"); c.status != 1 && !strings.HasSuffix(last, want) {
				t.Errorf("%s: totals %s, want %s", c.what, last, want)
			}
			if want := "lost: " + countText(losses, "part"); c.status == lossStatus && !strings.Contains(log.String(), want) {
				t.Errorf("%s: %s, want %s", c.what, log.String(), want)
			}
			left, err := filepath.Glob(target + "*")
			if err != nil || (len(left) == 0) != (c.status == 1) || len(left) > 1 {
				t.Errorf("%s: status %d, left are %v, %v", c.what, c.status, left, err)
			}
			if report, err := flagstone.Check(context.Background(), target, flagstone.Options{}, nil); c.status != 1 && (err != nil || len(report.Problems) > 0) {
				t.Errorf("%s: the new store: %v %v", c.what, err, report.Problems)
			}
		}
	}
}

func TestServeAndCheckOfADamagedStoreNameSalvage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	makeRows(t, dir)
	tables, err := filepath.Glob(filepath.Join(dir, "sst", "*", "*.sst"))
	if err == nil {
		err = os.Remove(tables[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "--dir", dir}, {"serve", "--dir", dir, "--addr", "127.0.0.1:0"}} {
		var out, log bytes.Buffer
		if status := run(context.Background(), args, &output{out: &out, err: &log}); status != 1 || !strings.Contains(log.String(), "'flagstone restore'") || !strings.Contains(log.String(), "'flagstone salvage'") {
			t.Errorf("%v: status %d, %s", args, status, log.String())
		}
	}
}

// TestSalvageListsAMissingCapacityStoreAndRegistry removes one of the two in turn; a table of another instance
// needs the registry too.
func TestSalvageListsAMissingCapacityStoreAndRegistry(t *testing.T) {
	for _, c := range []struct {
		what   string
		kind   ots.InstanceType // of the second instance
		table  string           // to make; or the file of access keys
		remove []string
		status int
		says   string
	}{
		{"all there", ots.Capacity, "", nil, 0, ""},
		{"no capacity store", ots.Capacity, "", []string{instances.CapacityDir}, lossStatus, "the capacity instance archive"},
		{"no registry beside a capacity store", ots.Capacity, "", []string{instances.RegistryName}, lossStatus, "there is a capacity store"},
		{"neither", ots.Capacity, "", []string{instances.CapacityDir, instances.RegistryName}, 0, ""},
		{"neither, of a server", ots.Capacity, credentialsFile, []string{instances.CapacityDir, instances.RegistryName}, lossStatus, "cannot be known whether it named capacity instances"},
		{"no registry, and a table of another instance", ots.HighPerformance, "archive/t", []string{instances.RegistryName}, lossStatus, "a table of the instance archive"},
		{"no registry, and a table of the default instance", ots.HighPerformance, "demo/t", []string{instances.RegistryName}, 0, ""},
	} {
		ctx, dir := context.Background(), filepath.Join(t.TempDir(), "store")
		home, err := instances.Open(dir, instances.Options{Store: flagstone.Options{Sync: flagstone.SyncNone}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(home.Create(ctx, "archive", c.kind), home.Close()); err != nil {
			t.Fatal(err)
		}
		switch c.table {
		case "":
		case credentialsFile:
			if _, err := loadCredentials(dir, func(string) string { return "" }); err != nil {
				t.Fatal(err)
			}
		default:
			store, err := flagstone.Open(dir, flagstone.Options{Sync: flagstone.SyncNone})
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.CreateTable(ctx, flagstone.TableSpec{
				Name: c.table, Key: []flagstone.KeyColumn{{Name: "n", Type: row.TypeInteger}}, Options: flagstone.TableOptions{MaxVersions: 1},
			})
			if err := errors.Join(err, store.Close()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range c.remove {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		var out, log bytes.Buffer
		status := run(ctx, []string{"salvage", dir, dir + "-new"}, &output{out: &out, err: &log})
		if status != c.status || !strings.Contains(out.String(), c.says) || strings.Contains(out.String(), "lost: ") != (status == lossStatus) {
			t.Errorf("%s: status %d, %s\n%s", c.what, status, out.String(), log.String())
		}
	}
}

// TestAReadOfADamagedStoreNamesTheFile reads it without a server, which would tell no internals.
func TestAReadOfADamagedStoreNamesTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for _, line := range []string{"instance create other", "table create orders --key n:integer", "put orders 1 -s c=first", "table flush orders"} {
		if status, _, errOut := command(t, append(strings.Fields(line), "--dir", dir)...); status != 0 {
			t.Fatal(line, errOut)
		}
	}
	file := damageTable(t, dir)
	out := filepath.Join(t.TempDir(), "rows.jsonl")
	commands := [][]string{{"get", "orders", "1"}, {"scan", "orders"}, {"count", "orders"}, {"export", "orders", out}, {"table", "alter", "orders", "--ttl", "90000"}}
	for _, line := range commands {
		var errOut bytes.Buffer
		status := run(context.Background(), append(line, "--dir", dir), &output{out: io.Discard, err: &errOut})
		if said := errOut.String(); status != 1 || !strings.Contains(said, file) || !strings.Contains(said, "offset") ||
			!strings.Contains(said, "flagstone salvage") || strings.Contains(said, "OTS") || strings.Contains(said, out) {
			t.Errorf("%v: status %d: %s", line, status, said)
		}
	}
	home, err := instances.Open(dir, instances.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = home.Rows(context.Background(), "demo", &instances.Query{Table: "orders"})
	err = caused(fmt.Errorf("table: %w", leaving(errors.Join(err, errors.New("another failure")), "a file stays")))
	if said := err.Error(); !errors.Is(err, flagstone.ErrCorrupt) || !strings.HasSuffix(said, "\nanother failure; a file stays") || strings.Contains(said, "OTS") {
		t.Error(said)
	}
	if err := home.Close(); err != nil {
		t.Fatal(err)
	}
	done(t, "table", "alter", "orders", "--ttl", "90000", "--yes", "--dir", dir) // reads no row
}

// TestSalvageTellsOfADamagedBlockInOneLine: the values of several rows are damaged together.
func TestSalvageTellsOfADamagedBlockInOneLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	makeRows(t, dir)
	damageTable(t, dir)
	status, out, errOut := command(t, "salvage", dir, filepath.Join(t.TempDir(), "target"))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != lossStatus || len(lines) != 2 || !strings.Contains(out, " rows, older or deleted") || !strings.Contains(errOut, "lost: 1 part;") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}

func TestABoundThatWasCutShortIsReadable(t *testing.T) {
	two, err := row.AppendKey(nil, 2, row.String("z001306"), row.Integer(300))
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]string{len(two): "(z001306,300)", 8: "(z001306...)", 5: "(z001...)", len(two) - 1: "(z001306,256...)"} {
		if got := strings.ReplaceAll(encodedKey(two[:cut], 2, ""), ", ", ","); got != want {
			t.Errorf("%d bytes: %s, want %s", cut, got, want)
		}
	}
	if got := encodedKey([]byte{0xfd}, 1, ""); !strings.Contains(got, "fd (") {
		t.Errorf("no key: %s", got)
	}
}

// damageTable changes a byte of the values in a store's only table file, and returns its name.
func damageTable(t *testing.T, dir string) string {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "sst", "*", "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	content, err := os.ReadFile(tables[0])
	if err == nil {
		content[100] ^= 1
		err = os.WriteFile(tables[0], content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tables[0]
}

// makeRows makes a store with a table file of several blocks.
func makeRows(t *testing.T, dir string) {
	t.Helper()
	store, err := flagstone.Open(dir, flagstone.Options{Sync: flagstone.SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	table, err := store.CreateTable(context.Background(), flagstone.TableSpec{
		Name: "orders", Key: []flagstone.KeyColumn{{Name: "n", Type: row.TypeInteger}},
		Options: flagstone.TableOptions{MaxVersions: 1},
	})
	for i := 0; err == nil && i < 1000; i++ {
		err = table.Update(context.Background(), flagstone.Key(i), func(_ context.Context, tx *flagstone.RowTx) error {
			tx.Put("c", 1_700_000_000_000, row.String(strings.Repeat(fmt.Sprint(i), 20)))
			return nil
		})
	}
	if err == nil {
		err = store.Flush(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
