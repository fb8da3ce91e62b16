// Package endpoint builds the flagstone command and runs it as a process, for
// tests that look at the server from outside, as its users do.
//
//	command.go        builds the command, runs it to its end
//	server.go         a serving process: start, readiness, stop, kill
//	start_linux.go    makes sure that no server outlives the tests
package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The access key that servers get through their environment, and the instance
// they serve.
const (
	KeyID     = "compat-key"
	KeySecret = "compat-secret-0123456789"
	Instance  = "demo"
)

const (
	envKeyID     = "FLAGSTONE_ACCESS_KEY_ID"
	envKeySecret = "FLAGSTONE_ACCESS_KEY_SECRET"

	modulePath = "github.com/flagstone-db/flagstone"
)

// Command is the flagstone command, built.
type Command struct{ path string }

// Build builds the command of the repository that holds the working directory.
// Remove deletes it again.
func Build() (*Command, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flagstone-command-")
	if err != nil {
		return nil, err
	}
	c := &Command{path: filepath.Join(dir, "flagstone")}
	if runtime.GOOS == "windows" {
		c.path += ".exe"
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", c.path, "./cmd/flagstone")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		c.Remove()
		return nil, fmt.Errorf("build the command in %s: %w\n%s", root, err, out)
	}
	return c, nil
}

// Path is the file of the command.
func (c *Command) Path() string { return c.path }

// Remove deletes the built command.
func (c *Command) Remove() error { return os.RemoveAll(filepath.Dir(c.path)) }

// repository returns the directory of the root module.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module "+modulePath+"\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no directory above %s holds module %s", start, modulePath)
		}
	}
}

// Result is how a command ended.
type Result struct {
	Status         int
	Stdout, Stderr string
}

// Run runs the command to its end, which must come within 30 seconds. env
// holds NAME=value pairs beyond the access key, which is not set for it.
func (c *Command) Run(env []string, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Env = append(withoutKey(os.Environ()), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{Status: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		err = nil
	}
	return r, err
}

// withoutKey drops the access key of whoever runs the tests.
func withoutKey(env []string) (out []string) {
	for _, pair := range env {
		if !strings.HasPrefix(pair, envKeyID+"=") && !strings.HasPrefix(pair, envKeySecret+"=") {
			out = append(out, pair)
		}
	}
	return out
}
