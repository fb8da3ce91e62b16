package workload

// This file is the child process's side: one workload on one store.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strconv"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Run runs the workload and writes its figures, as JSON lines, to figures.
func Run(p Params, engine rowstore.Engine, figures, progress io.Writer) (err error) {
	spec, ok := Find(p.Workload)
	if !ok {
		return fmt.Errorf("workload: there is no %q", p.Workload)
	}
	if err := bound(&p, &spec); err != nil {
		return err
	}
	e := &env{
		Params: p, spec: &spec, engine: engine, memory: watchMemory(),
		figures: json.NewEncoder(figures), progress: progress,
	}
	defer e.memory.close()
	e.clock.Store(baseVersion)
	if err := e.warmFiles(); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if _, err := e.team(spec.Threads); err != nil {
		return err
	}
	if spec.Set != "" && !spec.Load {
		// What opening left to do is not the workload's.
		if err := e.settled(); err != nil {
			return err
		}
	}
	if spec.cold && !spec.Load {
		// What opening and settling brought into the page cache again goes too.
		if err := rowstore.DropPageCache(e.Dir); err != nil {
			return err
		}
	}
	if p.CPUProfile != "" {
		f, err := os.Create(p.CPUProfile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	return spec.run(e)
}

// warmFiles brings the files into the page cache, or out of it.
func (e *env) warmFiles() error {
	switch {
	case e.spec.Load || e.spec.Set == "":
		return nil
	case e.spec.cold:
		return rowstore.DropPageCache(e.Dir)
	default:
		return readFiles(e.Dir)
	}
}

// bound sets the process's limits: the cgroup that the parent made, and the Go
// heap below it. Data sets are loaded without limit.
func bound(p *Params, spec *Spec) error {
	if spec.Load || !spec.Bounded() {
		return nil
	}
	debug.SetMemoryLimit(p.MemoryLimit * 6 / 10)
	if p.Cgroup == "" {
		return nil
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	return os.WriteFile(filepath.Join(p.Cgroup, "cgroup.procs"), pid, 0)
}
