package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// limit ends a test that hangs, which counts as a failure. The slowest takes seconds, on a machine that
// does nothing else.
const limit = "5m"

// builder builds test programs and runs them.
type builder struct {
	module, root, dir string

	// quiet is held while a test runs: beside a build it could fail because the machine is busy. Builds share it.
	quiet sync.RWMutex
}

// checkSound runs the tests of all mutants on the source as it is: they have to pass.
func (b *builder) checkSound(ctx context.Context, mutants []*mutant) error {
	var done []test
	for _, m := range mutants {
		if slices.Contains(done, m.test) {
			continue
		}
		done = append(done, m.test)
		program, err := b.build(ctx, m.test, nil)
		if err != nil {
			return err
		}
		found, out, err := b.fails(ctx, m.test, program)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%s %s fails where nothing is planted:\n%s", m.test.pkg, m.test.run, out)
		}
	}
	return nil
}

// hunt builds a mutant and runs its test so often. how is the output of the last run.
func (b *builder) hunt(ctx context.Context, m *mutant, count int) (killed int, how string, err error) {
	program, err := b.build(ctx, m.test, m.sources)
	if err != nil {
		return 0, "", err
	}
	for range count {
		found, out, err := b.fails(ctx, m.test, program)
		if err != nil {
			return 0, "", err
		}
		if found {
			killed++
		}
		how = out
	}
	return killed, how, os.Remove(program)
}

// build builds the test program of a package with some sources replaced.
func (b *builder) build(ctx context.Context, t test, sources map[string]string) (program string, err error) {
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range sources {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(b.root, name)] = changed
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	listName := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(listName, list, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "test.program")
	// Without inlining, the packages above a changed one need not be compiled again.
	args := []string{"test", "-c", "-o", program, "-overlay", listName, "-vet=off", "-gcflags=" + b.module + "/...=-l"}
	if t.race {
		args = append(args, "-race")
	}
	b.quiet.RLock()
	defer b.quiet.RUnlock()
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return program, nil
}

// fails runs a test and reports whether it failed. That no test ran is an error.
func (b *builder) fails(ctx context.Context, t test, program string) (failed bool, out string, err error) {
	b.quiet.Lock()
	defer b.quiet.Unlock()
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.short", "-test.timeout", limit, "-test.run", t.run)
	cmd.Dir = filepath.Join(b.root, t.pkg)
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, "", ctx.Err()
	}
	if !bytes.Contains(text, []byte("=== RUN")) {
		return false, "", fmt.Errorf("no test %s in %s:\n%s", t.run, t.pkg, text)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return false, "", err
	}
	return err != nil, string(text), nil
}
