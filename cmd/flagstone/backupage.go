package main

// This file encrypts backups with age.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/flagstone-db/flagstone/backup"
)

// ageSealer encrypts for public keys.
type ageSealer struct {
	recipients []age.Recipient
	name       string
}

// Name implements backup.Sealer. It does not tell the keys.
func (s *ageSealer) Name() string { return s.name }

// Seal implements backup.Sealer.
func (s *ageSealer) Seal(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, s.recipients...) }

// recipients returns what encrypts for public keys, nil if there are none.
func recipients(keys []string) (backup.Sealer, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	parsed, err := age.ParseRecipients(strings.NewReader(strings.Join(keys, "\n")))
	if err != nil {
		return nil, misuse("--recipient: %v", err)
	}
	return &ageSealer{parsed, fmt.Sprintf("age for sha256:%x", sha256.Sum256([]byte(strings.Join(keys, "\n"))))}, nil
}

// ageUnsealer decrypts with secret keys.
type ageUnsealer []age.Identity

// Unseal implements backup.Unsealer.
func (u ageUnsealer) Unseal(r io.Reader) (io.Reader, error) {
	plain, err := age.Decrypt(r, u...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, backup.ErrIdentity
	}
	return plain, err
}

// identities reads secret keys from files, nil if there are none.
func identities(files []string) (backup.Unsealer, error) {
	var all ageUnsealer
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		parsed, err := age.ParseIdentities(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("secret keys in %s: %w", name, err)
		}
		all = append(all, parsed...)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}
