package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// Settings are what has to be equal for records to stand in one file.
type Settings struct {
	Rows   int `json:"rows"`
	Keys   int `json:"keys"`
	Beyond int `json:"beyond"`
	// Values of rows; "" in records from before there was a choice: half zeros.
	Values       workload.Values `json:"values,omitempty"`
	Unmerged     bool            `json:"unmerged,omitempty"` // data sets are as settling left them
	Memtable     int64           `json:"memtable"`
	Cache        int64           `json:"cache"`
	MemoryLimit  int64           `json:"memory_limit"`
	ReadSeconds  float64         `json:"read_seconds"`
	LimitSeconds float64         `json:"limit_seconds"`
	// Binary is a hash of the programme, engines and all.
	Binary string `json:"binary"`
}

// EngineInfo is what a report says about an engine.
type EngineInfo struct {
	Name     string  `json:"name"`
	Version  string  `json:"version"`
	LSM      bool    `json:"lsm"`
	Factor   float64 `json:"factor"`
	Unsynced string  `json:"unsynced"`
	// Build of a library that is not of the Go module; Tunings and Encodings that there are.
	Build     string              `json:"build,omitempty"`
	Tunings   []rowstore.Tuning   `json:"tunings,omitempty"`
	Encodings []rowstore.Encoding `json:"encodings,omitempty"`
}

// Header is the first line of a file of records.
type Header struct {
	Settings Settings     `json:"settings"`
	Engines  []EngineInfo `json:"engines"`
	Machine  string       `json:"machine"`
	Started  string       `json:"started"`
	Revision string       `json:"revision"`
}

// Record is one run of a workload on a variant in a child process: what it
// measured, or how it failed.
type Record struct {
	Round    int               `json:"round"`
	Workload string            `json:"workload"`
	Shape    workload.Shape    `json:"shape"`
	Variant  string            `json:"variant"`
	Engine   string            `json:"engine"`
	Encoding rowstore.Encoding `json:"encoding"`
	Tuning   string            `json:"tuning,omitempty"`
	Values   workload.Values   `json:"values,omitempty"`
	Figures  []workload.Figure `json:"figures"`
	// Killed by the harness's time limit; Error and Output say how else it ended.
	Killed  bool     `json:"killed,omitempty"`
	Error   string   `json:"error,omitempty"`
	Output  []string `json:"output,omitempty"`
	Seconds float64  `json:"seconds"`
	Cgroup  bool     `json:"cgroup,omitempty"`
}

// key tells runs apart.
type key struct {
	round             int
	workload, variant string
}

func (r *Record) key() key { return key{r.Round, r.Workload, r.Variant} }

// recordsName is the file of records in a directory of results.
const recordsName = "results.jsonl"

// Read reads the records of a directory of results.
func Read(dir string) (Header, []Record, error) { return readFile(filepath.Join(dir, recordsName)) }

func readFile(path string) (Header, []Record, error) {
	var header Header
	f, err := os.Open(path)
	if err != nil {
		return header, nil, err
	}
	defer f.Close()
	var records []Record
	lines := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return header, records, nil // an unfinished last line was interrupted
		}
		if n == 1 {
			err = json.Unmarshal(line, &header)
		} else {
			var r Record
			err = json.Unmarshal(line, &r)
			records = append(records, r)
		}
		if err != nil {
			return header, nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
}

// journal appends records to a file.
type journal struct {
	file  *os.File
	done  map[key]bool
	first map[key][]workload.Figure // of the first round
}

// openJournal opens the records of dir to go on with them, or begins them. It
// refuses records that were made with other settings, unless fresh, which
// forgets them.
func openJournal(dir string, header Header, fresh bool) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, recordsName)
	if fresh {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	j := &journal{done: map[key]bool{}, first: map[key][]workload.Figure{}}
	old, records, err := Read(dir)
	begun := err == nil && old.Settings != (Settings{})
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case begun && old.Settings != header.Settings:
		return nil, fmt.Errorf("%s holds records of other settings (or another build): choose another -out, or -fresh to begin anew\n  there: %+v\n  now:   %+v",
			path, old.Settings, header.Settings)
	}
	for _, r := range records {
		j.note(&r)
	}
	// The file is written anew, so that an unfinished line does not stay.
	if j.file, err = os.Create(path); err != nil {
		return nil, err
	}
	if begun {
		header = old
	}
	err = j.write(header)
	for _, r := range records {
		err = errors.Join(err, j.write(r))
	}
	return j, err
}

func (j *journal) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

func (j *journal) note(r *Record) {
	j.done[r.key()] = true
	if r.Round == 1 {
		j.first[r.key()] = r.Figures
	}
}

func (j *journal) add(r Record) error {
	j.note(&r)
	return j.write(r)
}
