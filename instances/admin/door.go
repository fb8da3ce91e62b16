package admin

// This file opens and finds the door. A server writes the file with its address when it is
// ready, and removes the file when it stops. A file left by a killed server has a dead address
// and a useless token.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/netutil"

	"github.com/flagstone-db/flagstone/instances/console"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// FileName is the name, in the directory of the home, of the file with the door's address.
const FileName = "admin"

// maxConnections bounds concurrent connections; idle ones end after the read timeout.
const maxConnections = 64

// address is the content of that file.
type address struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	Endpoint string `json:"endpoint"`
	KeyID    string `json:"key_id"`
}

// Door is the server side. Close it before the home.
type Door struct {
	file   string
	http   http.Server
	served chan error
}

// Open offers the home in dir to other processes of the same owner, and what is in the feed to its browser. It tells
// those processes the endpoint at which the home is served, and the id of the account's access key.
func Open(dir string, home Admin, feed *console.Feed, endpoint, keyID string) (*Door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no port for administration: %w", err)
	}
	at := address{URL: "http://" + listener.Addr().String(), Token: rand.Text() + rand.Text(), Endpoint: endpoint, KeyID: keyID}
	d := &Door{file: filepath.Join(dir, FileName), served: make(chan error, 1)}
	stopping, stop := context.WithCancel(context.Background())
	d.http = http.Server{Handler: newHandler(stopping, home, feed, at.Token), ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	d.http.RegisterOnShutdown(stop)
	if err := at.write(d.file); err != nil {
		stop()
		return nil, errors.Join(err, listener.Close())
	}
	go func() { d.served <- d.http.Serve(netutil.LimitListener(listener, maxConnections)) }()
	return d, nil
}

// Close stops accepting connections and waits, within ctx, for running requests.
func (d *Door) Close(ctx context.Context) error {
	err := os.Remove(d.file)
	if stopped := d.http.Shutdown(ctx); stopped != nil {
		err = errors.Join(err, stopped, d.http.Close())
	}
	<-d.served
	return err
}

// write replaces the file by one that only its owner can read.
func (a *address) write(name string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(name, append(text, '\n'))
}

// Verify returns an error if the address file of a home exists and cannot be read.
func Verify(dir string) error {
	if _, err := readAddress(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readAddress finds the door of a home. The error matches fs.ErrNotExist if there is none.
func readAddress(dir string) (a address, err error) {
	name := filepath.Join(dir, FileName)
	text, err := vfs.ReadFile(vfs.OS(), name, 64<<10)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil || a.URL == "" || a.Token == "" {
		return a, fmt.Errorf("%s does not say where the server is: %w", name, fs.ErrNotExist)
	}
	return a, nil
}
