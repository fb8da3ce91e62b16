package workload

// Figure is one measured figure: what a phase of a workload did and cost. Times
// of single operations are in microseconds, sizes in bytes.
type Figure struct {
	// Name is the workload's, and the phase's where it has several:
	// "getrow-all-g1", "versions10/update".
	Name string `json:"name"`
	// Unit is what is counted in Ops: rows, calls, columns.
	Unit    string  `json:"unit"`
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"`
	// Settle is how long the store went on working after the last write, and
	// RateSettled the rate with that time counted; 0 where nothing was written.
	Settle      float64 `json:"settle,omitempty"`
	RateSettled float64 `json:"rate_settled,omitempty"`
	// Written is how long it took after that until the device had all of it: logs and tables
	// that an engine never syncs are in the page cache when it has settled.
	Written float64 `json:"written,omitempty"`

	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`

	// Allocs and AllocBytes per operation, of the Go heap (RocksDB's own is
	// not seen), the workload's included, which has none in its loops.
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"alloc_bytes"`
	// CPU is the processor time of all operations and of the settling after them, checks
	// of answers during operations included.
	CPU float64 `json:"cpu_seconds"`

	WriteBytes int64 `json:"write_bytes"` // given to the device, settling included
	ReadBytes  int64 `json:"read_bytes"`  // fetched from the device
	Space      int64 `json:"space"`       // of the store's directory afterwards
	LogSpace   int64 `json:"log_space"`   // of which the log takes so much
	UserBytes  int64 `json:"user_bytes,omitempty"`

	// Peaks of the process so far: resident memory, and its two parts; pages of
	// mapped files are the kernel's to take back.
	PeakRSS  int64 `json:"peak_rss"`
	PeakAnon int64 `json:"peak_anon"`
	PeakFile int64 `json:"peak_file"`

	// Timeline is how much was done in each second, of workloads that run long.
	Timeline []int64 `json:"timeline,omitempty"`

	// Stopped by the time limit: the rate is that so far.
	Stopped bool `json:"stopped,omitempty"`
	// Extra are figures that only this workload has, see its description.
	Extra map[string]float64 `json:"extra,omitempty"`
}

// DeadUnits is the unit of reclaiming, which is judged by the bytes it writes and
// gives back, not as a rate.
const DeadUnits = "dead units"

// CPUPerOp is the processor time of an operation in microseconds.
func (f *Figure) CPUPerOp() float64 { return 1e6 * f.CPU / float64(max(f.Ops, 1)) }

// RateWritten is RateSettled with the time counted until the device has all of it; 0 where
// the headline is without settling.
func (f *Figure) RateWritten() float64 {
	if f.Settle == 0 {
		return 0
	}
	return float64(f.Ops) / (f.Seconds + f.Settle + f.Written)
}

// Headline is the figure that engines are compared by: with the settle time
// where something was written.
func (f *Figure) Headline() float64 {
	if f.RateSettled > 0 {
		return f.RateSettled
	}
	return f.Rate
}
