package bulkio

// This file keeps how far an import is, in a file. Its form is in docs/importing.md.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/cmd/flagstone/statefile"
)

const (
	// stateKind begins the file, and has the version of its form.
	stateKind = "import state 2"
	// identityBytes of an input are part of its identity.
	identityBytes = 64 << 10
)

// Identity tells an input from another file.
type Identity struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`     // bytes, 0 if it is unknown
	Modified int64  `json:"modified"` // nanoseconds since the epoch; 0 if it is no regular file
	Start    string `json:"start"`    // xxhash64 of its first 64 KiB, in hexadecimal
	End      string `json:"end"`      // xxhash64 of its last 64 KiB
}

// Identify finds the identity of a file.
func Identify(name string, in io.ReaderAt, size int64, modified time.Time) (Identity, error) {
	id := Identity{Name: name, Size: size, Modified: modified.UnixNano()}
	if id.Modified == 0 { // of a file of 1970, as some archives have them
		id.Modified = 1
	}
	piece := make([]byte, min(size, identityBytes))
	for at, sum := range map[int64]*string{0: &id.Start, size - int64(len(piece)): &id.End} {
		if _, err := in.ReadAt(piece, at); err != nil && err != io.EOF {
			return Identity{}, err
		}
		*sum = statefile.Checksum(piece)
	}
	return id, nil
}

// Part is a part of an input. Every row of it before At is written or rejected.
type Part struct {
	File   int              `json:"file"` // in State.Inputs
	Begin  int64            `json:"begin"`
	At     rowfile.Position `json:"at"`
	End    int64            `json:"end"`    // an offset; 0: the end of the input, which is not known yet
	Weight int64            `json:"weight"` // about its size in bytes; below 0 if it is unknown
	Done   bool             `json:"done"`
	Share  float64          `json:"share,omitempty"` // about how much of an input without Weight lies before At; 0 if it is unknown
}

// PartsOf divides an input of so many bytes at positions, which ascend from the beginning to the end.
func PartsOf(file int, size int64, cuts []rowfile.Position) (parts []Part) {
	for i := range cuts[1:] {
		parts = append(parts, Part{
			File: file, Begin: cuts[i].Offset, At: cuts[i], End: cuts[i+1].Offset, Weight: size / int64(len(cuts)-1),
		})
	}
	return parts
}

// State is how far an import is.
type State struct {
	Inputs        []Identity `json:"inputs"`
	Target        string     `json:"target"`   // what is written to
	Settings      string     `json:"settings"` // options that decide what a line means
	Version       int64      `json:"version"`  // of cells whose file tells none: when the import began
	Parts         []Part     `json:"parts"`
	Rows          int64      `json:"rows"`           // rows that were written
	Rejected      int64      `json:"rejected"`       // lines that were not
	Rejects       string     `json:"rejects"`        // the file of rejected lines; "": none
	RejectedBytes int64      `json:"rejected_bytes"` // the length of the file of rejected lines

	path    string // "": it is not kept
	resumed bool   // it comes from a file
}

// Done reports whether the import is complete.
func (s *State) Done() bool {
	return !slices.ContainsFunc(s.Parts, func(p Part) bool { return !p.Done })
}

// Places is how many parts are read in turns, at most most: as many as the file with the most parts has. So many readers
// of a Parquet file fit in memory.
func (s *State) Places(most int) int {
	parts := make([]int, len(s.Inputs))
	places := 1
	for i := range s.Parts {
		parts[s.Parts[i].File]++
		places = max(places, parts[s.Parts[i].File])
	}
	return min(places, most)
}

// fraction is the part of the input, by its bytes or by the shares of its parts, that is imported; 0 if that is unknown.
func (s *State) fraction() float64 {
	var before, all float64
	for i := range s.Parts {
		p := &s.Parts[i]
		all += float64(p.Weight)
		switch {
		case p.Weight < 0 && len(s.Parts) == 1:
			return p.Share
		case p.Weight < 0:
			return 0
		case p.Done:
			before += float64(p.Weight)
		case p.End > p.Begin:
			before += float64(p.Weight) * float64(p.At.Offset-p.Begin) / float64(p.End-p.Begin)
		}
	}
	return before / max(all, 1)
}

// Load reads the state of a file; nil if there is none, or with the path "". It refuses that of another import than begin.
func Load(path string, begin *State) (*State, error) {
	if path == "" {
		return nil, nil
	}
	s := new(State)
	err := statefile.Read(path, stateKind, s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range s.Parts {
		if p.File < 0 || p.File >= len(s.Inputs) || p.At.Offset < p.Begin || p.At.Line < 0 || p.Share < 0 || p.Share > 1 {
			return nil, fmt.Errorf("%s: its numbers are out of range; remove it to begin again", path)
		}
	}
	if why := s.differs(begin); why != "" {
		return nil, fmt.Errorf("%s is the state of another import or copy: %s; give another --state, or remove it to begin anew", path, why)
	}
	s.path, s.resumed = path, true
	return s, nil
}

// Keep writes the state to a file from now on; with the path "" nowhere.
func (s *State) Keep(path string) error {
	s.path = path
	return s.Write()
}

// differs says what another import would do differently.
func (s *State) differs(other *State) string {
	switch {
	case s.Target != other.Target:
		return fmt.Sprintf("it writes to %s, and not to %s", s.Target, other.Target)
	case s.Settings != other.Settings:
		return fmt.Sprintf("it has %s, and not %s", s.Settings, other.Settings)
	case s.Rejects != other.Rejects:
		return fmt.Sprintf("it has --rejects %q, and not %q", s.Rejects, other.Rejects)
	case len(s.Inputs) != len(other.Inputs):
		return fmt.Sprintf("it has %d files, and not %d", len(s.Inputs), len(other.Inputs))
	}
	for i := range s.Inputs {
		a, b := s.Inputs[i], other.Inputs[i]
		switch {
		case a.Name != b.Name:
			return fmt.Sprintf("it reads %s, and not %s", a.Name, b.Name)
		case a.Size != b.Size:
			return fmt.Sprintf("%s had %d bytes, and has %d now", a.Name, a.Size, b.Size)
		case a.Start != b.Start:
			return fmt.Sprintf("%s begins differently than before", a.Name)
		case a.End != b.End:
			return fmt.Sprintf("%s ends differently than before", a.Name)
		case a.Modified != b.Modified:
			return fmt.Sprintf("%s was modified meanwhile", a.Name)
		}
	}
	return ""
}

// Write replaces the file of Keep as a whole, durably.
func (s *State) Write() error {
	if s.path == "" {
		return nil
	}
	return statefile.Write(s.path, stateKind, s)
}
