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
	"weir/internal/units"
)

// A metric is a number that a table shows and a claim can be about. Its name is "goodput", or has a part of the
// scenario in it: "goodput.client.NAME", "goodput.flow.NAME", "probe.NAME.p99".
type metric struct {
	name  string
	unit  string // mbit, ms, s, %, kb, packets, or nothing
	Short string // heading of a table's column
	read  func(Setup, *Run) (float64, bool)
	kind  string // of the probe that it is about; "" for anything else
	// where it is true, a run without a value is one in which it never came, and counts as above every other
	awaited  func(Setup) bool
	flow     string        // after whose start it begins
	from, to time.Duration // since the beginning of the run, if it is about a part of it
}

// Metric is a metric by name, for those who show tables.
type Metric struct{ m metric }

// ParseMetric finds a metric by name; the scenario decides whether a run has it.
func ParseMetric(name string) (Metric, error) {
	m, err := parseMetric(name)
	return Metric{m}, err
}

// Name, Unit (mbit, ms, s, %, kb, packets or empty) and Heading of the metric.
func (m Metric) Name() string    { return m.m.name }
func (m Metric) Unit() string    { return m.m.unit }
func (m Metric) Heading() string { return m.m.Short }

// Setup is what metrics take besides a run: what was measured on, and what was asked for.
type Setup struct {
	Capacity float64            // Mbit/s of payload that the link can carry; 0: not known
	Changes  []Change           // of that, in their order
	Warmup   float64            // seconds before the measurement began
	Starts   map[string]float64 // when each flow starts, in seconds since the measurement began
	Provider bool               // somebody else's queue is measured, too
	Fetching []string           // flows that have an end
}

func (s Setup) fetches(flow string) bool { return slices.Contains(s.Fetching, flow) }

// Of gives the metric over several runs; false when they have no such thing.
func (m Metric) Of(s Setup, runs []Run) (stats.Spread, bool) {
	var values []float64
	for i := range runs {
		if v, ok := m.m.read(s, &runs[i]); ok {
			values = append(values, v)
		}
	}
	missing := 0
	if m.m.awaited != nil && m.m.awaited(s) {
		missing = len(runs) - len(values)
	}
	return stats.NewSpread(values, missing)
}

// ProbeKind is the kind of probe that the metric is about; "" for anything else.
func (m Metric) ProbeKind() string { return m.m.kind }

// Fetches reports whether the metric is about flows that have an end.
func (m Metric) Fetches() bool { return m.m.name == "fetch" || strings.HasPrefix(m.m.name, fetchOf) }

func metrics() []metric {
	sum := func(read func(*Flow) float64) func(Setup, *Run) (float64, bool) {
		return func(_ Setup, r *Run) (float64, bool) {
			var total float64
			for i := range r.Flows {
				total += read(&r.Flows[i])
			}
			return total, len(r.Flows) > 0
		}
	}
	median := func(read func(*Flow) (float64, bool)) func(Setup, *Run) (float64, bool) {
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
	probe := func(kind, name, unit, short string, read func(*Probe) float64) metric {
		return metric{name: name, unit: unit, Short: short, kind: kind, read: func(_ Setup, r *Run) (float64, bool) {
			for i := range r.Probes {
				if p := &r.Probes[i]; p.Kind == kind && (p.Delay.N > 0 || p.Sent > 0) {
					return read(p), true
				}
			}
			return 0, false
		}}
	}
	lost := func(p *Probe) float64 { return 100 * float64(p.Lost) / float64(max(1, p.Sent)) }
	m := func(name, unit, short string, read func(Setup, *Run) (float64, bool)) metric {
		return metric{name: name, unit: unit, Short: short, read: read}
	}
	fetching := func(s Setup) bool { return len(s.Fetching) > 0 }
	return []metric{
		m("goodput", "mbit", "goodput", sum(func(f *Flow) float64 { return f.Goodput })),
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
		{name: "fetch", unit: "s", Short: "fetch", awaited: fetching, read: func(s Setup, r *Run) (float64, bool) {
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
		}},
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
			return 100 * f.SndbufLimited,
				true
		})),
		m("rwnd_limited", "%", "rwnd lim", median(func(f *Flow) (float64, bool) { return 100 * f.RwndLimited, true })),
		m("retransmits", "packets", "retrans", sum(func(f *Flow) float64 { return float64(f.Retransmits) })),
		m("wakeups", "", "wakeups", sum(func(f *Flow) float64 { return float64(f.Wakeups) })),
		m("ce", "%", "CE", func(_ Setup, r *Run) (float64, bool) {
			var ce, all uint64
			for _, f := range r.Flows {
				ce += f.CE
				all += f.Delivered
			}
			return 100 * float64(ce) / max(1, float64(all)), all > 0
		}),
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
		m("inward.drops", "packets", "inward drops", func(_ Setup, r *Run) (float64,
			bool) {
			return float64(r.Inward.Dropped()), r.Inward != nil
		}),
		m("inward.backlog", "kb", "inward queue", func(_ Setup, r *Run) (float64, bool) {
			return r.Inward.Mean(),
				r.Inward != nil
		}),
		m("uplink.drops", "packets", "own drops", func(_ Setup, r *Run) (float64,
			bool) {
			return float64(r.Uplink.Drops), true
		}),
		m("uplink.marks", "packets", "own marks", func(_ Setup, r *Run) (float64,
			bool) {
			return float64(r.Uplink.Marks), true
		}),
		m("uplink.backlog", "kb", "own queue", func(_ Setup, r *Run) (float64, bool) {
			return r.Uplink.Backlog.Mean,
				true
		}),
		m("sojourn.c.mean", "ms", "C sojourn mean", sojourn(func(
			x *dualpi2.Stats) units.Duration {
			return x.SojournC.Mean
		})),
		m("sojourn.c.p99", "ms", "C sojourn p99", sojourn(func(
			x *dualpi2.Stats) units.Duration {
			return x.SojournC.P99
		})),
		m("sojourn.l.mean", "ms", "L sojourn mean", sojourn(func(
			x *dualpi2.Stats) units.Duration {
			return x.SojournL.Mean
		})),
		m("sojourn.l.p50", "ms", "L sojourn p50", sojourn(func(
			x *dualpi2.Stats) units.Duration {
			return x.SojournL.P50
		})),
		m("sojourn.l.p99", "ms", "L sojourn p99", sojourn(func(
			x *dualpi2.Stats) units.Duration {
			return x.SojournL.P99
		})),
		m("step.missed", "%", "missed", ofL(func(x *dualpi2.Stats) uint64 { return x.StepMissed })),
		m("step.early", "%", "early", ofL(func(x *dualpi2.Stats) uint64 { return x.StepEarly })),
	}
}

// sojourn reads how long packets have waited by a bpf_dualpi2's own clock.
func sojourn(read func(*dualpi2.Stats) units.Duration) func(Setup, *Run) (float64, bool) {
	return func(_ Setup, r *Run) (float64, bool) {
		x := r.Uplink.DualPI2
		if x == nil {
			return 0, false
		}
		return float64(read(x)) / 1e6, true
	}
}

// ofL is a count of a bpf_dualpi2 as a share of the packets that have left its L queue.
func ofL(read func(*dualpi2.Stats) uint64) func(Setup, *Run) (float64, bool) {
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
		names = append(names, m.name)
	}
	return append(names, "goodput.client.NAME", "goodput.flow.NAME", "ratio.NAME.OTHER", "share.client.NAME",
		"probe.NAME.p50", "probe.NAME.p99", "probe.NAME.lost",
		"added.NAME.mean", "added.NAME.p50", "added.NAME.p99", "added.NAME.max",
		programOf+"NAME", "fetch.NAME.p50", "fetch.NAME.p99", calmAfterChange+"LIMIT",
		calmAfterFlow+"NAME.LIMIT", usedBetween+"FROM-TO")
}

func parseMetric(name string) (metric, error) {
	for _, m := range metrics() {
		if m.name == name {
			return m, nil
		}
	}
	if client, ok := strings.CutPrefix(name, "goodput.client."); ok {
		return metric{name: name, unit: "mbit", Short: client,
			read: func(_ Setup, r *Run) (float64, bool) { return clientGoodput(r, client) }}, nil
	}
	if client, ok := strings.CutPrefix(name, "share.client."); ok {
		return metric{name: name, unit: "%", Short: client + " share", read: func(_ Setup, r *Run) (float64, bool) {
			v, ok := clientGoodput(r, client)
			return 100 * v / max(r.Goodput, 1e-9), ok
		}}, nil
	}
	if flow, ok := strings.CutPrefix(name, "goodput.flow."); ok {
		return metric{name: name, unit: "mbit", Short: flow, read: func(_ Setup, r *Run) (float64, bool) {
			total, n := flowGoodput(r, flow)
			return total, n > 0
		}}, nil
	}
	if rest, ok := strings.CutPrefix(name, "ratio."); ok {
		if flow, other, ok := strings.Cut(rest, "."); ok {
			return metric{name: name, Short: flow + "/" + other, read: func(_ Setup, r *Run) (float64, bool) {
				mine, n := flowGoodput(r, flow)
				theirs, k := flowGoodput(r, other)
				return mine / float64(max(1, n)) / max(theirs/float64(max(1, k)), 1e-9), n > 0 && theirs > 0
			}}, nil
		}
	}
	for _, parse := range []func(string) (metric, bool, error){parseCalm, parseWindow, parseFetch, parseProgram} {
		if m, mine, err := parse(name); mine {
			return m, err
		}
	}
	for _, family := range []string{"probe.", "added."} {
		rest, ok := strings.CutPrefix(name, family)
		probe, q, both := strings.Cut(rest, ".")
		if read := quantiles[family+q]; ok && both && read != nil {
			m := metric{name: name, unit: "ms", Short: probe + " " + q, read: func(_ Setup, r *Run) (float64, bool) {
				for i := range r.Probes {
					if p := &r.Probes[i]; p.Probe == probe && (p.Delay.N > 0 || q == "lost" && p.Sent > 0) {
						return read(p), true
					}
				}
				return 0, false
			}}
			if q == "lost" {
				m.unit = "%"
			}
			return m, nil
		}
	}
	return metric{}, fmt.Errorf("unknown metric %q (known: %s)", name, strings.Join(MetricNames(), " "))
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
func parseProgram(name string) (metric, bool, error) {
	program, ok := strings.CutPrefix(name, programOf)
	read := func(_ Setup, r *Run) (float64, bool) {
		for _, p := range r.Programs {
			if p.Program == program && p.Found != nil {
				return *p.Found, true
			}
		}
		return 0, false
	}
	return metric{name: name, Short: program, read: read}, ok && program != "", nil
}

// Program is the program whose output the metric is in; "" for any other metric.
func (m Metric) Program() string {
	program, _ := strings.CutPrefix(m.m.name, programOf)
	if program == m.m.name {
		return ""
	}
	return program
}

const fetchOf = "fetch."

// parseFetch reads fetch.NAME.p50 and fetch.NAME.p99, of the connections of a flow; false for any other name. One that
// was not done at the end took longer than every other.
func parseFetch(name string) (metric, bool, error) {
	rest, ok := strings.CutPrefix(name, fetchOf)
	flow, q, _ := strings.Cut(rest, ".")
	p, known := map[string]float64{"p50": 0.5, "p99": 0.99}[q]
	if !ok || !known {
		return metric{}, false, nil
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
	return metric{name: name, unit: "s", Short: flow + " " + q, awaited: awaited, read: read}, true, nil
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
