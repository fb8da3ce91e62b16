package bulkio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/row"
)

// fakeTarget remembers rows. It refuses those whose key is negative when it is flushed, and breaks at a key.
type fakeTarget struct {
	rejects  *Rejects
	breaksAt int64
	held     []int64
	places   []Place
	written  []int64
	versions map[int64]bool
	flushes  int
	finished []error
}

var errBroken = errors.New("broken")

func (f *fakeTarget) Put(r *rowfile.Row, at Place) error {
	n := r.Key[0].Int64()
	if f.breaksAt != 0 && n == f.breaksAt {
		return errBroken
	}
	f.held, f.places = append(f.held, n), append(f.places, at)
	for _, c := range r.Cells {
		f.versions[c.Version] = true
	}
	return nil
}

func (f *fakeTarget) Flush() error {
	f.flushes++
	for i, n := range f.held {
		if n < 0 {
			if err := f.rejects.RefuseRow(f.places[i], errors.New("negative")); err != nil {
				return err
			}
			continue
		}
		f.written = append(f.written, n)
	}
	f.held, f.places = nil, nil
	return nil
}

func (f *fakeTarget) Finish(_ context.Context, failed error) error {
	f.finished = append(f.finished, failed)
	return f.Flush()
}

// fixture is an import of CSV texts.
type fixture struct {
	Import
	target *fakeTarget
	shown  bytes.Buffer
	dir    string
}

func newFixture(t *testing.T, dir string, most int64, texts ...string) *fixture {
	t.Helper()
	f := &fixture{target: &fakeTarget{versions: map[int64]bool{}}, dir: dir}
	f.Target, f.Progress, f.Save = f.target, &Progress{Out: &f.shown, What: "imported"}, time.Nanosecond
	begin := &State{Target: "here", Settings: "none", Version: 77, Rejects: filepath.Join(dir, "rejects")}
	var names []string
	for i, text := range texts {
		id, err := Identify(fmt.Sprintf("file%d", i), strings.NewReader(text), int64(len(text)), time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		names, begin.Inputs = append(names, id.Name), append(begin.Inputs, id)
		begin.Parts = append(begin.Parts, Part{File: i, Weight: id.Size})
		f.Inputs = append(f.Inputs, Input{Identity: id, Open: func(at rowfile.Position) (rowfile.Reader, error) {
			return rowfile.NewReader(strings.NewReader(text), int64(len(text)), &rowfile.ReadOptions{
				Format: rowfile.CSV, Key: []rowfile.Column{{Name: "k", Type: row.TypeInteger}}, At: at,
			})
		}})
	}
	f.State = resumed(t, filepath.Join(dir, "state"), begin)
	var err error
	if f.Rejects, err = NewRejects(names, most, f.State); err != nil {
		t.Fatal(err)
	}
	f.target.rejects = f.Rejects
	return f
}

// resumed is the state of a file or, if there is none, begin.
func resumed(t *testing.T, path string, begin *State) *State {
	t.Helper()
	s, err := Load(path, begin)
	if err == nil && s == nil {
		s, err = begin, begin.Keep(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbers is a CSV text of the keys from, included, to to, excluded.
func numbers(from, to int) string {
	var b strings.Builder
	b.WriteString("k,a\n")
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, "%d,x\n", n)
	}
	return b.String()
}

// TestAnImportThatEndedGoesOnBehindWhatWasWritten lets the target break, and runs the import again.
func TestAnImportThatEndedGoesOnBehindWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	texts := []string{numbers(1, 1001), numbers(1001, 3001)}
	f := newFixture(t, dir, 0, texts...)
	f.target.breaksAt = 2500
	if err := f.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if len(f.target.finished) != 1 || f.target.finished[0] == nil {
		t.Errorf("the target was finished with %v", f.target.finished)
	}
	again := newFixture(t, dir, 0, texts...)
	if s := again.State; !s.Parts[0].Done || s.Rows < 2000 || s.Rows > 2499 || s.Parts[1].At.Line != s.Rows-1000+1 || s.Version != 77 {
		t.Fatalf("%+v", s)
	}
	from := again.State.Rows
	if err := again.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range again.target.written {
		if n != from+1+int64(i) {
			t.Fatalf("row %d after the resumption is %d; it went on behind %d", i, n, from)
		}
	}
	if last := newFixture(t, dir, 0, texts...).State; !last.Done() || last.Rows != 3000 || again.target.written[len(again.target.written)-1] != 3000 {
		t.Errorf("%+v", last)
	}
	if !again.target.versions[77] || len(again.target.versions) != 1 {
		t.Errorf("versions %v", again.target.versions)
	}
	if !strings.Contains(again.shown.String(), "imported 3000 rows") {
		t.Errorf("it said %q", again.shown.String())
	}
}

// TestRejectedLinesAreKeptUpToANumber has lines that are no rows, and rows that the target refuses.
func TestRejectedLinesAreKeptUpToANumber(t *testing.T) {
	text := "k,a\n1,x\nbad,x\n-5,x\n2,x\n"
	for most, want := range map[int64]string{
		-1: "", 2: "", 1: "negative (1 lines were rejected before it)", 0: `file0:3: column k: invalid: "bad" is no value of type integer`,
	} {
		f := newFixture(t, t.TempDir(), most, text)
		err := f.Run(t.Context())
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("up to %d: %v", most, err)
			}
			continue
		}
		if err != nil || !slices.Equal(f.target.written, []int64{1, 2}) || f.State.Rows != 2 || f.State.Rejected != 2 {
			t.Errorf("up to %d: %v, %v, %+v", most, err, f.target.written, f.State)
		}
		if err := f.Rejects.Close(); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(f.dir, "rejects"))
		if err != nil {
			t.Fatal(err)
		}
		var got []Reject
		for decoder := json.NewDecoder(bytes.NewReader(content)); ; {
			var r Reject
			if decoder.Decode(&r) == io.EOF {
				break
			}
			got = append(got, r)
		}
		if len(got) != 2 || got[0].Line != 3 || got[0].Text != "bad,x" || got[1] != (Reject{"file0", 4, "negative", ""}) || f.State.RejectedBytes != int64(len(content)) {
			t.Errorf("%+v", got)
		}
	}
}

// TestRejectsOfAnImportThatGoesOnAreNotThereTwice writes a line that the state does not know of.
func TestRejectsOfAnImportThatGoesOnAreNotThereTwice(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rejects")
	first, err := NewRejects([]string{"f"}, -1, &State{Rejects: name})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(r *Rejects, line int64) {
		if err := r.Refuse(Place{0, line}, errBroken, ""); err != nil {
			t.Fatal(err)
		}
	}
	refuse(first, 1)
	count, size, err := first.Sync()
	if err != nil {
		t.Fatal(err)
	}
	refuse(first, 2)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := NewRejects([]string{"f"}, 2, &State{Rejects: name, Rejected: count, RejectedBytes: size, resumed: true})
	if err != nil {
		t.Fatal(err)
	}
	refuse(second, 2)
	if err := second.Refuse(Place{0, 3}, errBroken, ""); err == nil {
		t.Error("three lines were rejected, and two are allowed")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(name); err != nil || bytes.Count(content, []byte("\n")) != 2 {
		t.Errorf("%s, %v", content, err)
	}
	if _, err := NewRejects(nil, 0, &State{Rejects: name}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a file that is there already: %v", err)
	}
	if _, err := NewRejects(nil, 0, &State{Rejects: name, RejectedBytes: 9999, resumed: true}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a file that lost its end: %v", err)
	}
}

// TestAStateOfAnotherImportOrADamagedOneIsRefused changes each byte of the file, cuts it, and changes what is imported.
func TestAStateOfAnotherImportOrADamagedOneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	begin := func() *State {
		return &State{Inputs: []Identity{{"a.csv", 10, 1, "00", "00"}}, Parts: []Part{{Weight: 10}}, Target: "t", Settings: "s", Version: 5}
	}
	resumed(t, path, begin())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Load(path, begin()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q was taken for %+v, %v", content, s, err)
		}
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		refused(damaged)
		refused(whole[:i])
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(s *State){
		"and not to u":             func(s *State) { s.Target = "u" },
		"and not v":                func(s *State) { s.Settings = "v" },
		"it has 1 files":           func(s *State) { s.Inputs = append(s.Inputs, Identity{}) },
		"and not b.csv":            func(s *State) { s.Inputs[0].Name = "b.csv" },
		"had 10 bytes, and has 11": func(s *State) { s.Inputs[0].Size = 11 },
		"begins differently":       func(s *State) { s.Inputs[0].Start = "01" },
		"ends differently":         func(s *State) { s.Inputs[0].End = "01" },
		"was modified":             func(s *State) { s.Inputs[0].Modified = 2 },
		"--rejects":                func(s *State) { s.Rejects = "other" },
	} {
		other := begin()
		change(other)
		if _, err := Load(path, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	later := begin()
	later.Version = 6
	if s, err := Load(path, later); err != nil || s.Version != 5 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestARateAndAnEndOfTheContextAreKept(t *testing.T) {
	f := newFixture(t, t.TempDir(), 0, numbers(1, 100))
	ctx, cancel := context.WithCancel(t.Context())
	f.Limiter = rate.NewLimiter(1e-9, 3)
	f.Import.Target = cancelAfter{f.target, 3, cancel}
	if err := f.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(f.target.written) != 3 {
		t.Errorf("wrote %v", f.target.written)
	}
}

// cancelAfter ends a context after some rows.
type cancelAfter struct {
	*fakeTarget
	rows   int
	cancel context.CancelFunc
}

func (c cancelAfter) Put(r *rowfile.Row, at Place) error {
	if r.Key[0].Int64() == int64(c.rows) {
		defer c.cancel()
	}
	return c.fakeTarget.Put(r, at)
}

func TestProgressSaysWhatIsLeft(t *testing.T) {
	p := &Progress{What: "imported", fraction: 0.2}
	for _, c := range []struct {
		fraction float64
		since    time.Duration
		want     string
	}{
		{0, 0, "imported 1000 rows, 100 rows/s"},
		{0.6, 0, "imported 1000 rows, 100 rows/s, 60.0 %, 10s left"},
		{0.6, 2 * time.Second, "imported 1000 rows, 100 rows/s, 60.0 %, 6s left"},
		{0.9, 9 * time.Second, "imported 1000 rows, 100 rows/s, 90.0 %, 0s left"},
		{1, 0, "imported 1000 rows, 100 rows/s, 100.0 %"},
	} {
		if got := p.text("imported", 1000, c.fraction, 10*time.Second, c.since); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	var out bytes.Buffer
	p = &Progress{Out: &out, Every: time.Nanosecond, What: "exported"}
	p.Begin(0, 0)
	p.Show(5, 0)
	p.Terminal = true
	p.Show(6, 0.5)
	p.End(7)
	if got := out.String(); !strings.HasPrefix(got, "flagstone: exported 5 rows") || !strings.Contains(got, "\rexported 6 rows") || !strings.Contains(got, "flagstone: exported 7 rows") {
		t.Errorf("%q", got)
	}
}

// TestAFileThatIsCutMeanwhileEndsTheImport cuts it behind a row, and within one.
func TestAFileThatIsCutMeanwhileEndsTheImport(t *testing.T) {
	text := numbers(1, 1000)
	for _, left := range []int{len(text) - 6, len(text) - 3} {
		f := newFixture(t, t.TempDir(), -1, text)
		f.Inputs[0].Open = func(at rowfile.Position) (rowfile.Reader, error) {
			return rowfile.NewReader(strings.NewReader(text[:left]), int64(len(text)), &rowfile.ReadOptions{
				Format: rowfile.CSV, Key: []rowfile.Column{{Name: "k", Type: row.TypeInteger}}, At: at,
			})
		}
		if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cut meanwhile") || f.State.Done() {
			t.Errorf("%d bytes are left: %v", left, err)
		}
		if strings.Contains(f.shown.String(), "imported") {
			t.Errorf("after a failure it said %s", f.shown.String())
		}
	}
}
