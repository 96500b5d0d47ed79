// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"weir/internal/meter"
)

// sessions are those of Weir's own client: what it did is told to it when it asks.
type sessions struct {
	mu      sync.Mutex
	all     map[string]*session
	tickets map[string]ticket
	reading map[string]int // recordings that are on their way here, by client
}

type session struct {
	client string
	began  time.Time
	mu     sync.Mutex
	flows  []meter.Flow
	summed bool // what its page recorded
}

const (
	maxSessions   = 16 // or as many as two for each that may test at once
	maxFlows      = 64 // of a session
	maxRecordings = 16 // that are on their way here
)

func (s *Server) own(m *http.ServeMux) {
	m.HandleFunc("POST "+meter.PathSession, s.hello)
	m.HandleFunc("GET "+meter.PathDown, func(w http.ResponseWriter, r *http.Request) {
		s.bulk(w, r, meter.Download)
	})
	m.HandleFunc("POST "+meter.PathUp, func(w http.ResponseWriter, r *http.Request) {
		s.bulk(w, r, meter.Upload)
	})
	m.HandleFunc("GET "+meter.PathFlows, s.flows)
	m.HandleFunc("POST "+meter.PathTickets, s.tickets)
}

// hello opens a session.
func (s *Server) hello(w http.ResponseWriter, r *http.Request) {
	who := client(r.RemoteAddr)
	if meter.TryCC(r.URL.Query().Get("cc")) != nil { // now, and not when the client has waited for its idle phase
		writeJSON(w, meter.Hello{Version: 1, NoCC: true, CCs: meter.CCs()})
		return
	}
	left, wait, ok := s.gate.begin(who)
	if !ok {
		busy(w, wait)
		return
	}
	id := make([]byte, 16)
	rand.Read(id)
	name := hex.EncodeToString(id)
	s.sessions.add(name, &session{client: who, began: s.now()}, s.now().Add(-2*s.Duration), s.gate.hasPlace,
		max(maxSessions, 2*s.Tests))
	hello := meter.Hello{Version: 1, Session: name, UDP: s.udp, Seconds: left.Seconds(), Name: s.Name,
		Weir: s.Version, Kernel: s.Kernel, CCs: meter.CCs(), Rate: uint64(s.Rate), Path: s.path,
		Plain: true, Bulk: true}
	if s.Token == "" && who != "127.0.0.1" && who != "::1" {
		hello.UDP = 0
	}
	writeJSON(w, hello)
}

// add forgets those that began before the oldest. Where there are the most that may be then, one goes of which nothing
// more is likely to be asked: the client's own oldest, or else the oldest of whoever does not test, or else of whoever
// has the most.
func (a *sessions) add(name string, x *session, oldest time.Time, tests func(client string) bool, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*session{}
	}
	has, largest := map[string]int{}, 0
	for name, o := range a.all {
		if o.began.Before(oldest) {
			delete(a.all, name)
			continue
		}
		has[o.client]++
		largest = max(largest, has[o.client])
	}
	for _, is := range []func(*session) bool{
		func(o *session) bool { return o.client == x.client },
		func(o *session) bool { return !tests(o.client) },
		func(o *session) bool { return has[o.client] == largest },
	} {
		if len(a.all) < most {
			break
		}
		if goes, found := a.oldest(is); found {
			delete(a.all, goes)
		}
	}
	a.all[name] = x
}

// oldest finds the oldest session of a kind.
func (a *sessions) oldest(is func(*session) bool) (name string, found bool) {
	for n, x := range a.all {
		if is(x) && (!found || x.began.Before(a.all[name].began)) {
			name, found = n, true
		}
	}
	return name, found
}

// of finds a request's session; it is its client's alone.
func (a *sessions) of(w http.ResponseWriter, r *http.Request) *session {
	a.mu.Lock()
	x := a.all[r.URL.Query().Get("session")]
	a.mu.Unlock()
	if x == nil || x.client != client(r.RemoteAddr) {
		http.Error(w, "no such session", http.StatusNotFound)
		return nil
	}
	return x
}

// read notes that a client sends a recording, where there is room for one more of its.
func (a *sessions) read(client string, each int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := 0
	for _, n := range a.reading {
		all += n
	}
	if all >= maxRecordings || a.reading[client] >= each {
		return false
	}
	if a.reading == nil {
		a.reading = map[string]int{}
	}
	a.reading[client]++
	return true
}

// hasRead notes the end of that.
func (a *sessions) hasRead(client string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reading[client]--; a.reading[client] == 0 {
		delete(a.reading, client)
	}
}

// bulk is a flow of a session's.
func (s *Server) bulk(w http.ResponseWriter, r *http.Request, direction string) {
	x := s.sessions.of(w, r)
	if x == nil {
		return
	}
	conn := connOf(r)
	if direction == meter.Download {
		if err := meter.SetCC(conn, r.URL.Query().Get("cc")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		meter.SetUnsent(conn, 128<<10)
	}
	rec := meter.Record(conn, direction, direction == meter.Download)
	defer func() { x.add(rec.Stop("")) }()
	if direction == meter.Download {
		s.download(w, r, s.Bytes, rec)
		return
	}
	s.upload(w, r, rec)
}

// add notes a flow that has ended.
func (x *session) add(f meter.Flow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.flows) < maxFlows {
		x.flows = append(x.flows, f)
	}
}

// flows returns what was seen, of flows that have ended.
func (s *Server) flows(w http.ResponseWriter, r *http.Request) {
	x := s.sessions.of(w, r)
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	noStore(w)
	writeJSON(w, meter.Flows{Flows: x.flows})
}
