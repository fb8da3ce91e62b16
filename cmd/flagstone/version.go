package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCommand struct{}

// Run prints what this binary was built from.
func (versionCommand) Run(c *output) error {
	_, err := fmt.Fprintln(c.out, version())
	return err
}

// version describes this binary. 'flagstone version' and 'flagstone --version' print it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describeBuild(info, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
}

// describeBuild says in one line which version a binary is, from which revision it was
// built, whether the working tree had changes that no revision holds, and with which
// toolchain for which platform.
//
// 'go run' and -buildvcs=false record no revision. The line of such a build says so: a
// reader of a bug report must not have to guess whether the revision was left out.
func describeBuild(info *debug.BuildInfo, toolchain, platform string) string {
	const unversioned = "(devel)" // what the toolchain calls a main module without a version
	version, revision := info.Main.Version, "revision not recorded"
	if version == "" {
		version = unversioned
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && s.Value != "":
			revision = "revision " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "with local changes"
		}
	}
	parts := []string{"flagstone " + version, revision}
	if changed != "" {
		parts = append(parts, changed)
	}
	return strings.Join(append(parts, toolchain, platform), ", ")
}
