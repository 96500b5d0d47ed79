// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"weir/internal/bpf"
	"weir/internal/units"
)

// Options are those that the kernel's dualpi2 has, too.
type Options struct {
	Limit uint32 `json:"limit"` // packets in both queues, 1 and up; default 10000
	// bytes in both queues; 0: limit times two of the device's largest packets
	MemLimit uint32 `json:"memlimit"`
	// how often the PI controller runs, 1us to 4.294967s; default 16ms
	TUpdate units.Duration `json:"tupdate"`
	Target  units.Duration `json:"target"` // the C queue's delay; default 15ms
	// integral gain in 256ths of a Hz, 1 and up; default 41
	Alpha uint32 `json:"alpha"`
	// proportional gain in 256ths of a Hz, 1 and up; default 819
	Beta uint32 `json:"beta"`
	// what goes to the L queue: l4s_ect (the default) or any_ect
	ECN string `json:"ecn"`
	// drop, rather than overflow, when saturated; default true
	DropOverload   bool  `json:"drop_on_overload"`
	CouplingFactor uint8 `json:"coupling_factor"` // k of RFC 9332, 1 to 255; default 2
	SplitGSO       bool  `json:"split_gso"`       // cut superpackets into packets; default true
	// the L queue's marking threshold, up to 4.294967s; default 1ms
	StepThresh units.Duration `json:"step_thresh"`
	// the same as a number of packets; 0: step_thresh holds
	StepPackets uint32 `json:"step_packets"`
	// packets in the L queue below which nothing is marked; default 0
	MinQlenStep uint32 `json:"min_qlen_step"`
	// apply the AQM when packets come rather than when they go; default false
	DropEnqueue bool `json:"drop_enqueue"`
	// the C queue's share of the link under overload, percent; default 10
	ClassicProtection uint8 `json:"classic_protection"`
}

// Config is what one instance does. Nothing is filled in: the defaults are those of Defaults.
type Config struct {
	Options
	Rate     units.Rate `json:"rate"`     // 1kbit and up; 0: as fast as the device takes them, the default
	ATM      string     `json:"atm"`      // noatm (the default), atm, ptm
	Overhead int32      `json:"overhead"` // bytes added to each packet, -64 to 256
	// count packets as the device does, with no correction for its header; the default
	Raw bool   `json:"raw"`
	MPU uint32 `json:"mpu"` // bytes that a packet counts for at least, 0 to 256
	// packets with this firewall mark go to the L queue and are never marked nor dropped by the AQM
	LLLLMark uint32 `json:"llll_mark"`
	LLLLMask uint32 `json:"llll_mask"` // the bits of the mark that count; 0: none, the default
}

// Defaults are those of sch_dualpi2 and no shaper (net/sched/sch_dualpi2.c, dualpi2_reset_default).
func Defaults() Config {
	c := Config{
		Options: Options{
			Limit: 10000, TUpdate: units.Duration(16e6), Target: units.Duration(15e6), Alpha: 41, Beta: 819,
			ECN: classicOnly, DropOverload: true, CouplingFactor: 2, SplitGSO: true, StepThresh: units.Duration(1e6),
			ClassicProtection: 10,
		},
		ATM: bpf.Framings()[0], Raw: true,
	}
	for _, n := range Numbers() {
		*n.Value(&c) = n.Default
	}
	return c
}

// layout is LAYOUT of bpf/dualpi2.h, which is another with each member of its struct config.
const layout = 3

// Option is what is shown and told of one. How it is typed is in internal/qdisc, but for a number.
type Option struct {
	Word   string                // that selects it
	Usage  string                // what is typed, for a help; "" for one that it leaves to tc's manual
	Doc    string                // what it does, in lines of 56 columns
	Text   func(Config) string   // as tc shows it; "" for nothing
	JSON   func(Config) []Member // as tc -j shows it
	Number *number
}

func (o Option) help(usage, doc string) Option {
	o.Usage, o.Doc = usage, doc
	return o
}

// Member is one of a JSON object's.
type Member struct {
	Name  string
	Value any
}

// Members are an object, in their order.
type Members []Member

// MarshalJSON writes them.
func (m Members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, x := range m {
		value, err := json.Marshal(x.Value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], x.Name, value)
	}
	if len(m) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// number is an option that no other qdisc has, and that is a whole number: nothing else has to know of it.
type number struct {
	Word      string
	Attr      uint16 // by which internal/qdisc records it; no kernel sees it, and it never changes
	Low, High uint32
	Default   uint32
	Value     func(*Config) *uint32
	object    func(*objectConfig) *uint32 // where the programs look for it
}

// option makes an option of a number. It is shown where it is not the default.
func (n number) option() Option {
	return Option{Word: n.Word, Number: &n,
		Text: func(c Config) string {
			if *n.Value(&c) == n.Default {
				return ""
			}
			return fmt.Sprintf("%s %d", n.Word, *n.Value(&c))
		},
		JSON: func(c Config) []Member {
			if *n.Value(&c) == n.Default {
				return nil
			}
			return []Member{{strings.ReplaceAll(n.Word, "_", "-"), *n.Value(&c)}}
		}}
}

// Numbers are all such options.
func Numbers() (all []number) {
	for _, o := range Own() {
		if o.Number != nil {
			all = append(all, *o.Number)
		}
	}
	return all
}

// CheckNumbers is the first of them that is out of its range.
func (c Config) CheckNumbers() error {
	for _, n := range Numbers() {
		if v := *n.Value(&c); v < n.Low || v > n.High {
			return fmt.Errorf("%s %d is out of range (%d to %d)", n.Word, v, n.Low, n.High)
		}
	}
	return nil
}

// Own are the options that tc's dualpi2 has not, in the order in which they are shown. A new one that is a whole number
// is a row here with a field of Config, and a member of struct config in bpf/dualpi2.h; then layout is another.
func Own() []Option {
	return []Option{
		{Word: "rate", Usage: "rate RATE", Doc: "shape to this rate (default: unlimited)",
			Text: func(c Config) string {
				if c.Rate == 0 {
					return "unlimited"
				}
				return "rate " + c.Rate.String()
			},
			JSON: func(c Config) []Member { return []Member{{"rate", uint64(c.Rate / 8)}} }}, // bytes/s; 0: unlimited
		{Word: "raw",
			Text: func(c Config) string { return chosen(c.Raw, "raw", "") },
			JSON: func(c Config) []Member { return []Member{{"raw", c.Raw}, {"atm", c.ATM}} }},
		{Word: "overhead", Usage: "overhead BYTES", Doc: "what the link adds to a packet",
			Text: func(c Config) string {
				text := chosen(!c.Raw || c.Overhead != 0, fmt.Sprintf("overhead %d", c.Overhead), "")
				return strings.TrimSpace(text + " " + chosen(c.ATM != bpf.Framings()[0], c.ATM, ""))
			},
			JSON: func(c Config) []Member { return []Member{{"overhead", c.Overhead}} }},
		number{Word: "mpu", Attr: 0x1005, High: 256, Value: func(c *Config) *uint32 { return &c.MPU },
			object: func(o *objectConfig) *uint32 { return &o.Framing.Mpu }}.
			option().help("mpu, atm, docsis …", "as in tc-cake(8)"),
		{Word: "llll_mark", Usage: "llll_mark MARK/MASK",
			Doc: "packets with this firewall mark go to the L queue,\nand are never marked",
			Text: func(c Config) string {
				return chosen(c.LLLLMask != 0, fmt.Sprintf("llll_mark 0x%x/0x%x", c.LLLLMark, c.LLLLMask), "")
			},
			JSON: func(c Config) (m []Member) {
				if c.LLLLMark != 0 {
					m = append(m, Member{"llll-mark", c.LLLLMark})
				}
				if c.LLLLMask != 0 {
					m = append(m, Member{"llll-mask", c.LLLLMask})
				}
				return m
			}},
	}
}

// TCs are the options that tc's dualpi2 has, in its order (iproute2 tc/q_dualpi2.c). Times are in microseconds.
func TCs() []Option { return append(tcQueues(), tcSignals()...) }

// one is an option that is one member.
func one(word, member string, text func(Config) string, value func(Config) any) Option {
	return Option{Word: word, Text: text, JSON: func(c Config) []Member { return []Member{{member, value(c)}} }}
}

func tcQueues() []Option {
	d := Defaults()
	hertz := func(gain uint32) float64 { return float64(gain) / 256 }
	return []Option{
		one("limit", "limit", func(c Config) string { return fmt.Sprintf("limit %dp", c.Limit) },
			func(c Config) any { return c.Limit }).
			help("limit PACKETS", fmt.Sprintf("(default: %d)", d.Limit)),
		one("memlimit", "memory-limit", func(c Config) string { return fmt.Sprintf("memlimit %dB", c.MemLimit) },
			func(c Config) any { return c.MemLimit }),
		one("target", "target", func(c Config) string { return "target " + tcTime(c.Target) },
			func(c Config) any { return us(c.Target) }).
			help("typical_rtt, max_rtt", fmt.Sprintf("set target, tupdate, alpha and beta\n(default: %s, %s, %.2g, "+
				"%.2g)", d.Target, d.TUpdate, hertz(d.Alpha), hertz(d.Beta))),
		one("tupdate", "tupdate", func(c Config) string { return "tupdate " + tcTime(c.TUpdate) },
			func(c Config) any { return us(c.TUpdate) }),
		one("alpha", "alpha", func(c Config) string { return fmt.Sprintf("alpha %f", hertz(c.Alpha)) },
			func(c Config) any { return hertz(c.Alpha) }),
		one("beta", "beta", func(c Config) string { return fmt.Sprintf("beta %f", hertz(c.Beta)) },
			func(c Config) any { return hertz(c.Beta) }),
	}
}

func tcSignals() []Option {
	d := Defaults()
	return []Option{
		Option{Word: "step_thresh",
			Text: func(c Config) string {
				return "step_thresh " + chosen(c.StepPackets != 0, fmt.Sprintf("%dp", c.StepPackets),
					tcTime(c.StepThresh))
			},
			JSON: func(c Config) []Member {
				if c.StepPackets != 0 {
					return []Member{{"step-thresh-pkts", c.StepPackets}}
				}
				return []Member{{"step-thresh-us", us(c.StepThresh)}}
			}}.
			help("step_thresh TIME", fmt.Sprintf("mark in the L queue from here on (default: %s)", d.StepThresh)),
		one("min_qlen_step", "min-qlen-step",
			func(c Config) string { return fmt.Sprintf("min_qlen_step %dp", c.MinQlenStep) },
			func(c Config) any { return c.MinQlenStep }),
		one("coupling_factor", "coupling",
			func(c Config) string { return fmt.Sprintf("coupling_factor %d", c.CouplingFactor) },
			func(c Config) any { return c.CouplingFactor }).
			help("coupling_factor N", fmt.Sprintf("(default: %d)", d.CouplingFactor)),
		one("drop_on_overload", "drop-overload",
			func(c Config) string { return chosen(c.DropOverload, "drop_on_overload", "overflow") },
			func(c Config) any { return chosen(c.DropOverload, "drop", "overflow") }),
		one("drop_enqueue", "drop-early",
			func(c Config) string { return chosen(c.DropEnqueue, "drop_enqueue", "drop_dequeue") },
			func(c Config) any { return chosen(c.DropEnqueue, "drop-enqueue", "drop-dequeue") }),
		one("classic_protection", "c-protection",
			func(c Config) string { return fmt.Sprintf("classic_protection %d%%", c.ClassicProtection) },
			func(c Config) any { return c.ClassicProtection }),
		one("any_ect", "ecn-mask", func(c Config) string { return c.ECN },
			func(c Config) any { return strings.ReplaceAll(c.ECN, "_", "-") }).
			help("any_ect", "ECT(0) goes to the L queue, too"),
		Option{Word: "no_split_gso",
			Text: func(c Config) string { return chosen(c.SplitGSO, "split_gso", "no_split_gso") },
			JSON: func(c Config) []Member {
				if !c.SplitGSO {
					return nil
				}
				return []Member{{"split-gso", nil}} // as tc has it
			}}.help("no_split_gso", "let superpackets come"),
	}
}

func chosen(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func us(d units.Duration) uint64 { return uint64(d) / 1000 }

// tcTime writes a time as tc does (iproute2 tc/tc_util.c, print_time), to three digits of whole microseconds.
func tcTime(d units.Duration) string {
	digits := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch us := us(d); {
	case us >= 1e6:
		return digits(float64(us)/1e6) + "s"
	case us >= 1e3:
		return digits(float64(us)/1e3) + "ms"
	default:
		return fmt.Sprintf("%dus", us)
	}
}
