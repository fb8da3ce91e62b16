package main

// This file lets values of a command line begin with a dash: negative integers, also in lists, and all arguments behind --.

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// dashMark begins an argument that is a value although it begins with a dash. No argument of a process holds it.
const dashMark = "\x00"

var negative = regexp.MustCompile(`^-[0-9]+(,|$)`)

// markDashes marks the values that begin with a dash, and removes the first --, behind which all arguments are values. The
// parser would take them for flags, and take no value of a key behind -- if others are before it.
func markDashes(args []string) (marked []string) {
	for i, arg := range args {
		if arg == "--" {
			for _, arg := range args[i+1:] {
				marked = append(marked, dashMark+arg)
			}
			return marked
		}
		if negative.MatchString(arg) {
			arg = dashMark + arg
		}
		marked = append(marked, arg)
	}
	return marked
}

// unmarked is a text of the parser without marks.
func unmarked(text string) string {
	return strings.NewReplacer(dashMark, "", `\x00`, "").Replace(text)
}

// dashMapper reads a value, or a list of them, that may be marked. In a list that does not begin with a dash, or is marked,
// each value may begin with one.
type dashMapper struct{ kong.Mapper }

// Decode reads a value.
func (m dashMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if text, ok := ctx.Scan.Peek().Value.(string); ok && !strings.HasPrefix(text, "-") {
		ctx.Scan.Pop()
		ctx.Scan.PushTyped(strings.TrimPrefix(text, dashMark), kong.PositionalArgumentToken)
	}
	return m.Mapper.Decode(ctx, target)
}

// dashMappers are those of texts, numbers, lists and paths.
func dashMappers() (options []kong.Option) {
	registry := kong.NewRegistry().RegisterDefaults()
	for _, value := range []any{"", 0, int32(0), int64(0), 0.0, []string{}} {
		of := reflect.TypeOf(value)
		mapper := dashMapper{registry.ForType(of)}
		registry.RegisterKind(of.Kind(), mapper)
		options = append(options, kong.KindMapper(of.Kind(), mapper))
	}
	for _, name := range []string{"path", "existingfile", "existingdir"} {
		mapper := dashMapper{registry.ForNamedType(name, reflect.TypeFor[string]())}
		registry.RegisterName(name, mapper)
		options = append(options, kong.NamedMapper(name, mapper))
	}
	return options
}
