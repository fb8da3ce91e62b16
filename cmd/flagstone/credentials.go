package main

// The access key of the account, which opens every instance: from the
// environment or, if it is not set there, from a file in the store's directory,
// which is made at the first start. Keys of single instances are in the
// registry of package instances.

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flagstone-db/flagstone/instances"
)

const (
	envKeyID     = "FLAGSTONE_ACCESS_KEY_ID"
	envKeySecret = "FLAGSTONE_ACCESS_KEY_SECRET"

	credentialsFile = "credentials"
)

// credentials are an access key id and its secret.
type credentials struct {
	id, secret string
	// fresh: made by this process, to be shown once.
	fresh bool
	// from says where they come from: "the environment" or a file name.
	from string
}

// loadCredentials finds the credentials or makes them.
func loadCredentials(dir string, getenv func(string) string) (credentials, error) {
	c := credentials{id: getenv(envKeyID), secret: getenv(envKeySecret), from: "the environment"}
	switch {
	case c.id != "" && c.secret != "":
		return c, nil
	case c.id != "" || c.secret != "":
		return c, fmt.Errorf("only one of %s and %s is set; set both, or neither to use a generated pair", envKeyID, envKeySecret)
	}
	name := filepath.Join(dir, credentialsFile)
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return makeCredentials(name)
	}
	if err != nil {
		return c, err
	}
	return parseCredentials(name, string(content))
}

// makeCredentials writes a random pair to a file that only its owner reads.
func makeCredentials(name string) (credentials, error) {
	key := instances.NewKey()
	c := credentials{id: key.ID, secret: key.Secret, fresh: true, from: name}
	content := credentialLines(c.id, c.secret)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return c, err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
		return c, fmt.Errorf("write %s: %w", name, err)
	}
	return c, nil
}

// credentialLines is an access key as files and environments have it.
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

// lookup returns the secret of an access key. Key ids are no secrets, but
// comparing them in constant time costs nothing.
func (c credentials) lookup(id string) (secret string, ok bool) {
	if subtle.ConstantTimeCompare([]byte(id), []byte(c.id)) != 1 {
		return "", false
	}
	return c.secret, true
}

// snippet is how a program of the user connects.
func (c credentials) snippet(url, instance string) string {
	return fmt.Sprintf(`flagstone: made an access key, kept in %s and shown only now. With the Go SDK:

    client := tablestore.NewClient("%s", "%s",
        "%s", "%s")

`, c.from, url, instance, c.id, c.secret)
}
