package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/ots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened makes a home with an open door, and a client of that door.
func opened(t *testing.T) (dir string, home *instances.Home, client *Client) {
	t.Helper()
	ctx := context.Background()
	dir = t.TempDir()
	home, err := instances.Open(dir, instances.Options{Store: flagstone.Options{CacheSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	door, err := Open(dir, home, console.NewFeed(), "http://127.0.0.1:8087", "id")
	if err != nil {
		t.Fatal(err)
	}
	if client, err = Connect(ctx, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), door.Close(ctx), home.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, FileName)); err == nil {
			t.Error("the file that names the door is left")
		}
	})
	return dir, home, client
}

func TestAnotherProcessChangesInstancesThroughTheDoor(t *testing.T) {
	ctx := context.Background()
	dir, home, client := opened(t)
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := client.Create(ctx, "archive", ots.Capacity); err != nil {
		t.Fatal(err)
	}
	key, err := client.AddKey(ctx, "archive")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := home.Key(key.ID); !ok || got.Secret != key.Secret {
		t.Errorf("the home has %+v, %v", got, ok)
	}
	infos, err := client.List(ctx)
	if err != nil || len(infos) != 2 || infos[0].Name != "archive" || infos[0].Type != ots.Capacity || infos[0].Keys[0].ID != key.ID {
		t.Errorf("listed %+v, %v", infos, err)
	}
	if err := client.RemoveKey(ctx, "archive", key.ID); err != nil {
		t.Error(err)
	}
	if err := client.Delete(ctx, "archive", true); err != nil {
		t.Error(err)
	}
	if _, _, ok := home.Service("archive"); ok {
		t.Error("the instance is still served")
	}
}

func TestRefusalsKeepTheirKindAndText(t *testing.T) {
	ctx := context.Background()
	_, home, client := opened(t)
	if _, err := client.AddKey(ctx, "demo"); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func(Admin) error{
		"taken name":    func(a Admin) error { return a.Create(ctx, "demo", ots.Capacity) },
		"bad name":      func(a Admin) error { return a.Create(ctx, "9", ots.Capacity) },
		"unknown type":  func(a Admin) error { return a.Create(ctx, "abc", "") },
		"unknown":       func(a Admin) error { return a.Delete(ctx, "a/b?c", true) },
		"no key":        func(a Admin) error { return a.RemoveKey(ctx, "demo", "x/y") },
		"upwards":       func(a Admin) error { return a.RemoveKey(ctx, "demo", "..") },
		"upwards, too":  func(a Admin) error { return a.RemoveKey(ctx, ".", "../demo") },
		"empty key":     func(a Admin) error { return a.RemoveKey(ctx, "demo", "") },
		"empty name":    func(a Admin) error { return a.Delete(ctx, "", true) },
		"dots":          func(a Admin) error { return a.Delete(ctx, "..", true) },
		"key of dots":   func(a Admin) error { _, err := a.AddKey(ctx, ".."); return err },
		"not UTF-8":     func(a Admin) error { return a.Delete(ctx, "a\xff&tables=yes;%00+", true) },
		"no table":      func(a Admin) error { _, err := a.KeyReport(ctx, "demo", "", 100); return err },
		"no partitions": func(a Admin) error { _, err := a.Partitions(ctx, "demo", "t"); return err },
		"no split":      func(a Admin) error { return a.Split(ctx, "demo", "t", "x") },
		"no merge":      func(a Admin) error { return a.Merge(ctx, "nowhere", "t", "x") },
		"no store":      func(a Admin) error { return a.TakeTable(ctx, "none", "demo", "t") },
		"store upwards": func(a Admin) error { return a.TakeTable(ctx, "..", "demo", "t") },
		"store nowhere": func(a Admin) error { return a.TakeTable(ctx, "", "demo", "t") },
		"no place":      func(a Admin) error { return a.TakeTable(ctx, "none", "demo", "../t") },
		"a check at 0":  func(a Admin) error { return a.Check(ctx, 0, func(instances.CheckStep) {}) },
		"no rows":       func(a Admin) error { _, err := a.KeyReport(ctx, "demo", "..", 0); return err },
	} {
		here, there := f(home), f(client)
		if here == nil || there == nil || here.Error() != there.Error() {
			t.Errorf("%s: here %v, there %v", what, here, there)
		}
		known := false
		for _, k := range kinds {
			known = known || errors.Is(here, k.err) && errors.Is(there, k.err)
		}
		if !known {
			t.Errorf("%s: here %v, there %v, of no common kind", what, here, there)
		}
	}
	// The refused requests changed nothing.
	infos, err := home.List(ctx)
	if err != nil || len(infos) != 1 || infos[0].Name != "demo" || len(infos[0].Keys) != 1 {
		t.Errorf("left %+v, %v", infos, err)
	}
}

func TestAnotherProgramOnTheOldPortIsNoServer(t *testing.T) {
	for what, h := range map[string]http.Handler{
		"a page":     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
		"nothing":    http.NotFoundHandler(),
		"elsewhere":  http.RedirectHandler("/login", http.StatusTemporaryRedirect),
		"other JSON": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusTeapot) }),
	} {
		other := httptest.NewServer(h)
		dir := t.TempDir()
		text := `{"url":"` + other.URL + `","token":"x"}`
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Connect(context.Background(), dir); !errors.Is(err, ErrNoServer) {
			t.Errorf("%s: %v", what, err)
		}
		other.Close()
	}
}

func TestNobodyGetsInWithoutTheToken(t *testing.T) {
	_, _, client := opened(t)
	for _, token := range []string{"", "Bearer ", "Bearer " + client.at.Token + "x", client.at.Token} {
		r, err := http.NewRequest("GET", client.at.URL+"/instances", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", token)
		resp, err := client.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with %q: %s", token, resp.Status)
		}
	}
}

func TestSessionsAreMadeAndEndedWithTheTokenOnly(t *testing.T) {
	_, _, client := opened(t)
	for _, method := range []string{"POST", "DELETE"} {
		r, err := http.NewRequest(method, client.at.URL+"/console", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

func TestWhereNoServerIsNoneIsFound(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if _, err := Connect(ctx, dir); !errors.Is(err, ErrNoServer) {
		t.Errorf("no file: %v", err)
	}
	for what, text := range map[string]string{
		"a killed server": `{"url":"http://127.0.0.1:1","token":"x"}`, // no process listens on port 1
		"half a file":     `{"url":`,
	} {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Connect(ctx, dir); !errors.Is(err, ErrNoServer) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestWhoComesWithoutTheTokenDoesNotKeepAConnection(t *testing.T) {
	_, _, client := opened(t)
	for range 3 * maxConnections {
		res, err := http.Get(client.at.URL + "/instances")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if !res.Close {
			t.Fatal("the connection is kept")
		}
	}
	if _, err := client.List(context.Background()); err != nil {
		t.Error(err)
	}
}
