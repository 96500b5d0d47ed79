// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"weir/internal/dualpi2"
	"weir/internal/stats"
	"weir/internal/text"
	"weir/internal/units"
)

// Metric is a number that a table shows and a claim can be about. Its name is "goodput", or has a part of the scenario
// in it: "goodput.client.NAME", "goodput.flow.NAME", "probe.NAME.p99".
type Metric struct {
	Name    string
	Unit    string // mbit, ms, s, %, kb, packets, or nothing
	Heading string // of a table's column

	// What the scenario has to have for it; the zero values ask for nothing.
	Kind        string        // of the probe that it is about
	Program     string        // whose output it is in
	Fetches     bool          // flows that have an end
	AfterFlow   string        // the flow after whose start its time begins
	AfterChange bool          // a change of the provider's, after which its time begins
	From, To    time.Duration // since the beginning of the run, if it is about a part of it

	read reader
	// where it is true, a run without a value is one in which it never came, and counts as above every other
	awaited func(Setup) bool
}

// reader reads a metric of a run; false where the run has no such thing.
type reader = func(Setup, *Run) (float64, bool)

// Setup is what metrics take besides a run: what was measured on, and what was asked for.
type Setup struct {
	Capacity float64            // Mbit/s of payload that the link can carry; 0: not known
	Changes  []Change           // of that, in their order
	Warmup   float64            // seconds before the measurement began
	Starts   map[string]float64 // when each flow starts, in seconds since the measurement began
	Provider bool               // somebody else's queue is measured, too
	Fetching []string           // flows that have an end
	Up       []string           // flows towards the server; all others are downloads from it
}

func (s Setup) fetches(flow string) bool { return slices.Contains(s.Fetching, flow) }

func (s Setup) uploads(flow string) bool { return slices.Contains(s.Up, flow) }

func (s Setup) downloads(flow string) bool { return !s.uploads(flow) }

// Of returns the metric over several runs; false when they have no such thing.
func (m Metric) Of(s Setup, runs []Run) (stats.Spread, bool) {
	var values []float64
	for i := range runs {
		if v, ok := m.read(s, &runs[i]); ok {
			values = append(values, v)
		}
	}
	missing := 0
	if m.awaited != nil && m.awaited(s) {
		missing = len(runs) - len(values)
	}
	return stats.NewSpread(values, missing)
}

func metrics() []Metric {
	sum := func(read func(*Flow) float64) reader {
		return func(_ Setup, r *Run) (float64, bool) {
			var total float64
			for i := range r.Flows {
				total += read(&r.Flows[i])
			}
			return total, len(r.Flows) > 0
		}
	}
	ofDelivered := func(read func(*Flow) uint64) reader {
		return func(_ Setup, r *Run) (float64, bool) {
			var part, all uint64
			for _, f := range r.Flows {
				part += read(&f)
				all += f.Delivered
			}
			return 100 * float64(part) / max(1, float64(all)), all > 0
		}
	}
	median := func(read func(*Flow) (float64, bool)) reader {
		return func(_ Setup, r *Run) (float64, bool) {
			var values []float64
			for i := range r.Flows {
				if v, ok := read(&r.Flows[i]); ok {
					values = append(values, v)
				}
			}
			return stats.Median(values), len(values) > 0
		}
	}
	probe := func(kind, name, unit, short string, read func(*Probe) float64) Metric {
		return Metric{Name: name, Unit: unit, Heading: short, Kind: kind, read: func(_ Setup, r *Run) (float64, bool) {
			for i := range r.Probes {
				if p := &r.Probes[i]; p.Kind == kind && (p.Delay.N > 0 || p.Sent > 0) {
					return read(p), true
				}
			}
			return 0, false
		}}
	}
	oneWay := func(wanted func(s Setup, flow string) bool) reader {
		return func(s Setup, r *Run) (total float64, found bool) {
			for _, f := range r.Flows {
				if wanted(s, f.Flow) {
					total, found = total+f.Goodput, true
				}
			}
			return total, found
		}
	}
	lost := func(p *Probe) float64 { return 100 * float64(p.Lost) / float64(max(1, p.Sent)) }
	m := func(name, unit, short string, read reader) Metric {
		return Metric{Name: name, Unit: unit, Heading: short, read: read}
	}
	fetching := func(s Setup) bool { return len(s.Fetching) > 0 }
	queueC := func(x *dualpi2.Stats) *dualpi2.Sojourn { return &x.SojournC }
	queueL := func(x *dualpi2.Stats) *dualpi2.Sojourn { return &x.SojournL }
	mean := func(x *dualpi2.Sojourn) units.Duration { return x.Mean }
	p50 := func(x *dualpi2.Sojourn) units.Duration { return x.P50 }
	p99 := func(x *dualpi2.Sojourn) units.Duration { return x.P99 }
	return []Metric{
		m("goodput", "mbit", "goodput", sum(func(f *Flow) float64 { return f.Goodput })),
		m("goodput.down", "mbit", "down", oneWay(Setup.downloads)),
		m("goodput.up", "mbit", "up", oneWay(Setup.uploads)),
		m("utilisation", "%", "of link", func(s Setup, r *Run) (float64, bool) {
			return 100 * r.Goodput / max(s.Capacity, 1e-9), s.Capacity > 0 && len(r.Flows) > 0
		}),
		m("arrived", "%", "arrived, of link", func(s Setup, r *Run) (float64, bool) {
			arrived, ok := sum(func(f *Flow) float64 { return f.Arrived })(s, r)
			return 100 * arrived / max(s.Capacity, 1e-9), ok && s.Capacity > 0
		}),
		m("jain.flows", "", "Jain flows", func(_ Setup, r *Run) (float64, bool) {
			var shares []float64
			for _, f := range r.Flows {
				shares = append(shares, f.Goodput)
			}
			return stats.Jain(shares), len(shares) > 1
		}),
		m("jain.clients", "", "Jain clients", func(_ Setup, r *Run) (float64, bool) {
			var shares []float64
			for _, c := range r.Clients {
				shares = append(shares, c.Goodput)
			}
			return stats.Jain(shares), len(shares) > 1
		}),
		{Name: "fetch", Unit: "s", Heading: "fetch", Fetches: true, awaited: fetching, read: fetch},
		m("unfinished", "", "unfinished", func(s Setup, r *Run) (float64, bool) {
			missing := 0
			for _, f := range r.Flows {
				if s.fetches(f.Flow) && f.Fetch == 0 {
					missing++
				}
			}
			return float64(missing), len(s.Fetching) > 0
		}),
		m("srtt", "ms", "srtt", median(func(f *Flow) (float64, bool) { return f.SRTT.P50, f.SRTT.N > 0 })),
		m("cwnd", "packets", "cwnd", median(func(f *Flow) (float64, bool) { return f.Cwnd.P50, f.Cwnd.N > 0 })),
		m("unsent", "kb", "unsent", median(func(f *Flow) (float64, bool) { return f.Unsent.P50, f.Unsent.N > 0 })),
		m("sndbuf_limited", "%", "sndbuf lim", median(func(f *Flow) (float64, bool) {
			return 100 * f.SndbufLimited, true
		})),
		m("rwnd_limited", "%", "rwnd lim", median(func(f *Flow) (float64, bool) { return 100 * f.RwndLimited, true })),
		m("retransmits", "packets", "retrans", sum(func(f *Flow) float64 { return float64(f.Retransmits) })),
		m("retransmitted", "%", "resent", ofDelivered(func(f *Flow) uint64 { return f.Retransmits })),
		m("wakeups", "", "wakeups", sum(func(f *Flow) float64 { return float64(f.Wakeups) })),
		m("ce", "%", "CE", ofDelivered(func(f *Flow) uint64 { return f.CE })),
		probe("udp", "rtt.min", "ms", "RTT min", func(p *Probe) float64 { return p.Delay.Min }),
		probe("udp", "rtt.p50", "ms", "RTT p50", func(p *Probe) float64 { return p.Delay.P50 }),
		probe("udp", "rtt.p99", "ms", "RTT p99", func(p *Probe) float64 { return p.Delay.P99 }),
		probe("udp", "added.p50", "ms", "added p50", func(p *Probe) float64 { return p.Delay.P50 - p.Base }),
		probe("udp", "added.p99", "ms", "added p99", func(p *Probe) float64 { return p.Delay.P99 - p.Base }),
		probe("udp", "jitter", "ms", "jitter", func(p *Probe) float64 { return p.Delay.MAD }),
		probe("udp", "lost", "%", "lost", lost),
		probe("ssh", "ssh.p50", "ms", "ssh p50", func(p *Probe) float64 { return p.Delay.P50 }),
		probe("ssh", "ssh.p99", "ms", "ssh p99", func(p *Probe) float64 { return p.Delay.P99 }),
		probe("ssh", "ssh.jitter", "ms", "ssh jitter", func(p *Probe) float64 { return p.Delay.MAD }),
		probe("request", "request.p50", "ms", "req p50", func(p *Probe) float64 { return p.Delay.P50 }),
		probe("request", "request.p99", "ms", "req p99", func(p *Probe) float64 { return p.Delay.P99 }),
		probe("stream", "stream.p50", "ms", "UDP p50", func(p *Probe) float64 { return p.Delay.P50 }),
		probe("stream", "stream.p99", "ms", "UDP p99", func(p *Probe) float64 { return p.Delay.P99 }),
		probe("stream", "stream.lost", "%", "UDP lost", lost),
		m("provider.drops", "packets", "prov drops", func(s Setup, r *Run) (float64, bool) {
			return float64(r.Provider.Drops), s.Provider
		}),
		m("provider.backlog", "kb", "prov queue", func(s Setup, r *Run) (float64, bool) {
			return r.Provider.Backlog.Mean, s.Provider
		}),
		m("inward.drops", "packets", "inward drops", func(_ Setup, r *Run) (float64, bool) {
			return float64(r.Inward.Dropped()), r.Inward != nil
		}),
		m("inward.backlog", "kb", "inward queue", func(_ Setup, r *Run) (float64, bool) {
			return r.Inward.Mean(), r.Inward != nil
		}),
		m("uplink.drops", "packets", "own drops", uplink(func(q *Queue) float64 { return float64(q.Drops) })),
		m("uplink.marks", "packets", "own marks", uplink(func(q *Queue) float64 { return float64(q.Marks) })),
		m("uplink.backlog", "kb", "own queue", uplink(func(q *Queue) float64 { return q.Backlog.Mean })),
		m("sojourn.c.mean", "ms", "C sojourn mean", sojourn(queueC, mean)),
		m("sojourn.c.p99", "ms", "C sojourn p99", sojourn(queueC, p99)),
		m("sojourn.l.mean", "ms", "L sojourn mean", sojourn(queueL, mean)),
		m("sojourn.l.p50", "ms", "L sojourn p50", sojourn(queueL, p50)),
		m("sojourn.l.p99", "ms", "L sojourn p99", sojourn(queueL, p99)),
		m("step.missed", "%", "missed", ofL(func(x *dualpi2.Stats) uint64 { return x.StepMissed })),
		m("step.early", "%", "early", ofL(func(x *dualpi2.Stats) uint64 { return x.StepEarly })),
	}
}

// fetch is how long the median flow with an end took, in s. One that has not come to it took longer than every other.
func fetch(s Setup, r *Run) (float64, bool) {
	var values []float64
	unfinished := 0
	for _, f := range r.Flows {
		switch {
		case f.Fetch > 0:
			values = append(values, f.Fetch)
		case s.fetches(f.Flow):
			unfinished++
		}
	}
	spread, ok := stats.NewSpread(values, unfinished)
	return spread.Median, ok
}

// uplink reads a count of the server's own queue.
func uplink(read func(*Queue) float64) reader {
	return func(_ Setup, r *Run) (float64, bool) { return read(&r.Uplink), true }
}

// sojourn reads how long packets have waited in a queue by a bpf_dualpi2's own clock, in ms.
func sojourn(queue func(*dualpi2.Stats) *dualpi2.Sojourn, read func(*dualpi2.Sojourn) units.Duration) reader {
	return func(_ Setup, r *Run) (float64, bool) {
		if r.Uplink.DualPI2 == nil {
			return 0, false
		}
		return float64(read(queue(r.Uplink.DualPI2))) / 1e6, true
	}
}

// ofL is a count of a bpf_dualpi2 as a share of the packets that have left its L queue.
func ofL(read func(*dualpi2.Stats) uint64) reader {
	return func(_ Setup, r *Run) (float64, bool) {
		x := r.Uplink.DualPI2
		if x == nil || x.SojournL.Packets == 0 {
			return 0, false
		}
		return 100 * float64(read(x)) / float64(x.SojournL.Packets), true
	}
}

// MetricNames lists every name, the ones with a placeholder included.
func MetricNames() []string {
	var names []string
	for _, m := range metrics() {
		names = append(names, m.Name)
	}
	return append(names, "goodput.client.NAME", "goodput.flow.NAME", "ratio.NAME.OTHER", "share.client.NAME",
		"probe.NAME.p50", "probe.NAME.p99", "probe.NAME.lost",
		"added.NAME.mean", "added.NAME.p50", "added.NAME.p99", "added.NAME.max",
		programOf+"NAME", "fetch.NAME.p50", "fetch.NAME.p99", calmAfterChange+"LIMIT",
		calmAfterFlow+"NAME.LIMIT", usedBetween+"FROM-TO")
}

// ParseMetric finds a metric by name; the scenario decides whether a run has it.
func ParseMetric(name string) (Metric, error) {
	for _, m := range metrics() {
		if m.Name == name {
			return m, nil
		}
	}
	if client, ok := strings.CutPrefix(name, "goodput.client."); ok {
		return Metric{Name: name, Unit: "mbit", Heading: client,
			read: func(_ Setup, r *Run) (float64, bool) { return clientGoodput(r, client) }}, nil
	}
	if client, ok := strings.CutPrefix(name, "share.client."); ok {
		return Metric{Name: name, Unit: "%", Heading: client + " share", read: func(_ Setup, r *Run) (float64, bool) {
			v, ok := clientGoodput(r, client)
			return 100 * v / max(r.Goodput, 1e-9), ok
		}}, nil
	}
	if flow, ok := strings.CutPrefix(name, "goodput.flow."); ok {
		return Metric{Name: name, Unit: "mbit", Heading: flow, read: func(_ Setup, r *Run) (float64, bool) {
			total, n := flowGoodput(r, flow)
			return total, n > 0
		}}, nil
	}
	if rest, ok := strings.CutPrefix(name, "ratio."); ok {
		if flow, other, ok := strings.Cut(rest, "."); ok {
			return Metric{Name: name, Heading: flow + "/" + other, read: func(_ Setup, r *Run) (float64, bool) {
				mine, n := flowGoodput(r, flow)
				theirs, k := flowGoodput(r, other)
				return mine / float64(max(1, n)) / max(theirs/float64(max(1, k)), 1e-9), n > 0 && theirs > 0
			}}, nil
		}
	}
	for _, parse := range []func(string) (Metric, bool, error){parseCalm, parseWindow, parseFetch, parseProgram} {
		if m, mine, err := parse(name); mine {
			return m, err
		}
	}
	for _, family := range []string{"probe.", "added."} {
		rest, ok := strings.CutPrefix(name, family)
		probe, q, both := strings.Cut(rest, ".")
		if read := quantiles[family+q]; ok && both && read != nil {
			m := Metric{Name: name, Unit: "ms", Heading: probe + " " + q, read: func(_ Setup, r *Run) (float64, bool) {
				for i := range r.Probes {
					if p := &r.Probes[i]; p.Probe == probe && (p.Delay.N > 0 || q == "lost" && p.Sent > 0) {
						return read(p), true
					}
				}
				return 0, false
			}}
			if q == "lost" {
				m.Unit = "%"
			}
			return m, nil
		}
	}
	if near := text.Nearest(name, MetricNames()); near != "" {
		return Metric{}, fmt.Errorf("there is no metric %q; %s is one", name, near)
	}
	return Metric{}, fmt.Errorf("there is no metric %q; docs/scenarios.md lists them", name)
}

// quantiles are what is known of a probe by name; added is above its base RTT.
var quantiles = map[string]func(*Probe) float64{
	"probe.p50":  func(p *Probe) float64 { return p.Delay.P50 },
	"probe.p99":  func(p *Probe) float64 { return p.Delay.P99 },
	"probe.lost": func(p *Probe) float64 { return 100 * float64(p.Lost) / float64(max(1, p.Sent)) },
	"added.mean": func(p *Probe) float64 { return p.Delay.Mean - p.Base },
	"added.p50":  func(p *Probe) float64 { return p.Delay.P50 - p.Base },
	"added.p99":  func(p *Probe) float64 { return p.Delay.P99 - p.Base },
	"added.max":  func(p *Probe) float64 { return p.Delay.Max - p.Base },
}

const programOf = "program."

// parseProgram reads program.NAME, the number that a program's output has; false for any other name.
func parseProgram(name string) (Metric, bool, error) {
	program, ok := strings.CutPrefix(name, programOf)
	read := func(_ Setup, r *Run) (float64, bool) {
		for _, p := range r.Programs {
			if p.Program == program && p.Found != nil {
				return *p.Found, true
			}
		}
		return 0, false
	}
	return Metric{Name: name, Heading: program, Program: program, read: read}, ok && program != "", nil
}

const fetchOf = "fetch."

// parseFetch reads fetch.NAME.p50 and fetch.NAME.p99, of the connections of a flow; false for any other name. One that
// was not done at the end took longer than every other.
func parseFetch(name string) (Metric, bool, error) {
	rest, ok := strings.CutPrefix(name, fetchOf)
	flow, q, _ := strings.Cut(rest, ".")
	p, known := map[string]float64{"p50": 0.5, "p99": 0.99}[q]
	if !ok || !known {
		return Metric{}, false, nil
	}
	read := func(s Setup, r *Run) (float64, bool) {
		var times []float64
		for _, f := range r.Flows {
			switch {
			case f.Flow != flow || !s.fetches(flow):
			case f.Fetch > 0:
				times = append(times, f.Fetch)
			default:
				times = append(times, math.Inf(1))
			}
		}
		if len(times) == 0 {
			return 0, false
		}
		v := stats.Quantile(times, p)
		return v, !math.IsInf(v, 1)
	}
	awaited := func(s Setup) bool { return s.fetches(flow) }
	m := Metric{Name: name, Unit: "s", Heading: flow + " " + q, Fetches: true, awaited: awaited, read: read}
	return m, true, nil
}

// flowGoodput is that of all connections of a flow, and how many they are.
func flowGoodput(r *Run, name string) (total float64, n int) {
	for _, f := range r.Flows {
		if f.Flow == name {
			total += f.Goodput
			n++
		}
	}
	return total, n
}

func clientGoodput(r *Run, name string) (float64, bool) {
	for _, c := range r.Clients {
		if c.Client == name {
			return c.Goodput, true
		}
	}
	return 0, false
}
