// SPDX-License-Identifier: Apache-2.0

package server

import (
	"embed"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"weir/internal/meter"
)

// pageFiles are the page that measures in a browser. It is the same for everybody, so it needs no token; what it asks
// of the server does.
//
//go:embed page
var pageFiles embed.FS

// page serves the page at the root of m, and sums up what it has recorded.
func (s *Server) page(m *http.ServeMux) {
	files, _ := fs.Sub(pageFiles, "page") // a folder of this program's own
	serve := http.FileServerFS(files)
	m.HandleFunc("GET /{$}", serve.ServeHTTP)
	m.HandleFunc("GET /page.css", serve.ServeHTTP)
	m.HandleFunc("GET /page.js", serve.ServeHTTP)
	m.HandleFunc("POST "+meter.PathSummary, s.summary)
}

// open reports whether a path is the page's, and gives it the headers under which it can do nothing but its work.
func (s *Server) open(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch r.URL.Path {
	case "/", "/page.css", "/page.js":
	default:
		return false
	}
	sockets := ""
	if base, err := s.base(r); err == nil { // browsers differ on whether 'self' is also of WebSockets
		host, _, _ := strings.Cut(strings.TrimPrefix(base, "https://"), "/")
		sockets = " wss://" + host
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "+
		"connect-src 'self'"+sockets+"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address may hold the token
	h.Set("X-Content-Type-Options", "nosniff")
	// With these two a browser's stopwatch has steps of 5 or 20 µs, and not of 100 µs or 1 ms.
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Cache-Control", "no-cache")
	return true
}

// summary makes a result of what a page has recorded, once for each session.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	x := s.sessions.of(w, r)
	if x == nil {
		return
	}
	if !s.sessions.read(x.client, max(2, maxRecordings/max(s.Tests, 1))) {
		busy(w, time.Second)
		return
	}
	defer s.sessions.hasRead(x.client)
	x.mu.Lock()
	again := x.summed
	x.summed = true
	x.mu.Unlock()
	if again {
		http.Error(w, "this session has had its summary", http.StatusConflict)
		return
	}
	const patience = time.Minute // a recording's, on a slow link
	c := http.NewResponseController(w)
	extend(c, patience)
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, meter.MaxRecording))
	if err != nil {
		http.Error(w, "the recording is too long, or broke off", http.StatusRequestEntityTooLarge)
		return
	}
	extend(c, patience) // others' summaries may come first
	result, err := s.summarize(text)
	extend(c, s.patience)
	if err != nil {
		http.Error(w, "no recording: "+err.Error(), http.StatusBadRequest)
		return
	}
	noStore(w)
	writeJSON(w, result)
}

// summarize makes a result, one at a time.
func (s *Server) summarize(text []byte) (meter.Result, error) {
	s.summing.Lock()
	defer s.summing.Unlock()
	rec, err := meter.ReadRecording(text)
	if err != nil {
		return meter.Result{}, err
	}
	return meter.Summarize(rec), nil
}
