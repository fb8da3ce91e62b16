package browser

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// A server with much to show has smoothTables tables, and smoothPartitions partitions, of which the last table has all but
// one for each other. It gets smoothRate requests a second.
const (
	smoothTables, smoothPartitions, smoothRate = 200, 1000, 5000
	wideTable                                  = "many3/t199"
)

// livePages are the pages that change by themselves, with a text that each has once it is complete.
var livePages = []struct{ name, at, text string }{
	{"overview", "#/", "write amplification"},
	{"tables", "#/tables", wideTable},
	{"activity", "#/activity", "flush"},
	{"load", "#/table/" + wideTable, "Split there"},
	{"heat", "#/table/" + wideTable + "/heat", "customer"},
	{"files", "#/table/" + wideTable + "/files", "runs that a get may look into"},
	{"stream", "#/table/demo/orders/stream", "BaseData_0000"},
}

// crowd makes the tables and partitions, beside those of serve.
func (r *rig) crowd(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range smoothTables {
		instance, table := manyTable(i)
		if i < 4 {
			must(r.home.Create(ctx, instance, ots.HighPerformance))
		}
		must(r.home.CreateTable(ctx, instance, &instances.NewTable{Name: table, Key: []instances.KeyColumn{{Name: "pk", Type: "string"}}}))
	}
	for i := range 2 * smoothTables {
		must(r.request(ctx, i, true))
	}
	instance, table := manyTable(smoothTables - 1)
	for p := 1; p <= smoothPartitions-smoothTables; p++ {
		must(r.home.Split(ctx, instance, table, fmt.Sprintf("customer-%03d", p)))
	}
	must(r.home.FlushTable(ctx, instance, table))
	r.feed.Record(r.home.LoadedKeys())
}

// manyTable is the instance and the name of a table; an instance has at most 64.
func manyTable(i int) (instance, table string) {
	return fmt.Sprintf("many%d", i%4), fmt.Sprintf("t%03d", i)
}

// request is a get or a put: of each two, one is of the last table, and the others of all tables in turns.
func (r *rig) request(ctx context.Context, i int, put bool) error {
	n := i / 2 % smoothTables
	if i%2 == 1 {
		n = smoothTables - 1
	}
	instance, table := manyTable(n)
	key := []string{fmt.Sprintf("customer-%03d", i*7919%1000)}
	if !put {
		_, err := r.home.Rows(ctx, instance, &instances.Query{Table: table, Prefix: key})
		return err
	}
	_, err := r.home.Change(ctx, instance, &instances.Change{Table: table, Kind: "put", Key: key, Set: []instances.Cell{
		{Name: "n", Value: instances.Value{Value: row.Integer(int64(i))}},
	}})
	return err
}

// TestLongTablesAreBuiltWhereTheyAreSeen has more rows than a page can show. Those out of sight have a cell with their text,
// and a refresh makes fewer elements than they would have cells. A search finds all of them, Tab comes to them from the top
// down, and a filter or another order changes their text.
func TestLongTablesAreBuiltWhereTheyAreSeen(t *testing.T) {
	r := serve(t)
	r.crowd(t)
	b := enter(t, r)
	b.js(`const make = document.createElement.bind(document); window.made = 0;
		document.createElement = name => { window.made++; return make(name) };
		window.rows = () => [...document.querySelectorAll('.wide tbody tr')];
		window.columns = () => document.querySelectorAll('.wide thead th').length;
		window.built = row => row.children.length === columns()`)
	for _, p := range []struct {
		at   string
		rows int
	}{{"#/tables", smoothTables + 2}, {"#/table/" + wideTable, smoothPartitions - smoothTables + 1}} {
		b.visit(p.at)
		b.until(fmt.Sprintf("rows().length === %d && rows().every(e => e.textContent) && built(rows()[0])", p.rows))
		b.js("window.made = 0")
		b.until("window.made > rows().length") // another refresh
		if made, all := eval[int](b, "window.made"), eval[int](b, "rows().length * columns()"); made >= all {
			t.Errorf("%s: %d elements were made, for %d cells", p.at, made, all)
		}
		if eval[bool](b, "rows().slice(100).some(built)") {
			t.Errorf("%s: rows out of sight are built", p.at)
		}
		for _, barrier := range b.barriers() {
			t.Errorf("%s: %s", p.at, barrier)
		}
		if p.at == "#/tables" { // where each row has a link
			b.js("rows()[2].querySelector('a').focus()")
			for i := 3; i < 60; i++ {
				b.run(chromedp.KeyEvent(kb.Tab))
				b.until(fmt.Sprintf("document.activeElement.closest('tr') === rows()[%d]", i))
			}
			b.fill("filter", "t1") // 100 of the names
			b.until("rows().length === 100 && rows().every(e => e.textContent.includes('/t1'))")
			b.fill("filter", "")
			// A row out of sight has no text until one of the next frames, which must not end the wait.
			const each = "new Set(rows().flatMap(e => e.textContent.match(/t[0-9]{3}|demo.o../) ?? [])).size === rows().length"
			b.until(fmt.Sprintf("rows().length === %d && %s", p.rows, each))
			b.click("partitions")
			b.until("rows()[0].textContent.includes('t199') && " + each)
		}
	}
	if !eval[bool](b, "window.find('customer-400')") { // as the search of a browser does
		t.Error("a row out of sight cannot be found")
	}
	b.run(chromedp.Focus(chromedp.CSS(".wide")), chromedp.KeyEvent(kb.End))
	b.until("built(rows().at(-1))")

	instance, table := manyTable(smoothTables - 1)
	if err := r.home.Split(context.Background(), instance, table, "customer-400x"); err != nil {
		t.Fatal(err)
	}
	b.until("rows().length === 802")
	b.js("window.fetch = () => new Promise(() => {})") // no refresh any more
	const cut = "rows()[400]"
	b.js(cut + ".scrollIntoView()")
	b.until(cut + ".children[2]?.textContent === 'customer-400x'")
	for _, wrong := range b.faults() {
		t.Error(wrong)
	}
}

// TestARowThatFailsLeavesTheOthersTheirText has a cell that fails in the first row of a long table.
func TestARowThatFailsLeavesTheOthersTheirText(t *testing.T) {
	b := enter(t, serve(t))
	b.visit("#/table/demo/orders/options") // which has no long table
	b.see("Max Versions")
	b.js("window.onerror = () => true; window.fetch = () => new Promise(() => {})") // the fault is expected, and no refresh helps
	eval[any](b, `import('./lib.js').then(({ set, table, h }) => {
		const list = document.querySelector('main').appendChild(h('div', { id: 'failing' }));
		window.show = bad => set(list, table('Failing', [['n', i => { if (i === bad) throw new Error('no cell'); return i }]],
			[...Array(300).keys()], ''));
		show(0);
		return null;
	})`)
	const rows = "[...document.querySelectorAll('#failing tbody tr')]"
	b.until(rows + ".every((row, i) => i === 0 || row.textContent === String(i))")
	if eval[bool](b, rows+"[0].textContent !== ''") {
		t.Error("the cell did not fail")
	}
	b.js("show(-1)")
	b.until(rows + ".every((row, i) => row.textContent === String(i))")
	for _, wrong := range b.faults() {
		t.Error(wrong)
	}
}

// BenchmarkLivePages measures how long the main thread of a browser works for each live page: as a share of the time, and
// the longest task (0: none took 50 ms). The pages have the figures of as many moments as they keep. The server shares the
// machine.
//
//	go test -run '^$' -bench LivePages -benchtime 1x .
func BenchmarkLivePages(b *testing.B) {
	const window = 10 * time.Second
	r := serve(b)
	r.crowd(b)
	tab := enter(b, r)
	call(tab, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	tab.js(`const real = setTimeout, get = fetch;
		window.answers = 0;
		window.fetch = (...args) => { if (String(args[0]).startsWith('api/figures')) window.answers++; return get(...args) };
		window.hurry = 20;
		window.setTimeout = (f, ms) => real(f, ms > 2000 ? ms : ms / window.hurry);
		window.longest = 0;
		new PerformanceObserver(list => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration) }).observe({type: 'longtask'});`)
	ctx, stop := context.WithCancel(context.Background())
	var programs sync.WaitGroup
	b.Cleanup(func() {
		stop()
		programs.Wait()
	})
	programs.Go(func() { r.feed.Watch(ctx, r.home.LoadedKeys) })
	const clients = 16
	due := clocktest.Timetable(ctx, clock.System(), smoothRate)
	for range clients {
		programs.Go(func() {
			for i := range due {
				_ = r.request(ctx, i, i%5 == 0) // it fails when the benchmark ends
			}
		})
	}
	tab.visit("#/table/demo/orders/options") // which draws none of them
	for range 10 {                           // with waits that are shortened
		tab.js("window.answers = 0")
		tab.until("window.answers > 15")
	}
	tab.js("window.hurry = 1")
	for _, p := range livePages {
		b.Run(p.name, func(b *testing.B) {
			tab.t = b
			tab.js("window.longest = 0") // also of the first build
			tab.visit(p.at)
			tab.see(p.text)
			for range b.N {
				began, start := tab.worked(), time.Now()
				tab.run(chromedp.Sleep(window))
				b.ReportMetric(100*(tab.worked()-began)/time.Since(start).Seconds(), "%busy")
				b.ReportMetric(eval[float64](tab, "window.longest"), "longest-ms")
				b.ReportMetric(eval[float64](tab, "document.getElementsByTagName('*').length"), "elements")
			}
		})
	}
	tab.t = b
}

// worked is how many seconds the main thread of the tab has worked.
func (b *browser) worked() float64 {
	b.t.Helper()
	got, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range got.Metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	b.t.Fatal("the browser does not say how long it worked: " + strconv.Itoa(len(got.Metrics)))
	return 0
}
