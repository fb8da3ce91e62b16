package backup

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// textVersion is the version of objects that are text: the marker and the plans. They are never encrypted.
const textVersion = 1

// putText puts an object of text: a line with its kind, version and checksum, and the text.
func putText(ctx context.Context, repo Repository, name, kind, text string) error {
	return repo.Put(ctx, name, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s %d %016x\n%s", kind, textVersion, xxhash.Sum64String(text), text)
		return err
	})
}

// getText is the inverse of putText. An error matches ErrDamaged if the object is not as it was put, and is the
// repository's if it cannot be read.
func getText(ctx context.Context, repo Repository, name, kind string) (string, error) {
	content, err := getAll(ctx, repo, name, nil)
	if err != nil {
		return "", err
	}
	line, text, _ := strings.Cut(string(content), "\n")
	var version int
	var sum uint64
	if n, _ := fmt.Sscanf(line, kind+" %d %016x", &version, &sum); n < 1 {
		return "", fmt.Errorf("%w: %s does not begin with %q, a version and a checksum", ErrDamaged, name, kind)
	}
	if version > textVersion {
		return "", newer(name, version, textVersion)
	}
	if line != fmt.Sprintf("%s %d %016x", kind, textVersion, sum) || xxhash.Sum64String(text) != sum {
		return "", fmt.Errorf("%w: %s does not fit its checksum", ErrDamaged, name)
	}
	return text, nil
}

// maxText bounds objects that are held in memory as a whole: descriptions, plans, the marker.
const maxText = 64 << 20

// getAll reads a whole object, which is decrypted if unsealer is not nil.
func getAll(ctx context.Context, repo Repository, name string, unsealer Unsealer) ([]byte, error) {
	object, err := repo.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	r, err := unseal(object, unsealer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	content, err := io.ReadAll(io.LimitReader(r, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(content) > maxText:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, name, maxText)
	}
	return content, nil
}

// newerError reports a version that this program does not know.
type newerError string

func (e newerError) Error() string { return string(e) }

func newer(name string, version, known int) error {
	return newerError(fmt.Sprintf("%s has version %d, this program reads up to %d", name, version, known))
}
