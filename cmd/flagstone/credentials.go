package main

// This file handles the account's access key, which opens every instance. It comes from the
// environment or, if not set there, from a file in the store's directory, made at the first
// start. Keys of single instances are in the registry of package instances.

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	envKeyID     = "FLAGSTONE_ACCESS_KEY_ID"
	envKeySecret = "FLAGSTONE_ACCESS_KEY_SECRET"

	credentialsFile = "credentials"
	fromEnvironment = "the environment"
)

// credentials are an access key id and its secret.
type credentials struct {
	id, secret string
	// fresh: made by this process, to be shown once.
	fresh bool
	// from is the origin: fromEnvironment, a variable there or a file name.
	from string
}

// environmentCredentials returns the credentials of the environment, without an id if there are none.
func environmentCredentials(getenv func(string) string) (credentials, error) {
	c := credentials{id: getenv(envKeyID), secret: getenv(envKeySecret), from: fromEnvironment}
	if (c.id == "") != (c.secret == "") {
		return c, fmt.Errorf("only one of %s and %s is set; set both, or neither to use a generated pair", envKeyID, envKeySecret)
	}
	return c, nil
}

// loadCredentials finds the credentials or makes them.
func loadCredentials(dir string, getenv func(string) string) (credentials, error) {
	c, err := environmentCredentials(getenv)
	if err != nil || c.id != "" {
		return c, err
	}
	name := filepath.Join(dir, credentialsFile)
	c, err = readCredentials(name)
	if errors.Is(err, fs.ErrNotExist) {
		return makeCredentials(name)
	}
	return c, err
}

// readCredentials reads the credentials from a file.
func readCredentials(name string) (credentials, error) {
	content, err := readSecret(name)
	if err != nil {
		return credentials{from: name}, err
	}
	return parseCredentials(name, string(content))
}

// makeCredentials writes a random pair to a file that only its owner can read.
func makeCredentials(name string) (credentials, error) {
	key := instances.NewKey()
	c := credentials{id: key.ID, secret: key.Secret, fresh: true, from: name}
	return c, writeSecret(name, []byte(credentialLines(c.id, c.secret)))
}

// readSecret reads a regular file of at most 64 KiB.
func readSecret(name string) ([]byte, error) { return vfs.ReadFile(vfs.OS(), name, 64<<10) }

// writeSecret makes a file that only its owner can read, durably.
func writeSecret(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// origin says where the key of a request comes from.
func (c credentials) origin() string {
	return fmt.Sprintf(" (the access key %s is that of %s)", c.id, c.from)
}

// credentialLines formats an access key as in files and environments.
func credentialLines(id, secret string) string {
	return fmt.Sprintf("%s=%s\n%s=%s\n", envKeyID, id, envKeySecret, secret)
}

func parseCredentials(name, content string) (credentials, error) {
	c := credentials{from: name}
	for line := range strings.Lines(content) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case envKeyID:
			c.id = value
		case envKeySecret:
			c.secret = value
		}
	}
	if c.id == "" || c.secret == "" {
		return c, fmt.Errorf("%s does not hold %s=... and %s=...; correct it, or delete it to have a new pair made", name, envKeyID, envKeySecret)
	}
	return c, nil
}

// lookup returns the secret of an access key. Ids are not secret, but comparing them in
// constant time costs nothing.
func (c credentials) lookup(id string) (secret string, ok bool) {
	if subtle.ConstantTimeCompare([]byte(id), []byte(c.id)) != 1 {
		return "", false
	}
	return c.secret, true
}

// snippet shows how a program of the user connects.
func (c credentials) snippet(url, instance string) string {
	return fmt.Sprintf(`flagstone: made an access key, kept in %s and shown only now. With the Go SDK:

    client := tablestore.NewClient("%s", "%s",
        "%s", "%s")

`, c.from, url, instance, c.id, c.secret)
}

// weakness says why the secret is easily guessed, or returns "". With one captured request, an
// attacker can test secrets offline.
func (c credentials) weakness() string {
	const least = 16
	known := []string{"secret", "password", "test", "admin", "example", "12345", "qwerty", "changeme", "accesskey", "aksecret"}
	lower := strings.ToLower(c.secret)
	different := map[rune]bool{}
	for _, r := range lower {
		different[r] = true
	}
	switch {
	case len(c.secret) < least:
		return fmt.Sprintf("it has %d characters, fewer than %d", len(c.secret), least)
	case strings.EqualFold(c.secret, c.id):
		return "it is the id"
	case len(different) < least/2:
		return "it repeats a few characters"
	case slices.ContainsFunc(known, func(word string) bool { return len(strings.ReplaceAll(lower, word, "")) < least/2 }):
		return "it is a well-known word"
	}
	return ""
}

// warn logs weaknesses of the access keys of a directory.
func (c credentials) warn(dir string, logger *slog.Logger) {
	if why := c.weakness(); why != "" {
		logger.Warn("the secret of the account's access key is easily guessed; use a random one", "id", c.id, "from", c.from, "because", why)
	}
	for _, file := range []string{credentialsFile, instances.RegistryName} {
		if file == credentialsFile && c.from == fromEnvironment {
			continue // not used
		}
		name := filepath.Join(dir, file)
		st, err := os.Lstat(name)                                                                            // not Stat: the mode of a link says nothing
		if err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" { // Windows has other permissions
			logger.Warn("others can read a file with secrets; take the permission away and change the secrets", "file", name, "mode", st.Mode().Perm())
		}
	}
}
