package bulkio

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Reject is a line of the file of rejected lines.
type Reject struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text,omitempty"` // the record, if it could not be read; cut at 64 KiB
}

// maxText is how much of a record is kept.
const maxText = 64 << 10

// Rejects keeps lines that cannot be imported, up to a number of them. Its methods are safe for concurrent use.
type Rejects struct {
	mu     sync.Mutex
	inputs []string
	file   *os.File // nil: none
	out    *bufio.Writer
	most   int64 // below 0: any number
	count  int64
	bytes  int64
	rows   int64 // since TakeRows: of the lines, those that the target refused
	err    error // of the line that was too much
}

// CheckFresh refuses a file of rejected lines, for an import that begins, if it holds something already.
func CheckFresh(name string) error {
	if st, err := os.Stat(name); err == nil && st.Size() > 0 {
		return fmt.Errorf("%s exists and is not empty; give another file for rejected lines", name)
	}
	return nil
}

// NewRejects begins to keep rejected lines of inputs in the file that the state names: in a new or empty one or, if the state
// is of an import that goes on, behind those that the state knows of. Without a name they are counted alone.
func NewRejects(inputs []string, most int64, s *State) (*Rejects, error) {
	r := &Rejects{inputs: inputs, most: most, count: s.Rejected, bytes: s.RejectedBytes}
	name := s.Rejects
	if name == "" {
		return r, nil
	}
	if !s.resumed {
		if err := CheckFresh(name); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.Size() < r.bytes:
		err = fmt.Errorf("%s has fewer bytes than the import had written to it", name)
	default:
		err = f.Truncate(r.bytes)
	}
	if err == nil {
		_, err = f.Seek(r.bytes, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.file, r.out = f, bufio.NewWriter(f)
	return r, nil
}

// Refuse keeps a line. It returns an error that names it if that is one too much.
func (r *Rejects) Refuse(at Place, why error, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if r.most >= 0 && r.count >= r.most {
		r.err = fmt.Errorf("%s:%d: %w", r.inputs[at.File], at.Line, why)
		if r.most > 0 {
			r.err = fmt.Errorf("%w (%d lines were rejected before it)", r.err, r.count)
		}
		return r.err
	}
	r.count++
	if r.file == nil {
		return nil
	}
	line, err := json.Marshal(Reject{r.inputs[at.File], at.Line, why.Error(), text[:min(len(text), maxText)]})
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.bytes += int64(len(line)) + 1
	return err
}

// RefuseRow is Refuse for a row that was given to the target.
func (r *Rejects) RefuseRow(at Place, why error) error {
	err := r.Refuse(at, why, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows++
	return err
}

// TakeRows returns how many rows were refused since it was called last.
func (r *Rejects) TakeRows() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.rows = 0 }()
	return r.rows
}

// Sync makes durable what was kept, and returns the number of lines and their bytes in the file.
func (r *Rejects) Sync() (count, bytes int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		err = cmp.Or(r.out.Flush(), r.file.Sync())
	}
	return r.count, r.bytes, err
}

// Close closes the file.
func (r *Rejects) Close() error {
	if r.file == nil {
		return nil
	}
	_, _, err := r.Sync()
	return errors.Join(err, r.file.Close())
}
