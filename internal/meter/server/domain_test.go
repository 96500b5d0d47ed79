// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"weir/internal/hint"

	"golang.org/x/crypto/acme"
)

// authority is a small one that speaks ACME. It proves a name by tls-alpn-01, as a real one does, but at an address
// that it is told. Signatures of requests it takes on trust.
type authority struct {
	*httptest.Server
	mu     sync.Mutex
	at     string // where the name leads
	broken bool   // it has been asked too often
	orders int
	key    *ecdsa.PrivateKey
	root   *x509.Certificate
	user   string // the account's thumbprint
	status map[string]string
	cert   []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, status: map[string]string{}}
	a.root, _ = x509.ParseCertificate(der)
	a.Server = httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(a.Close)
	return a
}

func (a *authority) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Replay-Nonce", "nonce")
	var body struct{ Protected, Payload string }
	json.NewDecoder(r.Body).Decode(&body)
	payload, _ := base64.RawURLEncoding.DecodeString(body.Payload)
	order := map[string]any{"authorizations": []string{a.URL + "/authz"}, "finalize": a.URL + "/finalize",
		"certificate": a.URL + "/cert"}
	challenge := map[string]any{"type": "tls-alpn-01", "url": a.URL + "/challenge", "token": "token"}
	say := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	switch r.URL.Path {
	case "/":
		say(200, map[string]string{"newNonce": a.URL + "/nonce", "newAccount": a.URL + "/account",
			"newOrder": a.URL + "/orders"})
	case "/account":
		a.user = thumbprint(body.Protected)
		w.Header().Set("Location", a.URL+"/account/1")
		say(201, map[string]string{"status": "valid"})
	case "/orders":
		if a.broken {
			w.Header().Set("Content-Type", "application/problem+json")
			say(400, map[string]string{"type": "urn:ietf:params:acme:error:rejectedIdentifier",
				"detail": "this name is not allowed"})
			return
		}
		a.orders++
		a.status["authz"], a.status["order"] = "pending", "pending"
		order["status"] = "pending"
		w.Header().Set("Location", a.URL+"/order")
		say(201, order)
	case "/authz":
		challenge["status"] = a.status["authz"]
		say(200, map[string]any{"status": a.status["authz"], "challenges": []any{challenge},
			"identifier": map[string]string{"type": "dns", "value": "speed.example.org"}})
	case "/challenge":
		a.status["authz"], a.status["order"] = "invalid", "invalid"
		if a.proven() {
			a.status["authz"], a.status["order"] = "valid", "ready"
		}
		challenge["status"] = a.status["authz"]
		say(200, challenge)
	case "/finalize":
		a.issue(payload)
		a.status["order"] = "valid"
		order["status"] = "valid"
		w.Header().Set("Location", a.URL+"/order")
		say(200, order)
	case "/order":
		order["status"] = a.status["order"]
		say(200, order)
	case "/cert":
		w.Write(a.cert)
	}
}

// thumbprint is of the key in a request's header.
func thumbprint(protected string) string {
	header, _ := base64.RawURLEncoding.DecodeString(protected)
	var said struct{ JWK struct{ X, Y string } }
	json.Unmarshal(header, &said)
	sum := sha256.Sum256(fmt.Appendf(nil, `{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, said.JWK.X, said.JWK.Y))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// proven asks where the name leads, as RFC 8737 wants it.
func (a *authority) proven() bool {
	c, err := tls.Dial("tcp", a.at, &tls.Config{ServerName: "speed.example.org", InsecureSkipVerify: true,
		NextProtos: []string{acme.ALPNProto}})
	if err != nil {
		return false
	}
	defer c.Close()
	sum := sha256.Sum256([]byte("token." + a.user))
	want, _ := asn1.Marshal(sum[:])
	for _, e := range c.ConnectionState().PeerCertificates[0].Extensions {
		if e.Id.String() == "1.3.6.1.5.5.7.1.31" && e.Critical && string(e.Value) == string(want) {
			return c.ConnectionState().NegotiatedProtocol == acme.ALPNProto
		}
	}
	return false
}

func (a *authority) issue(payload []byte) {
	var said struct{ CSR string }
	json.Unmarshal(payload, &said)
	der, _ := base64.RawURLEncoding.DecodeString(said.CSR)
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, _ = x509.CreateCertificate(rand.Reader, template, a.root, csr.PublicKey, a.key)
	a.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.cert = append(a.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})...)
}

// A certificate is got through the port that measures. It is kept, and who asks for no name has the server's own.
func TestDomain(t *testing.T) {
	const name = "speed.example.org"
	a, dir := newAuthority(t), filepath.Join(t.TempDir(), "acme")
	d := NewDomain(name, dir, a.URL)
	r := start(t, func(c *Config) { c.Domain = d })
	a.mu.Lock()
	a.at = r.addr
	a.mu.Unlock()
	if err := d.Obtain(context.Background()); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.root)
	for _, asked := range []string{name, strings.ToUpper(name)} {
		c, err := tls.Dial("tcp", r.addr, &tls.Config{ServerName: asked, RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for _, other := range []string{"", "other.example.org"} {
		c, err := tls.Dial("tcp", r.addr, &tls.Config{ServerName: other, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if leaf := c.ConnectionState().PeerCertificates[0]; leaf.Subject.CommonName != "weir serve" {
			t.Errorf("%q gets the certificate of %v", other, leaf.DNSNames)
		}
		c.Close()
	}
	// The next start asks nobody, and other people read no key.
	if err := NewDomain(name, dir, a.URL).Obtain(context.Background()); err != nil || a.orders != 1 {
		t.Errorf("%v, %d orders", err, a.orders)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if i, err := f.Info(); err != nil || i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", f.Name(), i.Mode(), err)
		}
	}
	if len(files) < 2 {
		t.Errorf("%d files are kept", len(files))
	}
}

// What goes wrong is said in a line, with what to try.
func TestDomainRefusals(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	for want, change := range map[string]func(*authority) string{
		"did not reach this program at port 443": func(a *authority) string { a.at = "127.0.0.1:1"; return a.URL },
		"this name is not allowed":               func(a *authority) string { a.broken = true; return a.URL },
		"the authority does not answer":          func(*authority) string { return gone.URL },
	} {
		a := newAuthority(t)
		err := NewDomain("speed.example.org", t.TempDir(), change(a)).Obtain(context.Background())
		problem, ok := err.(*hint.Error)
		if !ok || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(),
			"no certificate for speed.example.org: ") || problem.Try == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// Ctrl-C ends the wait.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := NewDomain("speed.example.org", t.TempDir(), gone.URL).Obtain(ctx); err != nil &&
		!strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}
