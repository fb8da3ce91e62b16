package s3_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newCertificate writes a certificate that has signed itself, and one with its private key.
func newCertificate(t *testing.T, dir string) (bundle, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	bundle, key = filepath.Join(dir, "bundle.pem"), filepath.Join(dir, "key.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{bundle: public, key: append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), public...)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(public)
	return bundle, key, roots
}

// TestABackupGoesOverTLS uses a server whose certificate no authority of the system has signed.
func TestABackupGoesOverTLS(t *testing.T) {
	at := t.TempDir()
	bundle, key, roots := newCertificate(t, at)
	g := startGateway(t, key, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}})
	dir, restored, env := filepath.Join(at, "store"), filepath.Join(at, "restored"), g.environment()
	const place = "s3://" + bucketName + "/shop"
	fill(t, env, dir)
	trusting := append(env, "AWS_CA_BUNDLE="+bundle)
	run(t, trusting, "backup", "create", place, "--dir", dir)
	run(t, trusting, "restore", place, "--to", restored)
	if got, want := scan(t, env, restored), scan(t, env, dir); got != want {
		t.Errorf("restored are %d lines, want %d", strings.Count(got, "\n"), strings.Count(want, "\n"))
	}
	for setting, says := range map[string]string{
		"":                            "certificate",
		filepath.Join(at, "no"):       "AWS_CA_BUNDLE: open ",
		filepath.Join(dir, "CURRENT"): "has no certificate in PEM",
	} {
		r, err := command.Run(append(env, "AWS_CA_BUNDLE="+setting), "backup", "list", place)
		if err != nil || r.Status == 0 || !strings.Contains(r.Stderr, says) {
			t.Errorf("with AWS_CA_BUNDLE=%s: %+v, %v", setting, r, err)
		}
	}
}
