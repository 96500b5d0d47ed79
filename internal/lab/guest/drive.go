// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab"
	"weir/internal/measure"
	"weir/internal/qdisc"
	"weir/internal/traffic"
)

const (
	settle     = 100 * time.Millisecond // from the start of the loop to the scenario's time 0: sockets are made, nothing flows
	sampleTick = 100 * time.Millisecond // the time series' step
	leastStep  = 5 * time.Millisecond   // of a short run's series,
	minTicks   = 100                    // which has as many steps as fit
	maxPolls   = 40                     // connections whose TCP_INFO is read at every sample; of more, in turns
	answerTime = time.Second            // before the end of a run: what is sent later than that may not be answered in time;
	answerPart = 5                      // of a short run, this part of it
	firstPort  = 5201
)

// group is a scenario's flow with its connections.
type group struct {
	spec  lab.Flow
	flows []*traffic.Flow
	watch []*watched
}

// watched is what was sampled of one connection.
type watched struct {
	received           int64 // at the end of the warm-up
	before, last       unix.TCPInfo
	srtt, cwnd, unsent []float64
}

type exchange struct {
	spec    lab.Probe
	samples *traffic.Samples
}

// driver makes a job's traffic and samples while it runs.
type driver struct {
	*topology
	*traffic.Loop
	job              lab.Job
	groups           []*group
	exchanges        []exchange
	begin, warm, end time.Duration // on the loop's clock
	stopped          time.Duration // when it really ended
	fetching         int           // flows with bytes that have not got them
	series           lab.Series
	step             time.Duration
	lastReceived     []int64 // by group, for the series
	turn             int
	pages            int
	uplink, down     int // interface indices
}

func drive(t *topology, job lab.Job) (*lab.Run, error) {
	loop, err := traffic.NewLoop()
	if err != nil {
		return nil, err
	}
	d := &driver{topology: t, Loop: loop, job: job}
	s := job.Scenario
	d.begin = loop.Now() + settle
	d.warm = d.begin + time.Duration(s.Warmup)
	d.end = d.warm + time.Duration(s.Duration)
	if d.uplink, err = t.server.index(lab.Uplink); err != nil {
		return nil, err
	}
	if d.down, err = t.provider.index(t.limiter); err != nil {
		return nil, err
	}
	if err := d.start(); err != nil {
		return nil, err
	}
	d.At(d.warm, d.warmedUp)
	d.step = max(leastStep, min(sampleTick, time.Duration(s.Duration)/minTicks))
	d.series.Step = d.step.Seconds()
	d.Every(d.warm+d.step, d.step, d.sample)
	d.Every(d.begin, time.Second, func() bool {
		fmt.Printf("%s%d\n", Heartbeat, int((d.Now()-d.begin)/time.Second))
		return true
	})
	if err := loop.Run(d.end); err != nil {
		return nil, err
	}
	d.stopped = loop.Now()
	return d.collect()
}

func (d *driver) start() error {
	s := d.job.Scenario
	port := firstPort
	client := func(name string) traffic.Host {
		return d.clients[slices.IndexFunc(s.Client, func(c lab.Client) bool { return c.Name == name })]
	}
	for _, f := range s.Flow {
		spec := traffic.BulkSpec{
			Source: d.source[f.Address-1], Sink: client(f.Client), SourceDials: f.Dial == "server",
			Port: port, Count: f.Count, CC: f.CC, NotsentLowat: int(f.Lowat), Bytes: int64(f.Bytes),
			Start: d.begin + time.Duration(f.Start),
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
			g.watch = append(g.watch, &watched{})
		}
		d.groups = append(d.groups, g)
		if f.Bytes > 0 {
			d.fetching += f.Count
		}
		d.series.Goodput = append(d.series.Goodput, lab.FlowSeries{Flow: f.Name})
		port++
	}
	d.lastReceived = make([]int64, len(d.groups))
	for i, p := range s.Probe {
		// Probes go where the flows come from: through a relay, if there is one.
		server := d.source[0]
		interval, size := time.Duration(p.Interval), int(p.Size)
		// Out of step with each other, so that probes do not meet at every tick.
		start := d.begin + time.Duration(i)*time.Millisecond
		var samples *traffic.Samples
		var err error
		switch p.Kind {
		case "udp":
			samples, err = d.StartProbe(traffic.ProbeSpec{From: client(p.Client), To: server, Port: port, Interval: interval, Size: size, Start: start, Stop: d.end})
		case "stream":
			samples, err = d.StartStream(traffic.StreamSpec{From: server, To: client(p.Client), Port: port, Interval: interval, Size: size, Start: start, Stop: d.end})
		default:
			samples, err = d.StartSession(traffic.SessionSpec{From: client(p.Client), To: server, Port: port, Request: size, Reply: int(p.Reply),
				Interval: interval, Wait: p.Kind == "request", Start: start, Stop: d.end})
		}
		if err != nil {
			return fmt.Errorf("probe %q: %w", p.Name, err)
		}
		d.exchanges = append(d.exchanges, exchange{p, samples})
		port++
	}
	return nil
}

func (d *driver) fetched(*traffic.Flow) {
	d.fetching--
	if d.fetching == 0 && d.job.Scenario.Until == "fetched" {
		d.End()
	}
}

func (d *driver) warmedUp() {
	for i, g := range d.groups {
		for k, f := range g.flows {
			f.Catch()
			g.watch[k].received = f.Received
			g.watch[k].before, _ = f.Info()
			d.lastReceived[i] += f.Received
		}
	}
}

// sample reads what is only seen while it happens.
func (d *driver) sample() bool {
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
		all += len(g.flows)
	}
	every := (all + budget - 1) / max(1, budget)
	n := 0
	for _, g := range d.groups {
		for k, f := range g.flows {
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
	d.series.Uplink = append(d.series.Uplink, d.backlog(d.server, d.uplink))
	d.series.Provider = append(d.series.Provider, d.backlog(d.provider, d.down))
	d.pages = max(d.pages, tcpPages())
	return true
}

// backlog gives the KiB that wait at a device: its root counts for all below it.
func (d *driver) backlog(s space, index int) float64 {
	stats, _, err := s.tc.RootStats(index)
	if err != nil {
		d.Fail(err)
	}
	return float64(stats.Backlog) / 1024
}

func (d *driver) collect() (*lab.Run, error) {
	s := d.job.Scenario
	span := d.stopped - d.warm
	run := &lab.Run{Seed: d.job.Seed, Kernel: release(), Seconds: round(span.Seconds()), Series: d.series, TCPPages: d.pages}
	byClient := map[string]float64{}
	for _, g := range d.groups {
		for k, f := range g.flows {
			w := g.watch[k]
			f.Catch()
			if info, ok := f.Info(); ok && info.State != 0 && info.Delivered >= w.last.Delivered {
				w.last = info
			}
			busy := float64(w.last.Busy_time - w.before.Busy_time)
			r := lab.FlowResult{
				Flow: g.spec.Name, Client: g.spec.Client, CC: congestionControl(g.spec.CC), Bytes: f.Received,
				Goodput: mbit(f.Received-w.received, span),
				SRTT:    dist(w.srtt), Cwnd: dist(w.cwnd), Unsent: dist(w.unsent),
				Retransmits: uint64(w.last.Total_retrans - w.before.Total_retrans),
				Delivered:   uint64(w.last.Delivered - w.before.Delivered),
				CE:          uint64(w.last.Delivered_ce - w.before.Delivered_ce),
				Wakeups:     f.Wakeups,
			}
			if busy > 0 {
				r.RwndLimited = round(float64(w.last.Rwnd_limited-w.before.Rwnd_limited) / busy)
				r.SndbufLimited = round(float64(w.last.Sndbuf_limited-w.before.Sndbuf_limited) / busy)
			}
			if f.Finished > 0 {
				r.Fetch = round((f.Finished - f.Started).Seconds())
			}
			if f.Err != nil {
				r.Error = f.Err.Error()
			}
			run.Goodput = round(run.Goodput + r.Goodput)
			byClient[g.spec.Client] += r.Goodput
			run.Flows = append(run.Flows, r)
		}
	}
	for _, c := range s.Client {
		if g, ok := byClient[c.Name]; ok {
			run.Clients = append(run.Clients, lab.Share{Client: c.Name, Goodput: round(g)})
		}
	}
	for _, e := range d.exchanges {
		run.Probes = append(run.Probes, d.probeResult(e))
	}
	var err error
	if run.Uplink, err = d.queue(d.server, lab.Uplink, d.uplink, d.series.Uplink); err != nil {
		return nil, err
	}
	if run.Provider, err = d.queue(d.provider, d.limiter, d.down, d.series.Provider); err != nil {
		return nil, err
	}
	if d.policed != "" {
		run.Provider.Device, run.Provider.Stack = d.policed, "policer"
		if run.Provider.Drops, err = d.policedDrops(); err != nil {
			return nil, err
		}
	}
	return run, nil
}

func (d *driver) probeResult(e exchange) lab.ProbeResult {
	r := lab.ProbeResult{Probe: e.spec.Name, Kind: e.spec.Kind, Client: e.spec.Client}
	if e.spec.Kind != "stream" {
		r.Base = round(time.Duration(d.job.Scenario.RTT(e.spec.Client)).Seconds() * 1e3)
	}
	if e.samples.Err != nil {
		r.Error = e.samples.Err.Error()
	}
	var delays []float64
	late := d.stopped - min(answerTime, (d.stopped-d.warm)/answerPart)
	for _, sample := range e.samples.List {
		if sample.At < d.warm || sample.At >= late {
			continue
		}
		r.Sent++
		r.At = append(r.At, round((sample.At - d.warm).Seconds()))
		if sample.Delay < 0 {
			r.Lost++
			r.Series = append(r.Series, -1)
			continue
		}
		ms := round(sample.Delay.Seconds() * 1e3)
		delays = append(delays, ms)
		r.Series = append(r.Series, ms)
	}
	r.Delay = dist(delays)
	return r
}

// queue reads a device's counters.
func (d *driver) queue(s space, name string, index int, backlog []float64) (lab.Queue, error) {
	tree, err := s.tc.Tree(index)
	if err != nil {
		return lab.Queue{}, fmt.Errorf("qdiscs of %s: %w", name, err)
	}
	q := lab.Queue{Device: name, Stack: "none", Backlog: dist(backlog)}
	if root, ok := tree.Root(); ok {
		q.Drops = root.Stats.Drops // a root counts what is dropped below it
		q.Stack = root.Kind
	}
	if stack, ok := tree.Stack(); ok {
		q.Stack = stack.String()
	}
	var below uint64
	for _, x := range tree.Qdiscs {
		config := ""
		if x.Spec != nil {
			config = x.Spec.String()
		}
		q.Qdiscs = append(q.Qdiscs, lab.QdiscResult{Kind: x.Kind, Handle: x.Handle.String(), Parent: x.Parent.String(), Config: config, Stats: x.Stats})
		q.Marks += x.Stats.Marks
		if x.Parent != qdisc.Root {
			below += x.Stats.Drops
		}
	}
	q.Drops = max(q.Drops, below)
	return q, nil
}

func mbit(bytes int64, span time.Duration) float64 {
	return round(float64(bytes) * 8 / 1e6 / span.Seconds())
}

func dist(samples []float64) measure.Dist {
	d := measure.NewDist(samples)
	for _, v := range []*float64{&d.Min, &d.P50, &d.P90, &d.P99, &d.Max, &d.Mean, &d.MAD} {
		*v = round(*v)
	}
	return d
}

// round keeps a result readable: a microsecond of a millisecond figure, a bit per second of megabits.
func round(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func congestionControl(given string) string {
	if given != "" {
		return given
	}
	text, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	return strings.TrimSpace(string(text))
}

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
