// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"weir/internal/dualpi2"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// shownQdisc is a BPF DualPI2 in the shape that tc -j gives to dualpi2 (iproute2 tc/q_dualpi2.c). What tc has no words
// for comes after what it has. Times are in microseconds and rates in bytes per second, as in tc's own.
type shownQdisc struct {
	Kind    string       `json:"kind"`
	Handle  qdisc.Handle `json:"handle"`
	Dev     string       `json:"dev"`
	Root    bool         `json:"root"`
	Options shownOptions `json:"options"`
	*shownStats
}

type shownOptions struct {
	Limit        uint32          `json:"limit"`
	MemoryLimit  uint32          `json:"memory-limit"`
	Target       uint64          `json:"target"`
	TUpdate      uint64          `json:"tupdate"`
	Alpha        float64         `json:"alpha"` // Hz
	Beta         float64         `json:"beta"`
	StepPackets  uint32          `json:"step-thresh-pkts,omitempty"`
	StepThresh   *uint64         `json:"step-thresh-us,omitempty"`
	MinQlenStep  uint32          `json:"min-qlen-step"`
	Coupling     uint8           `json:"coupling"`
	DropOverload string          `json:"drop-overload"`
	DropEarly    string          `json:"drop-early"`
	Protection   uint8           `json:"c-protection"`
	ECNMask      string          `json:"ecn-mask"`
	SplitGSO     json.RawMessage `json:"split-gso,omitempty"` // null where they are split
	Rate         uint64          `json:"rate"`                // 0: unlimited
	Raw          bool            `json:"raw"`
	ATM          string          `json:"atm"`
	Overhead     int32           `json:"overhead"`
	MPU          uint32          `json:"mpu,omitempty"`
	LLLLMark     uint32          `json:"llll-mark,omitempty"`
	LLLLMask     uint32          `json:"llll-mask,omitempty"`
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
	choose := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	us := func(d units.Duration) uint64 { return uint64(d) / 1000 }
	shown := shownQdisc{Kind: q.Kind, Handle: q.Handle, Dev: dev, Root: true, Options: shownOptions{
		Limit: spec.Limit, MemoryLimit: x.MemoryLimit, Target: us(spec.Target), TUpdate: us(spec.TUpdate),
		Alpha: float64(spec.Alpha) / 256, Beta: float64(spec.Beta) / 256, StepPackets: spec.StepPackets,
		MinQlenStep: spec.MinQlenStep,
		Coupling:    spec.CouplingFactor, DropOverload: choose(spec.DropOverload, "drop", "overflow"),
		DropEarly: choose(spec.DropEnqueue, "drop-enqueue", "drop-dequeue"), Protection: spec.ClassicProtection,
		ECNMask: strings.ReplaceAll(spec.ECN, "_", "-"),
		Rate:    uint64(spec.Rate / 8), Raw: spec.Raw, ATM: spec.ATM, Overhead: spec.Overhead, MPU: spec.MPU,
		LLLLMark: spec.LLLLMark, LLLLMask: spec.LLLLMask,
	}}
	if spec.SplitGSO {
		shown.Options.SplitGSO = json.RawMessage("null")
	}
	if spec.StepPackets == 0 {
		step := us(spec.StepThresh)
		shown.Options.StepThresh = &step
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
	o := q.Options
	fmt.Fprintf(w, "qdisc %s %s dev %s root limit %dp memlimit %dB target %s tupdate %s alpha %f beta %f ", q.Kind,
		q.Handle, q.Dev, o.Limit, o.MemoryLimit,
		tcTime(o.Target), tcTime(o.TUpdate), o.Alpha, o.Beta)
	if o.StepThresh != nil {
		fmt.Fprintf(w, "step_thresh %s ", tcTime(*o.StepThresh))
	} else {
		fmt.Fprintf(w, "step_thresh %dp ", o.StepPackets)
	}
	split, overload := "no_", o.DropOverload
	if o.SplitGSO != nil {
		split = ""
	}
	if overload == "drop" {
		overload = "drop_on_overload"
	}
	fmt.Fprintf(w, "min_qlen_step %dp coupling_factor %d %s %s classic_protection %d%% %s %ssplit_gso ", o.MinQlenStep,
		o.Coupling,
		overload, strings.ReplaceAll(o.DropEarly, "-", "_"), o.Protection, strings.ReplaceAll(o.ECNMask, "-", "_"),
		split)
	fmt.Fprintln(w, strings.Join(o.further(), " "))
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
			waited(queue.Mean), waited(queue.P50), waited(queue.P99), waited(queue.Max))
	}
	fmt.Fprintln(w)
}

// further are the options that tc's dualpi2 has not, as they would be typed.
func (o shownOptions) further() []string {
	words := []string{"unlimited"}
	if o.Rate != 0 {
		words[0] = "rate " + units.Rate(o.Rate*8).String()
	}
	if o.Raw {
		words = append(words, "raw")
	}
	if !o.Raw || o.Overhead != 0 {
		words = append(words, fmt.Sprintf("overhead %d", o.Overhead))
	}
	if o.ATM != "noatm" {
		words = append(words, o.ATM)
	}
	if o.MPU != 0 {
		words = append(words, fmt.Sprintf("mpu %d", o.MPU))
	}
	if o.LLLLMask != 0 {
		words = append(words, fmt.Sprintf("llll_mark 0x%x/0x%x", o.LLLLMark, o.LLLLMask))
	}
	return words
}

// tcTime writes microseconds as tc does (iproute2 tc/tc_util.c, print_time), to three digits.
func tcTime(us uint64) string {
	digits := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch {
	case us >= 1e6:
		return digits(float64(us)/1e6) + "s"
	case us >= 1e3:
		return digits(float64(us)/1e3) + "ms"
	}
	return fmt.Sprintf("%dus", us)
}

// waited writes microseconds to three digits.
func waited(us float64) string {
	d, unit := units.Duration(us*1e3), units.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
