// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"weir/internal/units"
)

// What a person writes, and what it is called afterwards: only what differs from the kernel's defaults.
func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"cake": "cake",
		"cake bandwidth 49875kbit besteffort dual-dsthost":  "cake bandwidth 49.875mbit besteffort dual-dsthost",
		"cake unlimited diffserv3 triple-isolate rtt 100ms": "cake",
		"cake internet split-gso raw":                       "cake",
		"cake diffserv":                                     "cake diffserv4",
		"cake satellite":                                    "cake rtt 1s",
		"cake conservative":                                 "cake atm overhead 48",
		"cake ethernet ether-vlan":                          "cake overhead 42 mpu 84",
		"cake docsis via-ethernet":                          "cake overhead 18 mpu 64",
		// not raw: the device's header is taken off
		"cake overhead 0":                                  "cake overhead 0",
		"cake raw overhead 4":                              "cake raw overhead 4",
		"cake fwmark 255 memlimit 1mb nat wash ingress":    "cake memlimit 1mb fwmark 0xff nat wash ingress",
		"cake bandwidth 12bit":                             "cake bandwidth 8bit", // whole bytes per second
		"cake_mq bandwidth 10gbit no-split-gso":            "cake_mq bandwidth 10gbit no-split-gso",
		"dualpi2 target 15ms tupdate 16ms step_thresh 1ms": "dualpi2",
		"dualpi2 alpha 0.16015625 beta 3.19921875":         "dualpi2",
		"dualpi2 max_rtt 100ms typical_rtt 20ms": "dualpi2 tupdate 20ms target 20ms alpha 0.19921875 " +
			"beta 3",
		"dualpi2 max_rtt 5us":                      "dualpi2 tupdate 1us target 1us alpha 4000 beta 60000",
		"dualpi2 step_thresh 5pkts memlimit 1000b": "dualpi2 memlimit 1000 step_thresh 5p",
		"bpf_dualpi2":                              "bpf_dualpi2",
		"bpf_dualpi2 rate 50mbit typical_rtt 20ms": "bpf_dualpi2 tupdate 20ms target 20ms alpha " +
			"0.13671875 beta 2.5 rate 50mbit",
		"bpf_dualpi2 rate 50mbit docsis":                       "bpf_dualpi2 rate 50mbit overhead 18 mpu 64",
		"bpf_dualpi2 conservative any_ect limit 131072":        "bpf_dualpi2 limit 131072 any_ect atm overhead 48",
		"bpf_dualpi2 llll_mark 1 no_split_gso":                 "bpf_dualpi2 no_split_gso llll_mark 0x1/0xffffffff",
		"bpf_dualpi2 llll_mark 0x10/0xf0":                      "bpf_dualpi2 llll_mark 0x10/0xf0",
		"bpf_dualpi2 llll_mark 0/0 unlimited raw noatm":        "bpf_dualpi2",
		"dualpi2 classic_protection 5% any_ect overflow":       "dualpi2 any_ect overflow classic_protection 5%",
		"fq low_rate_threshold 550001bit":                      "fq", // whole bytes per second
		"fq maxrate 50mbit buckets 1000":                       "fq maxrate 50mbit",
		"fq weights 589824 196608 65536 limit 10000p":          "fq",
		"fq_codel target 5ms interval 100ms memory_limit 32Mb": "fq_codel",
		"fq_codel ce_threshold 1ms noecn":                      "fq_codel noecn ce_threshold 1ms",
		"codel ecn":                                            "codel ecn",
		"htb rate 50mbit":                                      "htb rate 50mbit",
		"htb rate 50mbit ceil 50mbit burst 3028b default 1":    "htb rate 50mbit",
		"htb rate 100gbit":                                     "htb rate 100gbit",
		"htb rate 50mbit ceil 60mbit default a":                "htb default a rate 50mbit ceil 60mbit",
		"tbf rate 50mbit burst 5kb latency 20ms":               "tbf rate 50mbit burst 5kb limit 130120b",
		"netem latency 10ms drop 1%":                           "netem delay 10ms loss random 1%",
		"netem loss gemodel 1%":                                "netem loss gemodel 1% 99% 100% 0%",
		"netem delay 10ms 1ms reorder 5%":                      "netem delay 10ms 1ms reorder 5% gap 1",
		"netem rate 1mbit 0 0 5":                               "netem rate 1mbit 0 0 5",
		"pfifo limit 100":                                      "pfifo limit 100",
		"bfifo limit 65536":                                    "bfifo limit 64kb",
		"  mq ":                                                "mq",
	} {
		spec, err := Parse(in)
		if err != nil || spec.String() != want {
			t.Errorf("Parse(%q) = %v, %v; want %s", in, spec, err, want)
			continue
		}
		if again, err := Parse(spec.String()); err != nil || again != spec {
			t.Errorf("%q → %q → %v, %v", in, spec, again, err)
		}
	}
	for _, name := range Kinds() {
		spec, ok := Default(name)
		if !ok || spec.Kind() != name || spec.String() != name {
			t.Errorf("Default(%q) = %v, %v", name, spec, ok)
		}
	}
	if !slices.IsSorted(Kinds()) {
		t.Error("the table of kinds is not sorted")
	}
}

// Each mistake is one line that names the word and says what would be right.
func TestRefused(t *testing.T) {
	for in, want := range map[string]string{
		"": "no queueing discipline given",
		"caek": `unknown queueing discipline "caek" (did you mean "cake"?); ` +
			`known: bfifo, bpf_dualpi2, bpf_shaper, cake,`,
		"clsact":                 `unknown queueing discipline "clsact"; known:`,
		"tbf rate 5mbit lat 5ms": `tbf: unknown option "lat" (did you mean "latency"?); `,
		"cake bandwith 50mbit": `cake: unknown option "bandwith" (did you mean "bandwidth"?); ` +
			`known: ack-filter,`,
		"cake bandwidth": "cake: bandwidth: needs a value",
		"cake bandwidth 50": `cake: bandwidth: rate "50" has no unit: tc reads ` +
			`it as 50bit: write that, or like 50mbit`,
		"cake rtt 200": `cake: rtt: time "200" has no unit: tc reads it as ` +
			`200us: write that, or like 48.3ms`,
		"cake memlimit 10000": `cake: memlimit: size "10000" has no unit: tc ` +
			`reads it as 10000b: write that, or like 64kb`,
		"fq timer_slack 10000": `fq: timer_slack: time "10000" has no unit: tc ` +
			`reads it as 10000ns: write that, or like 48.3ms`,
		"tbf rate 5mbit burst 5000 limit 9kb": `tbf: burst: size "5000" has no unit: tc reads it as 5000b: write that`,
		"netem delay 100":                     `netem: delay: time "100" has no unit: tc reads it as 100us: write that`,
		"netem loss random 10":                `netem: loss: share "10" has no unit: tc reads it as 10%: write that`,
		"netem rate 1000": `netem: rate: rate "1000" has no unit: tc reads it ` +
			`as 1000bit: write that`,
		"fq limit 010": `fq: limit: "010" has a leading zero, and tc reads ` +
			`some such numbers as octal: write 10, or 8`,
		"fq_codel flows 010":     `fq_codel: flows: "010" has a leading zero`,
		"pfifo limit 010":        `pfifo: limit: "010" has a leading zero`,
		"bfifo limit 010":        `bfifo: limit: "010" has a leading zero`,
		"cake overhead 010":      `cake: overhead: "010" has a leading zero`,
		"cake mpu 09":            `cake: mpu: "09" has a leading zero: write 9`,
		"netem rate 5mbit 010":   `netem: rate: "010" has a leading zero`,
		"fq quantum 9kb":         `fq: quantum: "9kb" is not a whole number`,
		"dualpi2 memlimit 20mb":  `dualpi2: memlimit: "20mb" is not a whole number`,
		"dualpi2 step_thresh xp": `dualpi2: step_thresh: "xp" is not a whole number`,
		"fq initial_quantum 1048577": "fq: initial_quantum: 1048577 is out of range (1 to " +
			"1048576)",
		"fq maxrate 0bit":                       `rate "0bit" is out of range`,
		"codel target 0us":                      `codel: target: time "0us" is out of range (1us to 4294.967295s)`,
		"cake bandwidth -5mbit":                 `cake: bandwidth: rate "-5mbit" is negative`,
		"cake bandwidth 1bit":                   "cake: bandwidth: rate \"1bit\" is below one byte per second",
		"cake bandwidth 99tbit":                 "is out of range",
		"cake besteffort besteffort":            `cake: "besteffort" is given twice`,
		"cake besteffort diffserv4":             `cake: "diffserv4" contradicts "besteffort"`,
		"cake bandwidth 5mbit unlimited":        `cake: "unlimited" contradicts "bandwidth"`,
		"cake overhead 500":                     "cake: overhead: 500 bytes are out of range (-64 to 256)",
		"cake rtt 5000s":                        "is out of range",
		"cake_mq autorate-ingress":              "cake_mq: autorate-ingress does not work with several queues",
		"dualpi2 target 10ms max_rtt 100ms":     "dualpi2: max_rtt: sets target as well",
		"dualpi2 max_rtt 100ms alpha 1":         "dualpi2: alpha: follows from max_rtt",
		"dualpi2 max_rtt 10ms typical_rtt 20ms": "typical_rtt is above max_rtt",
		"dualpi2 max_rtt 1000s":                 "dualpi2: max_rtt is so large",
		"dualpi2 classic_protection 25": "dualpi2: classic_protection: share \"25\" has no " +
			"unit: tc reads it as 25%: write that",
		"dualpi2 cla_ect":                                   "unknown queue selector",
		"dualpi2 coupling_factor 0":                         "0 is out of range (1 to 255)",
		"bpf_dualpi2 limit 131073":                          "bpf_dualpi2: limit: 131073 is out of range (1 to 131072)",
		"bpf_dualpi2 bandwidth 50mbit":                      `bpf_dualpi2: unknown option "bandwidth"`,
		"bpf_dualpi2 rate 800bit":                           "rate 800bit is below 1kbit",
		"bpf_dualpi2 rate 50":                               `bpf_dualpi2: rate: rate "50" has no unit`,
		"bpf_dualpi2 rate 5mbit unlimited":                  `"unlimited" contradicts "rate"`,
		"bpf_dualpi2 overhead 300":                          "overhead: 300 bytes are out of range",
		"bpf_dualpi2 mpu 300":                               "mpu: 300 is out of range",
		"bpf_dualpi2 cla_ect":                               "unknown queue selector",
		"bpf_dualpi2 llll_mark":                             "llll_mark: needs a value",
		"bpf_dualpi2 llll_mark 0":                           "0 is what packets without a mark have",
		"bpf_dualpi2 llll_mark one":                         "is not VALUE/MASK",
		"bpf_dualpi2 llll_mark 0x1/0x100000000":             "is not VALUE/MASK",
		"bpf_dualpi2 llll_mark 0x3/0x1":                     "has bits that its mask 0x1 leaves out",
		"fq limit many":                                     `fq: limit: "many" is not a whole number`,
		"fq limit 0":                                        "out of range",
		"fq maxrate 40gbit":                                 "above what this option can carry",
		"fq bands 4 priomap 1":                              "must be 3",
		"fq bands 3 priomap 0 1 2":                          "priomap needs 16 numbers, has 3",
		"fq weights 1 2 3":                                  "out of range (16384",
		"fq_codel ce_threshold_selector 0x1/0x3":            "needs a ce_threshold",
		"fq_codel ce_threshold 1ms ce_threshold_selector 1": "is not VALUE/MASK",
		"htb":                                           "htb: needs a rate",
		"htb rate 50mbit ceil 40mbit":                   "htb: ceil 40mbit is below rate 50mbit",
		"htb rate 50mbit default 0":                     "is not a class's minor number",
		"htb rate 8bit burst 4kb":                       "longer than 274 s",
		"tbf rate 50mbit latency 20ms":                  "tbf: needs a burst: write it like",
		"tbf rate 50mbit burst 5kb":                     "tbf: needs a limit or a latency",
		"tbf rate 5mbit burst 5kb limit 1kb latency 1s": "give one",
		"tbf rate 5mbit burst 5kb limit 1kb mtu 1kb":    "mtu has no effect",
		"netem loss random 110%":                        "out of range (0% to 100%)",
		"netem loss":                                    "needs a value",
		"netem loss often":                              "unknown loss model",
		"netem reorder 5%":                              "reorder needs a delay",
		"netem delay 10ms jitter 1ms":                   `unknown option "jitter"`,
		"netem ecn":                                     "ecn needs a loss",
		"sfq perturb 10":                                `sfq: unknown option "perturb"; it takes none`,
		"pfifo limit 5000000000":                        "out of range",
	} {
		spec, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q) = %v, %v; want an error with %q", in, spec, err, want)
		}
	}
	for in, want := range map[string]string{
		"cake | fq_codel":      "nothing can hang below cake",
		"htb rate 5mbit | mq":  "mq can only be the root",
		"mq | noqueue":         "noqueue can only be the root",
		"mq | bpf_dualpi2":     "bpf_dualpi2 can only be the root",
		"bpf_dualpi2 | fq":     "nothing can hang below bpf_dualpi2",
		"htb rate 5mbit |":     "no queueing discipline given",
		"htb rate 5mbit || fq": "no queueing discipline given",
	} {
		if s, err := ParseStack(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseStack(%q) = %v, %v; want an error with %q", in, s, err, want)
		}
	}
}

func TestStack(t *testing.T) {
	for _, text := range []string{"cake bandwidth 5mbit", "htb rate 49.875mbit | fq_codel", "mq | fq",
		"mq | htb rate 5mbit | pfifo limit 9"} {
		s, err := ParseStack(text)
		if err != nil || s.String() != text {
			t.Errorf("%q → %q, %v", text, s, err)
		}
		var v struct{ S Stack }
		b, err := json.Marshal(struct{ S Stack }{s})
		if err != nil || json.Unmarshal(b, &v) != nil || !v.S.Equal(s) {
			t.Errorf("%q → %s → %v, %v", text, b, v.S, err)
		}
	}
	// One that is put together field by field is complete after the same rounding.
	byHand := Stack{HTB{Rate: 10e9, Burst: 3028, CBurst: 3028, Quantum: 1514, Class: 1}}
	if parsed, err := ParseStack("htb rate 10gbit"); err != nil || !byHand.Equal(parsed) {
		t.Errorf("%v and %v differ, %v", byHand, parsed, err)
	}
	// The kernel picks and reports a seed where none is asked for.
	if !(Stack{netemSpec{Limit: 1000}}).Equal(Stack{netemSpec{Limit: 1000, Seed: 7}}) {
		t.Error("a seed counts where none is asked for")
	}
	if (Stack{netemSpec{Limit: 1000, Seed: 8}}).Equal(Stack{netemSpec{Limit: 1000, Seed: 7}}) {
		t.Error("a seed does not count where one is asked for")
	}
	for _, wrong := range []Spec{fqSpec{}, Cake{}, HTB{}, fifoSpec{Limit: 5, Bytes: true}, plainSpec{"nonesuch"},
		FQCodel{Limit: 1},
		netemSpec{}, TBF{}, dualPI2Spec{}, BPFDualPI2{}, codelSpec{}} {
		if s, err := (Stack{wrong}).Check(); (err == nil) != (wrong == Spec(fifoSpec{Limit: 5, Bytes: true})) {
			t.Errorf("%+v: %v, %v", wrong, s, err)
		}
	}
	if (Stack{}).Equal(nil) != true || (Stack{nil}).Equal(Stack{fifoSpec{}}) {
		t.Error("empty stacks")
	}
}

func TestHandle(t *testing.T) {
	for in, want := range map[string]Handle{"root": Root, "ingress": Ingress, "1:": 0x10000, "1:1": 0x10001,
		"8001:": 0x80010000, ":3": 3, "ffff:fff2": 0xfffffff2} {
		if h, err := parseHandle(in); err != nil || h != want || h.String() != in {
			t.Errorf("parseHandle(%q) = %v, %v", in, h, err)
		}
	}
	for _, in := range []string{"", ":", "1", "x:", "10000:", "1:1:1", "-1:"} {
		if h, err := parseHandle(in); err == nil {
			t.Errorf("parseHandle(%q) = %v, want an error", in, h)
		}
	}
}

// The kernel reports less than was set; what a person wrote is what reads back.
func TestRounding(t *testing.T) {
	for _, us := range []uint32{1, 5000, 100000, 4999, 5042, 5043, 1e6, 12345, 999999} {
		d := codelRound(fromMicroseconds(uint64(us)))
		reported := u32bytes(codelReported(uint32(toMicroseconds(d))))
		var back units.Duration
		if err := codelTime("target", 1, &back, 1).decode(reported); err != nil || codelRound(back) != d {
			t.Errorf("%d us → %s → %s, %v", us, d, back, err)
		}
	}
	if d := codelRound(units.Duration(5e6)); d != units.Duration(5e6) {
		t.Errorf("5ms is called %s", d)
	}
	for _, v := range []uint32{1, 2, 41, 51, 128, 819, 820, 100000, 1 << 30} {
		var back uint32
		if err := gain("alpha", 1, &back).decode(u32bytes(dualpi2Reported(v))); err != nil || back != v {
			t.Errorf("a gain of %d reads back as %d, %v", v, back, err)
		}
	}
	for _, rate := range []string{"1mbit", "49.875mbit", "1gbit", "10gbit", "100gbit"} {
		for _, burst := range []string{"1514b", "3028b", "5kb", "64kb"} {
			for _, text := range []string{"htb rate " + rate + " burst " + burst, "tbf rate " + rate + " burst " +
				burst + " limit 1mb"} {
				spec, err := Parse(text)
				if err != nil {
					t.Errorf("%s: %v", text, err)
					continue
				}
				if again, err := check(spec); err != nil || again != spec {
					t.Errorf("%s is not rounded once and for all: %v, then %v, %v", text, spec, again, err)
				}
			}
		}
	}
}

// The defaults that follow the device read back as such.
func TestDeviceDefaults(t *testing.T) {
	ethernet := device{mtu: 9000, queue: 500, header: 14, known: true, present: true}
	tunnel := device{mtu: 1420, queue: 500, present: true}
	attribute := func(typ uint16, v uint32) []byte { return append([]byte{8, 0, byte(typ), 0}, u32bytes(v)...) }
	for _, c := range []struct {
		kind    string
		options []byte
		device  device
		want    string
	}{
		{"fq_codel", attribute(fqCodelQuantum, 9014), ethernet, "fq_codel"},
		{"fq_codel", attribute(fqCodelQuantum, 1514), ethernet, "fq_codel quantum 1514"},
		{"fq_codel", attribute(fqCodelQuantum, 1420), tunnel, "fq_codel"},
		{"fq_codel", attribute(fqCodelQuantum, 9014), device{}, "fq_codel quantum 9014"},
		{"fq", append(attribute(fqQuantum, 18028), attribute(fqInitialQuantum, 90140)...), ethernet, "fq"},
		{"dualpi2", attribute(dualpi2MemoryLimit, 10000*2*9014), ethernet, "dualpi2"},
		{"pfifo", u32bytes(500), ethernet, "pfifo"},
		{"bfifo", u32bytes(500 * 9014), ethernet, "bfifo"},
		{"bfifo", u32bytes(500 * 1514), ethernet, "bfifo limit 757000b"},
	} {
		if spec := decode(c.kind, c.options, c.device); spec == nil || spec.String() != c.want {
			t.Errorf("%s %x on %+v reads as %v, want %s", c.kind, c.options, c.device, spec, c.want)
		}
	}
}

// Only what differs travels; what cannot be undone in place is refused.
func TestEncodeChange(t *testing.T) {
	spec := func(text string) Spec {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct{ from, to, want string }{
		{"cake bandwidth 5mbit nat", "cake bandwidth 6mbit nat", "bandwidth"},
		{"cake bandwidth 5mbit nat", "cake bandwidth 5mbit nat", ""},
		{"cake overhead 10", "cake", "overhead+raw"},
		{"cake", "cake overhead 0", "overhead"},
		// a new limit would reset the other
		{"dualpi2 memlimit 5000", "dualpi2 memlimit 5000 limit 10", "limit+memlimit"},
	} {
		names := map[string]map[uint16]string{"cake": {cakeBandwidth: "bandwidth", cakeOverhead: "overhead",
			cakeRaw: "raw"},
			"dualpi2": {dualpi2Limit: "limit", dualpi2MemoryLimit: "memlimit"}}
		b, err := spec(c.to).encode(spec(c.from))
		if err != nil {
			t.Fatal(err)
		}
		list, err := unpack(b)
		var got []string
		for _, a := range list {
			got = append(got, names[spec(c.to).Kind()][a.Type])
		}
		if err != nil || strings.Join(got, "+") != c.want {
			t.Errorf("from %s to %s sends %q, want %s", c.from, c.to, got, c.want)
		}
	}
	for _, c := range []struct{ from, to string }{
		{"fq quantum 3000", "fq"}, {"fq_codel ce_threshold 1ms", "fq_codel"}, {"dualpi2 memlimit 5000", "dualpi2"},
		{"pfifo limit 5", "pfifo"},
		{"htb rate 5mbit default 2", "htb rate 5mbit"},
	} {
		if b, err := spec(c.to).encode(spec(c.from)); err == nil || !strings.Contains(err.Error(), "in place") {
			t.Errorf("from %s to %s sends %x, %v; want an error", c.from, c.to, b, err)
		}
	}
}

// Times below the 1024 ns in which codel counts are none to the kernel, and can be said all the same; and so can a
// threshold that is off.
func TestSmallest(t *testing.T) {
	for in, want := range map[string]string{
		"codel target 1us":           "codel target 1us",
		"codel interval 1us":         "codel interval 1us",
		"fq_codel target 1us":        "fq_codel target 1us",
		"fq_codel interval 1us":      "fq_codel interval 1us",
		"codel ce_threshold 1us":     "codel ce_threshold 0s",
		"fq low_rate_threshold 0bit": "fq low_rate_threshold 0bit",
	} {
		s, err := Parse(in)
		if err != nil || s.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, s, err, want)
			continue
		}
		defaults, _ := Default(s.Kind())
		b, err := s.encode(defaults)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(want, "1us") { // as the kernel reports it
			b = bytes.Replace(b, u32bytes(1), u32bytes(0), 1)
		}
		if back := decode(s.Kind(), b, device{}); back != s {
			t.Errorf("%s reads back as %v", in, back)
		}
	}
	// What is wrong with a Spec that nobody has typed in is said once.
	if _, err := check(codelSpec{Interval: 100e6, Target: 5e6, CEThreshold: never}); err == nil ||
		strings.Count(err.Error(), "codel: ") != 1 {
		t.Errorf("%v", err)
	}
}

// CAKE's target follows from its rtt. One that somebody else has set has no words here.
func TestCakeTargetOfOthers(t *testing.T) {
	for target, known := range map[uint32]bool{5000: true, 4999: false, 5001: false, 0: false} {
		options := pack(attribute(cakeRTT, u32bytes(100_000)), attribute(cakeTarget, u32bytes(target)))
		if spec := decode("cake", options, device{}); (spec != nil) != known {
			t.Errorf("target %d us of rtt 100ms: %v", target, spec)
		}
	}
}
