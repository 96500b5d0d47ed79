// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"weir/internal/units"
)

// The attributes of fq (TCA_FQ_*, include/uapi/linux/pkt_sched.h).
const (
	fqLimit = iota + 1
	fqFlowLimit
	fqQuantum
	fqInitialQuantum
	fqPacing
	fqDefaultRate // obsolete: the kernel ignores it
	fqMaxRate
	fqBucketsLog
	fqRefillDelay
	fqOrphanMask
	fqLowRateThreshold
	fqCEThreshold
	fqTimerSlack
	fqHorizon
	fqHorizonDrop
	fqPriomap
	fqWeights
	fqOffloadHorizon
)

// fqSpec is fair queueing with pacing, made for a host's own connections (net/sched/sch_fq.c, tc-fq(8)).
type fqSpec struct {
	Limit     uint32 `json:"limit"`      // packets; default 10000
	FlowLimit uint32 `json:"flow_limit"` // packets of one flow; default 100
	Quantum   uint32 `json:"quantum"`    // bytes per round, 256 to 1048576; 0: two of the device's largest packets
	// bytes for a new flow, up to 1048576, as since 7.3 (before, 4294967295); 0: ten of the device's largest packets
	InitialQuantum uint32     `json:"initial_quantum"`
	Pacing         bool       `json:"pacing"`  // obey a socket's pacing rate; default true
	MaxRate        units.Rate `json:"maxrate"` // of one flow; 0: unlimited
	Buckets        uint32     `json:"buckets"` // 2 to 262144, a power of two; default 1024
	// idle time after which a flow counts as new; default 40ms, rounded up to jiffies
	RefillDelay units.Duration `json:"refill_delay"`
	OrphanMask  uint32         `json:"orphan_mask"` // of the hash of packets without a socket; default 1023
	// flows slower than this are delayed packet by packet; 0bit: none; default 550kbit
	LowRateThreshold units.Rate     `json:"low_rate_threshold"`
	CEThreshold      units.Duration `json:"ce_threshold"` // mark above this delay; 4294.967295s: off, the default
	TimerSlack       units.Duration `json:"timer_slack"`  // by which a timer may be late; default 10us
	// how far ahead a packet's departure time may lie; default 10s
	Horizon units.Duration `json:"horizon"`
	// drop packets beyond it rather than let them go at it; default true
	HorizonDrop bool      `json:"horizon_drop"`
	Priomap     [16]uint8 `json:"priomap"` // the band, 0 to 2, of each priority (Linux 6.7)
	Weights     [3]int32  `json:"weights"` // bytes per round of each band, 16384 and up (Linux 6.7)
	// how far ahead the device may pace itself; default 0s (Linux 6.13)
	OffloadHorizon units.Duration `json:"offload_horizon"`
}

// fqUnlimited is the kernel's word for no maxrate.
const fqUnlimited = math.MaxUint32

func newFQ() *fqSpec {
	return &fqSpec{Limit: 10000, FlowLimit: 100, Pacing: true, Buckets: 1024, RefillDelay: units.Duration(40e6),
		OrphanMask:       1023,
		LowRateThreshold: 550000, CEThreshold: never, TimerSlack: units.Duration(10e3), Horizon: units.Duration(10e9),
		HorizonDrop: true,
		// sch_default_prio2band (net/sched/sch_generic.c)
		Priomap: [16]uint8{1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
		Weights: [3]int32{9 << 16, 3 << 16, 1 << 16}}
}

func (q fqSpec) Kind() string                     { return "fq" }
func (q fqSpec) String() string                   { return format(q) }
func (q fqSpec) edit() editor                     { return &q }
func (q fqSpec) encode(base Spec) ([]byte, error) { return encodeAttributes(q, base) }

func (q *fqSpec) options() []option {
	buckets := count("buckets", fqBucketsLog, 4, &q.Buckets, 2, 1<<18)
	buckets.encode = func() []byte { return u32bytes(uint32(bits.Len32(q.Buckets - 1))) } // the logarithm
	buckets.decode = func(b []byte) error {
		v, err := integer(b)
		if err != nil || v < 1 || v > 18 {
			return fmt.Errorf("is out of range")
		}
		q.Buckets = 1 << v
		return nil
	}
	maxrate := rate("maxrate", fqMaxRate, 4, &q.MaxRate)
	writeRate := maxrate.write
	maxrate.write = func() string {
		if q.MaxRate == 0 {
			return ""
		}
		return writeRate()
	}
	maxrate.encode = func() []byte {
		if q.MaxRate == 0 {
			return u32bytes(fqUnlimited)
		}
		return u32bytes(uint32(q.MaxRate / 8))
	}
	maxrate.decode = func(b []byte) error {
		v, err := integer(b)
		if err != nil || v == 0 {
			return fmt.Errorf("is not a rate")
		}
		if q.MaxRate = units.Rate(v * 8); v == fqUnlimited {
			q.MaxRate = 0
		}
		return nil
	}
	return []option{
		buckets,
		count("limit", fqLimit, 4, &q.Limit, 1, math.MaxUint32),
		count("flow_limit", fqFlowLimit, 4, &q.FlowLimit, 1, math.MaxUint32),
		auto(octets("quantum", fqQuantum, 4, &q.Quantum, 256, 1<<20), &q.Quantum),
		auto(octets("initial_quantum", fqInitialQuantum, 4, &q.InitialQuantum, 1, 1<<20), &q.InitialQuantum),
		toggle("pacing", "nopacing", fqPacing, 4, &q.Pacing),
		maxrate,
		orNone(rate("low_rate_threshold", fqLowRateThreshold, 4, &q.LowRateThreshold), &q.LowRateThreshold),
		microseconds("refill_delay", fqRefillDelay, &q.RefillDelay, 0),
		mask("orphan_mask", fqOrphanMask, &q.OrphanMask),
		microseconds("ce_threshold", fqCEThreshold, &q.CEThreshold, 0),
		period("timer_slack", fqTimerSlack, &q.TimerSlack, 0, 1, "ns"),
		microseconds("horizon", fqHorizon, &q.Horizon, 0),
		toggle("horizon_drop", "horizon_cap", fqHorizonDrop, 1, &q.HorizonDrop),
		q.priomap(),
		q.weights(),
		microseconds("offload_horizon", fqOffloadHorizon, &q.OffloadHorizon, 0),
	}
}

// orNone gives a rate a word for none.
func orNone(o option, p *units.Rate) option {
	const none = "0bit"
	read := o.read
	o.read = func(word string, a *args) error {
		if len(a.words) > 0 && a.words[0] == none {
			*p = 0
			_, _ = a.next()
			return nil
		}
		return read(word, a)
	}
	return o
}

// priomap is struct tc_prio_qopt: the number of bands, then 16 bytes.
func (q *fqSpec) priomap() option {
	return option{
		words: []string{"bands"},
		attr:  fqPriomap,
		read: func(_ string, a *args) error {
			if n, _ := a.next(); n != "3" {
				return fmt.Errorf("must be 3")
			}
			if word, _ := a.next(); word != "priomap" {
				return fmt.Errorf("must be followed by priomap")
			}
			for i := range q.Priomap {
				text, err := a.next()
				if err != nil {
					return fmt.Errorf("priomap needs 16 numbers, has %d", i)
				}
				v, err := whole(text, "", 0, 2)
				if err != nil {
					return fmt.Errorf("priomap: %w", err)
				}
				q.Priomap[i] = uint8(v)
			}
			return nil
		},
		write: func() string {
			return "bands 3 priomap " + strings.Trim(fmt.Sprint(q.Priomap), "[]")
		},
		encode: func() []byte { return append(u32bytes(3), q.Priomap[:]...) },
		decode: func(b []byte) error {
			if len(b) != 4+len(q.Priomap) {
				return fmt.Errorf("is %d bytes long", len(b))
			}
			copy(q.Priomap[:], b[4:])
			return nil
		},
	}
}

func (q *fqSpec) weights() option {
	return option{
		words: []string{"weights"},
		attr:  fqWeights,
		read: func(_ string, a *args) error {
			for i := range q.Weights {
				text, err := a.next()
				if err != nil {
					return fmt.Errorf("needs 3 numbers, has %d", i)
				}
				v, err := whole(text, "", 16384, math.MaxInt32)
				if err != nil {
					return err
				}
				q.Weights[i] = int32(v)
			}
			return nil
		},
		write: func() string {
			text := "weights"
			for _, w := range q.Weights {
				text += " " + strconv.Itoa(int(w))
			}
			return text
		},
		encode: func() (b []byte) {
			for _, w := range q.Weights {
				b = append(b, u32bytes(uint32(w))...)
			}
			return b
		},
		decode: func(b []byte) error {
			if len(b) != 4*len(q.Weights) {
				return fmt.Errorf("is %d bytes long", len(b))
			}
			for i := range q.Weights {
				q.Weights[i] = int32(binary.NativeEndian.Uint32(b[4*i:]))
			}
			return nil
		},
	}
}

func (q *fqSpec) decode(b []byte, d device) error {
	if err := decodeAttributes(q.options(), b); err != nil {
		return err
	}
	if q.Quantum%2 == 0 && d.frame(q.Quantum/2) {
		q.Quantum = 0
	}
	if q.InitialQuantum%10 == 0 && d.frame(q.InitialQuantum/10) {
		q.InitialQuantum = 0
	}
	return nil
}

func (q *fqSpec) finish() (Spec, error) {
	q.Buckets = 1 << bits.Len32(max(q.Buckets, 2)-1) // tc sends the logarithm, rounded up
	q.MaxRate -= q.MaxRate % 8
	q.LowRateThreshold -= q.LowRateThreshold % 8
	return *q, nil
}

// fqStats are fq's (struct tc_fq_qd_stats); an older kernel's lack the last ones.
type fqStats struct {
	GCFlows             uint64    `json:"gc_flows"`               // idle flows forgotten
	Throttled           uint64    `json:"throttled"`              // times that a flow waited for its pace
	FlowsLimit          uint64    `json:"flows_plimit"`           // packets dropped at flow_limit
	TooLong             uint64    `json:"pkts_too_long"`          // packets larger than their pace allows
	AllocationErrors    uint64    `json:"allocation_errors"`      //
	NextDelayedFlow     int64     `json:"time_next_delayed_flow"` // ns from now
	Flows               uint32    `json:"flows"`                  // known now
	InactiveFlows       uint32    `json:"inactive_flows"`         //
	ThrottledFlows      uint32    `json:"throttled_flows"`        // waiting for their pace now
	UnthrottleLatencyNs uint32    `json:"unthrottle_latency_ns"`  // by which the timer was late, moving
	CEMarks             uint64    `json:"ce_mark"`                // packets marked above ce_threshold
	HorizonDrops        uint64    `json:"horizon_drops"`          // packets
	HorizonCaps         uint64    `json:"horizon_caps"`           // packets
	FastPath            uint64    `json:"fastpath_packets"`       // packets that needed no queue
	BandDrops           [3]uint64 `json:"band_drops"`             // packets
	BandPackets         [3]uint32 `json:"band_packets"`           // waiting now
}

func readFQStats(s *Stats, b []byte) error {
	f := &fields{b}
	x := fqStats{GCFlows: f.u64()}
	f.u64() // highprio_packets and tcp_retrans are obsolete
	f.u64()
	x.Throttled, x.FlowsLimit, x.TooLong, x.AllocationErrors = f.u64(), f.u64(), f.u64(), f.u64()
	x.NextDelayedFlow = int64(f.u64())
	x.Flows, x.InactiveFlows, x.ThrottledFlows, x.UnthrottleLatencyNs = f.u32(), f.u32(), f.u32(), f.u32()
	x.CEMarks, x.HorizonDrops, x.HorizonCaps, x.FastPath = f.u64(), f.u64(), f.u64(), f.u64()
	x.BandDrops = [3]uint64{f.u64(), f.u64(), f.u64()}
	x.BandPackets = [3]uint32{f.u32(), f.u32(), f.u32()}
	s.Marks, s.X = x.CEMarks, x
	return nil
}
