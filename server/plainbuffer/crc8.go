package plainbuffer

import "encoding/binary"

// The checksum of the format: CRC-8, polynomial 0x07, initial value 0, not reflected, no final
// xor; of ASCII "123456789" it is F4. Values of up to 2 MiB are checksummed in both directions,
// so each step processes eight bytes: table k holds the effect of a byte that k other bytes
// follow.

const crcPolynomial = 0x07

var crcTables = makeCRCTables()

func makeCRCTables() *[8][256]byte {
	tables := new([8][256]byte)
	for i := range 256 {
		crc := byte(i)
		for range 8 {
			if crc&0x80 != 0 {
				crc = crc<<1 ^ crcPolynomial
			} else {
				crc <<= 1
			}
		}
		tables[0][i] = crc
	}
	for k := 1; k < 8; k++ {
		for i := range 256 {
			tables[k][i] = tables[0][tables[k-1][i]]
		}
	}
	return tables
}

// crcBytes continues a checksum with b.
func crcBytes(crc byte, b []byte) byte {
	t := crcTables
	for ; len(b) >= 8; b = b[8:] {
		crc = t[7][b[0]^crc] ^ t[6][b[1]] ^ t[5][b[2]] ^ t[4][b[3]] ^
			t[3][b[4]] ^ t[2][b[5]] ^ t[1][b[6]] ^ t[0][b[7]]
	}
	for _, c := range b {
		crc = t[0][crc^c]
	}
	return crc
}

// crcByte continues a checksum with one byte.
func crcByte(crc, b byte) byte { return crcTables[0][crc^b] }

// crcInt64 continues a checksum with the eight bytes of v.
func crcInt64(crc byte, v int64) byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	return crcBytes(crc, b[:])
}
