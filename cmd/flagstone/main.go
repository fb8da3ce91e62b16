// Command flagstone serves, checks and describes Flagstone stores.
//
//	flagstone serve     a local Table Store endpoint over a store
//	flagstone check     verifies every file of a store
//	flagstone clock     describes the clock of a store, and copies a store after a wrong clock
//	flagstone instance  makes, lists and deletes instances and their access keys
//	flagstone table     lists, makes, changes and drops tables
//	flagstone get       prints a row; scan prints rows, count their number
//	flagstone put       puts a row; update and delete change one
//	flagstone import    puts rows from files into a table; export writes the rows of a table to a file
//	flagstone stream    lists streams, and prints the changes of a table; tunnel lists, makes and deletes tunnels
//	flagstone copy      copies a table between endpoints and folders
//	flagstone archive   moves old cells of a table into a file
//	flagstone top       shows live figures of a server; console shows them, and rows, in a browser
//	flagstone shell     executes such lines as they are typed
//	flagstone partition lists, splits and merges the partitions of a table
//	flagstone inspect   shows what is in the files of a store
//	flagstone backup    makes, lists, verifies, prunes and rehearses backups
//	flagstone restore   makes a store of a backup, or brings back one table
//	flagstone bench     puts load on a store or an endpoint
//	flagstone advise    finds problems of a table's primary key
//	flagstone health    says whether a server is ready
//	flagstone man       prints the manual page
//	flagstone version   prints the version of this binary
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/flagstone-db/flagstone/instances"
)

// commands is the command line.
type commands struct {
	Serve      serveCommand              `cmd:"" help:"Serve a store to Table Store SDKs."`
	Check      checkCommand              `cmd:"" help:"Verify every file of a store, also while a server runs. Exits with 1 if anything is wrong."`
	Clock      clockCommand              `cmd:"" help:"Say what a store that no process has open makes of its clock; copy it, once a clock that was far ahead is right again."`
	Instance   instanceCommand           `cmd:"" help:"Make, list and delete instances and their access keys, also while a server runs."`
	Table      tableCommand              `cmd:"" help:"List, make, change and drop tables, also while a server runs."`
	Get        getCommand                `cmd:"" help:"Print a row."`
	Scan       scanCommand               `cmd:"" help:"Print rows in the order of their keys."`
	Count      countCommand              `cmd:"" help:"Print the number of rows."`
	Put        putCommand                `cmd:"" help:"Put a row: it has the given columns and no others."`
	Update     updateCommand             `cmd:"" help:"Set and delete columns of a row."`
	Delete     deleteCommand             `cmd:"" help:"Delete a row."`
	Import     importCommand             `cmd:"" help:"Put rows from CSV, JSON Lines or Parquet files into a table of a folder or an endpoint."`
	Export     exportCommand             `cmd:"" help:"Write the rows of a table of a folder or an endpoint to a CSV, JSON Lines or Parquet file."`
	Stream     streamCommand             `cmd:"" help:"List the streams of an endpoint, and print the changes of a table."`
	Tunnel     tunnelCommand             `cmd:"" help:"List, describe, make and delete the data tunnels of an endpoint."`
	Copy       copyCommand               `cmd:"" help:"Copy a table to another endpoint, folder, instance or name."`
	Archive    archiveCommand            `cmd:"" help:"Move cells that are older than an age from a table into a file."`
	Top        topCommand                `cmd:"" help:"Show live figures of a server: its stores and its busiest tables."`
	Shell      shellCommand              `cmd:"" help:"Execute command lines of flagstone as they are typed, or from a pipe."`
	Console    consoleCommand            `cmd:"" help:"Print a link to the server's console, for a browser of this machine."`
	Partition  partitionCommand          `cmd:"" help:"List, split and merge the partitions of a table, also while a server runs."`
	Inspect    inspectCommand            `cmd:"" help:"Show what is in the files of a store: the tree of a table, the manifest, the log, table files, value files."`
	Backup     backupCommand             `cmd:"" help:"Make, list, verify, prune and rehearse backups, also while a server runs."`
	Restore    restoreCommand            `cmd:"" help:"Make a store of a backup, or bring one of its tables back under another name, also while a server runs."`
	Salvage    salvageCommand            `cmd:"" help:"Make a new store of what is intact in a damaged one, and list what was lost."`
	Bench      benchCommand              `cmd:"" help:"Put load on a store or an endpoint, and print rates and latencies: YCSB, or single operations."`
	Advise     adviseCommand             `cmd:"" help:"Say whether a table's partition key concentrates size or load, and what would even it out."`
	Completion kongcompletion.Completion `cmd:"" help:"Print what makes a shell complete command lines of flagstone."`
	Health     healthCommand             `cmd:"" help:"Say whether a server that has --metrics-addr is ready. Exits with 1 if it is not."`
	Man        manCommand                `cmd:"" help:"Print the manual page."`
	Version    versionCommand            `cmd:"" help:"Print the version."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version and exit."`
}

// output is where a command prints, and reads.
type output struct {
	in  io.Reader
	out io.Writer // results
	err io.Writer // everything else
}

// terminal reports whether results go to a terminal.
func (c *output) terminal() bool {
	f, ok := c.file()
	return ok && isTerminal(f)
}

// file is the file that results go to.
func (c *output) file() (f *os.File, ok bool) {
	out := c.out
	for r, ok := out.(*results); ok; r, ok = out.(*results) { // the lines of a shell have one more
		out = r.Writer
	}
	f, ok = out.(*os.File)
	return f, ok
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], &output{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// newParser makes the parser of the command line.
func newParser(ctx context.Context, cli *commands, c *output, options ...kong.Option) (*kong.Kong, error) {
	out := c.out
	if c.terminal() { // whose width the parser looks at
		out, _ = c.file()
	}
	return kong.New(cli, append(append([]kong.Option{
		kong.Name("flagstone"),
		kong.Description("Flagstone: a storage engine for wide, versioned rows."),
		kong.Writers(out, c.err),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
		kong.Vars{"version": version(), "backupRate": backupRate, "checkRate": checkRate},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	}, dashMappers()...), options...)...)
}

// run executes a command line and returns the exit status: 0, 1 for a failure, 2 for an invalid
// command line, 3 if a salvage lost something.
func run(ctx context.Context, args []string, c *output, options ...kong.Option) int {
	printed := &results{Writer: c.out}
	status := execute(ctx, args, &output{in: c.in, out: printed, err: c.err}, options...)
	if status == 0 && printed.failed != nil {
		fmt.Fprintf(c.err, "flagstone: the output is not complete: %s\n", oneLine(printed.failed))
		return 1
	}
	return status
}

// execute executes a command line. It fails silently if the output is lost.
func execute(ctx context.Context, args []string, c *output, options ...kong.Option) int {
	var cli commands
	exited := -1
	parser, err := newParser(ctx, &cli, c, append(options, kong.Exit(func(status int) { exited = status }))...)
	if err != nil {
		panic("flagstone: the command line is declared wrongly: " + err.Error())
	}
	for _, arg := range args {
		if !utf8.ValidString(arg) { // the parser, and JSON on the way to a server, would change it
			fmt.Fprintf(c.err, "flagstone: %q is not UTF-8\n", arg)
			return 2
		}
	}
	// This answers a shell that asks for completions, and ends.
	kongcompletion.Register(parser, predictTables(ctx, cmp.Or(os.Getenv("FLAGSTONE_DIR"), "./flagstone-data"), cmp.Or(os.Getenv("FLAGSTONE_INSTANCE"), instances.DefaultName)))
	if exited >= 0 {
		return exited
	}
	parsed, err := parser.Parse(markDashes(args))
	if exited >= 0 { // --help was given
		return exited
	}
	if err != nil {
		fmt.Fprintf(c.err, "flagstone: %s (flagstone --help lists what there is)\n", unmarked(err.Error()))
		return 2
	}
	qualified(parsed)
	for _, path := range parsed.Path {
		if path.Flag != nil && path.Flag.Name == "where" && path.Flag.Target.String() == "" {
			fmt.Fprintln(c.err, "flagstone: --where is empty; leave it out for all rows")
			return 2
		}
	}
	if err := parsed.Run(); err != nil {
		if ctx.Err() != nil {
			err = interruption(err)
		} else {
			err = caused(err)
		}
		fmt.Fprintf(c.err, "flagstone: %s\n", unnamed(oneLine(err)))
		if _, ok := errors.AsType[usageError](err); ok {
			return 2
		}
		if _, ok := errors.AsType[lossError](err); ok {
			return lossStatus
		}
		return 1
	}
	return 0
}

// qualified takes a table as INSTANCE/TABLE, as 'top' and the console name it. No name of a table has a slash.
func qualified(parsed *kong.Context) {
	for _, argument := range parsed.Selected().Positional {
		if argument.Name != "table" {
			continue
		}
		instance, table, ok := strings.Cut(argument.Target.String(), "/")
		for _, flag := range parsed.Flags() {
			if ok && flag.Name == "instance" {
				flag.Target.SetString(instance)
				argument.Target.SetString(table)
			}
		}
	}
}

// usageError is an error of the command line that the command finds, and not the parser.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// oneLine joins the lines of an error.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// countText is a number of things, by their name in the singular.
func countText[N int | int64 | uint64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// unnamed removes the package name, which is also the command's, from the text of an error: the
// command prints its name once, in front.
func unnamed(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "flagstone: "), ": flagstone: ", ": ")
}
