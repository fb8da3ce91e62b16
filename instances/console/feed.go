package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/ots"
)

const (
	// keptEvents and keptRequests are how many of the newest are kept.
	keptEvents, keptRequests = 500, 200
)

// Feed gathers what pages show beside figures. It is safe for concurrent use.
type Feed struct {
	clock clock.Clock

	mu      sync.Mutex
	running map[job]Event
	done    []Event   // the newest last
	slow    []Request // the newest last

	heating sync.Mutex // apart, since writers may wait for Event
	heat    heat
}

// job identifies a flush, compaction or stall: its number, in the store of a type.
type job struct {
	store  ots.InstanceType
	number uint64
}

// Event is flagstone.Event as JSON.
type Event struct {
	AtMillis   int64            `json:"at_millis"` // when it was reported
	Store      ots.InstanceType `json:"store"`
	Kind       string           `json:"kind"`
	Job        uint64           `json:"job,omitempty"`
	Table      string           `json:"table,omitempty"`
	Partitions []uint64         `json:"partitions,omitempty"`
	Made       []uint64         `json:"made,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Level      int              `json:"level"`
	Output     int              `json:"output"`
	Files      int              `json:"files,omitempty"`
	Moved      bool             `json:"moved,omitempty"`
	Input      int64            `json:"input,omitempty"`
	Written    int64            `json:"written,omitempty"`
	Dropped    uint64           `json:"dropped,omitempty"`
	Took       float64          `json:"took_seconds,omitempty"`
	Cancelled  bool             `json:"cancelled,omitempty"`
	Error      string           `json:"error,omitempty"`
}

// Request is a slow request.
type Request struct {
	AtMillis  int64   `json:"at_millis"` // when it was answered
	ID        string  `json:"id"`        // that the client was given
	Operation string  `json:"operation"`
	Instance  string  `json:"instance"`
	Table     string  `json:"table"`
	Code      string  `json:"code"`
	Took      float64 `json:"took_seconds"`
	Received  int64   `json:"received"` // bytes
	Sent      int64   `json:"sent"`
	Read      int64   `json:"read_units"` // capacity units
	Write     int64   `json:"write_units"`
	Rows      int64   `json:"rows"` // of a batch
}

// Recent is what happened lately.
type Recent struct {
	NowMillis int64     `json:"now_millis"`
	Running   []Event   `json:"running"` // by their numbers
	Done      []Event   `json:"done"`    // the newest last
	Slow      []Request `json:"slow"`    // the same
}

// NewFeed returns an empty feed.
func NewFeed() *Feed {
	return &Feed{clock: clock.System(), running: make(map[job]Event), heat: heat{tables: make(map[string][]slice)}}
}

// Event takes an event of the store of a type.
func (f *Feed) Event(store ots.InstanceType, e flagstone.Event) {
	if e.Kind == flagstone.EventLogSegment { // many, and of no interest here
		return
	}
	shown := Event{
		AtMillis: f.clock.NowMillis(), Store: store, Kind: string(e.Kind), Job: e.Job, Table: e.Table, Partitions: e.Partitions,
		Made: e.Made, Reason: e.Reason, Level: e.Level, Output: e.Output, Files: e.Files, Moved: e.Moved, Input: e.Input,
		Written: e.Written, Dropped: e.Dropped, Took: e.Took.Seconds(), Cancelled: e.Cancelled,
	}
	if !strings.Contains(e.Table, "/") {
		shown.Table = "" // the store's own, in which it keeps tunnels
	}
	if e.Err != nil {
		shown.Error = shortText(e.Err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Begun {
		f.running[job{store, e.Job}] = shown
		return
	}
	delete(f.running, job{store, e.Job})
	f.done = keep(f.done, shown, keptEvents)
}

// Slow takes a slow request, and dates it.
func (f *Feed) Slow(r Request) {
	r.AtMillis, r.Table = f.clock.NowMillis(), shortText(r.Table)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = keep(f.slow, r, keptRequests)
}

// shortText is a copy of what fits: clients can name tables that cannot be.
func shortText(text string) string {
	const longest = 255
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), longest)], "?"))
}

// keep appends to a list of at most n, which loses its first.
func keep[E any](list []E, e E, n int) []E {
	if len(list) == n {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, e)
}

// Watch records which keys are in use until ctx ends. keys returns them by the name of their table.
func (f *Feed) Watch(ctx context.Context, keys func() map[string][]flagstone.LoadedKey) {
	ticker := time.NewTicker(heatStep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.Record(keys())
	}
}

// Record records which keys are in use now.
func (f *Feed) Record(keys map[string][]flagstone.LoadedKey) {
	now := f.clock.NowMillis()
	f.heating.Lock()
	defer f.heating.Unlock()
	f.heat.record(now, keys)
}

func (f *Feed) picture(table string) *Picture {
	f.heating.Lock()
	defer f.heating.Unlock()
	return f.heat.picture(table)
}

// Recent returns what happened lately.
func (f *Feed) Recent() *Recent {
	f.mu.Lock()
	defer f.mu.Unlock()
	byNumber := func(a, b Event) int { return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Job, b.Job)) }
	return &Recent{
		NowMillis: f.clock.NowMillis(), Running: append([]Event{}, slices.SortedFunc(maps.Values(f.running), byNumber)...),
		Done: append([]Event{}, f.done...), Slow: append([]Request{}, f.slow...),
	}
}
