package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

type manCommand struct{}

// Run prints the manual page, made of the declarations of the commands.
func (manCommand) Run(c *output, app *kong.Kong) error {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH FLAGSTONE 1 \"%s\" flagstone\n.SH NAME\nflagstone \\- serve, inspect and change stores of wide, versioned rows\n", revisionDate())
	fmt.Fprintf(&page, ".SH SYNOPSIS\n.B flagstone\n.I command\n[\\fIflag\\fR ...] [\\fIargument\\fR ...]\n.SH OPTIONS\n")
	writeManFlags(&page, app.Model.Flags)
	page.WriteString(".SH COMMANDS\n")
	for _, command := range app.Model.Leaves(true) {
		fmt.Fprintf(&page, ".SS %s\n%s\n", roff(command.Path()), roff(command.Help))
		if command.Detail != "" {
			for paragraph := range strings.SplitSeq(command.Detail, "\n\n") {
				fmt.Fprintf(&page, ".PP\n%s\n", roff(paragraph))
			}
		}
		for _, argument := range command.Positional {
			fmt.Fprintf(&page, ".TP\n\\fI%s\\fR\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		writeManFlags(&page, command.Flags)
	}
	page.WriteString(".SH EXIT STATUS\n0, 1 for a failure, 2 for an invalid command line, 3 for a salvage that lost something.\n")
	_, err := io.WriteString(c.out, page.String())
	return err
}

func writeManFlags(page *strings.Builder, flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		name := "--" + f.Name
		if f.Short != 0 {
			name = fmt.Sprintf("-%c, %s", f.Short, name)
		}
		if !f.IsBool() {
			name += "=" + f.FormatPlaceHolder()
		}
		help := f.Help
		if len(f.Envs) > 0 {
			help += " ($" + strings.Join(f.Envs, ", $") + ")"
		}
		fmt.Fprintf(page, ".TP\n\\fB%s\\fR\n%s\n", roff(name), roff(help))
	}
}

// roff quotes a text: no character of it is a command of the page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.Join(strings.Fields(text), " "))
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// revisionDate is the day of the revision that this binary was built from, or empty if none was recorded.
func revisionDate() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				day, _, _ := strings.Cut(s.Value, "T")
				return day
			}
		}
	}
	return ""
}
