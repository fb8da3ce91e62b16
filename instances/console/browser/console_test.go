package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// pages are all pages, with a text that each has once it is complete.
var pages = []struct{ name, at, text string }{
	{"overview", "#/", "write amplification"},
	{"tables", "#/tables", "demo/orders"},
	{"activity", "#/activity", "GetRange"},
	{"load", "#/table/demo/orders", "capacity units/s"},
	{"heat", "#/table/demo/orders/heat", "hot"},
	{"files", "#/table/demo/orders/files", "runs that a get may look into"},
	{"rows", "#/table/demo/orders/rows", "50 rows, and there are more"},
	{"stream", "#/table/demo/orders/stream", "BaseData_0000"},
	{"key", "#/table/demo/orders/key", "Size by partition key"},
	{"options", "#/table/demo/orders/options", "Max Version Offset"},
}

// TestEveryPageIsWholeAndOpenToAll opens every page in two sizes and both themes: it shows what it should, asks for nothing
// elsewhere, reports no error, is no wider than the screen, scrolls no table sideways on a wide one, and has no serious barrier.
func TestEveryPageIsWholeAndOpenToAll(t *testing.T) {
	r, pictures := serve(t), os.Getenv("PICTURES")
	b := enter(t, r)
	if pictures != "" { // something to look at
		const minutes = 5
		r.busy(t)
		for eval[int](b, "import('./lib.js').then(l => l.ask('GET heat', {instance: 'demo', table: 'orders'})).then(p => p.times.length)") < 6*minutes {
			b.run(chromedp.Sleep(time.Second))
		}
	}
	for _, p := range pages {
		b.visit(p.at)
		b.see(p.text)
		for _, theme := range []string{"light", "dark"} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
			for size, width := range map[string]int64{"wide": 1280, "narrow": 390} {
				b.run(chromedp.EmulateViewport(width, 900))
				b.until("[...document.querySelectorAll('.u-legend .u-series:first-child .u-value')].every(e => e.textContent !== '-')") // also without a pointer
				if over := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s, %s: %d pixels wider than the screen", p.name, size, over)
				}
				if sideways := eval[[]string](b, "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"); size == "wide" && len(sideways) > 0 {
					t.Errorf("%s, %s: %q scroll sideways", p.name, size, sideways)
				}
				for _, barrier := range b.barriers() {
					t.Errorf("%s, %s, %s: %s", p.name, theme, size, barrier)
				}
				if pictures == "" {
					continue
				}
				picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(pictures, fmt.Sprintf("%s-%s-%s.png", p.name, theme, size)), picture, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"})
	if at := eval[string](b, "import('./lib.js').then(l => l.moment(0))"); at != "1970-01-01 08:00:00" {
		t.Errorf("a time is %s, as the clock of the machine is not", at)
	}
	for _, wrong := range b.faults() {
		t.Error(wrong)
	}
	if title := eval[string](b, "document.title"); strings.Contains(title, "broken in") {
		t.Error("text of a table was run")
	}
}

// TestEveryControlDoesWhatItSays uses all controls, and looks at the store for what they did.
func TestEveryControlDoesWhatItSays(t *testing.T) {
	ctx, r := context.Background(), serve(t)
	b := enter(t, r)

	b.click("Tables")
	b.fill("filter", "odd")
	b.until("document.querySelectorAll('tbody tr').length === 1")
	b.fill("filter", "o")
	b.click("size")
	b.until("document.querySelector('[aria-pressed=true]').textContent === 'size'")
	b.click("demo/orders")
	b.see("capacity units/s")

	b.fill("at", "customer-150")
	b.click("Split there")
	b.see("A partition begins there now.")
	if list, err := r.home.Partitions(ctx, "demo", "orders"); err != nil || len(list) != 2 || *list[1].Start != "customer-150" {
		t.Errorf("split: %+v, %v", list, err)
	}
	b.click("Merge there")
	b.see("The partitions on both sides are one now.")
	if list, err := r.home.Partitions(ctx, "demo", "orders"); err != nil || len(list) != 1 {
		t.Errorf("merged: %+v, %v", list, err)
	}

	b.click("Heat map")
	b.see("written/s")
	b.choose("kind", "writes")
	b.run(chromedp.Focus(chromedp.CSS("canvas")), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowDown))
	b.until(`document.querySelector('.said').textContent.includes('capacity units read/s')`)
	if busiest := eval[string](b, "document.querySelector('tbody td').textContent"); busiest != "hot" {
		t.Errorf("the busiest key is %q", busiest)
	}

	b.click("Files")
	b.see("made")
	b.until("document.querySelectorAll('svg rect').length > 0")
	b.click("Record")
	b.see("2 pictures are recorded.")
	b.until("[...document.querySelectorAll('dt')].some(e => e.textContent === 'back-pressure' && e.nextSibling.textContent.endsWith('%'))")
	b.click("Stop recording")
	b.js(`window.clicked = HTMLAnchorElement.prototype.click; HTMLAnchorElement.prototype.click = () => {};
		URL.createObjectURL = blob => { window.saved = blob.text(); return 'blob:' }`)
	b.js(`[...document.querySelectorAll('button')].find(e => e.textContent === 'Save the recording').click()`)
	b.js(`HTMLAnchorElement.prototype.click = window.clicked`)
	recording := filepath.Join(t.TempDir(), "recording.jsonl")
	const held = `"Pressure":0.5`
	recorded := regexp.MustCompile(`"Pressure":[0-9.e-]+`).ReplaceAllString(eval[string](b, "window.saved"), held)
	if !strings.Contains(recorded, held) {
		t.Errorf("the recording has no back-pressure: %.300s", recorded)
	}
	if err := os.WriteFile(recording, []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{recording}))
	b.see("pictures, from")
	b.js(`{ const s = document.querySelector('input[type=range]'); s.value = 1; s.dispatchEvent(new Event('input')); }`)
	b.see("50%")
	b.click("Back to the present")

	b.click("Rows")
	b.see("50 rows, and there are more.")
	b.click("Next page")
	b.until("document.querySelector('tbody td').textContent !== 'customer-000'")
	b.fill("key0", "hot")
	b.fill("from", "3")
	b.fill("to", "10")
	b.fill("where", `state == "new"`)
	b.fill("columns", "total,large,state")
	b.fill("versions", "2")
	b.fill("limit", "7")
	b.click("Show")
	b.see("1 rows.")
	b.see("large=9007199254740999") // not a number of JavaScript
	b.fill("from", "9")
	b.fill("to", "3")
	b.js(`document.querySelector('[name=backward]').click()`)
	b.click("Show")
	b.until("document.querySelector('.said').textContent === '1 rows.'")
	b.click("hot")
	b.until("document.querySelector('dialog').open && document.querySelectorAll('dialog tbody tr').length === 4")
	b.fill("column", "whole")
	b.choose("type", "double")
	b.fill("value", "5")
	b.click("Set the column")
	b.until("document.querySelectorAll('dialog tbody tr').length === 5")
	row := func() string {
		page, err := r.home.Rows(ctx, "demo", &instances.Query{Table: "orders", Prefix: []string{"hot", "6"}, Columns: []string{"whole"}})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, found := range page.Rows {
			text += "row"
			for _, c := range found.Columns {
				value, _ := c.Value.MarshalJSON()
				text += " " + string(value)
			}
		}
		return text
	}
	if got := row(); got != "row 5.0" {
		t.Errorf("set: %s", got)
	}
	b.fill("column", "whole")
	b.click("Delete the column")
	b.until("document.querySelectorAll('dialog tbody tr').length === 4")
	b.click("Delete the row")
	b.see("The row is not there.")
	if got := row(); got != "" {
		t.Errorf("deleted: %s", got)
	}
	b.click("Close")
	b.click("New row")
	b.fill("of0", "somebody")
	b.fill("of1", "1")
	b.fill("column", "c")
	b.fill("value", hostile)
	b.click("Set the column")
	b.until("document.querySelectorAll('dialog tbody tr').length === 1")
	b.click("Close")

	b.click("Stream")
	b.see("mirror")
	b.see("BaseData_0000")
	b.see("demo-programs")
	b.click("Options")
	b.until("document.querySelector('[name=max_versions]').value === '3'")
	b.fill("max_versions", "9")
	b.click("Change")
	b.see("Changed.")
	if table, err := r.home.Table(ctx, "demo", "orders"); err != nil || table.MaxVersions != 9 {
		t.Errorf("changed: %+v, %v", table, err)
	}
	b.click("Compact now")
	b.see("Compacted.")
	b.click("Key")
	b.see("Size by partition key")
	b.fill("rows", "500")
	b.click("Look")

	b.click("Activity")
	b.see("manual")
	b.fill("filter", "nothing has this")
	b.see("Nothing has this text.")
	b.click("To the content")
	b.until("document.activeElement.id === 'main'")
	before := eval[string](b, "getComputedStyle(document.body).backgroundColor")
	b.click("Dark or light")
	b.until("getComputedStyle(document.body).backgroundColor !== " + quoted(before))
	b.click("End the session")
	b.see("You have ended it.")
	b.run(chromedp.Reload())
	b.see("This page needs a session.")
	for _, wrong := range b.faults() {
		t.Error(wrong)
	}
}

// TestRefusalsAreSaid asks for what the endpoint refuses.
func TestRefusalsAreSaid(t *testing.T) {
	b := enter(t, serve(t))
	b.visit("#/table/demo/orders/rows")
	b.fill("where", "state ==")
	b.click("Show")
	b.see("invalid")
	b.fill("where", "")
	b.fill("key0", "hot")
	b.fill("key1", "x")
	b.click("Show")
	b.see(`"x" is no value of type integer`)
	b.visit("#/table/demo/orders/options")
	b.fill("max_versions", "0")
	b.click("Change")
	b.see("OTSParameterInvalid")
	b.visit("#/table/demo/nothing/files")
	b.see(`has no table "nothing"`)
	b.visit("#/%zz")
	b.see("No such page")
}

func TestALinkWorksOnce(t *testing.T) {
	r := serve(t)
	link, err := r.owner.Console(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	first, second := open(t, ""), open(t, "")
	first.run(chromedp.Navigate(link))
	first.see("Running now")
	if hash := eval[string](first, "location.hash"); hash != "#/" {
		t.Errorf("the address still has %s", hash)
	}
	first.run(chromedp.Reload())
	first.see("Running now")
	second.run(chromedp.Navigate(link))
	second.see("the link was used, or is older than five minutes")
	second.run(chromedp.Navigate(strings.Split(link, "#")[0]))
	second.see("This page needs a session.")
}

// TestAHostilePageGetsNothing has pages of other origins in a browser with a session: one that sends requests and forms,
// and frames the console, and one that resolves its own name to the server. The server refuses each request by itself,
// whatever the browser would do with the answer.
func TestAHostilePageGetsNothing(t *testing.T) {
	ctx, r := context.Background(), serve(t)
	b := enter(t, r)
	b.origin = ""
	server := eval[string](b, "location.origin")
	port := server[strings.LastIndex(server, ":"):]
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form id=g method=post enctype="text/plain" action="%s/console/api/change?instance=demo" target=h>
			<input name='{"table":"orders","kind":"delete","key":["hot","0"],"x":"' value='"}'></form><iframe name=h></iframe>`, server)
	}))
	t.Cleanup(other.Close)
	b.run(chromedp.Navigate(other.URL))
	b.mu.Lock()
	clear(b.statuses)
	b.mu.Unlock()
	for path, attack := range map[string]string{
		"/console/api/figures":   `fetch(at)`,
		"/console/api/instances": `fetch(at, {mode: 'no-cors', credentials: 'include'})`,
		"/console/session":       `fetch(at, {method: 'POST', body: '{}'})`,
		"/console/api/compact":   `fetch(at, {method: 'POST', headers: {Authorization: 'Bearer x'}})`,
		"/console/lib.js":        `import(at)`,
		"/console/style.css":     `new Promise(d => { const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = at; l.onload = l.onerror = d; document.head.append(l) })`,
		"/console/":              `new Promise(d => { const f = document.createElement('iframe'); f.src = at; f.onload = d; document.body.append(f) })`,
		"/console/api/change":    `new Promise(d => { document.querySelector('iframe').onload = d; document.getElementById('g').submit() })`,
	} {
		eval[any](b, `(at => `+attack+`.then(() => null, () => null))(`+quoted(server+path)+`)`)
		if status := b.answered(path); status != http.StatusForbidden {
			t.Errorf("%s by %s: the server answered %d", path, attack, status)
		}
	}
	b.run(chromedp.Navigate("http://rebound.test" + port + "/console/"))
	b.see("this page is for 127.0.0.1")
	if got := eval[string](b, `fetch('/console/api/figures').then(r => String(r.status))`); got != "403" {
		t.Errorf("by another name: %s", got)
	}
	b.run(chromedp.Navigate(server + "/console/#/")) // the session is still good, and there
	b.see("Running now")
	after, err := r.home.Rows(ctx, "demo", &instances.Query{Table: "orders", Prefix: []string{"hot", "0"}})
	if err != nil || len(after.Rows) != 1 {
		t.Error("a row was changed", after, err)
	}
}

// TestARowIsChangedByItsWholeKey: a text field leaves out the line breaks of a key. Of a long page, rows are made as they
// come into sight, and can be clicked.
func TestARowIsChangedByItsWholeKey(t *testing.T) {
	r := serve(t)
	ctx := context.Background()
	keys := []string{"0a\nb", "0ab"}
	for _, customer := range keys {
		_, err := r.home.Change(ctx, "demo", &instances.Change{
			Table: "orders", Kind: "put", Key: []string{customer, "1"}, Set: []instances.Cell{{Name: "c", Value: instances.Value{Value: row.Integer(1)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b := enter(t, r)
	b.visit("#/table/demo/orders/rows")
	b.see("50 rows, and there are more.")
	b.fill("limit", "60")
	b.click("Show")
	b.see("60 rows, and there are more.")
	b.until("document.querySelector('[data-row]') !== null")
	b.js("document.querySelector('[data-row]').click()")
	b.until("document.querySelector('dialog')?.open && document.querySelectorAll('dialog tbody tr').length === 1")
	b.click("Delete the row")
	b.see("The row is not there.")
	for i, customer := range keys {
		page, err := r.home.Rows(ctx, "demo", &instances.Query{Table: "orders", Prefix: []string{customer}})
		if err != nil || len(page.Rows) != i {
			t.Errorf("of customer %q there are %d rows: %v", customer, len(page.Rows), err)
		}
	}
	for _, wrong := range b.faults() {
		t.Error(wrong)
	}
}
