package row

import (
	"encoding/binary"
	"fmt"
)

// Reference says where the value of a cell is that does not live beside the
// cell: in a value file, see package valuefile. It holds what pruning, size
// estimates and garbage accounting need to know of the value, so that none of
// them reads it.
type Reference struct {
	File   uint64 // number of the value file, at least 1
	Offset uint64 // of the value's record in the file
	Stored uint32 // length of the record, in bytes
	Raw    uint32 // length of the value
	// Checksum is that of the record. It binds the reference to the very record
	// it was made for.
	Checksum uint64
}

// ReferenceBytes is the length of an encoded Reference. The length is fixed: a
// block that holds references compresses what would have been saved.
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
