package runner

// This file starts child processes and listens to them.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// ChildArgument makes the programme a child: it reads its parameters from
// standard input, and writes figures to file descriptor 3.
const ChildArgument = "child"

// Child is the whole life of a child process.
func Child(engines []rowstore.Engine) error {
	var p workload.Params
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("runner: the child's parameters: %w", err)
	}
	for _, e := range engines {
		if e.Name == p.Engine {
			figures := os.NewFile(3, "figures")
			if figures == nil {
				return fmt.Errorf("runner: a child is started by its parent")
			}
			return workload.Run(p, e, figures, os.Stderr)
		}
	}
	return fmt.Errorf("runner: there is no engine %q in this build", p.Engine)
}

// lastLines keeps the last lines of what is written to it, and passes each on.
type lastLines struct {
	mu    sync.Mutex
	lines []string
	rest  []byte
	each  func(string)
}

const keptLines = 20

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		text := strings.TrimSpace(string(line))
		l.rest = append([]byte(nil), rest...)
		l.lines = append(l.lines, text)
		// A panic is told at the beginning of a long trace: keep that, drop
		// what follows the first lines.
		if len(l.lines) > keptLines && !strings.HasPrefix(l.lines[0], "panic") && !strings.HasPrefix(l.lines[0], "fatal") {
			l.lines = l.lines[1:]
		} else if len(l.lines) > 2*keptLines {
			l.lines = l.lines[:2*keptLines]
		}
		if l.each != nil {
			l.each(text)
		}
	}
}

// runChild runs a workload in a process of its own and returns what came of it.
// It is killed when the context ends or the limit has passed.
func runChild(ctx context.Context, p workload.Params, limit time.Duration, phase func(string)) (r Record) {
	r = Record{Round: p.Round, Workload: p.Workload, Engine: p.Engine, Encoding: p.Encoding, Tuning: p.Tuning, Cgroup: p.Cgroup != ""}
	start := time.Now()
	defer func() { r.Seconds = time.Since(start).Seconds() }()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		r.Error = err.Error()
		return r
	}
	params, err := json.Marshal(p)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	read, write, err := os.Pipe()
	if err != nil {
		r.Error = err.Error()
		return r
	}
	defer read.Close()

	output := &lastLines{each: phase}
	cmd := exec.CommandContext(limited, self, ChildArgument)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(params), output, output
	cmd.ExtraFiles = []*os.File{write}
	// The child dies with the thread that started it, so with this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	write.Close()
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Figures, err = readFigures(read)
	if waited := cmd.Wait(); waited != nil {
		err = waited
	}
	if err != nil {
		r.Error, r.Output = err.Error(), output.lines
		r.Killed = limited.Err() != nil && ctx.Err() == nil
	}
	return r
}

// readFigures reads figures until the child closes its end.
func readFigures(from io.Reader) ([]workload.Figure, error) {
	var figures []workload.Figure
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var f workload.Figure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return figures, fmt.Errorf("runner: a child's figure: %w", err)
		}
		figures = append(figures, f)
	}
	return figures, lines.Err()
}
