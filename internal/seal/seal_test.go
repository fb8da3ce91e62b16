package seal

import (
	"bytes"
	"testing"
)

func TestOnlyWhatWasSealedForAUseOpens(t *testing.T) {
	key := []byte("key")
	for _, use := range []string{"", "position"} {
		sealed := Seal(key, use, []byte("content"))
		if got, ok := Open(key, use, sealed); !ok || string(got) != "content" {
			t.Errorf("use %q: %q, %v", use, got, ok)
		}
		if _, ok := Open(key, use+"x", sealed); ok {
			t.Errorf("use %q: it opens for another", use)
		}
		if _, ok := Open([]byte("other"), use, sealed); ok {
			t.Errorf("use %q: it opens with another key", use)
		}
		for i := range sealed {
			other := bytes.Clone(sealed)
			other[i] ^= 1
			if _, ok := Open(key, use, other); ok {
				t.Errorf("use %q: byte %d is not covered", use, i)
			}
			if _, ok := Open(key, use, sealed[:i]); ok {
				t.Errorf("use %q: %d bytes of it open", use, i)
			}
		}
	}
}
