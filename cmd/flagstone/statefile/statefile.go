// Package statefile keeps how far a command came in a small file: a line "flagstone KIND CHECKSUM", where KIND has the
// version of the form and CHECKSUM is the xxhash64 of the rest in hexadecimal, and then JSON.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// most bounds a file, in bytes.
const most = 64 << 20

// Lock keeps other processes from the state in a file until it is closed. The lock is on the file PATH.lock, which stays:
// that of the state is replaced by each save.
func Lock(path string) (io.Closer, error) {
	path += ".lock"
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return vfs.OS().Lock(path, vfs.LockToRead) // to write would lock the directory, too
}

// Read reads a state of a kind. The error matches fs.ErrNotExist if there is no file, and names the file.
func Read(path, kind string, state any) error {
	content, err := vfs.ReadFile(vfs.OS(), path, most)
	if err != nil {
		return err
	}
	if err := Parse(content, kind, state); err != nil {
		return fmt.Errorf("%s: %w; remove it to begin again", path, err)
	}
	return nil
}

// Parse reads the content of a file.
func Parse(content []byte, kind string, state any) error {
	head, body, ok := bytes.Cut(content, []byte("\n"))
	sum, known := bytes.CutPrefix(head, []byte("flagstone "+kind+" "))
	if !ok || !known {
		return fmt.Errorf("it is no %q in a version that is known", kind)
	}
	if string(sum) != Checksum(body) {
		return errors.New("its checksum is wrong")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return decoder.Decode(state)
}

// Checksum is the xxhash64 of bytes, in hexadecimal.
func Checksum(body []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(body)) }

// Write replaces the file as a whole, durably.
func Write(path, kind string, state any) error {
	body, err := json.Marshal(state)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	return vfs.ReplaceFile(path, slices.Concat([]byte("flagstone "+kind+" "+Checksum(body)+"\n"), body))
}
