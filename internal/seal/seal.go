// Package seal authenticates bytes that clients carry and give back: they end in the beginning of an HMAC-SHA256 under a
// key that only the server has.
package seal

import (
	"crypto/hmac"
	"crypto/sha256"
)

// MAC is the length of what Seal appends.
const MAC = 16

// Seal returns b with its mac. Bytes of one use are refused for another.
func Seal(key []byte, use string, b []byte) []byte { return append(b, mac(key, use, b)...) }

// Open returns what was sealed; ok is false if it was not sealed with this key for this use.
func Open(key []byte, use string, b []byte) (content []byte, ok bool) {
	n := len(b) - MAC
	if n < 0 || !hmac.Equal(b[n:], mac(key, use, b[:n])) {
		return nil, false
	}
	return b[:n], true
}

func mac(key []byte, use string, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	if use != "" { // shard iterators have none, and are the only ones of their key
		h.Write([]byte(use))
		h.Write([]byte{0})
	}
	h.Write(b)
	return h.Sum(nil)[:MAC]
}
