package main

// This file writes the SBOM of a binary: CycloneDX 1.5 as JSON, of the modules that the toolchain recorded in it.
// It has no time and no serial number, so that it is the same for the same binary.

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

// writeSBOM writes <binary>.cdx.json.
func writeSBOM(binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(binary), err)
	}
	text, err := json.MarshalIndent(describe(info), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(binary+".cdx.json", append(text, '\n'), 0o644)
}

// describe lists the modules of a build, and the standard library as its toolchain's version.
func describe(info *debug.BuildInfo) bom {
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{module("application", info.Main.Path, info.Main.Version)}}
	b.Components = []component{module("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, module("library", m.Path, m.Version))
	}
	return b
}

func module(kind, path, version string) component {
	purl := strings.ReplaceAll("pkg:golang/"+path+"@"+version, "+", "%2B") // a plus sign is escaped in a package URL
	return component{kind, path, version, purl}
}
