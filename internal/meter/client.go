// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"weir/internal/hint"
)

// Target is a weir serve.
type Target struct {
	Addr  string // host:port
	Token string
	Pin   string // the certificate's fingerprint; "": it must be one that this host trusts
	Try   string // what to try where nobody answers as it should; "": as for a weir serve

	ip netip.Addr // that its name has, once one is chosen
}

// resolve chooses one address of a name, as a browser does: that which answers first. All connections of a measurement
// must go the same way. It says which address of the other family the name has, if it has one.
func (t Target) resolve(ctx context.Context) (Target, netip.Addr, error) {
	host, _, _ := net.SplitHostPort(t.Addr)
	if ip, err := netip.ParseAddr(host); err == nil {
		t.ip = ip
		return t, netip.Addr{}, nil
	}
	c, err := t.dial(ctx, "", 0)
	if err != nil {
		return t, netip.Addr{}, err
	}
	defer c.Close()
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		t.ip = a.AddrPort().Addr().Unmap()
	}
	all, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range all {
		if ip = ip.Unmap(); ip.Is4() != t.ip.Is4() {
			return t, ip, nil
		}
	}
	return t, netip.Addr{}, nil
}

// portAddr is where one of its ports is.
func (t Target) portAddr(port string) string {
	host, own, _ := net.SplitHostPort(t.Addr)
	if t.ip.IsValid() {
		host = t.ip.String()
	}
	return net.JoinHostPort(host, cmp.Or(port, own))
}

// ccError is a problem with a congestion control, which names those that there are.
func ccError(what string, there []string) error {
	there = slices.DeleteFunc(slices.Clone(there), func(cc string) bool { return CCName(cc) == "" })
	if len(there) == 0 {
		return hint.New(what, "without --cc")
	}
	return hint.New(what+" (there are: "+strings.Join(there, ", ")+")", "--cc "+there[0])
}

// CCName is a congestion control's name as the kernel allows it, short (include/net/tcp.h, TCP_CA_NAME_MAX) and of
// plain characters; "" if it is none.
func CCName(s string) string {
	const most = 16
	if len(s) >= most || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return ""
	}
	return strings.Clone(s) // and nothing else of the line that it stood in
}

// dial is Dial, with an error that says what to try.
func (t Target) dial(ctx context.Context, cc string, packet int) (net.Conn, error) {
	c, err := Dial(ctx, t.portAddr(""), cc, packet)
	var network *net.OpError
	if errors.As(err, &network) {
		return nil, dialError(t.Addr, err, cmp.Or(t.Try,
			"weir serve on that host, and a firewall that lets its port through"))
	}
	return c, err
}

// dialError tells a name that leads nowhere, and one that nobody can look up now, from a port at which nobody answers;
// try is for the latter.
func dialError(addr string, err error, try string) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		host, _, _ := net.SplitHostPort(addr)
		if !name.IsNotFound { // the name may be right
			return hint.New(fmt.Sprintf("the address of %s cannot be looked up: DNS does not answer (%s)", host,
				name.Err), "its address in place of its name, or again once DNS answers")
		}
		return hint.New(fmt.Sprintf("%s has no address that is known here: %s", host, name.Err),
			"its name as others write it, or its address")
	}
	return hint.New(fmt.Sprintf("nobody answers at %s by TCP: %v", addr, cause(err)), try)
}

// Dial connects by TCP, with a congestion control ("": the host's own) and packets of at most so many bytes of IP (0:
// what fits).
func Dial(ctx context.Context, addr, cc string, packet int) (net.Conn, error) {
	const patience = 8 * time.Second
	c, err := (&net.Dialer{Timeout: patience, Control: packetBound(packet)}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := SetCC(c, cc); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// cause is the end of a chain of errors.
func cause(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

func (t Target) tls() *tls.Config {
	host, _, _ := net.SplitHostPort(t.Addr)
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if t.Pin != "" {
		// Whoever has this very certificate is meant, whatever names are in it.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || Fingerprint(s.PeerCertificates[0].Raw) != t.Pin {
				return hint.New("the certificate of "+t.Addr+" has another fingerprint",
					"the --pin that weir serve prints there; if it is that, somebody is in between")
			}
			return nil
		}
	}
	return c
}

// connect is dial, with TLS on top, for HTTP/1.1.
func (t Target) connect(ctx context.Context, cc string, packet int) (net.Conn, error) {
	raw, err := t.dial(ctx, cc, packet)
	if err != nil {
		return nil, err
	}
	return t.startTLS(ctx, raw, "http/1.1")
}

// startTLS speaks TLS over a connection, which it closes if that fails.
func (t Target) startTLS(ctx context.Context, raw net.Conn, protocols ...string) (net.Conn, error) {
	const patience = 10 * time.Second
	config := t.tls()
	config.NextProtos = protocols
	c := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		var problem *hint.Error
		if errors.As(err, &problem) {
			return nil, problem
		}
		if problem = t.explainDistrust(err); problem != nil {
			return nil, problem
		}
		if errors.Is(err, context.DeadlineExceeded) { // such as a server that hangs, in the midst of a measurement too
			return nil, hint.New(fmt.Sprintf("%s takes connections, and says nothing for %.0f s", t.Addr,
				patience.Seconds()), cmp.Or(t.Try, "weir serve there: it hangs, or its port is another"))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil, hint.New(t.Addr+" has closed the connection: it speaks no TLS, or has as many as it takes",
				cmp.Or(t.Try, "again; or the port that weir serve prints there"))
		}
		return nil, hint.New(fmt.Sprintf("%s speaks no TLS: %v", t.Addr, cause(err)),
			cmp.Or(t.Try, "the port that weir serve prints there"))
	}
	return c, nil
}

// explainDistrust says what is wrong with a certificate; nil if something else is.
func (t Target) explainDistrust(err error) *hint.Error {
	const printed = "the line that weir serve prints there: it has a --pin"
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	what, try := "", printed
	switch {
	case errors.As(err, &unknown):
		what = "is not signed by a trusted authority"
	case errors.As(err, &name) && name.Certificate != nil && len(name.Certificate.DNSNames) > 0:
		what = "is for " + strings.Join(name.Certificate.DNSNames, ", ")
		try = "that name in place of the address; or " + printed
	case errors.As(err, &name):
		what = "is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		what = "has expired, or is not valid yet"
		try = "date, which shows this host's clock; if that is right, the certificate there has to be renewed"
	case errors.As(err, &invalid):
		what = "cannot be trusted: " + strings.TrimPrefix(invalid.Error(), "x509: ")
	default:
		return nil
	}
	return &hint.Error{What: "the certificate of " + t.Addr + " " + what, Try: try}
}

// transport is HTTP/1.1 over one connection, which is made when it is needed.
func (t Target) transport() *http.Transport {
	return &http.Transport{DisableCompression: true, MaxConnsPerHost: 1, MaxResponseHeaderBytes: 16 << 10,
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10, Proxy: nil, ResponseHeaderTimeout: 15 * time.Second,
		DialContext:    func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx, "", 0) },
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.connect(ctx, "", 0) }}
}

// clientOver is a client over a connection that there is.
func (t Target) clientOver(conn net.Conn) *http.Client {
	transport := t.transport()
	transport.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	return newHTTPClient(transport, 0)
}

// newHTTPClient makes requests over a transport. It follows no redirect: what is measured is the host that was named.
// Patience is for a whole answer; 0: without end.
func newHTTPClient(over http.RoundTripper, patience time.Duration) *http.Client {
	return &http.Client{Transport: over, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (t Target) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request,
	error) {
	u := url.URL{Scheme: "https", Host: t.Addr, Path: path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err == nil && t.Token != "" {
		r.Header.Set("Authorization", "Bearer "+t.Token)
	}
	return r, err
}

// maxAnswer bounds an answer, in bytes. The longest tells of 64 flows: 16 connections in each direction alone, and in
// both. Each has 300 s of bins, 11 bytes of JSON each at 400 Gbit/s; half of them have as many RTTs of 8 bytes.
const maxAnswer = 3 << 20

// ask makes a request and reads the answer, which is JSON.
func (t Target) ask(ctx context.Context, c *http.Client, method, path string, query url.Values, into any) error {
	r, err := t.request(ctx, method, path, query, nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return t.answerError(err)
	}
	defer answer.Body.Close()
	body := io.LimitReader(answer.Body, maxAnswer)
	if answer.StatusCode != http.StatusOK {
		return statusError(t.Addr, answer, body)
	}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return hint.New(fmt.Sprintf("the answer of %s to %s makes no sense: %v", t.Addr, path, err),
			"the same version there and here")
	}
	return nil
}

// answerError is withoutURL, of a target that may be too slow.
func (t Target) answerError(err error) error {
	var late net.Error
	if err = withoutURL(err); errors.As(err, &late) && late.Timeout() {
		return hint.New(t.Addr+" does not answer in time", cmp.Or(t.Try, "again"))
	}
	return err
}

// withoutURL takes off the URL that net/http puts around an error.
func withoutURL(err error) error {
	var around *url.Error
	if errors.As(err, &around) {
		return around.Err
	}
	return err
}

func statusError(addr string, answer *http.Response, body io.Reader) error {
	const line = 200
	said, _ := io.ReadAll(io.LimitReader(body, line))
	text := strings.Join(strings.Fields(answer.Status+": "+string(said)), " ")
	switch answer.StatusCode {
	case http.StatusForbidden:
		return hint.New(addr+" wants a token", "--token, as weir serve prints it there")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		try := "again later"
		if after, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && after > 0 {
			try = fmt.Sprintf("again in %d s", after)
		}
		return hint.New(addr+" is busy: another test runs there", try)
	case http.StatusNotFound:
		return hint.New(addr+" is a web server, and no weir serve", "the port that weir serve prints there")
	}
	return hint.New(addr+" answers "+text, "")
}
