// Mutants plants known mistakes in the engine, one at a time, and makes sure that the tests
// find each: a test that never failed proves nothing. It changes no file of the
// repository: the tests are built with an overlay.
//
//	go run ./fuzz/mutants                        # every mutant once
//	go run ./fuzz/mutants -count 10 -run latch   # some of them, each ten times
//
// A mutant is a file in fuzz/mutants/planted, see parse. It says what text of which source
// file gives way to what, and which test has to fail then. The same test has to pass where
// nothing is planted. A mutant whose text is not in the source exactly once is an error:
// a change of the source has to bring the mutant up to date.
//
// The exit status is 0 if every mutant was found every time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	pattern := flag.String("run", "", "only mutants whose name matches this expression")
	count := flag.Int("count", 1, "how often each mutant is to be found")
	verbose := flag.Bool("v", false, "show how each test failed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := run(ctx, *pattern, *count, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survived > 0 {
		fmt.Printf("%d mutants survived\n", survived)
		os.Exit(1)
	}
}

// run tests the mutants whose names match, and returns how many were not found.
func run(ctx context.Context, pattern string, count int, verbose bool) (survived int, err error) {
	names, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return 0, fmt.Errorf("find the repository: %w", err)
	}
	module, root, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	mutants, err := load(root, names)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := builder{module: module, root: root, dir: dir}
	if err := b.checkSound(ctx, mutants); err != nil {
		return 0, err
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	next := make(chan *mutant)
	for range atOnce {
		wg.Go(func() {
			for m := range next {
				found, err := b.report(ctx, m, count, verbose)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
				} else if !found {
					survived++
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		next <- m
	}
	close(next)
	wg.Wait()
	return survived, errors.Join(errs...)
}

// atOnce is how many mutants are built at the same time: most of a build is done by one processor.
const atOnce = 2

// report hunts a mutant and prints how that went.
func (b *builder) report(ctx context.Context, m *mutant, count int, verbose bool) (found bool, err error) {
	began := time.Now()
	killed, how, err := b.hunt(ctx, m, count)
	if err != nil {
		return false, err
	}
	word := "killed"
	if killed < count {
		word = "SURVIVED"
	}
	line := fmt.Sprintf("%-9s %d/%d %5.1fs  %-34s %s\n", word, killed, count, time.Since(began).Seconds(), m.name, m.what)
	if verbose {
		line += how + "\n"
	}
	fmt.Print(line)
	return killed == count, nil
}

// load reads the mutants and applies each to the present source, in memory.
func load(root string, names *regexp.Regexp) (mutants []*mutant, err error) {
	files, err := filepath.Glob(filepath.Join(root, "fuzz/mutants/planted/*.txt"))
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if !names.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, string(text))
		if err == nil {
			err = m.apply(root)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
		mutants = append(mutants, m)
	}
	if len(mutants) == 0 {
		problems = append(problems, fmt.Errorf("no mutant matches %q", names))
	}
	return mutants, errors.Join(problems...)
}
