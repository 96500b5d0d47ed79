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

	"weir/internal/hint"
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

// Keep reads what is kept, and makes what is not there yet. An empty token or key is as none: no token lets in
// everybody.
func Keep(dir string) (k Kept, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return k, err
	}
	cert, key := filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile)
	if secret, err := readSecret(key); err == nil && secret == "" {
		if err := makeCertificate(cert, key); err != nil {
			return k, err
		}
	}
	if k, err = Load(cert, key); errors.Is(err, fs.ErrPermission) {
		return k, err
	} else if err != nil {
		return k, &hint.Error{What: err.Error(),
			Try: "rm " + key + ", and start again: a new certificate is made, which has another fingerprint"}
	}
	path := filepath.Join(dir, tokenFile)
	if k.Token, err = readSecret(path); err == nil && k.Token == "" {
		b := make([]byte, 12)
		rand.Read(b)
		k.Token = hex.EncodeToString(b)
		err = writeWhole(path, []byte(k.Token+"\n"), 0o600)
	}
	return k, err
}

// readSecret gives what a file has, without spaces around it; "" if it is not there.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(text)), err
}

// writeWhole makes a file so that a full disk or a power cut leaves what was there before or this, whole. Until it is
// on disk it has another name.
func writeWhole(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // its owner's alone
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	if d, err := os.Open(dir); err == nil { // some file systems cannot sync one, and need not
		d.Sync()
		d.Close()
	}
	return nil
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
	// The key comes last: it says that the certificate is whole.
	if err := writeWhole(cert, block("CERTIFICATE", der), 0o644); err != nil {
		return err
	}
	return writeWhole(key, block("PRIVATE KEY", secret), 0o600)
}
