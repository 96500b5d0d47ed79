// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"weir/internal/hint"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// Domain is a name for which an authority vouches (ACME, RFC 8555). It asks this host's port 443 for proof, in TLS
// (tls-alpn-01, RFC 8737), so the one port is enough. Nobody needs a fingerprint then.
type Domain struct {
	Name    string
	manager *autocert.Manager
}

// NewDomain keeps account and certificates in a directory. Of the authority it takes the address; "": Let's Encrypt.
func NewDomain(name, dir, authority string) *Domain {
	m := &autocert.Manager{Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(dir),
		HostPolicy: autocert.HostWhitelist(name)}
	if authority != "" {
		m.Client = &acme.Client{DirectoryURL: authority}
	}
	return &Domain{Name: name, manager: m}
}

// Obtain gets the certificate, unless it is kept. The server must run. It is renewed when it is used and grows old.
func (d *Domain) Obtain(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		_, err := d.manager.GetCertificate(&tls.ClientHelloInfo{ServerName: d.Name,
			CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return d.explain(err)
		}
		return nil
	case <-ctx.Done():
		return nil
	}
}

// explain says what to try.
func (d *Domain) explain(err error) error {
	what := "no certificate for " + d.Name + ": "
	var said *acme.Error
	var unreachable *url.Error
	var network *net.OpError
	switch {
	case errors.As(err, &said) && said.StatusCode == 429:
		return &hint.Error{What: what + "the authority has been asked too often", Try: "again tomorrow"}
	case errors.As(err, &said):
		return &hint.Error{What: what + said.Detail, Try: "a name that leads to this host"}
	case errors.As(err, &unreachable), errors.As(err, &network):
		return &hint.Error{What: fmt.Sprintf("%sthe authority does not answer: %v", what, cause(err)),
			Try: "again, with https open to the Internet"}
	case strings.Contains(err.Error(), "no viable challenge"): // the library keeps the reason to itself
		return &hint.Error{What: what + "the authority did not reach this program at port 443 of that name",
			Try: "a name that leads to this host, and port 443 open"}
	}
	return &hint.Error{What: what + err.Error(), Try: "--cert and --key, of a certificate from elsewhere"}
}

func cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// tls is what a server speaks: with the domain's certificate to those who name it, and to others with its own.
func (s *Server) tls() *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{s.Certificate}, MinVersion: tls.VersionTLS12}
	if s.Domain == nil {
		return c
	}
	c.NextProtos = []string{"h2", "http/1.1", acme.ALPNProto}
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		proof := slices.Contains(hello.SupportedProtos, acme.ALPNProto)
		if proof || strings.EqualFold(hello.ServerName, s.Domain.Name) {
			return s.Domain.manager.GetCertificate(hello)
		}
		return nil, nil // its own
	}
	return c
}

// withHTTP2 offers HTTP/2 only as often as there is memory for it.
func withHTTP2(c *tls.Config, l *limitListener) *tls.Config {
	older := c.Clone()
	older.NextProtos = []string{"http/1.1"}
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, "h2") && !l.mayUseHTTP2(hello.Conn) {
			return older, nil
		}
		return nil, nil
	}
	return c
}
