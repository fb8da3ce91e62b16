package backup

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// example returns an example of docs/format-backup.md.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/format-backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```example "+name+"\n")
	found, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatalf("no example %q", name)
	}
	return found
}

// exampleBytes returns the bytes of an example, in which two spaces begin a remark.
func exampleBytes(t *testing.T, name string) (b []byte) {
	t.Helper()
	for line := range strings.Lines(example(t, name)) {
		digits, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

func TestTheFormatDocumentShowsWhatIsWritten(t *testing.T) {
	ctx, repo := context.Background(), NewFolder(vfs.NewSim(vfs.SimOptions{}), "/repo")
	if err := putText(ctx, repo, markerName, markerKind, plain+"\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := getAll(ctx, repo, markerName, nil); err != nil || string(got) != example(t, "marker") {
		t.Errorf("marker: %q, %v", got, err)
	}
	current := entry{path: "CURRENT", file: file{kind: otherFile, size: 5, unique: [16]byte([]byte("sixteen letters."))}, suffix: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	d := &description{name: "20261126T215022.123Z-00c0ffee", createdMillis: 1_795_729_822_123, added: 5, entries: []entry{current}, store: [16]byte([]byte("sixteen letters."))}
	got, err := d.encode()
	if err != nil || !bytes.Equal(got, exampleBytes(t, "description")) {
		t.Errorf("description: % x, %v", got, err)
	}
	var object bytes.Buffer
	err = writeObject(&object, nil, &current.file, func(w io.Writer) error {
		_, err := io.WriteString(w, "bytes")
		return err
	})
	if err != nil || !bytes.Equal(object.Bytes(), exampleBytes(t, "object")) {
		t.Errorf("object: % x, %v", object.Bytes(), err)
	}
	part := &logPart{store: storeName([16]byte([]byte("sixteen letters."))), from: 7, until: 8, changes: 1, micros: 1_795_729_822_123_000}
	var log bytes.Buffer
	err = writeLog(&log, nil, part, []flagstone.LogNote{{Number: 1, Micros: 1_795_729_800_000_000, What: "a load"}}, func(put func(uint64, []byte) error) error {
		return put(300, []byte("batch"))
	})
	if err != nil || !bytes.Equal(log.Bytes(), exampleBytes(t, "log")) {
		t.Errorf("log %s: % x, %v", part.name(), log.Bytes(), err)
	}
	d.origins = []origin{{store: [16]byte([]byte("sixteen letters.")), segment: 7, changes: 1, micros: 1_795_729_822_123_999}}
	got, err = d.encode()
	plain := exampleBytes(t, "description")
	store := plain[len(plain)-24 : len(plain)-8]
	if want := slices.Concat(plain[:len(plain)-25], exampleBytes(t, "origins"), store); err != nil || !bytes.Equal(got[:len(got)-8], want) {
		t.Errorf("description with origins: % x, %v", got, err)
	}
	if read, err := decodeDescription(got); err != nil || len(read.origins) != 1 || read.origins[0] != d.origins[0] {
		t.Errorf("it reads as %+v, %v", read, err)
	}
	old := slices.Concat(plain[:8], []byte{originsVersion}, plain[9:len(plain)-25], exampleBytes(t, "origins"), make([]byte, 8))
	if read, err := decodeDescription(reseal(old)); err != nil || read.store != d.store || len(read.origins) != 1 {
		t.Errorf("version 2 reads as %+v, %v", read, err)
	}
	older := slices.Concat(plain[:8], []byte{formatVersion}, plain[9:len(plain)-25], make([]byte, 8))
	if read, err := decodeDescription(reseal(older)); err != nil || len(read.entries) != 1 || read.info().Store != "" {
		t.Errorf("version 1 reads as %+v, %v", read, err)
	}
	if name := example(t, "name"); fmt.Sprintln(current.object()) != name {
		t.Errorf("name: %s", current.object())
	}
}
