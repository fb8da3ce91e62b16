// Command release builds flagstone for all platforms of a release: static binaries, an SBOM of each, the manual page,
// completion for shells, and SHA256SUMS over all of it.
//
//	go run -C tools ./release -out ../dist
//
// Two runs from one revision with one toolchain give the same bytes; -twice proves it with an empty build cache.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	out := flag.String("out", "../dist", "folder for the files; it must be empty or not exist")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/arm64,windows/amd64", "what to build for")
	twice := flag.Bool("twice", false, "build again with an empty build cache, and fail if a byte differs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, *out, strings.Split(*platforms, ","), *twice); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release writes all files of a release to a folder. The working directory is the module of the tools.
func release(ctx context.Context, out string, platforms []string, twice bool) (err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if old, err := os.ReadDir(out); err != nil || len(old) > 0 {
		return errors.Join(err, fmt.Errorf("%s holds files; name a new folder", out))
	}
	// A file in the checkout would mark the later binaries as built with changes, and a failure must not leave a part.
	stage, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	for _, platform := range platforms {
		fmt.Fprintln(os.Stderr, "building", platform)
		binary := filepath.Join(stage, binaryName(platform))
		if err := build(ctx, platform, binary); err != nil {
			return err
		}
		if err := hasRevision(binary); err != nil {
			return err
		}
		if twice {
			if err := buildAgain(ctx, platform, binary); err != nil {
				return err
			}
		}
		if err := writeSBOM(binary); err != nil {
			return err
		}
	}
	if err := writeHelp(ctx, stage); err != nil {
		return err
	}
	if err := writeSums(stage); err != nil {
		return err
	}
	return os.CopyFS(out, os.DirFS(stage))
}

func binaryName(platform string) string {
	name := "flagstone-" + strings.ReplaceAll(platform, "/", "-")
	if strings.HasPrefix(platform, "windows/") {
		name += ".exe"
	}
	return name
}

// settings replace those of the caller's environment that change the bytes of a binary.
var settings = []string{
	"CGO_ENABLED=0", "GOFLAGS=", "GOENV=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
}

// build makes one binary. -trimpath leaves out the paths of this machine, and without cgo the binary is static.
func build(ctx context.Context, platform, binary string, env ...string) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("platform %q is not GOOS/GOARCH", platform)
	}
	_, err := command(ctx, append(env, append(settings, "GOOS="+goos, "GOARCH="+goarch)...),
		"go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", binary, "./cmd/flagstone")
	return err
}

// hasRevision refuses a binary that does not name the one revision that it was built from.
func hasRevision(binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	of := map[string]string{}
	for _, s := range info.Settings {
		of[s.Key] = s.Value
	}
	switch {
	case of["vcs.revision"] == "":
		return fmt.Errorf("%s records no revision; build in a clone, a linked work tree of git does not do", filepath.Base(binary))
	case of["vcs.modified"] != "false":
		return fmt.Errorf("%s was built with changes; commit them, or build in a clean clone", filepath.Base(binary))
	}
	return nil
}

// buildAgain compares a binary with one that an empty cache gives.
func buildAgain(ctx context.Context, platform, binary string) (err error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	again := filepath.Join(dir, "again")
	if err := build(ctx, platform, again, "GOCACHE="+filepath.Join(dir, "cache")); err != nil {
		return err
	}
	first, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(again)
	if err == nil && !bytes.Equal(first, second) {
		err = fmt.Errorf("%s: a second build gives other bytes", platform)
	}
	return err
}

// writeHelp writes the manual page and the completions, which the command prints itself. The completions name the path
// of the binary that prints them; here they name the command, so that a shell finds it by PATH.
func writeHelp(ctx context.Context, out string) (err error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The command names itself by its resolved path.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	binary := filepath.Join(dir, "flagstone")
	if err := build(ctx, runtime.GOOS+"/"+runtime.GOARCH, binary); err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"flagstone.1":    {"man"},
		"flagstone.bash": {"completion", "--code", "bash"},
		"flagstone.zsh":  {"completion", "--code", "zsh"},
		"flagstone.fish": {"completion", "--code", "fish"},
	} {
		text, err := command(ctx, nil, binary, args...)
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte(binary), []byte("flagstone"))
		if bytes.Contains(text, []byte(filepath.Base(dir))) {
			return fmt.Errorf("%s names the folder of its build", name)
		}
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeSums writes SHA256SUMS as sha256sum does, in the order of names.
func writeSums(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// command runs a program in the root of the repository and returns what it prints.
func command(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env, c.Stderr = "..", append(os.Environ(), env...), os.Stderr
	text, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return text, err
}
