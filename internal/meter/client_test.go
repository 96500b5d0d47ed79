// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/internal/hint"
	"weir/internal/meter/irtt"
)

// A name that DNS does not know is wrong; one that it was not asked for may be right.
func TestUnanswered(t *testing.T) {
	of := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err       error
		says, try string
	}{
		{&net.DNSError{Err: "no such host", Name: "far.example", IsNotFound: true},
			"far.example has no address that is known here: no such host", "its name as others write it"},
		{&net.DNSError{Err: "i/o timeout", Name: "far.example", IsTimeout: true, IsTemporary: true},
			"the address of far.example cannot be looked up: DNS does not answer (i/o timeout)",
			"its address in place"},
		{&net.DNSError{Err: "connection refused", Name: "far.example"},
			"the address of far.example cannot be looked up: DNS does not answer (connection refused)",
			"its address in place"},
		{&net.DNSError{Err: "server misbehaving", Name: "far.example", IsTemporary: true},
			"the address of far.example cannot be looked up: DNS does not answer (server misbehaving)",
			"its address in place"},
		{errors.New("connection refused"), "nobody answers at far.example:4747 by TCP: connection refused",
			"weir serve"},
	} {
		err := dialError("far.example:4747", of(c.err), "weir serve")
		var p *hint.Error
		if !errors.As(err, &p) || p.What != c.says || !strings.HasPrefix(p.Try, c.try) {
			t.Errorf("%v: %v, want %s", c.err, err, c.says)
		}
	}
}

// A server that wants an hour between two probes would have the measurement last as long.
func TestSeldom(t *testing.T) {
	there, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	grant := irtt.Responder{Key: []byte("k"), Client: netip.Addr.String, Now: time.Now, Most: 4, MinInterval: time.Hour,
		MaxDuration: time.Hour, Token: func() uint64 { return 7 }}
	go func() {
		b := make([]byte, 9000)
		for {
			n, from, err := there.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			there.WriteToUDPAddrPort(grant.Handle(from, 0, b[:n]).Bytes, from)
		}
	}()
	_, err = openUDP(t.Context(), there.LocalAddr().String(), []byte("k"), irtt.Params{
		Duration: int64(time.Minute), Interval: int64(Interval)})
	if err == nil || !strings.Contains(err.Error(), "1h0m0s between two probes") {
		t.Error(err)
	}
}

// A certificate that is not trusted is said to be that, and why: it is no server without TLS.
func TestExplainDistrust(t *testing.T) {
	of := func(names ...string) *x509.Certificate { return &x509.Certificate{DNSNames: names} }
	for _, c := range []struct {
		err       error
		what, try string
	}{
		{x509.UnknownAuthorityError{}, "the certificate of a:1 is not signed by a trusted authority", "--pin"},
		{x509.HostnameError{Certificate: of("speed.example.org", "b"), Host: "a"},
			"the certificate of a:1 is for speed.example.org, b", "that name"},
		{x509.HostnameError{Certificate: of(), Host: "a"}, "the certificate of a:1 is for another name", "--pin"},
		{x509.CertificateInvalidError{Reason: x509.Expired},
			"the certificate of a:1 has expired, or is not valid yet", "date"},
		{x509.CertificateInvalidError{Reason: x509.IncompatibleUsage},
			"the certificate of a:1 cannot be trusted: certificate specifies an incompatible key usage", "--pin"},
		{errors.New("EOF"), "", ""},
	} {
		got := (Target{Addr: "a:1"}).explainDistrust(fmt.Errorf("tls: %w", c.err))
		if (got == nil) != (c.what == "") || got != nil && (got.What != c.what || !strings.Contains(got.Try, c.try)) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}
