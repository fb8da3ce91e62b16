package partition

import (
	"slices"
	"strings"
	"testing"
)

// TestAnchorsOutliveTheMemtable flushes the memtable from which anchors were taken; its memory
// is then used for other things.
func TestAnchorsOutliveTheMemtable(t *testing.T) {
	r := newRig(t) // its pool overwrites freed memory
	for n := range 1000 {
		r.putRow(key("p", n), "c", 1, "v")
	}
	anchors, err := r.tree.Anchors(0)
	must(t, err)
	if len(anchors.list) == 0 {
		t.Fatal("no anchors")
	}
	var before []string
	for key := range anchors.All() {
		before = append(before, string(key))
	}
	r.flush()
	var after []string
	for key := range anchors.All() {
		after = append(after, string(key))
	}
	if !slices.Equal(before, after) {
		t.Errorf("keys changed when the memtable was flushed: %q became %q", before[0], after[0])
	}
}

// TestATreeThatIsGoneTakesNoMemory drops one tree and closes another.
func TestATreeThatIsGoneTakesNoMemory(t *testing.T) {
	for _, drop := range []bool{true, false} {
		r := newRig(t)
		r.put(key("p", 1), "c", 1, "v")
		if drop {
			must(t, dropTree(r.tree, func() error { return nil }))
		} else {
			r.tree.Close()
		}
		if s := r.env.Memory.Stats(); s.Allocations != 0 {
			t.Errorf("dropped %v: %d bytes in %d allocations are left", drop, s.InUse, s.Allocations)
		}
	}
}

// TestAMergeKeepsNoMemtables flushes during a compaction.
func TestAMergeKeepsNoMemtables(t *testing.T) {
	r := newRig(t)
	value := strings.Repeat("v", 200)
	for range 2 {
		for n := range 1000 {
			r.putRow(key("p", n), "c", 1, value)
		}
		r.flush()
	}
	for n := range 1000 {
		r.putRow(key("q", n), "c", 1, value)
	}
	asked := false
	r.yield = func() {
		if asked {
			return
		}
		asked = true
		before := r.env.Memory.Stats().InUse
		r.flush()
		if left := r.env.Memory.Stats().InUse; left >= before {
			t.Errorf("%d bytes are in use after the flush, %d were before", left, before)
		}
	}
	if did, _, err := r.tree.CompactRange(nil, nil); err != nil || !did || !asked {
		t.Fatalf("did %v, asked %v, %v", did, asked, err)
	}
}

// TestAPinKeepsNoMemtables: a checkpoint may take long to copy files.
func TestAPinKeepsNoMemtables(t *testing.T) {
	r := newRig(t)
	for n := range 1000 {
		r.putRow(key("p", n), "c", 1, "v")
	}
	_, release := r.tree.Pin()
	defer release()
	before := r.env.Memory.Stats().InUse
	r.flush()
	if left := r.env.Memory.Stats().InUse; left >= before {
		t.Errorf("%d bytes are in use after the flush, %d were before", left, before)
	}
}
