package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/mattn/go-shellwords"
	"github.com/peterh/liner"
	"github.com/posener/complete"
	"golang.org/x/term"

	"github.com/flagstone-db/flagstone/instances/admin"
)

type shellCommand struct{ inInstance }

// Help is the long help of the command.
func (shellCommand) Help() string {
	return `Lines are command lines of flagstone without its name: 'get orders customer-500 17'. --dir and --instance are those of the shell if a line does not have them; 'use INSTANCE' changes the instance. 'help' lists the commands, 'exit' ends. The tab key completes, and earlier lines are kept in a file that only its owner can read. From a pipe, lines are executed until one fails; lines that begin with # are none.

  flagstone shell
  flagstone shell < lines.txt`
}

// Run executes lines.
func (s *shellCommand) Run(ctx context.Context, c *output) error {
	if f, ok := c.in.(*os.File); !ok || !isTerminal(f) {
		return s.script(ctx, c)
	}
	// An interrupt ends a command, not the shell.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
	defer stop()
	lines := liner.NewLiner()
	defer lines.Close()
	defer context.AfterFunc(ctx, func() { lines.Close(); os.Exit(0) })() // the terminal is as it was
	lines.SetCtrlCAborts(true)
	lines.SetWordCompleter(completer{s, ctx}.complete)
	history, err := openHistory(lines)
	if err != nil {
		fmt.Fprintf(c.err, "flagstone: earlier lines are not kept: %v\n", err)
	}
	for {
		line, err := lines.Prompt("flagstone/" + s.Instance + "> ")
		switch {
		case errors.Is(err, liner.ErrPromptAborted):
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(c.out)
			return history.Close()
		case err != nil:
			return errors.Join(err, history.Close())
		}
		if strings.TrimSpace(line) != "" {
			lines.AppendHistory(line)
			fmt.Fprintln(history, line)
		}
		if _, end := s.execute(ctx, c, line); end {
			return history.Close()
		}
	}
}

// openHistory reads the lines of earlier shells, and opens their file for more. Only its owner can read it. Without
// a file, lines go nowhere.
func openHistory(lines *liner.State) (io.WriteCloser, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return discarded{io.Discard}, err
	}
	name := filepath.Join(dir, "flagstone", "history")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return discarded{io.Discard}, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return discarded{io.Discard}, err
	}
	if _, err := lines.ReadHistory(f); err != nil {
		return discarded{io.Discard}, errors.Join(err, f.Close())
	}
	return f, nil
}

type discarded struct{ io.Writer }

func (discarded) Close() error { return nil }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// script executes lines from a pipe.
func (s *shellCommand) script(ctx context.Context, c *output) error {
	const longest = 16 << 20 // a row of 4 MiB, in hexadecimal
	lines := bufio.NewScanner(c.in)
	lines.Buffer(nil, longest)
	n := 0
	for lines.Scan() && ctx.Err() == nil {
		n++
		status, end := s.execute(ctx, c, lines.Text())
		if end {
			return nil
		}
		if status != 0 {
			return fmt.Errorf("line %d failed", n)
		}
	}
	return errors.Join(lines.Err(), ctx.Err())
}

// execute executes a line. It returns the exit status of its command, and whether the shell ends.
func (s *shellCommand) execute(ctx context.Context, c *output, line string) (status int, end bool) {
	if strings.HasPrefix(strings.TrimSpace(line), "#") {
		return 0, false
	}
	parser := shellwords.NewParser()
	words, err := parser.Parse(line)
	if err != nil {
		err = errors.New("a quote is not closed")
	} else if parser.Position >= 0 {
		err = errors.New("; & | < > have no meaning here; put values that have them between quotes")
	}
	if err != nil {
		fmt.Fprintf(c.err, "flagstone: %v\n", err)
		return 2, false
	}
	if len(words) == 0 {
		return 0, false
	}
	switch words[0] {
	case "exit", "quit":
		return 0, true
	case "help":
		words = append(words[1:], "--help")
	case "use":
		if len(words) != 2 {
			fmt.Fprintln(c.err, "flagstone: use needs the name of an instance")
			return 2, false
		}
		if err := s.use(ctx, words[1]); err != nil {
			fmt.Fprintf(c.err, "flagstone: %s\n", unnamed(oneLine(err)))
			return 1, false
		}
		return 0, false
	case "serve", "shell":
		fmt.Fprintf(c.err, "flagstone: %s is for the shell of the system\n", words[0])
		return 2, false
	}
	interrupted, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defaults := kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		switch flag.Name {
		case "dir":
			return s.Dir, nil
		case "instance":
			return s.Instance, nil
		}
		return nil, nil
	})
	return run(interrupted, words, c, kong.Resolvers(defaults)), false
}

// use changes the instance, if there is such a one.
func (s *shellCommand) use(ctx context.Context, name string) error {
	return s.with(ctx, toRead, func(home admin.Admin) error {
		list, err := home.List(ctx)
		if err != nil {
			return err
		}
		var names []string
		for _, in := range list {
			if strings.EqualFold(in.Name, name) {
				s.Instance = in.Name
				return nil
			}
			names = append(names, in.Name)
		}
		return fmt.Errorf("there is no instance %s; there are: %s", name, strings.Join(names, ", "))
	})
}

// completer completes commands, flags, and names of tables if a server runs.
type completer struct {
	shell *shellCommand
	ctx   context.Context
}

// complete returns what may stand for the word at a place of a line, and what is before and behind it.
func (k completer) complete(line string, at int) (head string, completions []string, tail string) {
	head, tail = string([]rune(line)[:at]), string([]rune(line)[at:])
	last := head[strings.LastIndex(head, " ")+1:]
	head = strings.TrimSuffix(head, last)
	for _, candidate := range k.candidates(strings.Fields(head), last) {
		if strings.HasPrefix(candidate, last) {
			completions = append(completions, candidate+" ")
		}
	}
	return head, completions, tail
}

func (k completer) candidates(words []string, last string) (names []string) {
	parser, err := newParser(k.ctx, new(commands), &output{out: io.Discard, err: io.Discard})
	if err != nil {
		return nil
	}
	command, err := kongcompletion.Command(parser, predictTables(k.ctx, k.shell.Dir, k.shell.Instance))
	if err != nil {
		return nil
	}
	asked := complete.Args{All: append(slices.Clone(words), last), Completed: words, Last: last}
	if len(words) > 0 {
		asked.LastCompleted = words[len(words)-1]
	} else {
		names = []string{"use", "help", "exit"}
	}
	names = append(names, command.Predict(asked)...)
	slices.Sort(names)
	return names
}

// predictTables completes arguments with predictor:"table" by the names of an instance's tables, if a server runs.
func predictTables(ctx context.Context, dir, instance string) kongcompletion.Option {
	return kongcompletion.WithPredictor("table", complete.PredictFunc(func(complete.Args) (names []string) {
		client, err := admin.Connect(ctx, dir)
		if err != nil {
			return nil
		}
		defer client.Close()
		list, err := client.Tables(ctx, instance)
		if err != nil {
			return nil
		}
		for _, t := range list {
			names = append(names, t.Name)
		}
		return names
	}))
}
