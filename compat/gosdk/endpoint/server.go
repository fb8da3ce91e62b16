package endpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"
)

const (
	// readyLimit is how long a server may recover before it is ready.
	readyLimit = 30 * time.Second
	// stopLimit is how long a server may take to stop when it is told to.
	stopLimit = 10 * time.Second
	// logKept is how much of a server's output is kept for failures.
	logKept = 64 << 10
)

// readyLine is what a server prints when it can be asked.
var readyLine = regexp.MustCompile(`(?m)^flagstone: serving .* on (http://\S+)$`)

// ErrEnded says that a server ended before it was ready.
var ErrEnded = errors.New("the server ended")

// Server is a process that serves a store.
type Server struct {
	// URL is the endpoint, known once Ready has returned without an error.
	URL string

	cmd   *exec.Cmd
	out   output
	ended chan struct{} // closed when the process is gone
	err   error         // of the process; read it after ended
}

// output keeps the end of what a process prints, and finds the ready line.
type output struct {
	mu    sync.Mutex
	text  []byte
	ready chan string // capacity 1
	found bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if !o.found {
		if m := readyLine.FindSubmatch(o.text); m != nil {
			o.found = true
			o.ready <- string(m[1])
		}
	}
	if surplus := len(o.text) - logKept; surplus > 0 {
		o.text = append(o.text[:0], o.text[surplus:]...)
	}
	return len(p), nil
}

// Launch starts a server over dir, on a free port of this machine, and does
// not wait. It gets the access key of this package.
func (c *Command) Launch(dir string, flags ...string) (*Server, error) {
	return c.LaunchEnv([]string{envKeyID + "=" + KeyID, envKeySecret + "=" + KeySecret}, dir, flags...)
}

// LaunchEnv is Launch with the NAME=value pairs of env instead of the access
// key of this package.
func (c *Command) LaunchEnv(env []string, dir string, flags ...string) (*Server, error) {
	args := append([]string{"serve", "--addr", "127.0.0.1:0", "--dir", dir, "--instance", Instance}, flags...)
	s := &Server{cmd: exec.Command(c.path, args...), ended: make(chan struct{})}
	s.out.ready = make(chan string, 1)
	s.cmd.Env = append(withoutKey(os.Environ()), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := start(s.cmd); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// Start is Launch and Ready.
func (c *Command) Start(dir string, flags ...string) (*Server, error) {
	s, err := c.Launch(dir, flags...)
	if err != nil {
		return nil, err
	}
	return s, s.Ready()
}

// Ready waits until the server is ready. If it is not within 30 seconds, it is
// killed.
func (s *Server) Ready() error {
	select {
	case s.URL = <-s.out.ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("%w: %v\n%s", ErrEnded, s.err, s.Log())
	case <-time.After(readyLimit):
		s.Kill()
		return fmt.Errorf("the server was not ready after %v\n%s", readyLimit, s.Log())
	}
}

// Kill ends the process at once (kill -9) and waits until it is gone. It does
// nothing if the process is gone already.
func (s *Server) Kill() {
	// It may have ended by itself; Wait says how, nobody needs to know here.
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Terminate asks the process to end (SIGTERM) and does not wait.
func (s *Server) Terminate() error { return s.cmd.Process.Signal(syscall.SIGTERM) }

// Stop asks the process to end and waits for it. It is an error if that takes
// more than 10 seconds or the status is not 0.
func (s *Server) Stop() error {
	if err := s.Terminate(); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		s.Kill()
		return fmt.Errorf("the server did not stop within %v\n%s", stopLimit, s.Log())
	}
	if s.err != nil {
		return fmt.Errorf("the server stopped with %w\n%s", s.err, s.Log())
	}
	return nil
}

// Running reports whether the process still runs.
func (s *Server) Running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// WasReady reports whether the process has ever said that it was ready.
func (s *Server) WasReady() bool {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.out.found
}

// Log returns the end of what the process printed.
func (s *Server) Log() string {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return string(s.out.text)
}
