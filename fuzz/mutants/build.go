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
	programs := map[program][]string{}
	for _, m := range mutants {
		programs[m.test.program] = append(programs[m.test.program], m.test.run)
	}
	for p, runs := range programs {
		file, err := b.build(ctx, p, nil)
		if err != nil {
			return err
		}
		slices.Sort(runs)
		for _, run := range slices.Compact(runs) { // by itself, as beside a mistake
			found, out, err := b.fails(ctx, test{p, run}, file)
			if err != nil {
				return err
			}
			if found {
				return fmt.Errorf("%s %s fails where nothing is planted:\n%s", p.pkg, run, out)
			}
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// hunt builds a mutant and runs its test so often. how is the output of the last run.
func (b *builder) hunt(ctx context.Context, m *mutant, count int) (killed int, how string, err error) {
	file, err := b.build(ctx, m.test.program, m.sources)
	if err != nil {
		return 0, "", err
	}
	for range count {
		found, out, err := b.fails(ctx, m.test, file)
		if err != nil {
			return 0, "", err
		}
		if found {
			killed++
		}
		how = out
	}
	return killed, how, os.Remove(file)
}

// build builds the test program of a package with some sources replaced.
func (b *builder) build(ctx context.Context, p program, sources map[string]string) (file string, err error) {
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
	file = filepath.Join(dir, "test.program")
	// Without inlining, the packages above a changed one need not be compiled again. Most of the rest is linking, which
	// the tables of a debugger prolong.
	args := []string{"test", "-c", "-o", file, "-overlay", listName, "-vet=off", "-ldflags=-s -w", "-gcflags=" + b.module + "/...=-l"}
	if p.race {
		args = append(args, "-race")
	}
	b.quiet.RLock()
	defer b.quiet.RUnlock()
	cmd := exec.CommandContext(ctx, "go", append(args, p.pkg)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return file, nil
}

// fails runs a test and reports whether it failed. That no test ran is an error.
func (b *builder) fails(ctx context.Context, t test, file string) (failed bool, out string, err error) {
	b.quiet.Lock()
	defer b.quiet.Unlock()
	cmd := exec.CommandContext(ctx, file, "-test.v", "-test.short", "-test.timeout", limit, "-test.run", t.run)
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
