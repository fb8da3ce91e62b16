package workload

// This file runs every workload, small, on the model of package model: once as
// it is, and with faults that the workloads have to find.

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/rowstore/model"
)

// fake is the model as an engine. Its stores outlive being closed.
type fake struct {
	mu     sync.Mutex
	cfg    rowstore.Config
	stores map[string]*model.Store
	model  *model.Store

	values Values
	asking rowstore.Asking // of Settle, which takes as long

	// Faults: what is done to rows that are read, to cells that are written, and
	// whether missing rows are found.
	read    func(rows []rowstore.Row) []rowstore.Row
	write   func(cells []rowstore.Cell) []rowstore.Cell
	invents bool
}

func (f *fake) engine() rowstore.Engine {
	return rowstore.Engine{
		Name: "fake", IsLog: func(name string) bool { return name == "log" }, Encodings: []rowstore.Encoding{rowstore.Native, rowstore.Plain}, LSM: true, Factor: 1,
		Open: func(cfg rowstore.Config) (rowstore.Store, error) {
			f.cfg = cfg
			if f.stores[cfg.Dir] == nil {
				if cfg.NowMillis == nil {
					cfg.NowMillis = func() int64 { return baseVersion }
				}
				f.stores[cfg.Dir] = model.New(cfg)
			}
			f.model = f.stores[cfg.Dir]
			return f, nil
		},
	}
}

func (f *fake) Session() (rowstore.Session, error) { return (*fakeSession)(f), nil }
func (f *fake) Compact() error                     { return nil }
func (f *fake) Reclaim() error                     { return nil }
func (f *fake) Stats() rowstore.Stats              { return rowstore.Stats{} }
func (f *fake) Close() error                       { return nil }

func (f *fake) Settle() (rowstore.Asking, error) {
	time.Sleep(f.asking.Late)
	return f.asking, nil
}

// SplitPoints cuts at every tenth row.
func (f *fake) SplitPoints(int64) ([][]byte, error) {
	var points [][]byte
	for i, row := range f.model.Scan(nil, nil, rowstore.Query{}, 0) {
		if i%10 == 9 {
			points = append(points, row.Key)
		}
	}
	return points, nil
}

type fakeSession fake

func (s *fakeSession) written(cells []rowstore.Cell) []rowstore.Cell {
	if s.write != nil {
		return s.write(slices.Clone(cells))
	}
	return cells
}

func (s *fakeSession) seen(rows ...rowstore.Row) []rowstore.Row {
	if s.read == nil {
		return rows
	}
	for i := range rows {
		rows[i] = rows[i].Clone()
	}
	return s.read(rows)
}

func (s *fakeSession) Put(key []byte, cells []rowstore.Cell) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Put(key, s.written(cells))
	return nil
}

func (s *fakeSession) Update(key []byte, cells []rowstore.Cell) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Update(key, s.written(cells))
	return nil
}

func (s *fakeSession) PutBatch(rows []rowstore.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		s.model.Put(r.Key, s.written(r.Cells))
	}
	return nil
}

func (s *fakeSession) Get(key []byte, q rowstore.Query, into *rowstore.Row) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.model.Get(key, q)
	if len(row.Cells) == 0 {
		return s.invents, nil
	}
	rows := s.seen(row)
	if len(rows) == 0 {
		return false, nil
	}
	into.Reset(key)
	for _, c := range rows[0].Cells {
		into.Add(c.Column, c.Version, c.Value)
	}
	return true, nil
}

func (s *fakeSession) Scan(start, end []byte, q rowstore.Query, limit int, visit func(*rowstore.Row) bool) error {
	s.mu.Lock()
	rows := s.seen(s.model.Scan(start, end, q, limit)...)
	s.mu.Unlock()
	for i := range rows {
		if !visit(&rows[i]) {
			break
		}
	}
	return nil
}

func (s *fakeSession) GetPage(key, from []byte, limit int, into *rowstore.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.seen(s.model.GetPage(key, from, limit))
	into.Reset(key)
	for _, c := range rows[0].Cells {
		into.Add(c.Column, c.Version, c.Value)
	}
	return nil
}

func (s *fakeSession) Delete(key []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Delete(key)
	return nil
}

func (s *fakeSession) Close() error { return nil }

// try runs a workload on the fake and returns its figures.
func try(t *testing.T, f *fake, spec Spec) ([]Figure, error) {
	t.Helper()
	return tryFor(t, f, spec, 20)
}

// tryFor is try with a number of seconds after which phases of writing are stopped.
func tryFor(t *testing.T, f *fake, spec Spec, limit float64) ([]Figure, error) {
	t.Helper()
	p := Params{
		Workload: spec.Name, Engine: "fake", Encoding: rowstore.Native, Round: 1, Dir: t.TempDir(),
		Rows: 200, Keys: 200, Beyond: 200, Values: f.values, Memtable: 1 << 20, Cache: 1 << 20, MemoryLimit: 1 << 30,
		ReadSeconds: 0.005, LimitSeconds: limit,
	}
	f.stores = map[string]*model.Store{}
	if spec.Set != "" {
		p.Workload = LoadName(spec.Set)
		if err := Run(p, f.engine(), io.Discard, io.Discard); err != nil {
			return nil, err
		}
		p.Workload = spec.Name
	}
	var out bytes.Buffer
	err := Run(p, f.engine(), &out, io.Discard)
	var figures []Figure
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var one Figure
		if err := decoder.Decode(&one); err != nil {
			t.Fatal(err)
		}
		figures = append(figures, one)
	}
	return figures, err
}

func TestEveryWorkloadPassesOnTheModel(t *testing.T) {
	for _, v := range []Values{HalfZeros, Text} {
		t.Run(string(v), func(t *testing.T) { passEveryWorkload(t, v) })
	}
}

func passEveryWorkload(t *testing.T, v Values) {
	names := map[string]bool{}
	for _, spec := range All() {
		figures, err := try(t, &fake{values: v}, spec)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
		if len(figures) == 0 {
			t.Errorf("%s: no figure", spec.Name)
		}
		for _, f := range figures {
			if f.Name != spec.Name && !strings.HasPrefix(f.Name, spec.Name+"/") || names[f.Name] {
				t.Errorf("%s: a figure %q, or two of it", spec.Name, f.Name)
			}
			names[f.Name] = true
			if f.Ops <= 0 || f.Seconds <= 0 || f.Headline() <= 0 || f.Stopped {
				t.Errorf("%s: %+v", spec.Name, f)
			}
		}
	}
}

func TestAskingWhetherAStoreHasSettledIsNotCharged(t *testing.T) {
	for _, name := range []string{"putrow-g1", "mixed-g2"} {
		spec, _ := Find(name)
		figures, err := try(t, &fake{asking: rowstore.Asking{Late: 200 * time.Millisecond, CPU: time.Hour}}, spec)
		if err != nil {
			t.Fatal(err)
		}
		f := figures[0]
		if settle := f.Settle + f.Extra["settle_seconds"]; settle > 0.1 || settle <= 0 || f.CPU > -3000 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestTheSpaceOfTheLogIsToldApart(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"log": 64 << 10, "table": 128 << 10} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte{1}, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e := &env{Params: Params{Dir: dir}, engine: (&fake{}).engine()}
	if all, log := e.space(); all != 192<<10 || log != 64<<10 {
		t.Errorf("%d bytes, %d of them of the log", all, log)
	}
}

// What is read later must be there although the time for writing it was too short.
func TestWhatWasStoppedIsWrittenWithoutLooking(t *testing.T) {
	for _, spec := range All() {
		figures, err := tryFor(t, &fake{}, spec, 1e-9)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
		for _, name := range []string{"versions", "ttl", "hotrow", "values"} {
			if strings.HasPrefix(spec.Name, name) && (len(figures) < 2 || !figures[0].Stopped) {
				t.Errorf("%s was not stopped: %+v", spec.Name, figures)
			}
		}
	}
}

// faults are wrong answers, and workloads that have to find them.
func faults() map[string]struct {
	fault func(*fake)
	find  []string
} {
	type entry = struct {
		fault func(*fake)
		find  []string
	}
	every := func(n int, do func(*rowstore.Row)) func(*fake) {
		count := 0
		return func(f *fake) {
			f.read = func(rows []rowstore.Row) []rowstore.Row {
				for i := range rows {
					if count++; count%n == 0 {
						do(&rows[i])
					}
				}
				return rows
			}
		}
	}
	return map[string]entry{
		"a flipped bit": {
			every(1, func(r *rowstore.Row) { r.Cells[len(r.Cells)-1].Value[90] ^= 4 }),
			[]string{"putrow-g1", "batch100", "putsync-g16", "overwrite", "update1-g8", "mixed-g2", "getrow-all-g1", "getrow-1col",
				"range100-all", "scan-1col", "versions10", "ttl-random", "hotrow", "widerow", "values64k", "kv100-fillrandom",
				"kv100-readrandom-g1", "kv100-fullscan", "kv100-ycsb-a", "kv100-ycsb-d", "beyond"},
		},
		"a missing cell": {
			every(1, func(r *rowstore.Row) { r.Cells = r.Cells[:len(r.Cells)-1] }),
			[]string{"putrow-g8", "getrow-all-g8", "getrow-1col", "range100-1col", "scan-all", "versions1", "ttl-ordered", "widerow",
				"values1m", "kv1k-scan100", "kv1k-ycsb-c"},
		},
		"another row": {
			every(1, func(r *rowstore.Row) { r.Key[3] ^= 1; HalfZeros.fill(r.Cells[0].Value, 12345, 0, 0) }),
			[]string{"getrow-all-g1", "range100-all", "kv100-scan100", "mixed-g8"},
		},
		"a row of a scan is left out": {
			func(f *fake) {
				f.read = func(rows []rowstore.Row) []rowstore.Row {
					if len(rows) < 2 {
						return rows
					}
					return slices.Delete(rows, 1, 2)
				}
			},
			[]string{"range100-all", "range100-1col", "scan-all", "scan-1col", "versions10", "ttl-random", "kv100-fullscan", "beyond"},
		},
		"lost writes": {
			func(f *fake) {
				f.write = func(cells []rowstore.Cell) []rowstore.Cell {
					if len(cells) == 0 || cells[0].Version == baseVersion {
						return cells
					}
					return nil
				}
			},
			[]string{"overwrite", "update1-g1", "update1-g8", "mixed-g2", "versions1", "hotrow", "kv100-overwrite", "kv100-ycsb-f"},
		},
		"missing rows are found": {
			func(f *fake) { f.invents = true },
			[]string{"getrow-missing", "kv100-readmissing"},
		},
	}
}

func TestWorkloadsFindWrongAnswers(t *testing.T) {
	for name, f := range faults() {
		for _, w := range f.find {
			spec, ok := Find(w)
			if !ok {
				t.Fatalf("no workload %s", w)
			}
			store := &fake{}
			f.fault(store)
			if _, err := try(t, store, spec); err == nil {
				t.Errorf("%s: %s did not find it", name, w)
			}
		}
	}
}
