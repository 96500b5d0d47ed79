// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/host"
	"weir/internal/qdisc"
)

// How old things may be, so that no scrape waits for what costs much: connections, of which there may be many, and
// findings and the goal, which read the whole host.
const (
	often  = 15 * time.Second
	seldom = 2 // of those
)

// Reader looks at the host in the network namespace of the calling thread, which it must stay on.
type Reader struct {
	store       change.Store
	conn        *qdisc.Conn
	connections *host.Connections
	tally       *Tally
	devices     map[netip.Addr]string
	requests    chan chan Look
	names       map[int]string
	last        Look // of what is read seldom
	unread      bool // connections must not be asked for, which would load a module
}

// Open prepares the looks.
func Open(store change.Store) (*Reader, error) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, err
	}
	return &Reader{store: store, conn: conn, tally: NewTally(), requests: make(chan chan Look)}, nil
}

// Close ends the looks.
func (r *Reader) Close() error { return r.conn.Close() }

// Look asks the thread of Run for a look. After its end a look is empty.
func (r *Reader) Look(ctx context.Context) Look {
	answer := make(chan Look, 1)
	select {
	case r.requests <- answer:
		return <-answer
	case <-ctx.Done():
		return Look{}
	}
}

// Run answers Look until it is told to end.
func (r *Reader) Run(ctx context.Context) {
	tick := time.NewTicker(often)
	defer tick.Stop()
	r.readAll()
	r.readConnections()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case answer := <-r.requests:
			answer <- r.queues()
		case <-tick.C:
			if n++; n%seldom == 0 {
				r.readAll()
			}
			r.readConnections()
		}
	}
}

// readAll reads what costs most.
func (r *Reader) readAll() {
	l := Look{Read: map[string]bool{"findings": false, "goal": false}}
	if facts, err := host.ReadDeep(); err == nil {
		l.Findings, l.Read["findings"] = doctor.Diagnose(facts), true
		r.unread, r.names = !facts.Deep.Sockets.Read, map[int]string{}
		r.devices = map[netip.Addr]string{}
		for _, link := range facts.Links {
			r.names[link.Index] = link.Name
			for _, text := range link.Addrs {
				if prefix, err := netip.ParsePrefix(text); err == nil {
					r.devices[prefix.Addr()] = link.Name
				}
			}
		}
	}
	if connections, err := host.OpenConnections(false); err == nil { // addresses may have changed
		r.connections = connections
	}
	if status, err := r.store.Status(); err == nil {
		l.Goal, l.Read["goal"] = &status, true
	}
	r.last = l
}

// readConnections lists them. To ask where the module for it is not loaded would load it.
func (r *Reader) readConnections() {
	r.last.Connections, r.last.Read["connections"] = nil, false
	if r.unread || r.connections == nil {
		return
	}
	all, err := r.tally.Add(r.connections.Each, time.Now(), r.devices)
	r.last.Connections, r.last.Read["connections"] = all, err == nil
}

// queues is a look, at the queues as they are now and at the rest as it was.
func (r *Reader) queues() Look {
	l := r.last
	l.Trees, l.Read = map[string]qdisc.Tree{}, maps.Clone(l.Read)
	trees, err := r.conn.Trees()
	for index, tree := range trees {
		if name := r.names[index]; name != "" { // one that has just come is told later
			l.Trees[name] = tree
		}
	}
	l.Read["queues"] = err == nil
	return l
}
