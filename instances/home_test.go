package instances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// open opens a home and closes it at the end of the test.
func open(t *testing.T, dir string, names ...string) *Home {
	t.Helper()
	h, err := Open(dir, Options{Names: names, Store: small()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func small() flagstone.Options {
	return flagstone.Options{CacheSize: 1 << 20, MemoryBudget: 8 << 20}
}

// makeTable makes a table with a key column k, through the service.
func makeTable(t *testing.T, h *Home, instance, table string) {
	t.Helper()
	engine, instance, ok := h.Service(instance)
	if !ok {
		t.Fatalf("instance %s is not served", instance)
	}
	never, one := int32(-1), int32(1)
	if err := engine.CreateTable(ctx, instance, &ots.CreateTableRequest{
		Table: table, PrimaryKey: []ots.KeyColumn{{Name: "k", Type: row.TypeInteger}},
		Options: &ots.TableOptions{TimeToLive: &never, MaxVersions: &one},
	}); err != nil {
		t.Fatal(err)
	}
}

// show lists instances as "name/type/tables/keys".
func show(t *testing.T, h *Home) string {
	t.Helper()
	infos, err := h.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, in := range infos {
		out = append(out, fmt.Sprintf("%s/%s/%d/%d", in.Name, in.Type, in.Tables, len(in.Keys)))
	}
	return strings.Join(out, " ")
}

func wantShown(t *testing.T, h *Home, want string) {
	t.Helper()
	if got := show(t, h); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestANewHomeHasTheDefaultInstanceOrThoseThatAreNamed(t *testing.T) {
	wantShown(t, open(t, t.TempDir()), "demo/high-performance/0/0")
	dir := t.TempDir()
	h := open(t, dir, "two", "one")
	wantShown(t, h, "one/high-performance/0/0 two/high-performance/0/0")
	h.Close()
	h = open(t, dir)
	wantShown(t, h, "one/high-performance/0/0 two/high-performance/0/0")
	h.Close()
	wantShown(t, open(t, dir, "one", "three"), "one/high-performance/0/0 three/high-performance/0/0 two/high-performance/0/0")
}

func TestInstancesAndTheirTablesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	if err := h.Create(ctx, "archive", ots.Capacity); err != nil {
		t.Fatal(err)
	}
	key, err := h.AddKey(ctx, "archive")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"demo", "archive"} {
		makeTable(t, h, in, "T")
	}
	want := "archive/capacity/1/1 demo/high-performance/1/0"
	wantShown(t, h, want)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, dir)
	wantShown(t, h, want)
	if got, ok := h.Key(key.ID); !ok || got.Secret != key.Secret || got.Instance != "archive" {
		t.Errorf("the key after the restart: %+v, %v", got, ok)
	}
	if info, err := os.Stat(filepath.Join(dir, RegistryName)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestTablesOfALostInstanceAreNotHiddenByOneOfAnotherType(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, "demo", "lost")
	makeTable(t, h, "lost", "T")
	if err := h.Create(ctx, "archive", ots.Capacity); err != nil {
		t.Fatal(err)
	}
	makeTable(t, h, "archive", "T")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, RegistryName)); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	h, err := Open(dir, Options{Store: small(), Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for name, right := range map[string]ots.InstanceType{"lost": ots.HighPerformance, "archive": ots.Capacity} {
		wrong := ots.HighPerformance
		if right == wrong {
			wrong = ots.Capacity
		}
		if !strings.Contains(logged.String(), fmt.Sprintf("instance=%s type=%s", name, right)) {
			t.Errorf("%s is not reported: %s", name, &logged)
		}
		if err := h.Create(ctx, name, wrong); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), string(right)) {
			t.Errorf("%s was made with type %s: %v", name, wrong, err)
		}
		if err := h.Create(ctx, name, right); err != nil {
			t.Error(err)
		}
	}
	wantShown(t, h, "archive/capacity/1/0 demo/high-performance/0/0 lost/high-performance/1/0")
}

func TestTenInstancesAndNoEleventh(t *testing.T) {
	h := open(t, t.TempDir())
	for i := 2; i <= 10; i++ {
		kind := ots.HighPerformance
		if i%2 == 0 {
			kind = ots.Capacity
		}
		if err := h.Create(ctx, fmt.Sprintf("in-%d", i), kind); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Create(ctx, "in-11", ots.Capacity); !errors.Is(err, ErrQuota) {
		t.Errorf("the eleventh: %v", err)
	}
	if err := h.Delete(ctx, "in-2", false); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(ctx, "in-11", ots.HighPerformance); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	h := open(t, t.TempDir())
	makeTable(t, h, "demo", "T")
	_, noInstance := h.AddKey(ctx, "nobody")
	for what, c := range map[string]struct{ got, want error }{
		"short name":              {h.Create(ctx, "ab", ots.Capacity), ErrInvalid},
		"seventeen letters":       {h.Create(ctx, "abcdefghijklmnopq", ots.Capacity), ErrInvalid},
		"unknown type":            {h.Create(ctx, "abc", "huge"), ErrInvalid},
		"taken name":              {h.Create(ctx, "demo", ots.HighPerformance), ErrExists},
		"deletion with tables":    {h.Delete(ctx, "demo", false), ErrHasTables},
		"deletion of nothing":     {h.Delete(ctx, "nobody", true), ErrNotFound},
		"key of nothing":          {noInstance, ErrNotFound},
		"removal of no key":       {h.RemoveKey(ctx, "demo", "none"), ErrNotFound},
		"removal where is no one": {h.RemoveKey(ctx, "nobody", "none"), ErrNotFound},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", what, c.got, c.want)
		}
	}
	wantShown(t, h, "demo/high-performance/1/0")
}

func TestTwoKeysAreValidAtOnceAndNoThird(t *testing.T) {
	h := open(t, t.TempDir())
	var keys []Key
	for range 2 {
		k, err := h.AddKey(ctx, "demo")
		if err != nil || len(k.Secret) < 40 {
			t.Fatal(k, err)
		}
		keys = append(keys, k)
	}
	if _, err := h.AddKey(ctx, "demo"); !errors.Is(err, ErrQuota) {
		t.Errorf("the third: %v", err)
	}
	for _, k := range keys {
		if got, ok := h.Key(k.ID); !ok || got.Secret != k.Secret {
			t.Errorf("key %s: %+v, %v", k.ID, got, ok)
		}
	}
	if err := h.RemoveKey(ctx, "demo", keys[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.Key(keys[0].ID); ok {
		t.Error("a removed key is still good")
	}
	if _, err := h.AddKey(ctx, "demo"); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
}

// TestADeletionThatWasInterruptedIsFinished opens a home whose registry marks an instance as
// being deleted, as after a crash.
func TestADeletionThatWasInterruptedIsFinished(t *testing.T) {
	for _, kind := range []ots.InstanceType{ots.HighPerformance, ots.Capacity} {
		dir := t.TempDir()
		h := open(t, dir)
		if err := h.Create(ctx, "gone", kind); err != nil {
			t.Fatal(err)
		}
		makeTable(t, h, "gone", "T")
		r := h.registry.clone()
		r.find("gone").Deleting = true
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.save(dir); err != nil {
			t.Fatal(err)
		}
		h = open(t, dir)
		wantShown(t, h, "demo/high-performance/0/0")
		if err := h.Create(ctx, "gone", kind); err != nil {
			t.Fatal(err)
		}
		wantShown(t, h, "demo/high-performance/0/0 gone/"+string(kind)+"/0/0")
	}
}

func TestADeletedInstanceLeavesNothing(t *testing.T) {
	h := open(t, t.TempDir(), "one", "two")
	makeTable(t, h, "one", "T")
	makeTable(t, h, "two", "T")
	key, err := h.AddKey(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	engine, _, _ := h.Service("one")
	if err := h.Delete(ctx, "one", true); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := h.Service("one"); ok {
		t.Error("it is still served")
	}
	if _, ok := h.Key(key.ID); ok {
		t.Error("its key is still good")
	}
	if names, err := engine.ListTable(ctx, "one"); err != nil || len(names) != 0 {
		t.Errorf("it still has tables %v, %v", names, err)
	}
	wantShown(t, h, "two/high-performance/1/0")
}

// TestCapacityInstancesTakeLessSpace writes the same compressible rows to an instance of each
// type.
func TestCapacityInstancesTakeLessSpace(t *testing.T) {
	h := open(t, t.TempDir())
	if err := h.Create(ctx, "archive", ots.Capacity); err != nil {
		t.Fatal(err)
	}
	size := map[string]int64{}
	for _, in := range []string{"demo", "archive"} {
		makeTable(t, h, in, "T")
		engine, _, _ := h.Service(in)
		for i := range int64(2000) {
			text := fmt.Sprintf("purchase %d of card %d at the till of canteen %d", i*7919, i*31%997, i%13)
			change := ots.RowChange{Type: ots.ChangePut, Row: ots.Row{
				Key:   []ots.KeyValue{{Name: "k", Value: row.Integer(i)}},
				Cells: []ots.Cell{{Name: "text", Value: row.String(text)}},
			}}
			if _, err := engine.WriteRow(ctx, in, &ots.WriteRowRequest{Table: "T", Change: change}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for kind, r := range h.rooms {
		if err := r.store.Flush(ctx); err != nil {
			t.Fatal(kind, err)
		}
	}
	infos, err := h.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range infos {
		size[in.Name] = in.Bytes
	}
	if size["archive"]*10 > size["demo"]*9 {
		t.Errorf("the capacity instance takes %d bytes, the high-performance one %d", size["archive"], size["demo"])
	}
	t.Logf("high-performance %d bytes, capacity %d", size["demo"], size["archive"])
}

func TestADamagedRegistryIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir)
	if _, err := h.AddKey(ctx, "demo"); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, RegistryName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 1
		if _, err := decodeRegistry(bad); err == nil {
			t.Errorf("byte %d changed (%q): accepted", i, good[i])
		}
		if _, err := decodeRegistry(good[:i]); err == nil {
			t.Errorf("the first %d bytes: accepted", i)
		}
	}
	if err := os.WriteFile(name, good[:len(good)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{Store: small()}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
		t.Errorf("opening: %v", err)
	}
	if err := Verify(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("verifying: %v", err)
	}
	newer := strings.Replace(string(good), registryMagic+" 1 ", registryMagic+" 2 ", 1)
	if _, err := decodeRegistry([]byte(newer)); err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a newer version: %v", err)
	}
}

func TestTheFormatDocumentShowsTheRegistryAsItIsWritten(t *testing.T) {
	r := &registry{}
	r.add(&record{Name: "demo", Type: ots.HighPerformance, CreatedMillis: 1500000000000})
	r.add(&record{
		Name: "archive", Type: ots.Capacity, CreatedMillis: 1500000001000,
		Keys: []Key{{ID: "flagstoneEXAMPLE", Secret: "not-a-secret", CreatedMillis: 1500000002000}},
	})
	text, err := os.ReadFile(filepath.Join("..", "docs", "format-instances.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```\n"+string(r.encode())+"```") {
		t.Errorf("the document lacks\n%s", r.encode())
	}
}

func TestInstancesAreFoundWhateverTheCaseOfTheirName(t *testing.T) {
	h := open(t, t.TempDir(), "Shop")
	makeTable(t, h, "sHOP", "T")
	for _, name := range []string{"Shop", "shop", "SHOP"} {
		engine, own, ok := h.Service(name)
		if !ok || own != "Shop" {
			t.Fatalf("%q leads to %q, %v", name, own, ok)
		}
		if tables, err := engine.ListTable(ctx, own); err != nil || len(tables) != 1 {
			t.Errorf("%q: tables %v, %v", name, tables, err)
		}
		if err := h.Create(ctx, name, ots.Capacity); !errors.Is(err, ErrExists) {
			t.Error(err)
		}
		if _, err := h.KeyReport(ctx, name, "T", 10); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	key, err := h.AddKey(ctx, "SHOP")
	if err != nil {
		t.Fatal(err)
	}
	if found, ok := h.Key(key.ID); !ok || found.Instance != "Shop" {
		t.Errorf("the key opens %+v", found)
	}
	if err := h.RemoveKey(ctx, "shop", key.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(ctx, "shop", false); !errors.Is(err, ErrHasTables) {
		t.Error(err)
	}
	if err := h.Delete(ctx, "shop", true); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := h.Service("Shop"); ok {
		t.Error("it is served after its deletion")
	}
}

func TestInstancesThatOnlyCaseTellsApartAreStillServed(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, "one").Close(); err != nil {
		t.Fatal(err)
	}
	r := new(registry)
	r.add(&record{Name: "Shop", Type: ots.HighPerformance})
	r.add(&record{Name: "shop", Type: ots.HighPerformance})
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	h := open(t, dir)
	for _, name := range []string{"Shop", "shop"} {
		if _, own, ok := h.Service(name); !ok || own != name {
			t.Errorf("%q leads to %q, %v", name, own, ok)
		}
	}
	if _, own, ok := h.Service("SHOP"); ok && own != "shop" {
		t.Errorf("SHOP leads to %q", own)
	}
	if err := h.Delete(ctx, "SHOP", true); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
