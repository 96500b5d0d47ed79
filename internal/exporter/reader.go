// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"time"

	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/text"
)

// How old things may be, so that no scrape waits for what costs much: connections, of which there may be many, and
// findings and the goal, which read the whole host.
const (
	readInterval = 15 * time.Second
	seldomEvery  = 2 // of those
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
	last        Look  // of what is read seldom
	unread      error // why connections are not asked for, which could load a module
	say         func(line string)
	why         map[string]string // a part cannot be read, as it was said last
}

// Open prepares the looks. What is said is why a part cannot be read, in a line, once for each reason.
func Open(store change.Store, say func(line string)) (*Reader, error) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, err
	}
	return &Reader{store: store, conn: conn, tally: NewTally(), requests: make(chan chan Look), say: say,
		why: map[string]string{}, unread: errors.New("the host has not been read")}, nil
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
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	r.readAll()
	r.readConnections()
	r.readClients()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case answer := <-r.requests:
			answer <- r.queues()
		case <-tick.C:
			if n++; n%seldomEvery == 0 {
				r.readAll()
			}
			r.readConnections()
			r.readClients()
		}
	}
}

// wasRead reports whether a part could be read. It says so when that, or the reason, is not what it was.
func (r *Reader) wasRead(part string, err error) bool {
	why := ""
	if err != nil {
		why = text.OneLine(err.Error())
	}
	switch {
	case why == r.why[part]:
	case why == "":
		r.say(part + ": can be read again")
	default:
		r.say(part + ": cannot be read: " + why)
	}
	r.why[part] = why
	return err == nil
}

// readAll reads what costs most.
func (r *Reader) readAll() {
	l := Look{Read: map[string]bool{"findings": false, "goal": false}}
	facts, err := journal.ReadHost()
	if r.wasRead("findings", err) {
		l.Findings, l.Read["findings"] = doctor.Diagnose(facts), true
		r.unread, r.names = whyNotAsked(facts), map[int]string{}
		r.devices = map[netip.Addr]string{}
		for _, link := range facts.Links {
			r.names[link.Index] = link.Name
			for _, address := range link.Addrs {
				if prefix, err := netip.ParsePrefix(address); err == nil {
					r.devices[prefix.Addr()] = link.Name
				}
			}
		}
	}
	connections, err := host.OpenConnections() // addresses may have changed
	if r.wasRead("addresses", err) {
		r.connections = connections
	}
	status, err := r.store.Status()
	if r.wasRead("goal", err) {
		l.Goal, l.Read["goal"] = &status, true
	}
	r.last = l
}

// whyNotAsked is why a host's connections are not to be asked for: nothing else has done so.
func whyNotAsked(facts host.Facts) error {
	if facts.Deep.Sockets.Read {
		return nil
	}
	for _, unread := range facts.Deep.Unknown {
		if unread.What == "live connections" {
			return errors.New(unread.Why)
		}
	}
	return errors.New("they have not been read")
}

// readConnections lists them. To ask where the module for it is not loaded would load it.
func (r *Reader) readConnections() {
	var all *Connections
	err := r.unread
	switch {
	case err != nil:
	case r.connections == nil:
		err = errors.New("addresses cannot be read")
	default:
		all, err = r.tally.Add(r.connections.Each, time.Now(), r.devices)
	}
	r.last.Connections, r.last.Read["connections"] = all, r.wasRead("connections", err)
}

// readClients reads what each bpf_shaper knows of those that its rules name. Where there is none, nothing is said.
func (r *Reader) readClients() {
	r.last.Clients = nil
	trees, err := r.conn.Trees()
	for index, tree := range trees {
		root, _ := tree.Root()
		name := r.names[index]
		if root.Kind != qdisc.BPFShaping || name == "" {
			continue
		}
		if r.last.Clients == nil {
			r.last.Clients = map[string][]shaper.ClientStats{}
		}
		instance, _, err1 := shaper.Read(index)
		all, err2 := shaper.ReadClients(index)
		r.last.Clients[name] = shaper.NamedClients(all, instance.Config.Clients)
		err = errors.Join(err, err1, err2)
	}
	if r.last.Clients != nil {
		r.last.Read["clients"] = r.wasRead("clients", err)
	}
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
	l.Read["queues"] = r.wasRead("queues", err)
	return l
}
