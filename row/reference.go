package row

import (
	"encoding/binary"
	"fmt"
)

// Reference is the place of a value that is not stored beside its cell but in a value file, see
// package valuefile. It holds what pruning, size estimates and garbage accounting need, so that
// none of them reads the value.
type Reference struct {
	File   uint64 // number of the value file, at least 1
	Offset uint64 // of the record in the file
	Stored uint32 // length of the record, in bytes
	Raw    uint32 // length of the value
	// Checksum is that of the record. It binds the reference to exactly that record.
	Checksum uint64
}

// ReferenceBytes is the length of an encoded Reference. The length is fixed: a block that holds
// references compresses away what a variable length would save.
const ReferenceBytes = 32

// Append appends the encoding: the fields in their order, little endian.
func (r *Reference) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, r.File)
	dst = binary.LittleEndian.AppendUint64(dst, r.Offset)
	dst = binary.LittleEndian.AppendUint32(dst, r.Stored)
	dst = binary.LittleEndian.AppendUint32(dst, r.Raw)
	return binary.LittleEndian.AppendUint64(dst, r.Checksum)
}

// ParseReference is the inverse of Append. Errors are ErrBadValue.
func ParseReference(b []byte) (Reference, error) {
	if len(b) != ReferenceBytes {
		return Reference{}, fmt.Errorf("%w: reference of %d bytes", ErrBadValue, len(b))
	}
	r := Reference{
		File: binary.LittleEndian.Uint64(b), Offset: binary.LittleEndian.Uint64(b[8:]),
		Stored: binary.LittleEndian.Uint32(b[16:]), Raw: binary.LittleEndian.Uint32(b[20:]),
		Checksum: binary.LittleEndian.Uint64(b[24:]),
	}
	if r.File == 0 || r.File > MaxSequence || r.Raw > MaxValueBytes || r.Stored == 0 {
		return Reference{}, fmt.Errorf("%w: reference to %d bytes in file %d", ErrBadValue, r.Raw, r.File)
	}
	return r, nil
}
