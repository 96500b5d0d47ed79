// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/dualpi2"
	"weir/internal/follow/presence"
	"weir/internal/host"
	"weir/internal/journal"
	"weir/internal/kernel"
	"weir/internal/meter/live"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/shaper"
)

// Reader looks at the host in the network namespace of the calling thread, which it must stay on.
type Reader struct {
	dev         string
	store       change.Store
	conn        *qdisc.Conn
	connections *host.Connections
	out, in     device
	seen        []host.Connection // at the look before
	seenAt      time.Time
	unread      string // why connections cannot be seen
	doctor      chore
	clients     chore
	goal        chore
	senders     chore
	registered  bool             // bpf_bbr is
	followed    []presence.Queue // of the goal
}

// device is one whose queue is looked at.
type device struct {
	link   host.Link
	fold   Fold
	shares chore // of a bpf_shaper's clients
	seen   []shaper.ClientStats
	seenAt time.Time
	rates  []shaper.ClientRate
}

// chore is what is done now and then. It may take so large a share of a core: what costs more is done less often.
type chore struct {
	every time.Duration // at least
	share float64
	due   time.Time
}

// do does it, if it is time.
func (c *chore) do(what func()) {
	if time.Now().Before(c.due) {
		return
	}
	before := cpu()
	what()
	c.due = time.Now().Add(max(c.every, time.Duration(float64(cpu()-before)/c.share)))
}

// cpu is the CPU time that this process has taken.
func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Open prepares to look at a device's queue, or the uplink's where none is named, and at a store's goal.
func Open(dev string, store change.Store) (*Reader, error) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, err
	}
	r := &Reader{dev: dev, store: store, conn: conn,
		doctor:  chore{every: 5 * time.Second, share: 0.0015},
		clients: chore{every: time.Second, share: 0.003},
		goal:    chore{every: 5 * time.Second, share: 0.0015},
		senders: chore{every: 2 * time.Second, share: 0.0015}}
	if r.connections, err = host.OpenConnections(); err != nil {
		conn.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the looks.
func (r *Reader) Close() error { return r.conn.Close() }

// Run hands over an event for each second, until it is told to end or a host cannot be read.
func (r *Reader) Run(ctx context.Context, each func(Event)) error {
	tick := time.NewTicker(time.Second / Counts)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%Counts == 0 {
			e, err := r.second()
			if err != nil {
				return err
			}
			each(e)
		} else {
			r.out.look(r.conn)
			r.in.look(r.conn)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// second reads what is due.
func (r *Reader) second() (e Event, err error) {
	r.doctor.do(func() { e.Doctor, err = r.diagnose() })
	if err != nil {
		return e, err
	}
	e.Out, e.In = r.out.end(r.conn), r.in.end(r.conn)
	if e.Out == nil {
		e.Out = &Ended{Second: Second{At: time.Now()}}
	}
	if e.Out.Queue.Hidden != "" || r.in.link.Name != "" && e.In.Queue.Hidden != "" {
		if soon := time.Now().Add(r.doctor.every); soon.Before(r.doctor.due) { // it may be another device by then
			r.doctor.due = soon
		}
	}
	r.clients.do(func() { e.Clients = r.look() })
	e.ClientsWhy = r.unread
	r.senders.do(func() {
		e.BBR = &Senders{}
		if !r.registered {
			return
		}
		if all, err := bbr.Connections(); err == nil {
			e.BBR = sendersOf(all)
		}
	})
	r.goal.do(func() {
		status, err := r.store.Status()
		e.Goal = &Goal{At: time.Now(), Status: status, Err: err}
		r.followed = status.Followed
	})
	e.Followed = r.store.Ask(r.followed)
	return e, nil
}

// watchedDevice is the device whose queues are looked at: the one that is named, or all leaves by.
func watchedDevice(facts host.Facts, named string) string { return cmp.Or(named, plan.WayOut(facts)) }

// diagnose reads the whole host, and finds which devices to look at.
func (r *Reader) diagnose() (*Diagnosis, error) {
	facts, err := journal.ReadHost()
	if err != nil {
		return nil, err
	}
	if r.dev != "" {
		if _, there := facts.Link(r.dev); !there && r.out.link.Name == "" {
			return nil, plan.NoDevice(r.dev, facts)
		}
		facts.Uplink = r.dev
	}
	r.registered = facts.Congestion.Registered != ""
	link, _ := facts.Link(watchedDevice(facts, r.dev))
	r.out.setLink(link)
	ifb, there := facts.Link(link.Redirect)
	if !there {
		ifb = host.Link{}
	}
	r.in.setLink(ifb)
	r.unread = ""
	for _, u := range facts.Deep.Unknown {
		if u.What == "live connections" {
			r.unread = u.Why // and to ask all the same would load a module
		}
	}
	return &Diagnosis{time.Now(), doctor.FindBottleneck(facts), doctor.Diagnose(facts), facts.Deep.Unknown}, nil
}

// look sums up the connections since the look before.
func (r *Reader) look() *live.Result {
	if r.unread != "" {
		r.seen, r.seenAt = nil, time.Time{}
		return nil
	}
	seen, err := r.connections.Read()
	if err != nil {
		r.unread = err.Error()
		return nil
	}
	now := time.Now()
	defer func() { r.seen, r.seenAt = seen, now }()
	if r.seenAt.IsZero() {
		return nil
	}
	var w live.Watch
	w.Add(r.seenAt, r.seen)
	w.Add(now, seen)
	result := w.Result()
	return &result
}

// setLink says which link it is. Another one starts anew.
func (d *device) setLink(l host.Link) {
	if l.Index != d.link.Index || l.Name != d.link.Name {
		*d = device{}
	}
	d.link = l
}

// look counts what stands there now.
func (d *device) look(conn *qdisc.Conn) {
	if d.link.Name == "" {
		return
	}
	if s, ok, err := conn.RootStats(d.link.Index); ok && err == nil {
		d.fold.Look(s)
	}
}

// end reads the whole queue; nil where there is no device.
func (d *device) end(conn *qdisc.Conn) *Ended {
	if d.link.Name == "" {
		return nil
	}
	at, q := time.Now(), Queue{Dev: d.link.Name, Speed: d.link.Speed}
	tree, err := conn.Tree(d.link.Index)
	if errors.Is(err, unix.ENODEV) {
		q.Hidden = q.Dev + " is gone"
	} else if err != nil {
		q.Hidden = fmt.Sprintf("the queue of %s cannot be read: %v", q.Dev, err)
	}
	root, _ := tree.Root()
	q.Kind, q.Stats, q.Rate, q.Parts = root.Kind, root.Stats, tree.Rate(), kernel.Parts(tree)
	if strings.HasPrefix(root.Kind, dualpi2.Prefix) && root.Spec == nil {
		q.Hidden = "what the BPF queue holds by itself only root can see (CAP_SYS_ADMIN)"
	}
	if root.Kind == qdisc.BPFShaping {
		d.shares.every, d.shares.share = time.Second, 0.003
		d.shares.do(d.lookAtClients)
		q.Clients = d.rates
	}
	return &Ended{q, d.fold.End(at, q)}
}

// lookAtClients says what a shaper's clients did since the look before.
func (d *device) lookAtClients() {
	const maxClients = 100
	now, err := shaper.ReadClients(d.link.Index)
	if err != nil {
		d.seen, d.seenAt, d.rates = nil, time.Time{}, nil
		return
	}
	lookTime := time.Now()
	if !d.seenAt.IsZero() {
		d.rates = shaper.Rates(d.seen, now, lookTime.Sub(d.seenAt))
		d.rates = d.rates[:min(len(d.rates), maxClients)]
	}
	d.seen, d.seenAt = now, lookTime
}
