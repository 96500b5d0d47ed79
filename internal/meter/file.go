// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"weir/internal/hint"
)

// File is a large file on somebody's web server.
type File struct {
	target Target
	scheme string // http or https
	uri    string // path and query
	bytes  int64  // -1: not known
}

// minFile is the smallest that is worth fetching: less is over before the link is full.
const minFile = 1 << 20

// FindFile looks at what an address has. It follows redirects, and from https to https alone. No file and no error: it
// is the configuration of a responsiveness server.
func FindFile(ctx context.Context, at, pin string) (*File, error) {
	u, err := parseURL(at, "https://HOST/FILE")
	if err != nil {
		return nil, err
	}
	const most = 5
	for range most {
		t := targetOf(u, pin)
		answer, done, err := t.head(ctx, u)
		if err != nil {
			return nil, err
		}
		defer done()
		if to, err := answer.Location(); err == nil && answer.StatusCode/100 == 3 {
			if to.Scheme != "https" && (to.Scheme != "http" || u.Scheme == "https") {
				return nil, hint.New(fmt.Sprintf("%s leads to %s, which is not %s", at, to.Redacted(), u.Scheme),
					"a file that is served by "+u.Scheme)
			}
			u = to
			continue
		}
		switch {
		case answer.StatusCode != http.StatusOK:
			return nil, errNoFile(u, answer)
		case isNQ(answer):
			return nil, nil
		case answer.ContentLength >= 0 && answer.ContentLength < minFile:
			return nil, hint.New(fmt.Sprintf("%s has %d bytes only", at, answer.ContentLength),
				"a file of 100 MB or more")
		}
		if t, _, err = t.resolve(ctx); err != nil {
			return nil, err
		}
		return &File{t, u.Scheme, u.RequestURI(), answer.ContentLength}, nil
	}
	return nil, hint.New(fmt.Sprintf("%s leads on and on", at), "the file's own address")
}

// CheckURL finds what no URL of a server can be, and opens nothing.
func CheckURL(at string) error {
	_, err := parseURL(at, "")
	return err
}

// parseURL reads a URL. One with a password is refused, for it would stand in results.
func parseURL(at, try string) (*url.URL, error) {
	u, err := url.Parse(at)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, hint.New(fmt.Sprintf("%q is no URL", at), try)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, hint.New(fmt.Sprintf("%s cannot be fetched: %s is neither http nor https", u.Redacted(), u.Scheme),
			try)
	case !portInRange(u.Port()):
		return nil, hint.New(fmt.Sprintf("%s: its port is out of range (1 to 65535)", u.Redacted()), try)
	case u.User != nil:
		return nil, hint.New(fmt.Sprintf("%s has a user, and nobody logs in for a measurement", u.Redacted()), try)
	}
	return u, nil
}

// portInRange reports whether a URL's port, where it has one, can be one.
func portInRange(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

func errNoFile(u *url.URL, answer *http.Response) error {
	return hint.New(fmt.Sprintf("%s cannot be fetched: the server says %d %s", u.Redacted(), answer.StatusCode,
		http.StatusText(answer.StatusCode)), curl(u))
}

// curl is a command to try. A redirect may have led to the URL, so a shell must take all of it for a word.
func curl(u *url.URL) string {
	at := u.Redacted()
	if strings.ContainsFunc(at, func(r rune) bool {
		return !strings.ContainsRune("/:.-_~%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z')
	}) {
		at = "'" + strings.ReplaceAll(at, "'", `'\''`) + "'"
	}
	return "curl -I " + at
}

func targetOf(u *url.URL, pin string) Target {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return Target{Addr: net.JoinHostPort(u.Hostname(), port), Pin: pin, Try: curl(u)}
}

// head asks for a file and reads no more than it must. What it gives is there until done is called.
func (t Target) head(ctx context.Context, u *url.URL) (*http.Response, func(), error) {
	transport := t.transport()
	c := newHTTPClient(transport, 15*time.Second)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	answer, err := c.Do(r)
	if err != nil {
		return nil, nil, t.answerError(err)
	}
	return answer, func() { answer.Body.Close(); transport.CloseIdleConnections() }, nil
}

// isNQ reports whether an answer is a responsiveness server's configuration.
func isNQ(answer *http.Response) bool {
	const most = 64 << 10
	if answer.ContentLength > most {
		return false
	}
	var config nqConfig
	if json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(&config) != nil {
		return false
	}
	_, _, _, err := config.urls()
	return err == nil
}

// fetching is a file that is downloaded again and again.
type fetching struct {
	File
	conns int
	times atomic.Int64
}

// MeasureFile measures downloads of a file. The probe is a TCP handshake with its server.
func MeasureFile(ctx context.Context, f *File, o Options) (*Recording, error) {
	const every = 50 * time.Millisecond
	o.Down, o.Both = true, false
	to := f.target.portAddr("")
	rec := &Recording{Target: f.url(), Remote: Hello{Version: 1, Name: f.target.Addr}}
	m := &Session{Options: o, Transport: &fetching{File: *f, conns: o.Conns}, Prober: newConnectProber(to, every),
		Recording: rec, To: to, Device: deviceTo(to)}
	return rec, m.Run(ctx)
}

// Open fetches it over each connection.
func (f *fetching) Open(ctx context.Context, phase string) ([]*Bulk, error) {
	return OpenFlows(ctx, phase, f.conns, f.start)
}

// start fetches the file over a connection, from its beginning whenever it has ended.
func (f *fetching) start(ctx context.Context, direction string) (*Bulk, error) {
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := NewBulk(direction, cancel)
	defer context.AfterFunc(ctx, cancel)() // the wait for an answer ends with the measurement
	transport := f.target.transport()
	c := newHTTPClient(transport, 0)
	body, err := f.get(going, c)
	if err != nil {
		b.End()
		return nil, err
	}
	go func() {
		defer transport.CloseIdleConnections()
		var err error
		for err == nil {
			if err = b.drain(body); err != io.EOF {
				break
			}
			body, err = f.get(going, c)
		}
		b.done <- err
	}()
	return b, nil
}

func (f *fetching) get(ctx context.Context, c *http.Client) (io.ReadCloser, error) {
	body, err := f.File.get(ctx, c)
	if err == nil {
		f.times.Add(1)
	}
	return body, err
}

// url is the file's address.
func (f *File) url() string { return f.scheme + "://" + f.target.Addr + f.uri }

// get asks for the file, from its beginning.
func (f *File) get(ctx context.Context, c *http.Client) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, errNoFile(r.URL, answer)
	}
	return answer.Body, nil
}

// Close ends the flows. The server tells nothing.
func (f *fetching) Close(_ context.Context, _ string, flows []*Bulk) (local, far []Flow, note string) {
	for _, b := range flows {
		local = append(local, b.End())
	}
	const often = 10 // of each connection
	if n := f.times.Load(); n > often*int64(f.conns) {
		note = fmt.Sprintf("The file was fetched %d times, as it is small. A larger one measures better.", n)
	}
	return local, nil, note
}
