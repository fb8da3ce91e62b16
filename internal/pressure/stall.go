package pressure

import (
	"sync"

	"github.com/flagstone-db/flagstone/internal/event"
)

// stall is a time in which writers wait for room, as an event. It lasts from the first writer to the last.
type stall struct {
	mu      sync.Mutex // held while the listener is called, which keeps beginnings and ends in order
	writers int
	job     *event.Job
}

// waiting is a writer's part in a stall, from begin to end. Without begin it has none.
type waiting struct{ gate *Gate }

// begin notes that the writer waits, for memory or for a shallower level 0. Only the first call counts.
func (w *waiting) begin(g *Gate, memory bool) {
	if w.gate != nil {
		return
	}
	w.gate = g
	g.stall.mu.Lock()
	defer g.stall.mu.Unlock()
	if g.stall.writers++; g.stall.writers > 1 {
		return
	}
	e := event.Event{Kind: event.Stall, Reason: "level 0"}
	if memory {
		e.Reason = "memtables"
	}
	g.stall.job = g.Events.Begin(e)
}

// end notes that the writer goes on, or has failed.
func (w *waiting) end() {
	if w.gate == nil {
		return
	}
	stall := &w.gate.stall
	stall.mu.Lock()
	defer stall.mu.Unlock()
	if stall.writers--; stall.writers == 0 {
		stall.job.End(nil)
	}
}
