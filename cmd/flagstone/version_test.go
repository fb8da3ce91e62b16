package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionSaysWhatTheBuildRecorded(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, c := range []struct {
		name     string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{
			name:     "built from a tagged revision",
			version:  "v1.2.3",
			settings: []debug.BuildSetting{setting("vcs", "git"), setting("vcs.revision", revision), setting("vcs.modified", "false")},
			want:     "flagstone v1.2.3, revision " + revision + ", go1.26.0, linux/arm64",
		},
		{
			name:     "built from a working tree with changes",
			version:  "v1.2.4-0.20261122184840-0123456789ab+dirty",
			settings: []debug.BuildSetting{setting("vcs.modified", "true"), setting("vcs.revision", revision)},
			want: "flagstone v1.2.4-0.20261122184840-0123456789ab+dirty, revision " + revision +
				", with local changes, go1.26.0, linux/arm64",
		},
		{
			name:    "installed from the module proxy, which has no repository",
			version: "v1.2.3",
			want:    "flagstone v1.2.3, revision not recorded, go1.26.0, linux/arm64",
		},
		{
			name:     "go run, or -buildvcs=false",
			version:  "(devel)",
			settings: []debug.BuildSetting{setting("-compiler", "gc"), setting("GOARCH", "arm64")},
			want:     "flagstone (devel), revision not recorded, go1.26.0, linux/arm64",
		},
		{
			name: "a binary without build information",
			want: "flagstone (devel), revision not recorded, go1.26.0, linux/arm64",
		},
		{
			name:     "a revision that is recorded as empty",
			version:  "(devel)",
			settings: []debug.BuildSetting{setting("vcs.revision", "")},
			want:     "flagstone (devel), revision not recorded, go1.26.0, linux/arm64",
		},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := describeBuild(info, "go1.26.0", "linux/arm64"); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestVersionIsTheSameByCommandAndByFlag(t *testing.T) {
	status, byCommand, _ := command(t, "version")
	if status != 0 || strings.Count(byCommand, "\n") != 1 {
		t.Fatalf("version: status %d, %q", status, byCommand)
	}
	for _, args := range [][]string{{"--version"}, {"serve", "--version"}} {
		if status, out, errOut := command(t, args...); status != 0 || out != byCommand || errOut != "" {
			t.Errorf("%v: status %d, %q, %q; want %q", args, status, out, errOut, byCommand)
		}
	}
}
