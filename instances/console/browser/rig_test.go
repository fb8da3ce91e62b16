package browser

// A server of its own with some rows and load, and a browser that looks at its console.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/ots/tunnel"
	"github.com/flagstone-db/flagstone/row"
)

// hostile is text that would be a script if a page made markup of it.
const hostile = `<img src=x onerror="document.title='broken in'">`

// rig is a server and its owner.
type rig struct {
	home  *instances.Home
	owner *admin.Client
	feed  *console.Feed
}

// serve starts a server with a table "orders", whose key "hot" is busy, and a table "odd", whose key and value are
// hostile.
func serve(t testing.TB) *rig {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	r := &rig{feed: console.NewFeed()}
	home, err := instances.Open(dir, instances.Options{
		OnEvent: r.feed.Event, Store: flagstone.Options{Sync: flagstone.SyncNone, CacheSize: 1 << 20, MemtableSize: 64 << 10, TableFileSize: 64 << 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.home = home
	door, err := admin.Open(dir, home, r.feed, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if r.owner, err = admin.Connect(ctx, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.owner.Close(), door.Close(ctx), home.Close()); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(home.CreateTable(ctx, "demo", &instances.NewTable{
		Name: "orders", Key: []instances.KeyColumn{{Name: "customer", Type: "string"}, {Name: "n", Type: "integer"}},
		TableChange: instances.TableChange{MaxVersions: new(int32(3)), StreamHours: new(int32(24))},
	}))
	engine, instance, _ := home.Service("demo")
	_, err = engine.CreateTunnel(ctx, instance, &ots.CreateTunnelRequest{Table: "orders", Name: "mirror", Type: tunnel.BaseAndStream})
	must(err)
	must(home.CreateTable(ctx, "demo", &instances.NewTable{Name: "odd", Key: []instances.KeyColumn{{Name: "k", Type: "string"}}}))
	put := func(table string, key []string, cells ...instances.Cell) {
		_, err := home.Change(ctx, "demo", &instances.Change{Table: table, Kind: "put", Key: key, Set: cells})
		must(err)
	}
	for i := range 2000 {
		customer := fmt.Sprintf("customer-%03d", i%300)
		if i%3 == 0 {
			customer = "hot"
		}
		put("orders", []string{customer, fmt.Sprint(i)},
			instances.Cell{Name: "state", Value: instances.Value{Value: row.String([]string{"new", "paid"}[i%2])}},
			instances.Cell{Name: "total", Value: instances.Value{Value: row.Double(float64(i) / 4)}},
			instances.Cell{Name: "large", Value: instances.Value{Value: row.Integer(9007199254740993 + int64(i))}},
			instances.Cell{Name: "note", Value: instances.Value{Value: row.String(strings.Repeat("x", 200))}})
	}
	r.follow(t, "demo-programs")
	put("odd", []string{hostile}, instances.Cell{Name: "c", Value: instances.Value{Value: row.String(hostile)}})
	for range 3 {
		r.feed.Record(home.LoadedKeys())
	}
	r.feed.Slow(console.Request{ID: "0005f4a1", Operation: "GetRange", Instance: "demo", Table: hostile, Code: "OK", Took: 1.5, Sent: 4 << 20})
	return r
}

// follow reads the stream of "orders", as a program with an access key would.
func (r *rig) follow(t testing.TB, key string) {
	t.Helper()
	ctx := context.Background()
	engine, instance, _ := r.home.Service("demo")
	found, err := r.home.Streams(ctx, "demo", "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, shard := range found.Stream.Shards {
		at, err := engine.GetShardIterator(ctx, instance, &ots.GetShardIteratorRequest{StreamID: found.Stream.ID, ShardID: shard.ID})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.GetStreamRecord(ctx, instance, &ots.GetStreamRecordRequest{Iterator: at, Sender: key}); err != nil {
			t.Fatal(err)
		}
	}
}

// busy reads and writes, as some programs would, until the test ends: half of it is the key "hot", of which large rows are
// read.
func (r *rig) busy(t testing.TB) {
	ctx, stop := context.WithCancel(context.Background())
	var programs sync.WaitGroup
	t.Cleanup(func() {
		stop()
		programs.Wait()
	})
	programs.Go(func() { r.feed.Watch(ctx, r.home.LoadedKeys) })
	const large = 5
	for i := range large {
		if _, err := r.home.Change(ctx, "demo", &instances.Change{Table: "orders", Kind: "put", Key: []string{"hot", fmt.Sprint(-1 - i)}, Set: []instances.Cell{
			{Name: "note", Value: instances.Value{Value: row.String(strings.Repeat("x", 128<<10))}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	for program := range 4 {
		programs.Go(func() {
			for i := program; ctx.Err() == nil; i += 4 {
				key := []string{"hot", fmt.Sprint(i % 2000)}
				if i%2 == 0 {
					key[0] = fmt.Sprintf("customer-%03d", i*7919%300)
				}
				if i%5 == 0 {
					_, _ = r.home.Change(ctx, "demo", &instances.Change{Table: "orders", Kind: "put", Key: key, Set: []instances.Cell{
						{Name: "state", Value: instances.Value{Value: row.String("new")}}, {Name: "note", Value: instances.Value{Value: row.String(strings.Repeat("x", i%900))}},
					}}) // it fails when the test ends
				}
				if i%2 == 1 {
					key[1] = fmt.Sprint(-1 - i%large)
				}
				_, _ = r.home.Rows(ctx, "demo", &instances.Query{Table: "orders", Prefix: key})
			}
		})
	}
}

// browser is one tab of a browser, with all that went wrong in it.
type browser struct {
	t      testing.TB
	ctx    context.Context
	origin string // requests to others are mistakes; "" allows all

	mu       sync.Mutex
	wrong    []string
	paths    map[network.RequestID]string // of requests
	statuses map[network.RequestID]int    // of answers, also of those that the page may not see
	news     chan struct{}                // has one when there is another status
}

// open starts a browser.
func open(t testing.TB, origin string) *browser {
	t.Helper()
	name := os.Getenv("CHROMIUM")
	if name == "" {
		name = "chromium"
	}
	b := &browser{t: t, origin: origin, paths: map[network.RequestID]string{}, statuses: map[network.RequestID]int{}, news: make(chan struct{}, 1)}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(name), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP rebound.test 127.0.0.1"), chromedp.WindowSize(1280, 900))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 15*time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	t.Cleanup(stop)
	b.ctx = ctx
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, log.Enable, cdp.Empty{})
	return b
}

// listen notes what goes wrong, and says yes where a page asks.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.wrong = append(b.wrong, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.wrong = append(b.wrong, e.Entry.Text+" "+e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		to := e.Request.URL
		if at, err := url.Parse(to); err == nil {
			b.paths[e.RequestID] = at.Path
		}
		if b.origin != "" && !strings.HasPrefix(to, b.origin+"/") && !strings.HasPrefix(to, "blob:"+b.origin) && !strings.HasPrefix(to, "data:") {
			b.wrong = append(b.wrong, "a request to "+to)
		}
	case *network.EventResponseReceivedExtraInfo:
		b.statuses[e.RequestID] = int(e.StatusCode)
		select {
		case b.news <- struct{}{}:
		default:
		}
	case *page.EventJavascriptDialogOpening:
		go func() {
			// An error means that the browser has gone.
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	}
}

// call calls the browser.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// enter opens the console by a link of the owner.
func enter(t testing.TB, r *rig) *browser {
	t.Helper()
	link, err := r.owner.Console(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, "http://"+at.Host)
	b.run(chromedp.Navigate(link))
	b.see("Overview")
	return b
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// js runs statements.
func (b *browser) js(statements string) {
	b.t.Helper()
	eval[any](b, "(() => { "+statements+"; return null })()")
}

// faults are what went wrong so far.
func (b *browser) faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}

// answered waits for the answer to a request, and returns its status.
func (b *browser) answered(path string) int {
	b.t.Helper()
	for late := time.After(10 * time.Second); ; {
		b.mu.Lock()
		for id, status := range b.statuses {
			if b.paths[id] == path {
				b.mu.Unlock()
				return status
			}
		}
		b.mu.Unlock()
		select {
		case <-b.news:
		case <-late:
			b.t.Fatalf("%s was not answered", path)
		}
	}
}

// eval evaluates an expression, which may be a promise.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return result
}

// until waits until an expression holds.
func (b *browser) until(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		b.t.Fatalf("%s: %v; the page says:\n%s", expression, err, eval[string](b, "document.body.innerText"))
	}
}

func quoted(text string) string {
	q, _ := json.Marshal(text) // a string has JSON
	return string(q)
}

// see waits until the page has a text.
func (b *browser) see(text string) {
	b.t.Helper()
	b.until("document.body.innerText.includes(" + quoted(text) + ")")
}

// go to a page of the console.
func (b *browser) visit(page string) {
	b.t.Helper()
	b.js("location.hash = " + quoted(page))
}

// click waits for a link or button with this text, and clicks it.
func (b *browser) click(text string) {
	b.t.Helper()
	find := "[...document.querySelectorAll('a, button')].find(e => e.textContent === " + quoted(text) + " && !e.disabled && e.checkVisibility())"
	b.until("!!" + find)
	b.js(find + ".click()")
}

// fill waits for an input by its name, and writes into it as a person does.
func (b *browser) fill(name, text string) {
	b.t.Helper()
	at := "[name=" + quoted(name) + "]:enabled"
	b.until("!!document.querySelector(" + quoted(at) + ")")
	b.js("const e = document.querySelector(" + quoted(at) + "); e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true}))")
	b.run(chromedp.SendKeys(chromedp.CSS(at), text))
}

// choose selects an option.
func (b *browser) choose(name, value string) {
	b.t.Helper()
	at := "document.querySelector(" + quoted("select[name="+quoted(name)+"]") + ")"
	b.js(at + ".value = " + quoted(value) + "; " + at + ".dispatchEvent(new Event('change', {bubbles: true}))")
}

// axe is the source of axe-core, once it is installed.
var axe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "axe")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(source), err
})

// barriers are the serious findings of axe-core on the page.
func (b *browser) barriers() []string {
	b.t.Helper()
	source, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	eval[any](b, source+";null")
	return eval[[]string](b, `axe.run().then(r => r.violations.filter(v => v.impact === 'serious' || v.impact === 'critical')
		.map(v => v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map(n => n.html).join(' | ')))`)
}
