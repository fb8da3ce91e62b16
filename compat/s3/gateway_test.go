package s3_test

// This file starts the server of S3: the test binary itself, in a process of its own.

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bucket"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

const (
	keyID, keySecret = "compat-key", "compat-secret-0123456789"
	bucketName       = "backups"
	versionsDir      = "versions" // of a server

	// The variables that make the test binary a server.
	envDir, envAddress, envKey = "FLAGSTONE_TEST_GATEWAY_DIR", "FLAGSTONE_TEST_GATEWAY_ADDRESS", "FLAGSTONE_TEST_GATEWAY_KEY"
)

// command is the flagstone command.
var command *endpoint.Command

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		fmt.Fprintln(os.Stderr, serve(dir, os.Getenv(envAddress), os.Getenv(envKey)))
		os.Exit(1)
	}
	var err error
	if command, err = endpoint.Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	command.Remove()
	os.Exit(status)
}

// serve is a server of S3 until its standard input ends, as it does with the test. key is a file with the certificate and
// the private key of TLS, or "".
func serve(dir, address, key string) error {
	side, err := meta.NewSideCar(filepath.Join(dir, "attributes"))
	if err != nil {
		return err
	}
	opts := posix.PosixOpts{SideCarDir: filepath.Join(dir, "attributes")}
	if versions := filepath.Join(dir, versionsDir); isThere(versions) {
		opts.VersioningDir = versions
	}
	objects, err := posix.New(filepath.Join(dir, "objects"), side, opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return embedgw.RunVersityGW(ctx, objects, &embedgw.Config{
		RootUserAccess: keyID, RootUserSecret: keySecret, Ports: []string{address},
		MaxConnections: 100, MaxRequests: 100, MultipartMaxParts: 10_000, Quiet: true,
		CertFile: key, KeyFile: key,
	})
}

// gateway is a server of S3 with one bucket.
type gateway struct {
	dir, address string
	key          string // file of the certificate and the private key; "": without TLS
	process      *exec.Cmd
	client       *minio.Client
}

func isThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// newGateway starts a server, which stops with the test. With the directory versionsDir it can keep versions.
func newGateway(t *testing.T, dirs ...string) *gateway { return startGateway(t, "", nil, dirs...) }

// startGateway starts a server with a key of TLS, or without one.
func startGateway(t *testing.T, key string, transport http.RoundTripper, dirs ...string) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{dir: t.TempDir(), address: l.Addr().String(), key: key}
	_ = l.Close() // the server takes the port
	for _, dir := range append([]string{"objects", "attributes"}, dirs...) {
		if err := os.Mkdir(filepath.Join(g.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.client, err = minio.New(g.address, &minio.Options{Creds: credentials.NewStaticV4(keyID, keySecret, ""), Region: "us-east-1", Secure: key != "", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	g.start(t)
	t.Cleanup(g.kill)
	if err := g.client.MakeBucket(context.Background(), bucketName, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return g
}

// start starts the process, and waits until it answers.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	g.process = exec.Command(os.Args[0])
	g.process.Env = append(os.Environ(), envDir+"="+g.dir, envAddress+"="+g.address, envKey+"="+g.key)
	g.process.Stderr = os.Stderr
	if _, err := g.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := g.process.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.client.BucketExists(context.Background(), bucketName); err != nil { // it tries for some seconds
		t.Fatal(err)
	}
}

// kill ends the process at once.
func (g *gateway) kill() {
	_ = g.process.Process.Kill()
	_ = g.process.Wait() // it was killed
}

// environment is that of commands which use the server.
func (g *gateway) environment() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + keyID, "AWS_SECRET_ACCESS_KEY=" + keySecret, "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + g.client.EndpointURL().String()}
}

// repository returns a repository in the bucket.
func (g *gateway) repository(t *testing.T, prefix string) *bucket.Repository {
	t.Helper()
	r, err := bucket.Open("s3://"+bucketName+"/"+prefix, bucket.Options{Endpoint: "http://" + g.address, Env: func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": keySecret, "AWS_REGION": "us-east-1"}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
