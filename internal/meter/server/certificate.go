// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/internal/meter"
)

// Kept is what a server keeps from one start to the next, in a directory of its own.
type Kept struct {
	Certificate tls.Certificate
	Fingerprint string // of the certificate, as clients pin it
	Token       string
}

// The names of its files. The private key and the token are their owner's alone.
const (
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
	tokenFile       = "token"
)

// Keep reads what is kept, and makes what is not there yet.
func Keep(dir string) (k Kept, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return k, err
	}
	cert, key := filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile)
	if _, err := os.Stat(key); errors.Is(err, fs.ErrNotExist) {
		if err := makeCertificate(cert, key); err != nil {
			return k, err
		}
	}
	if k, err = Load(cert, key); err != nil {
		return k, err
	}
	path := filepath.Join(dir, tokenFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b := make([]byte, 12)
		rand.Read(b)
		text = []byte(hex.EncodeToString(b) + "\n")
		err = os.WriteFile(path, text, 0o600)
	}
	k.Token = strings.TrimSpace(string(text))
	return k, err
}

// Load reads a certificate and its key.
func Load(cert, key string) (k Kept, err error) {
	k.Certificate, err = tls.LoadX509KeyPair(cert, key)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return k, fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	if err != nil {
		return k, fmt.Errorf("%s with %s: %w", cert, key, err)
	}
	k.Fingerprint = meter.Fingerprint(k.Certificate.Certificate[0])
	return k, nil
}

// makeCertificate makes a self-signed one. Clients know it by its fingerprint, so its names say nothing.
func makeCertificate(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	const years = 10
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "weir serve"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(years, 0, 0),
		DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	block := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	// The key comes last: it tells that the certificate is whole.
	if err := os.WriteFile(cert, block("CERTIFICATE", der), 0o644); err != nil {
		return err
	}
	return os.WriteFile(key, block("PRIVATE KEY", secret), 0o600)
}
