package backup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

const (
	objectMagic   = "flagbobj"
	formatVersion = 1 // of objects and of descriptions
	headerSize    = 56
	trailerSize   = 8
)

// writeObject writes a file as an object: a header, what copy writes, a checksum. copy must write f.size bytes.
func writeObject(w io.Writer, sealer Sealer, f *file, copy func(io.Writer) error) error {
	return writeSealed(w, sealer, func(w io.Writer) error {
		sum := xxhash.New()
		summed := io.MultiWriter(w, sum)
		if _, err := summed.Write(header(f)); err != nil {
			return err
		}
		if err := copy(summed); err != nil {
			return err
		}
		_, err := w.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64()))
		return err
	})
}

// writeSealed writes what write writes, which sealer encrypts if it is not nil.
func writeSealed(w io.Writer, sealer Sealer, write func(io.Writer) error) error {
	if sealer == nil {
		return write(w)
	}
	sealed, err := sealer.Seal(w)
	if err == nil {
		err = write(sealed)
	}
	if err != nil {
		return err // what is not closed is not whole
	}
	return sealed.Close()
}

// header returns the header of a file's object.
func header(f *file) []byte {
	b := append(make([]byte, 0, headerSize), objectMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.kind))
	b = append(b, f.unique[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.size))
	b = binary.LittleEndian.AppendUint64(b, f.sum)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

// readObject copies the file of an entry to w, and compares all of it with its checksums. Errors of damage match
// ErrDamaged or ErrIdentity; all errors name the object, but for those of w. What w has got is good only if there is
// no error.
func readObject(ctx context.Context, repo Repository, unsealer Unsealer, e *entry, w io.Writer) error {
	return withObject(ctx, repo, unsealer, e.object(), func(plain io.Reader) error {
		r := &objectReader{r: plain, ctx: ctx, sum: xxhash.New()}
		return r.copy(w, &e.file)
	})
}

// withObject calls read with what an object holds, decrypted. Errors name the object. That of a missing one matches
// ErrDamaged.
func withObject(ctx context.Context, repo Repository, unsealer Unsealer, name string, read func(io.Reader) error) error {
	object, err := repo.Get(ctx, name)
	if isMissing(err) {
		return fmt.Errorf("%w: object %s is missing: %w", ErrDamaged, name, err)
	}
	if err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	defer object.Close()
	plain, err := unseal(object, unsealer)
	if err == nil {
		err = read(plain)
	}
	if err != nil {
		return fmt.Errorf("object %s: %w", name, err)
	}
	return nil
}

// objectReader reads the parts of an object.
type objectReader struct {
	r   io.Reader
	ctx context.Context
	sum *xxhash.Digest // of what was read
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (n int, err error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err = r.r.Read(p)
	_, _ = r.sum.Write(p[:n]) // never fails
	return n, err
}

// unseal returns a reader that decrypts an object, or the object itself without an unsealer. Errors match ErrDamaged
// or ErrIdentity, or are those of the object.
func unseal(object io.Reader, unsealer Unsealer) (io.Reader, error) {
	if unsealer == nil {
		return object, nil
	}
	u := &unsealing{object: watched{r: object}}
	plain, err := unsealer.Unseal(&u.object)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	u.plain = plain
	return u, u.blame(err)
}

// unsealing decrypts an object.
type unsealing struct {
	plain  io.Reader
	object watched
}

// Read implements io.Reader.
func (u *unsealing) Read(p []byte) (int, error) {
	n, err := u.plain.Read(p)
	return n, u.blame(err)
}

// blame says whether the object could not be read, or not be decrypted.
func (u *unsealing) blame(err error) error {
	switch {
	case err == nil || err == io.EOF || errors.Is(err, ErrIdentity):
		return err
	case u.object.err != nil:
		return u.object.err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// watched is a reader that keeps its error.
type watched struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// copy copies the file f from its object to w.
func (r *objectReader) copy(w io.Writer, f *file) error {
	head, err := r.exactly(headerSize)
	if err != nil {
		return err
	}
	if err := checkHeader(head, f); err != nil {
		return err
	}
	content := xxhash.New()
	if _, err := io.CopyN(io.MultiWriter(w, content), r, f.size); err != nil {
		return short(err)
	}
	want := r.sum.Sum64()
	tail, err := r.exactly(trailerSize)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(tail) != want || f.kind == tableFile && content.Sum64() != f.sum {
		return fmt.Errorf("%w: it does not fit its checksum", ErrDamaged)
	}
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: there is more behind its end", ErrDamaged)
	case err != io.EOF:
		return err
	}
	return nil
}

func checkHeader(head []byte, f *file) error {
	switch {
	case string(head[:8]) != objectMagic:
		return fmt.Errorf("%w: it does not begin with %q", ErrDamaged, objectMagic)
	case binary.LittleEndian.Uint64(head[headerSize-8:]) != xxhash.Sum64(head[:headerSize-8]):
		return fmt.Errorf("%w: its header does not fit its checksum", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v > formatVersion {
		return newer("it", int(v), formatVersion)
	}
	if string(head) != string(header(f)) {
		return fmt.Errorf("%w: it is that of another file", ErrDamaged)
	}
	return nil
}

// exactly reads n bytes.
func (r *objectReader) exactly(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, short(err)
}

// short makes the early end of an object damage.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return err
}
