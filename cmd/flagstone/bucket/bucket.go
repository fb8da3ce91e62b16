// Package bucket keeps a repository of backups in a bucket of a server that speaks S3.
//
//	bucket.go     the repository
//	object.go     reads an object, and goes on where an answer broke off
//	upload.go     puts an object: in one request if it is small, else in parts
//	sweep.go      deletes what killed uploads in parts have left
//	retry.go      sends a request again that failed for a reason that passes
//	transport.go  bounds what a server can take in time and memory
//
// Objects of a repository are objects of the bucket, whose keys begin with the prefix of the repository. The server
// must show what was put, and no longer show what was deleted, to every later request, as Amazon S3 does.
package bucket

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// maxListed bounds the names of one listing, which callers may hold in memory.
	maxListed = 5_000_000
	// maxName is how long a name may be. Those of a repository have less than 100 characters.
	maxName = 128
	// listPatience bounds one listing of up to maxListed names, so that a server cannot send empty pages for ever.
	listPatience = time.Hour
	// abortPatience bounds what is cleaned up after an error.
	abortPatience = 30 * time.Second
	// amazon is the endpoint if none is given.
	amazon = "https://s3.amazonaws.com"
)

// Options say how the server of a bucket is reached.
type Options struct {
	// Endpoint is the URL of the server; "" is Amazon's.
	Endpoint string
	// Plaintext allows an endpoint without TLS on another machine.
	Plaintext bool
	// Env returns the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and
	// AWS_CA_BUNDLE.
	Env func(name string) string
}

// Repository is a backup.Repository in a bucket. Its methods are safe for concurrent use.
type Repository struct {
	core           *minio.Core
	transport      *transport
	bucket, prefix string // the prefix is empty or ends in a slash
	maxListed      int
	listPatience   time.Duration
	sweepPatience  time.Duration
	patience       time.Duration
}

// Open returns the repository at a URL like s3://bucket/prefix. It sends no request. No error has a secret.
func Open(location string, opts Options) (*Repository, error) {
	bucket, prefix, err := parse(location)
	if err != nil {
		return nil, err
	}
	endpoint, err := parseEndpoint(opts.Endpoint, opts.Plaintext)
	if err != nil {
		return nil, err
	}
	id, secret := opts.Env("AWS_ACCESS_KEY_ID"), opts.Env("AWS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		return nil, fmt.Errorf("no access key for s3://%s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", bucket)
	}
	roots, err := authorities(opts.Env("AWS_CA_BUNDLE"))
	if err != nil {
		return nil, err
	}
	transport := newTransport(roots, silence, whole, joining)
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(id, secret, opts.Env("AWS_SESSION_TOKEN")),
		Secure:     endpoint.Scheme == "https",
		Region:     opts.Env("AWS_REGION"),
		Transport:  transport,
		MaxRetries: clientTries,
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint %s://%s: %w", endpoint.Scheme, endpoint.Host, err)
	}
	return &Repository{core, transport, bucket, prefix, maxListed, listPatience, sweepPatience, patience}, nil
}

// authorities reads the certificates, in PEM, that a server of TLS must be signed by; nil is those of the system.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %s has no certificate in PEM", file)
	}
	return roots, nil
}

// parse takes a URL like s3://bucket/prefix apart. Its errors do not repeat what may be a secret.
func parse(location string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(location, "s3://")
	if !ok || strings.ContainsAny(rest, "@?#\\") || strings.ContainsFunc(rest, func(c rune) bool { return c < ' ' }) {
		return "", "", errors.New("a bucket is written like s3://bucket/prefix, without keys and parameters")
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	if bucket == "" {
		return "", "", errors.New("s3:// names no bucket; write s3://bucket/prefix")
	}
	if prefix == "" {
		return bucket, "", nil
	}
	if path.Clean("/"+prefix) != "/"+prefix {
		return "", "", fmt.Errorf("the prefix %q has a part that is empty or leads elsewhere", prefix)
	}
	return bucket, prefix + "/", nil
}

// parseEndpoint refuses an endpoint to which keys and backups would go in the clear.
func parseEndpoint(endpoint string, plaintext bool) (*url.URL, error) {
	if endpoint == "" {
		endpoint = amazon
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("an endpoint of S3 is written like https://s3.example.com, without keys and paths")
	}
	ip := net.ParseIP(u.Hostname())
	if loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); u.Scheme == "http" && !loopback && !plaintext {
		return nil, fmt.Errorf("%s is on another machine, and http does not encrypt; use https, or allow it with --s3-plaintext", u.Host)
	}
	return u, nil
}

// List implements backup.Repository. It refuses a server that lists other names, or a name twice. A listing that breaks
// off goes on behind the last name.
func (r *Repository) List(ctx context.Context, prefix string, each func(name string, size int64) error) error {
	bounded, cancel := context.WithTimeout(ctx, r.listPatience)
	defer cancel()
	l := listing{repo: r, prefix: prefix, each: each}
	var w waits
	for {
		before := l.n
		err := l.run(bounded)
		if l.n > before {
			w = waits{}
		}
		if l.stopped || !w.again(bounded, r, err) {
			return err
		}
	}
}

// listing calls each for names.
type listing struct {
	repo    *Repository
	prefix  string
	each    func(name string, size int64) error
	last    string // the last name, if n > 0
	n       int
	stopped bool // by each
}

// run lists what is behind the last name.
func (l *listing) run(ctx context.Context) error {
	r, options := l.repo, minio.ListObjectsOptions{Prefix: l.repo.prefix + l.prefix, Recursive: true}
	if l.n > 0 {
		options.StartAfter = r.prefix + l.last
	}
	for info := range r.core.ListObjectsIter(ctx, r.bucket, options) {
		if info.Err != nil {
			return r.explain(ctx, l.prefix, info.Err)
		}
		name, ok := strings.CutPrefix(info.Key, r.prefix)
		switch l.n++; {
		case !ok || !strings.HasPrefix(name, l.prefix):
			return r.broken(l.prefix, "the server lists %q, which does not begin so", shorten(info.Key))
		case len(name) > maxName:
			return r.broken(l.prefix, "the server lists %q, which is longer than names of a repository", shorten(name))
		case l.n > 1 && name <= l.last:
			return r.broken(l.prefix, "the server lists %q behind %q; names must ascend", shorten(name), shorten(l.last))
		case info.Size < 0:
			return r.broken(l.prefix, "the server lists %q with %d bytes", shorten(name), info.Size)
		case l.n > r.maxListed:
			return r.broken(l.prefix, "the server lists more than %d names", r.maxListed)
		}
		l.last = name
		if err := l.each(name, info.Size); err != nil {
			l.stopped = true
			return err
		}
	}
	return r.explain(ctx, l.prefix, ctx.Err()) // if it has ended, the names just end
}

// Sync implements backup.Repository. An object that is listed is durable.
func (r *Repository) Sync(context.Context, []string) error { return nil }

// Delete implements backup.Repository.
func (r *Repository) Delete(ctx context.Context, name string) error {
	return r.retry(ctx, func() error {
		err := r.core.RemoveObject(ctx, r.bucket, r.prefix+name, minio.RemoveObjectOptions{})
		if err = r.explain(ctx, name, err); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
