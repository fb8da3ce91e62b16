package partition

import "github.com/flagstone-db/flagstone/manifest"

// Held says that a tree does not serve all requests.
type Held struct {
	Service manifest.Service // Frozen or Detached
	Reason  string
}

// Held is what the tree does not serve, and nil if it serves all. It changes only between two writes, and
// never to or from manifest.Detached.
func (t *Tree) Held() *Held { return t.held.Load() }

// Hold replaces what Held returns. REQUIRES: no write is ordered meanwhile.
func (t *Tree) Hold(h *Held) { t.held.Store(h) }

// NoteService records in the manifest what the tree serves: manifest.Serving or Frozen. REQUIRES: the tree
// is not replaced meanwhile.
func (t *Tree) NoteService(service manifest.Service, reason string) error {
	e := manifest.Edit{Services: []manifest.ServiceChange{{Partition: t.id, Service: service, Reason: reason}}}
	return commit(&e, Kept{}, newOutput(t.env, false), install{Tree: t})
}

// Since is the least sequence number of a view that shows the tree's rows as they were: 0 unless they came
// from another store since the tree's store was opened.
func (t *Tree) Since() uint64 { return t.since }

// CameAt sets what Since returns. REQUIRES: the tree is not used yet.
func (t *Tree) CameAt(seq uint64) { t.since = seq }

// Shows reports whether a view at a sequence number shows the tree's rows.
func (t *Tree) Shows(seq uint64) bool {
	h := t.held.Load()
	return (h == nil || h.Service != manifest.Detached) && seq >= t.since
}

// Leave lets go of the files of a tree that was replaced. Those that the state does not name are deleted
// when no reader uses them. REQUIRES: no flush or compaction runs.
func (t *Tree) Leave(s *manifest.State) {
	t.state.Load().version.markObsolete(s)
	t.Close()
}
