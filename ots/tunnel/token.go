package tunnel

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"

	"github.com/flagstone-db/flagstone/internal/seal"
)

// This file makes what clients carry. Neither can be forged, nor used with another tunnel: both
// are sealed with the tunnel's key. Integers are big endian.
//
//	position   version 1 | tenure 8 | after 8 | as of 8 | key | mac 16    the mac covers the channel's id too
//	client id  base64url( version 1 | random 12 | run 8 | time-out in seconds 4 | mac 16 )

const (
	carriedVersion = 1
	positionHead   = 1 + 8 + 8 + 8
	clientHead     = 1 + 12 + 8 + 4
	mostClientID   = 64 // bytes of text
)

// unseal returns the content of sealed bytes of the known version.
func (s *Spec) unseal(use string, b []byte) ([]byte, bool) {
	b, ok := seal.Open(s.Key, use, b)
	return b, ok && len(b) > 0 && b[0] == carriedVersion
}

// sealPosition encodes a position in a channel, for the client that has it in a tenure.
func (s *Spec) sealPosition(channel string, tenure uint64, p Position) []byte {
	b := []byte{carriedVersion}
	b = binary.BigEndian.AppendUint64(b, tenure)
	b = binary.BigEndian.AppendUint64(b, p.After)
	b = binary.BigEndian.AppendUint64(b, uint64(p.AsOf))
	return seal.Seal(s.Key, "position "+channel, append(b, p.Key...))
}

// position decodes a position that was given out for the channel.
func (s *Spec) position(channel string, b []byte) (p Position, tenure uint64, ok bool) {
	b, ok = s.unseal("position "+channel, b)
	if !ok || len(b) < positionHead {
		return Position{}, 0, false
	}
	return Position{
		Key:   b[positionHead:],
		After: binary.BigEndian.Uint64(b[9:]),
		AsOf:  int64(binary.BigEndian.Uint64(b[17:])),
	}, binary.BigEndian.Uint64(b[1:]), true
}

// before reports whether p lies before q.
func (p Position) before(q Position) bool {
	return p.After < q.After || bytes.Compare(p.Key, q.Key) < 0
}

// equal reports whether nothing of p and q differs.
func (p Position) equal(q Position) bool {
	return p.After == q.After && p.AsOf == q.AsOf && bytes.Equal(p.Key, q.Key)
}

// newClientID makes the id of a client.
func (s *Spec) newClientID(run uint64, timeoutSeconds uint32) string {
	b := make([]byte, 1+12, clientHead+seal.MAC)
	b[0] = carriedVersion
	_, _ = rand.Read(b[1:]) // never fails
	b = binary.BigEndian.AppendUint64(b, run)
	b = binary.BigEndian.AppendUint32(b, timeoutSeconds)
	return base64.RawURLEncoding.EncodeToString(seal.Seal(s.Key, "client", b))
}

// clientID checks a client id and returns what it says.
func (s *Spec) clientID(id string) (run uint64, timeoutSeconds uint32, ok bool) {
	if len(id) > mostClientID {
		return 0, 0, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil {
		return 0, 0, false
	}
	if b, ok = s.unseal("client", b); !ok || len(b) != clientHead {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(b[13:]), binary.BigEndian.Uint32(b[21:]), true
}
