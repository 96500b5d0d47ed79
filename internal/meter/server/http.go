// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"weir/internal/meter"
)

// stall is how long a transfer may stand still.
const stall = 10 * time.Second

func noStore(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store, must-revalidate, private, max-age=0")
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// nq is the configuration of a responsiveness test (draft-ietf-ippm-responsiveness-09, section 6). The draft has the
// first three names; the clients that there are want the other three.
func (s *Server) nq(w http.ResponseWriter, r *http.Request) {
	base, err := s.base(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, wait, ok := s.gate.begin(client(r.RemoteAddr)); !ok {
		busy(w, wait)
		return
	}
	small, large, slurp := base+"/small", base+"/large", base+"/slurp"
	writeJSON(w, map[string]any{"version": 1, "urls": map[string]string{
		"small_download_url": small, "large_download_url": large, "upload_url": slurp,
		"small_https_download_url": small, "large_https_download_url": large, "https_upload_url": slurp,
	}})
}

func (s *Server) small(w http.ResponseWriter, r *http.Request) {
	s.gate.noteProbe(client(r.RemoteAddr))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", "1")
	w.Write(s.noise[:1])
}

// garbage is LibreSpeed's download: so many MiB.
func (s *Server) garbage(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("ckSize"), 10, 64)
	if err != nil || n <= 0 {
		n = 4
	}
	s.download(w, r, min(n, 1024)<<20, nil)
}

// timing is what Cloudflare's client takes off its round trips; here a request costs nothing worth the name.
const timing = "cfRequestDuration;dur=0.01"

func (s *Server) cloudflareDown(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, "bytes=N is needed", http.StatusBadRequest)
		return
	}
	w.Header().Set("Server-Timing", timing)
	if n == 0 { // a round trip, not a transfer
		noStore(w)
		w.Header().Set("Content-Length", "0")
		return
	}
	s.download(w, r, min(n, s.Bytes), nil)
}

// download sends n bytes, as long as the limits allow.
func (s *Server) download(w http.ResponseWriter, r *http.Request, n int64, rec *meter.Recorder) {
	h := s.enter(w, r)
	if h == nil {
		return
	}
	defer h.leave()
	noStore(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	to := http.NewResponseController(w)
	for n > 0 && r.Context().Err() == nil {
		b := s.noise[:min(n, int64(s.atOnce(chunk)))]
		wait, ok := s.down.take(s.now(), h.End, len(b))
		if !ok || to.SetWriteDeadline(time.Now().Add(wait+stall)) != nil || !pause(r.Context().Done(), wait) {
			break
		}
		sent, err := w.Write(b)
		if rec != nil {
			rec.Add(sent)
		}
		if n -= int64(sent); err != nil || !h.add(sent) {
			break
		}
	}
	if n > 0 { // what was promised will not come
		panic(http.ErrAbortHandler)
	}
}

// pause waits, unless the client goes meanwhile.
func pause(gone <-chan struct{}, wait time.Duration) bool {
	if wait < time.Millisecond {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-gone:
		return false
	}
}

// upload takes what comes, as long as the limits allow.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, rec *meter.Recorder) {
	h := s.enter(w, r)
	if h == nil {
		return
	}
	defer h.leave()
	noStore(w)
	from := http.NewResponseController(w)
	b := make([]byte, s.atOnce(chunk))
	if extend(from, stall) != nil {
		return
	}
	for {
		n, err := r.Body.Read(b)
		if rec != nil {
			rec.Add(n)
		}
		wait, ok := s.up.take(s.now(), h.End, n)
		if extend(from, wait+stall) != nil {
			return
		}
		more := h.add(n) && ok && pause(r.Context().Done(), wait)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !more { // net/http waits for the rest
			extend(from, s.patience)
			w.Header().Set("Connection", "close")
			http.Error(w, "the limits of this server are reached", http.StatusRequestEntityTooLarge)
			return
		}
	}
	w.Header().Set("Server-Timing", timing)
	w.Header().Set("Content-Length", "0")
}

// extend gives an upload more time, and its answer a little more: a stream of HTTP/2 ends by either.
func extend(c *http.ResponseController, by time.Duration) error {
	until := time.Now().Add(by)
	return cmp.Or(c.SetReadDeadline(until), c.SetWriteDeadline(until.Add(time.Second)))
}

// tryPlace reports whether a client could test now, and else how long it has to wait.
func (g *gate) tryPlace(client string) (time.Duration, bool) {
	h, wait := g.enter(client)
	if h == nil {
		return wait, false
	}
	h.leave()
	return 0, true
}
