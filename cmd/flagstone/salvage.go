package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

type salvageCommand struct {
	Store  string `arg:"" help:"Directory of the damaged store, which no process has open." type:"path"`
	Target string `arg:"" help:"Directory of the new store, which must be empty or not exist." type:"path"`
	JSON   bool   `name:"json" help:"Print one JSON object per loss, and one of totals at the end."`
	quietly
}

// Help is the long help of the command.
func (salvageCommand) Help() string {
	return `Makes a new store of what is intact in a damaged one, streams, capacity instances, access keys and all, and prints a line for each part that was lost: table, partitions, range of keys, file and offset. Rows of that range may lack cells; and where a lost part held the newer cells or a delete, the row is older than it was, or back. Files that an interrupted flush or compaction left over are counted, and are no loss. The damaged store is only read. The exit status is 0 if all came back, 3 if something was lost, 1 if no store was made. Until all is there the new store has the name of the target with ".partial" appended; after a kill delete that. If both its manifest and the copy of that are lost, a store cannot be salvaged, because nothing else says to which table a file belongs: restore a backup.`
}

// lossError says that something was lost; the command ends with lossStatus.
type lossError struct{ error }

const lossStatus = 3

// salvageTotals are the totals of all stores of a home, as JSON.
type salvageTotals struct {
	Copied    int `json:"copied"`
	Rewritten int `json:"rewritten"`
	Lost      int `json:"lost"`
	Records   int `json:"records"`
	Leftover  int `json:"leftover"`
	Losses    int `json:"losses"`
}

// lossLine is a loss as JSON.
type lossLine struct {
	Store      string   `json:"store"`
	File       string   `json:"file"`
	Offset     int64    `json:"offset"` // -1: the whole file, or parts of it in several places
	Table      string   `json:"table,omitempty"`
	Stream     bool     `json:"stream,omitempty"`
	Partitions []uint64 `json:"partitions,omitempty"`
	Level      int      `json:"level"`
	From       string   `json:"from,omitempty"`
	To         string   `json:"to,omitempty"`
	Rows       uint64   `json:"rows,omitempty"`
	Cells      uint64   `json:"cells,omitempty"`
	Older      bool     `json:"older"`
	Error      string   `json:"error"`
}

// text writes a loss for people.
func (l *lossLine) text() string {
	what := "file"
	switch {
	case filepath.Ext(l.File) == ".log":
		what = "log"
	case l.Table != "":
		if what = fmt.Sprintf("table %s", lineText(l.Table)); l.Stream {
			what = "stream of " + what
		}
		what += fmt.Sprintf(", partitions %v, level %d, keys from %s to %s", l.Partitions, l.Level, l.From, l.To)
	}
	if l.Rows > 0 {
		what += ", " + countText(l.Rows, "row")
	}
	if l.Cells > 0 {
		what += ", " + countText(l.Cells, "cell")
	}
	if l.Older {
		what += ", older or deleted data may be back there"
	}
	where := l.File
	if l.Offset >= 0 {
		where += fmt.Sprintf(", offset %d", l.Offset)
	}
	return fmt.Sprintf("lost: %s, in %s: %s", what, where, l.Error)
}

// Run salvages the stores of a home.
func (k *salvageCommand) Run(ctx context.Context, c *output) error {
	if !exists(k.Store) {
		return fmt.Errorf("no store in %s", k.Store)
	}
	if vfs.Within(k.Store, k.Target) {
		return fmt.Errorf("%s lies in the damaged store, %s", k.Target, k.Store)
	}
	h := homeSalvage{salvageCommand: k, c: c}
	err := vfs.BuildDir(vfs.OS(), k.Target, func(partial string) error {
		h.partial = partial
		return h.run(ctx)
	})
	if losses := h.totals.Losses; err == nil && losses > 0 {
		err = lossError{fmt.Errorf("lost: %s; the rest is in %s", countText(losses, "part"), k.Target)}
	}
	return err
}

// homeSalvage salvages the stores of a home, and what lies beside them.
type homeSalvage struct {
	*salvageCommand
	c       *output
	partial string // the new home
	totals  salvageTotals
}

// run salvages all, and prints the losses and then the totals.
func (h *homeSalvage) run(ctx context.Context) error {
	for _, within := range []string{".", instances.CapacityDir} {
		dir := filepath.Join(h.Store, within)
		if _, err := os.Stat(dir); within != "." && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := h.store(ctx, within); err != nil {
			return fmt.Errorf("cannot salvage the store in %s: %w", dir, err)
		}
	}
	if err := h.beside(); err != nil {
		return err
	}
	if err := h.missing(); err != nil {
		return err
	}
	t := &h.totals
	if h.JSON {
		return json.NewEncoder(h.c.out).Encode(t)
	}
	_, err := fmt.Fprintf(h.c.out, "%s: %s copied, %s written again, %d lost; %s copied; %s left over; lost in all: %s\n",
		h.Target, countText(t.Copied, "file"), countText(t.Rewritten, "table file"), t.Lost,
		countText(t.Records, "log record"), countText(t.Leftover, "file"), countText(t.Losses, "part"))
	return err
}

// missing lists a capacity store or a registry of instances that must have been there. It looks at what came
// back of the others.
func (h *homeSalvage) missing() error {
	lost := func(file, reason string) error {
		return h.loss(&lossLine{Store: ".", File: filepath.Join(h.Store, file), Offset: -1, Error: "missing, " + reason})
	}
	if !exists(filepath.Join(h.partial, instances.CapacityDir)) {
		name, err := instances.CapacityInstance(h.partial)
		if err == nil && name != "" {
			err = lost(instances.CapacityDir, fmt.Sprintf("but the registry has the capacity instance %s", lineText(name)))
		}
		if err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(h.Store, instances.RegistryName)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	reason, err := needsRegistry(h.partial)
	if err == nil && reason == "" && exists(filepath.Join(h.Store, credentialsFile)) {
		reason = "but a server has made " + credentialsFile + " beside it; it cannot be known whether it named capacity instances, whose store is not there, either"
	}
	if err == nil && reason != "" {
		err = lost(instances.RegistryName, reason)
	}
	return err
}

// needsRegistry says why a home must have had a registry of instances; "" if it may have had none.
func needsRegistry(dir string) (reason string, err error) {
	if exists(filepath.Join(dir, instances.CapacityDir)) {
		return "but there is a capacity store", nil
	}
	state, _, err := manifest.Load(vfs.OS(), dir)
	if err != nil {
		return "", err
	}
	for _, t := range state.Tables {
		if name, _, ok := strings.Cut(t.Name, "/"); ok && t.Log == nil && name != instances.DefaultName {
			return fmt.Sprintf("but there is a table of the instance %s", lineText(name)), nil
		}
	}
	return "", nil
}

// store salvages one store, and prints its losses.
func (h *homeSalvage) store(ctx context.Context, within string) error {
	due := h.due(time.Now)
	report, err := flagstone.Salvage(ctx, filepath.Join(h.Store, within), filepath.Join(h.partial, within), flagstone.Options{}, func(file string, done, all int64) {
		if took, ok := due(); ok {
			fmt.Fprintf(h.c.err, "reading %s%s\n", file, howFar(took, done, all))
		}
	})
	if err != nil {
		return err
	}
	for _, l := range report.Losses {
		line := lossLine{
			Store: within, File: l.File, Offset: l.Offset, Table: l.Table, Stream: l.Stream, Partitions: l.Partitions, Level: l.Level,
			Rows: l.Rows, Cells: l.Cells, Older: l.Older, Error: oneLine(l.Err),
		}
		if l.Table != "" {
			columns := l.KeyColumns
			line.From, line.To = encodedKey(l.From, columns, "the first"), encodedKey(l.To, columns, "the last")
		}
		if err := h.loss(&line); err != nil {
			return err
		}
	}
	t := &h.totals
	t.Copied += report.Copied
	t.Rewritten += report.Rewritten
	t.Lost += report.Lost
	t.Records += report.Records
	t.Leftover += len(report.Leftover)
	return nil
}

// loss prints and counts a loss.
func (h *homeSalvage) loss(line *lossLine) error {
	h.totals.Losses++
	if h.JSON {
		return json.NewEncoder(h.c.out).Encode(line)
	}
	_, err := fmt.Fprintln(h.c.out, line.text())
	return err
}

// beside copies the registry of instances, access keys and administration, if they are intact.
func (h *homeSalvage) beside() error {
	for _, file := range []struct {
		name   string
		verify func() error
	}{
		{instances.RegistryName, func() error { return instances.Verify(h.Store) }},
		{admin.FileName, func() error { return admin.Verify(h.Store) }},
		{credentialsFile, func() error { _, err := readCredentials(filepath.Join(h.Store, credentialsFile)); return err }},
	} {
		from := filepath.Join(h.Store, file.name)
		content, err := vfs.ReadFile(vfs.OS(), from, 1<<20)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil:
			if err = file.verify(); err == nil {
				if err := writeSecret(filepath.Join(h.partial, file.name), content); err != nil {
					return err
				}
				continue
			}
			if file.name == instances.RegistryName && !errors.Is(err, instances.ErrCorrupt) {
				return err // it has a newer version
			}
		case !vfs.IsUnreadable(err):
			return err
		}
		if err := h.loss(&lossLine{Store: ".", File: from, Offset: -1, Error: oneLine(err)}); err != nil {
			return err
		}
	}
	return nil
}
