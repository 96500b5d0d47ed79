// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// shownQdisc is a BPF DualPI2 in the shape that tc -j gives to dualpi2 (iproute2 tc/q_dualpi2.c). What tc has no words
// for comes after what it has. Times are in microseconds and rates in bytes per second, as in tc's own.
type shownQdisc struct {
	Kind    string          `json:"kind"`
	Handle  qdisc.Handle    `json:"handle"`
	Dev     string          `json:"dev"`
	Root    bool            `json:"root"`
	Options dualpi2.Members `json:"options"`
	*shownStats

	config dualpi2.Config
}

type shownStats struct {
	Bytes         uint64       `json:"bytes"`
	Packets       uint64       `json:"packets"`
	Drops         uint64       `json:"drops"`
	Overlimits    uint64       `json:"overlimits"`
	Requeues      uint64       `json:"requeues"`
	Backlog       uint64       `json:"backlog"`
	Qlen          uint64       `json:"qlen"`
	Prob          float64      `json:"prob"`
	DelayC        uint32       `json:"delay-c"`
	DelayL        uint32       `json:"delay-l"`
	PacketsC      uint64       `json:"pkts-in-c"`
	PacketsL      uint64       `json:"pkts-in-l"`
	MaxQ          uint32       `json:"maxq"`
	ECNMark       uint64       `json:"ecn-mark"`
	StepMark      uint64       `json:"step-mark"`
	Credit        int32        `json:"credit"`
	MemoryUsed    uint32       `json:"memory-used"`
	MaxMemoryUsed uint32       `json:"max-memory-used"`
	MemoryLimit   uint32       `json:"memory-limit"`
	StepMissed    uint64       `json:"step-missed"`
	StepEarly     uint64       `json:"step-early"`
	Unmarked      uint64       `json:"unmarked"`
	Overwritten   uint64       `json:"overwritten"`
	Superpackets  uint64       `json:"superpackets"`
	SojournC      shownSojourn `json:"sojourn-c"`
	SojournL      shownSojourn `json:"sojourn-l"`
}

type shownSojourn struct {
	Packets uint64  `json:"packets"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

func showQdisc(dev string, q qdisc.Qdisc, statistics bool) shownQdisc {
	spec, _ := q.Spec.(qdisc.BPFDualPI2)
	x, _ := q.Stats.X.(dualpi2.Stats)
	config := dualpi2.Config(spec)
	config.MemLimit = x.MemoryLimit // which is what it comes to
	shown := shownQdisc{Kind: q.Kind, Handle: q.Handle, Dev: dev, Root: true, config: config}
	for _, o := range append(dualpi2.TCs(), dualpi2.Own()...) {
		shown.Options = append(shown.Options, o.JSON(config)...)
	}
	if !statistics {
		return shown
	}
	sojourn := func(s dualpi2.Sojourn) shownSojourn {
		us := func(d units.Duration) float64 { return float64(d) / 1000 }
		return shownSojourn{s.Packets, us(s.Mean), us(s.P50), us(s.P99), us(s.Max)}
	}
	s := q.Stats
	shown.shownStats = &shownStats{
		s.Bytes, s.Packets, s.Drops, s.Overlimits, s.Requeues, s.Backlog, s.Qlen,
		x.Probability, x.DelayC, x.DelayL, x.PacketsC, x.PacketsL, x.MaxQueue, x.ECNMarks, x.StepMarks, x.Credit,
		x.MemoryUsed, x.MaxMemoryUsed, x.MemoryLimit,
		x.StepMissed, x.StepEarly, x.Unmarked, x.Overwritten, x.Superpackets, sojourn(x.SojournC), sojourn(x.SojournL),
	}
	return shown
}

// print writes what tc would, in its words and its order.
func (q shownQdisc) print(w io.Writer) {
	fmt.Fprintf(w, "qdisc %s %s dev %s root %s %s\n", q.Kind, q.Handle, q.Dev, shownWords(dualpi2.TCs(), q.config),
		shownWords(dualpi2.Own(), q.config))
	if q.shownStats == nil {
		return
	}
	s := q.shownStats
	turn := "L"
	if s.Credit > 0 {
		turn = "C"
	}
	fmt.Fprintf(w, " Sent %d bytes %d pkt (dropped %d, overlimits %d requeues %d) \n backlog %db %dp requeues %d\n",
		s.Bytes, s.Packets, s.Drops, s.Overlimits, s.Requeues, s.Backlog, s.Qlen, s.Requeues)
	fmt.Fprintf(w, "prob %f delay_c %dus delay_l %dus\npkts_in_c %d pkts_in_l %d maxq %d\necn_mark %d step_mark "+
		"%d\ncredit %d (%s-queue)\n",
		s.Prob, s.DelayC, s.DelayL, s.PacketsC, s.PacketsL, s.MaxQ, s.ECNMark, s.StepMark, s.Credit, turn)
	fmt.Fprintf(w, "memory_used %d (max %d) of memory limit %d\n", s.MemoryUsed, s.MaxMemoryUsed, s.MemoryLimit)
	fmt.Fprintf(w, "step_missed %d step_early %d unmarked %d overwritten %d superpackets %d\n", s.StepMissed,
		s.StepEarly, s.Unmarked, s.Overwritten, s.Superpackets)
	for _, queue := range []struct {
		name string
		shownSojourn
	}{{"c", s.SojournC}, {"l", s.SojournL}} {
		fmt.Fprintf(w, "sojourn_%s pkts %d mean %s p50 %s p99 %s max %s\n", queue.name, queue.Packets,
			microText(queue.Mean), microText(queue.P50), microText(queue.P99), microText(queue.Max))
	}
	fmt.Fprintln(w)
}

// shownWords are options as they are shown.
func shownWords(options []dualpi2.Option, c dualpi2.Config) string {
	var words []string
	for _, o := range options {
		if text := o.Text(c); text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

// helpOf is what a help says of those options that have a row there.
func helpOf(options []dualpi2.Option) string {
	const column = 24
	var text strings.Builder
	for _, o := range options {
		if o.Usage != "" {
			fmt.Fprintf(&text, "\n  %-*s%s", column-2, o.Usage,
				strings.ReplaceAll(o.Doc, "\n", "\n"+strings.Repeat(" ", column)))
		}
	}
	return text.String()
}

// firstOfTCs are those of tc's options that a help begins with, in its order.
func firstOfTCs() (first []dualpi2.Option) {
	all := dualpi2.TCs()
	for _, word := range []string{"target", "step_thresh", "coupling_factor", "limit", "any_ect", "no_split_gso"} {
		i := slices.IndexFunc(all, func(o dualpi2.Option) bool { return o.Word == word })
		first = append(first, all[i])
	}
	return first
}

// microText writes microseconds to three digits.
func microText(us float64) string {
	d, unit := units.Duration(us*1e3), units.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
