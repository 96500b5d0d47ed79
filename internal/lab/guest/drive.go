// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/dualpi2"
	"weir/internal/lab/boot"
	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/qdisc"
	"weir/internal/stats"
	"weir/internal/traffic"
	"weir/internal/units"
)

const (
	// from the start of the loop to the scenario's time 0: sockets are made, nothing flows
	settle     = 100 * time.Millisecond
	sampleTick = 100 * time.Millisecond // the time series' step
	minStep    = 5 * time.Millisecond   // of a short run's series,
	minTicks   = 100                    // which has as many steps as fit
	maxPolls   = 40                     // connections whose TCP_INFO is read at every sample; of more, in turns
	patience   = 500 * time.Millisecond // after the end, for the last answers, beside the RTT and the provider's buffer
	firstPort  = 5201

	// probeOffset shifts the start of probes off the driver's tick, where the driver's own work takes time. With none
	// of the usual RTTs an answer comes at a tick, either.
	probeOffset = 2500 * time.Microsecond
)

// group is a scenario's flow with its connections.
type group struct {
	spec  scenario.Flow
	flows []*traffic.Flow
	watch []*sampledFlow
}

// sampledFlow is what was sampled of one connection.
type sampledFlow struct {
	received           int64  // at the end of the warm-up
	wakeups            uint64 // likewise
	before, last       unix.TCPInfo
	srtt, cwnd, unsent []float64
}

type exchange struct {
	spec    scenario.Probe
	samples *traffic.Samples
}

// driver makes a job's traffic and samples while it runs.
type driver struct {
	*topology
	*traffic.Loop
	job              scenario.Job
	groups           []*group
	exchanges        []exchange
	programs         []*started
	begin, warm, end time.Duration // on the loop's clock
	stopped          time.Duration // when what is measured ended
	places           []*place      // the first two are the server's uplink and the provider's limiter
	run              *measure.Run
	fetching         int // flows with bytes that have not got them
	series           measure.Series
	step             time.Duration
	lastReceived     []int64 // by group, for the series
	turn             int
	pages            int
}

func drive(t *topology, job scenario.Job) (*measure.Run, error) {
	if err := wholeSecond(); err != nil {
		return nil, err
	}
	loop, err := traffic.NewLoop()
	if err != nil {
		return nil, err
	}
	d := &driver{topology: t, Loop: loop, job: job}
	s := job.Scenario
	d.begin = loop.Now().Truncate(time.Second) + settle // exact: reading the clock took a moment, by build
	d.warm = d.begin + time.Duration(s.Warmup)
	d.end = d.warm + time.Duration(s.Duration)
	if err := d.find(); err != nil {
		return nil, err
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	if len(s.Programs(job.Candidate)) > 0 {
		if err := d.startPrograms(); err != nil {
			return nil, err
		}
	}
	d.At(d.warm, d.warmedUp)
	for _, change := range job.Candidate.Change {
		d.At(d.begin+time.Duration(change.At), func() {
			if err := t.server.configure(scenario.Uplink, scenario.Rated(change.Qdisc, s.Provider.Rate),
				t.server.tc.Adjust); err != nil {
				d.Fail(fmt.Errorf("the change at %v: %w", change.At, err))
			}
		})
	}
	for _, change := range s.Provider.Change {
		d.At(d.begin+time.Duration(change.At), func() {
			if err := t.relimit(s, change.Rate); err != nil {
				d.Fail(fmt.Errorf("the provider's change at %v: %w", change.At, err))
			}
		})
	}
	for _, change := range s.Path.Change {
		d.At(d.begin+time.Duration(change.At), func() {
			if err := t.reroute(s, change.RTT); err != nil {
				d.Fail(fmt.Errorf("the path's change at %v: %w", change.At, err))
			}
		})
	}
	d.step = max(minStep, min(sampleTick, time.Duration(s.Duration)/minTicks))
	d.series.Step = d.step.Seconds()
	d.Every(d.warm+d.step, d.step, d.sample)
	d.Every(d.begin, time.Second, func() bool {
		fmt.Printf("%s%d\n", boot.Heartbeat, int((d.Now()-d.begin)/time.Second))
		return true
	})
	d.At(d.end, d.finish)
	if err := loop.Run(d.end + time.Hour); err != nil {
		return nil, err
	}
	// What was sent to the last has had the time to be answered: only now is it known what was lost.
	for _, e := range d.exchanges {
		d.run.Probes = append(d.run.Probes, d.probeResult(e))
	}
	d.run.Programs, err = d.printed()
	return d.run, err
}

// finish ends what is measured. Everything goes on for as long as a packet can wait.
func (d *driver) finish() {
	if d.run != nil {
		return
	}
	d.stopped = d.Now()
	run, err := d.collect()
	if err != nil {
		d.Fail(err)
		return
	}
	d.run = run
	d.interrupt()
	s := d.job.Scenario
	longest, access := time.Duration(s.Path.RTT), time.Duration(0)
	for _, c := range s.Client {
		longest = max(longest, time.Duration(s.Base(c.Name, scenario.Through)))
		access = max(access, drains(c.Buffer, c.Rate)+drains(c.Buffer, c.Upload))
	}
	longest += access + drains(s.Provider.Buffer, s.Provider.Rate)
	d.At(d.stopped+longest+patience, d.End)
}

// drains is how long a full buffer takes at its rate.
func drains(b scenario.Buffer, rate units.Rate) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(b.Bytes(rate)) * 8 / float64(rate) * 1e9)
}

func (d *driver) start() error {
	s := d.job.Scenario
	for i, f := range s.Flow {
		source, sink, via := d.ends(f.Client, f.Leg)
		switch {
		case f.Host == scenario.Neighbour:
			source = d.beside
		case f.Address > 1:
			source = d.source[f.Address-1]
		}
		spec := traffic.BulkSpec{
			Source: source, Sink: sink, Via: via, SourceDials: f.Dial == "server",
			Port: flowPort(i), Count: f.Count, CC: f.CC, NotsentLowat: int(f.Lowat), Bytes: int64(f.Bytes),
			MSS: int(f.MSS), Pace: uint64(f.Pace / 8), Start: d.begin + time.Duration(f.Start),
			Chunk: int64(f.Chunk), Interval: time.Duration(f.Interval),
		}
		if f.Every > 0 {
			spec.Each = d.arrivals(i)
		}
		if f.Direction == "up" {
			spec.Source, spec.Sink = spec.Sink, spec.Source
			spec.SourceDials = f.Dial == "client"
		}
		if f.Stop > 0 {
			spec.Stop = d.begin + time.Duration(f.Stop)
		}
		flows, err := d.StartBulk(spec, d.fetched)
		if err != nil {
			return fmt.Errorf("flow %q: %w", f.Name, err)
		}
		g := &group{spec: f, flows: flows}
		for range flows {
			g.watch = append(g.watch, &sampledFlow{})
		}
		d.groups = append(d.groups, g)
		if f.Bytes > 0 {
			d.fetching += len(flows)
		}
		d.series.Goodput = append(d.series.Goodput, measure.FlowSeries{Flow: f.Name})
	}
	d.lastReceived = make([]int64, len(d.groups))
	for i, p := range s.Probe {
		// Probes go where the flows come from: through a relay, if there is one.
		server, client, via := d.ends(p.Client, p.Leg)
		port := probePort(s, i)
		interval, size := time.Duration(p.Interval), int(p.Size)
		// Out of step with each other, so that probes do not meet at every tick.
		start := d.begin + time.Duration(i)*time.Millisecond
		if e, _ := scenario.EngineNamed(s.Engine); e.Slow {
			start += probeOffset
		}
		var samples *traffic.Samples
		var err error
		if kind := p.Does(); kind.TCP {
			samples, err = d.StartSession(traffic.SessionSpec{From: client, To: server, Via: via, Port: port,
				Request: size, Reply: int(p.Reply), CC: p.CC, Interval: interval, Wait: kind.Waits, Start: start,
				Stop: d.end})
		} else {
			spec := traffic.ProbeSpec{From: client, To: server, Via: via, Port: port, Interval: interval, Size: size,
				ECN: p.ECN.Bits(), OneWay: kind.OneWay, Start: start, Stop: d.end}
			if kind.OneWay {
				spec.From, spec.To, spec.Via = server, client, netip.Addr{}
			}
			samples, err = d.StartProbe(spec)
		}
		if err != nil {
			return fmt.Errorf("probe %q: %w", p.Name, err)
		}
		d.exchanges = append(d.exchanges, exchange{p, samples})
	}
	return nil
}

// arrivals of a flow that is a Poisson source. Each has a random stream of its own.
func (d *driver) arrivals(flow int) []traffic.Fetch {
	const sources = 0xf000 // beside the clients, which are fewer
	s := d.job.Scenario
	all := []traffic.Fetch{}
	seed := mix(d.job.Seed<<16 | sources + uint64(flow))
	for _, a := range s.Flow[flow].Arrivals(seed, time.Duration(s.Warmup+s.Duration)) {
		all = append(all, traffic.Fetch{Start: d.begin + a.At, Bytes: a.Bytes})
	}
	return all
}

// Each flow and each probe has a port of its own.
func flowPort(i int) int                       { return firstPort + i }
func probePort(s scenario.Scenario, i int) int { return firstPort + len(s.Flow) + i }

// ends are who talks to each other: the server or the origin, and the client; of a leg of a relay, who is at its ends.
// Through NAT and proxies the client finds the origin at the server's address.
func (d *driver) ends(name, leg string) (server, client traffic.Host, via netip.Addr) {
	s := d.job.Scenario
	i := slices.IndexFunc(s.Client, func(c scenario.Client) bool { return c.Name == name })
	relay := traffic.Host{Addr: d.addr(0, 0, 1)}
	switch {
	case leg == scenario.ClientLeg:
		return relay, d.clients[i], via
	case leg == scenario.OriginLeg:
		// The relay's own version of IP towards the origin is the path's.
		origin := d.source[0]
		origin.Addr = d.addr(originNet, 0, 1)
		return origin, relay, via
	case s.OneCard() && !scenario.Tunnelled(s.Via(name)):
		via = relay.Addr
	}
	return d.source[0], d.through[i], via
}

func (d *driver) fetched(*traffic.Flow) {
	d.fetching--
	if d.fetching == 0 && d.job.Scenario.Until == "fetched" {
		d.finish()
	}
}

func (d *driver) warmedUp() {
	for _, at := range d.places {
		var err error
		if at.earlier, err = d.counts(at); err != nil {
			d.Fail(err)
		}
	}
	for i, g := range d.groups {
		for k, f := range g.flows {
			f.Catch()
			g.watch[k].received, g.watch[k].wakeups = f.Received, f.Wakeups
			g.watch[k].before, _ = f.Info()
			d.lastReceived[i] += f.Received
		}
	}
}

// sample reads what is only seen while it happens.
func (d *driver) sample() bool {
	if d.run != nil {
		return false
	}
	budget := maxPolls
	all := 0
	for i, g := range d.groups {
		var received int64
		for _, f := range g.flows {
			f.Catch()
			received += f.Received
		}
		d.series.Goodput[i].Values = append(d.series.Goodput[i].Values, mbit(received-d.lastReceived[i], d.step))
		d.lastReceived[i] = received
		if g.spec.Every == 0 { // else each is too short for a median to mean anything
			all += len(g.flows)
		}
	}
	every := (all + budget - 1) / max(1, budget)
	n := 0
	for _, g := range d.groups {
		for k, f := range g.flows {
			if g.spec.Every > 0 {
				break
			}
			if n++; (n+d.turn)%max(1, every) != 0 {
				continue
			}
			info, ok := f.Info()
			if !ok || info.State != 1 { // TCP_ESTABLISHED
				continue
			}
			w := g.watch[k]
			w.last = info
			w.srtt = append(w.srtt, float64(info.Rtt)/1e3)
			w.cwnd = append(w.cwnd, float64(info.Snd_cwnd))
			w.unsent = append(w.unsent, float64(info.Notsent_bytes)/1024)
		}
	}
	d.turn++
	for _, at := range d.places {
		stats, _, err := at.tc.RootStats(at.index) // the root counts for all below it
		if err != nil {
			d.Fail(err)
		}
		at.backlog = append(at.backlog, float64(stats.Backlog)/1024)
	}
	d.pages = max(d.pages, tcpPages())
	return true
}

func (d *driver) collect() (*measure.Run, error) {
	s := d.job.Scenario
	span := d.stopped - d.warm
	run := &measure.Run{Seed: d.job.Seed, Kernel: release(), Seconds: roundMicro(span.Seconds()), Series: d.series,
		TCPPages: d.pages, TCPPressed: d.pages >= tcpPressure()}
	byClient := map[string]float64{}
	for _, g := range d.groups {
		for k, f := range g.flows {
			if g.spec.Every > 0 && f.Finished > 0 && f.Finished < d.warm {
				continue
			}
			w := g.watch[k]
			f.Catch()
			if info, ok := f.Info(); ok && info.State != 0 && info.Delivered >= w.last.Delivered {
				w.last = info
			}
			busy, came := float64(w.last.Busy_time-w.before.Busy_time), w.last.Delivered-w.before.Delivered
			r := measure.Flow{
				Flow: g.spec.Name, Client: g.spec.Client, CC: f.CC(), Bytes: f.Received,
				Goodput: mbit(f.Received-w.received, span), Arrived: mbit(int64(came)*int64(w.last.Snd_mss), span),
				SRTT: dist(w.srtt), Cwnd: dist(w.cwnd), Unsent: dist(w.unsent),
				Retransmits: uint64(w.last.Total_retrans - w.before.Total_retrans),
				Delivered:   uint64(came),
				CE:          uint64(w.last.Delivered_ce - w.before.Delivered_ce),
				Wakeups:     f.Wakeups - w.wakeups,
			}
			if busy > 0 {
				r.RwndLimited = roundMicro(float64(w.last.Rwnd_limited-w.before.Rwnd_limited) / busy)
				r.SndbufLimited = roundMicro(float64(w.last.Sndbuf_limited-w.before.Sndbuf_limited) / busy)
			}
			if f.Finished > 0 {
				r.Fetch = roundMicro((f.Finished - f.Started).Seconds())
			}
			if f.Err != nil {
				r.Error = f.Err.Error()
			}
			run.Goodput = roundMicro(run.Goodput + r.Goodput)
			byClient[g.spec.Client] += r.Goodput
			run.Flows = append(run.Flows, r)
		}
	}
	for _, c := range s.Client {
		if g, ok := byClient[c.Name]; ok {
			run.Clients = append(run.Clients, measure.Share{Client: c.Name, Goodput: roundMicro(g)})
		}
	}
	for i, at := range d.places {
		q, err := d.queue(at)
		if err != nil {
			return nil, err
		}
		switch {
		case i == 0:
			run.Uplink, run.Series.Uplink = q, at.backlog
		case i == 1:
			run.Provider, run.Series.Provider = q, at.backlog
		default:
			*at.result(run) = &q
			switch &q {
			case run.Inward:
				run.Series.Inward = at.backlog
			case run.Ingress:
				run.Series.Ingress = at.backlog
			}
		}
	}
	return run, nil
}

func (d *driver) probeResult(e exchange) measure.Probe {
	r := measure.Probe{Probe: e.spec.Name, Kind: e.spec.Kind, Client: e.spec.Client}
	if !e.spec.Does().OneWay {
		r.Base = roundMicro(time.Duration(d.job.Scenario.Base(e.spec.Client, e.spec.Leg)).Seconds() * 1e3)
	}
	if e.samples.Err != nil {
		r.Error = e.samples.Err.Error()
	}
	var delays []float64
	for _, sample := range e.samples.List {
		if sample.At < d.warm || sample.At >= d.stopped {
			continue
		}
		r.Sent++
		r.At = append(r.At, roundMicro((sample.At - d.warm).Seconds()))
		if sample.Delay < 0 {
			r.Lost++
			r.Series = append(r.Series, -1)
			continue
		}
		ms := roundMicro(sample.Delay.Seconds() * 1e3)
		delays = append(delays, ms)
		r.Series = append(r.Series, ms)
	}
	r.Delay = dist(delays)
	return r
}

// place is where packets wait or are dropped.
type place struct {
	space
	device  string
	index   int
	policed bool      // by a policer at the device's ingress instead of a queue
	backlog []float64 // KiB, sampled
	earlier counts    // at the end of the warm-up
	result  func(*measure.Run) **measure.Queue
}

// find finds the places: at the server where packets wait (if all flows go up and what arrives is shaped, there) and at
// the provider where most do; of a relay with one card also the other side of the provider, the ifb and the tunnel.
func (d *driver) find() error {
	own := scenario.Uplink
	_, err := d.server.index(qdisc.IFB)
	shaped := err == nil
	if shaped && d.watched == doorUp {
		own = qdisc.IFB
	}
	d.places = []*place{{space: d.server, device: own}, {space: d.provider, device: d.watched}}
	if d.policed != "" {
		d.places[1].policed = true
	}
	if limitsInward(d.job.Scenario) && d.watched != doorUp {
		d.places = append(d.places, &place{space: d.provider, device: doorUp,
			result: func(r *measure.Run) **measure.Queue { return &r.Inward }})
	}
	if shaped && d.watched != doorUp {
		d.places = append(d.places, &place{space: d.server, device: qdisc.IFB,
			result: func(r *measure.Run) **measure.Queue { return &r.Ingress }})
	}
	if d.job.Scenario.OneCard() && d.tunnel != "" {
		d.places = append(d.places, &place{space: d.server, device: d.tunnel,
			result: func(r *measure.Run) **measure.Queue { return &r.Tunnel }})
	}
	for _, at := range d.places {
		var err error
		if at.index, err = at.space.index(at.device); err != nil {
			return err
		}
	}
	if d.policed != "" {
		d.places[1].device = d.policed
	}
	return nil
}

// counts are what a place has done since the boot, in packets; and all that a bpf_dualpi2 there has counted.
type counts struct {
	drops, marks uint64
	dualpi2      *dualpi2.Stats
}

func (d *driver) counts(at *place) (c counts, err error) {
	if at.policed {
		c.drops, err = d.policedDrops()
		return c, err
	}
	tree, err := at.tc.Tree(at.index)
	if err != nil {
		return c, fmt.Errorf("qdiscs of %s: %w", at.device, err)
	}
	return countsOf(tree), nil
}

func countsOf(tree qdisc.Tree) (c counts) {
	var below uint64
	for _, q := range tree.Qdiscs {
		c.marks += q.Stats.Marks
		if x, ok := q.Stats.X.(dualpi2.Stats); ok {
			c.dualpi2 = &x
		}
		if q.Parent == qdisc.Root {
			c.drops = q.Stats.Drops // most roots count what is dropped below them
		} else {
			below += q.Stats.Drops
		}
	}
	c.drops = max(c.drops, below)
	return c
}

// queue reads a place.
func (d *driver) queue(at *place) (measure.Queue, error) {
	now, err := d.counts(at)
	if err != nil {
		return measure.Queue{}, err
	}
	before := at.earlier
	q := measure.Queue{
		Device: at.device, Stack: "none", Backlog: dist(at.backlog),
		Drops: now.drops - before.drops, Marks: now.marks - before.marks, DropsBefore: before.drops,
	}
	if now.dualpi2 != nil && before.dualpi2 != nil {
		since := now.dualpi2.Since(*before.dualpi2)
		q.DualPI2 = &since
	}
	if at.policed {
		q.Stack = "policer"
		return q, nil
	}
	tree, err := at.tc.Tree(at.index)
	if err != nil {
		return q, fmt.Errorf("qdiscs of %s: %w", at.device, err)
	}
	if root, ok := tree.Root(); ok {
		q.Stack = root.Kind
	}
	if stack, ok := tree.Stack(); ok {
		q.Stack = stack.String()
	}
	for _, x := range tree.Qdiscs {
		config := ""
		if x.Spec != nil {
			config = x.Spec.String()
		}
		q.Qdiscs = append(q.Qdiscs, measure.Qdisc{Kind: x.Kind, Handle: x.Handle.String(), Parent: x.Parent.String(),
			Config: config, Stats: x.Stats})
	}
	return q, nil
}

func mbit(bytes int64, span time.Duration) float64 {
	return roundMicro(float64(bytes) * 8 / 1e6 / span.Seconds())
}

func dist(samples []float64) stats.Dist {
	d := stats.NewDist(samples)
	for _, v := range []*float64{&d.Min, &d.P50, &d.P90, &d.P99, &d.Max, &d.Mean, &d.MAD} {
		*v = roundMicro(*v)
	}
	return d
}

// roundMicro keeps a result readable: a microsecond of a millisecond figure, a bit per second of megabits.
func roundMicro(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func release() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

// tcpPages is what TCP holds in all namespaces, in pages.
func tcpPages() int {
	text, _ := os.ReadFile("/proc/net/sockstat")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "TCP:" {
			for i := 1; i+1 < len(fields); i += 2 {
				if fields[i] == "mem" {
					n, _ := strconv.Atoi(fields[i+1])
					return n
				}
			}
		}
	}
	return 0
}
