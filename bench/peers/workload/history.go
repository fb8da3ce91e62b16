package workload

// This file holds the workloads about versions and time: long histories, one
// hot row, rows that expire.

import (
	"bytes"
	"fmt"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// versionsWritten to each row of the versions workloads.
const versionsWritten = 20

// runVersions writes 20 versions of one column to a twentieth as many rows,
// round by round, and reads the newest and all that are kept.
func runVersions(e *env) error {
	count := max(e.count()/20, 1)
	kept := min(e.spec.maxVersions, versionsWritten)
	err := e.writes("update", "updates", uint64(count*versionsWritten), func(w *worker, i uint64) (int, error) {
		n, v := i%uint64(count), uint32(i/uint64(count))
		return 1, w.session.Update(w.maker.keyOf(n), w.maker.one(0, n, baseVersion+int64(v), v))
	})
	if err != nil {
		return err
	}
	if err := e.reads("get-newest", "rows", 1, versionsOp(count, 1)); err != nil {
		return err
	}
	if kept > 1 {
		if err := e.reads("get-kept", "rows", 1, versionsOp(count, kept)); err != nil {
			return err
		}
	}
	p := e.begin("scan", "rows")
	w := e.workers[0]
	columns := w.maker.columns
	w.maker.columns = columns[:1] // what a visited row has to hold
	err = p.run(1, 0, 0, seconds(e.ReadSeconds), scanOp(rowstore.Query{MaxVersions: 1}, 0, count))
	w.maker.columns = columns
	if err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	before, _ := e.space()
	return e.reclaim(uint64(count*(versionsWritten-kept)), usageNow(), before, versionsOp(count, kept))
}

// versionsOp reads the newest want versions of a random row and checks that it
// is those.
func versionsOp(count, want int) operation {
	return func(w *worker, i uint64) (int, error) {
		n := uint64(w.random.below(count))
		found, err := w.session.Get(w.maker.keyOf(n), rowstore.Query{MaxVersions: want}, &w.row)
		if err != nil {
			return 0, err
		}
		if !found || len(w.row.Cells) != want {
			return 0, fmt.Errorf("workload: row %d: found %t, %d versions, want %d", n, found, len(w.row.Cells), want)
		}
		if i%sampleEvery != 0 {
			return 1, nil
		}
		for k, cell := range w.row.Cells {
			v := uint32(versionsWritten - 1 - k)
			if generationOf(cell.Value) != v || cell.Version != baseVersion+int64(v) {
				return 0, fmt.Errorf("workload: row %d: version %d at place %d", n, cell.Version-baseVersion, k)
			}
			if err := w.Values.checkValue(cell.Value, w.buf, n, 0); err != nil {
				return 0, err
			}
		}
		return 1, nil
	}
}

// reclaim measures giving back the space of dead data, of which there are so
// many units, and checks some reads afterwards. What was written since the data
// died, when the store had that much space, is counted: an engine may notice by
// itself before it is asked.
func (e *env) reclaim(units uint64, died usage, before int64, check operation) error {
	p := e.begin("reclaim", DeadUnits)
	p.before.written = died.written
	start := time.Now()
	if err := e.store.Reclaim(); err != nil {
		return err
	}
	p.take(time.Since(start), nil)
	p.figure.Ops = int64(units)
	// Engines delete files a while later, some of them slowly on purpose.
	left, _ := e.space()
	for same := 0; same < 5 && time.Since(start) < 10*time.Second; {
		time.Sleep(100 * time.Millisecond)
		if now, _ := e.space(); now == left {
			same++
		} else {
			left, same = now, 0
		}
	}
	p.after = usageNow()
	p.extra("space_before", float64(before))
	if err := p.end(); err != nil {
		return err
	}
	_, _, err := e.drive(1, 0, 1000, seconds(e.LimitSeconds), check)
	return err
}

// ttlSeconds is the Time To Live of the ttl workloads. Rows are written with
// versions of the last 50 minutes; then the clock moves on by 45, so that cells
// whose version lies more than 15 minutes before the load expire.
const ttlSeconds = 3600

func runTTL(e *env) error {
	count := e.count() * 2 / 5
	minute := time.Minute.Milliseconds()
	version := func(i uint64) int64 {
		if e.spec.order == ascending {
			v := baseVersion - 50*minute + int64(i)*50*minute/int64(count)
			// Two seconds around the cut are left out: engines may round it.
			if off := v - (baseVersion - 15*minute); off > -2000 && off < 2000 {
				v += 2000 - off
			}
			return v
		}
		if mix(i^0x77)%10 < 7 {
			return baseVersion - 50*minute
		}
		return baseVersion
	}
	err := e.writes("load", "rows", uint64(count), func(w *worker, i uint64) (int, error) {
		return 1, w.session.Put(w.maker.keyOf(i), w.maker.all(i, version(i), 0))
	})
	if err != nil {
		return err
	}
	live := 0
	for i := range uint64(count) {
		if version(i) > baseVersion-15*minute {
			live++
		}
	}
	if err := e.reads("scan-before", "rows", 1, scanOp(rowstore.Query{}, 0, count)); err != nil {
		return err
	}
	// What the scans made an engine merge is not reclaiming.
	if err := e.settled(); err != nil {
		return err
	}
	died := usageNow()
	before, _ := e.space()
	e.clock.Store(baseVersion + 45*minute)
	if err := e.reads("scan-expired", "rows", 1, scanOp(rowstore.Query{}, 0, live)); err != nil {
		return err
	}
	if err := e.reclaim(uint64(count-live), died, before, scanOnce(live)); err != nil {
		return err
	}
	return e.reads("scan-reclaimed", "rows", 1, scanOp(rowstore.Query{}, 0, live))
}

// scanOnce scans all in the first operation and does nothing in the others.
func scanOnce(want int) operation {
	scan := scanOp(rowstore.Query{}, 0, want)
	return func(w *worker, i uint64) (int, error) {
		if i > 0 {
			return 0, nil
		}
		return scan(w, i)
	}
}

// runHotRow updates one column of one row again and again; then reads it from
// table files, and then with further updates over them in memory.
func runHotRow(e *env) error {
	const row, column, more = 7, 3, 1000
	updates := uint64(max(e.count()/5, 1))
	team, err := e.team(1)
	if err != nil {
		return err
	}
	w := team[0]
	if err := w.session.Put(w.maker.keyOf(row), w.maker.all(row, baseVersion, 0)); err != nil {
		return err
	}
	update := func(w *worker, i uint64) (int, error) {
		generation := uint32(i + 1)
		return 1, w.session.Update(w.maker.keyOf(row), w.maker.one(column, row, baseVersion+int64(generation), generation))
	}
	if err := e.writes("update", "updates", updates, update); err != nil {
		return err
	}
	newest := uint32(updates)
	read := func(w *worker, i uint64) (int, error) {
		err := w.getAll(row, i%sampleEvery == 0)
		if got := generationOf(w.row.Cells[column].Value); err == nil && got != newest {
			err = fmt.Errorf("workload: the hot row holds generation %d, want %d", got, newest)
		}
		return 1, err
	}
	if err := e.reads("get-flushed", "rows", 1, read); err != nil {
		return err
	}
	if err := e.complete(uint64(newest), more, update); err != nil {
		return err
	}
	newest += more
	return e.reads("get-updated", "rows", 1, read)
}

// runWideRow writes one row of twice as many columns as other workloads have
// rows, reads single columns, pages through all, and updates single columns.
// Where a row is one value each page of columns rewrites all of it, so it has a
// fiftieth of the columns there; the rates still compare, in its favour.
func runWideRow(e *env) error {
	const page = 1000
	columns := 2 * e.count()
	if e.Encoding == rowstore.RowValue {
		columns /= 50
	}
	columns = max(columns/page, 1) * page
	key := appendKey(nil, 1, e.spec.order)
	err := e.writes("load", "columns", uint64(columns/page), func(w *worker, i uint64) (int, error) {
		return page, w.session.Update(key, w.wideCells(int(i)*page, page, baseVersion))
	})
	if err != nil {
		return err
	}
	if err := e.reads("get-one", "columns", 1, wideGet(key, columns)); err != nil {
		return err
	}
	if err := e.reads("page", "columns", 1, widePage(key, columns, page)); err != nil {
		return err
	}
	return e.updates("update", "columns", 1, func(w *worker, i uint64) (int, error) {
		return 1, w.session.Update(key, w.wideCells(w.random.below(columns), 1, baseVersion+int64(i)+1))
	})
}

// wideCells makes count cells from column first on, valid until the next call.
func (w *worker) wideCells(first, count int, version int64) []rowstore.Cell {
	for len(w.wide) < count {
		w.wide = append(w.wide, rowstore.Cell{Column: make([]byte, 0, 16), Value: make([]byte, valueSize)})
	}
	cells := w.wide[:count]
	for c := range cells {
		cell := &cells[c]
		cell.Column = columnName(cell.Column[:0], first+c)
		cell.Version = version
		w.Values.fill(cell.Value, 1, first+c, 0)
	}
	return cells
}

func wideGet(key []byte, columns int) operation {
	return func(w *worker, i uint64) (int, error) {
		c := w.random.below(columns)
		w.key = columnName(w.key[:0], c)
		w.name[0] = w.key
		found, err := w.session.Get(key, rowstore.Query{Columns: w.name[:], MaxVersions: 1}, &w.row)
		if err != nil {
			return 0, err
		}
		if !found || len(w.row.Cells) != 1 || !bytes.Equal(w.row.Cells[0].Column, w.key) {
			return 0, fmt.Errorf("workload: column %d of the wide row: found %t, %d cells", c, found, len(w.row.Cells))
		}
		return 1, w.Values.checkValue(w.row.Cells[0].Value, w.buf, 1, c)
	}
}

// widePage reads the page of columns after the one before it, from the first
// again after the last.
func widePage(key []byte, columns, page int) operation {
	return func(w *worker, i uint64) (int, error) {
		first := int(i) * page % columns
		w.key = columnName(w.key[:0], first)
		if err := w.session.GetPage(key, w.key, page, &w.row); err != nil {
			return 0, err
		}
		if len(w.row.Cells) != page {
			return 0, fmt.Errorf("workload: a page from column %d has %d columns", first, len(w.row.Cells))
		}
		for c := 0; c < page; c += sampleEvery {
			if err := w.Values.checkValue(w.row.Cells[c].Value, w.buf, 1, first+c); err != nil {
				return 0, err
			}
		}
		return page, nil
	}
}
