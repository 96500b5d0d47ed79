// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/bpf"
	"weir/internal/dualpi2"
	"weir/internal/units"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// programs are internal/dualpi2 as a Conn sees it: they note what they are asked for, and each instance's kind is
// another.
type programs struct {
	asked     []string
	instances map[int]dualpi2.Instance
	err       error // of everything
	clean     error
}

func (p *programs) Install(ifindex int, c dualpi2.Config, place func(kind string) error) error {
	p.asked = append(p.asked, fmt.Sprintf("install on %d: rate %d", ifindex, c.Rate/8))
	if p.err != nil {
		return p.err
	}
	kind := fmt.Sprintf("%s%06x", dualpi2.Prefix, len(p.asked))
	if err := place(kind); err != nil {
		return err
	}
	p.instances[ifindex] = dualpi2.Instance{Kind: kind, Placed: true, Known: true, Config: c}
	return nil
}

func (p *programs) Change(ifindex int, c dualpi2.Config) error {
	p.asked = append(p.asked, fmt.Sprintf("change on %d: rate %d, memlimit %d", ifindex, c.Rate/8, c.MemLimit))
	return p.err
}

func (p *programs) Read(ifindex int) (dualpi2.Instance, bool, error) {
	i, ok := p.instances[ifindex]
	return i, ok, p.err
}

func (p *programs) Clean(ifindex int) error {
	p.asked = append(p.asked, fmt.Sprintf("clean %d", ifindex))
	return p.clean
}

func config(t *testing.T, text string) dualpi2.Config {
	t.Helper()
	return dualpi2.Config(mustParse(t, text)[0].(BPFDualPI2))
}

func specOf(c dualpi2.Config) (Spec, error) {
	options := BPFDualPI2(c)
	return sayable(&options)
}

// The defaults are the kernel's, and every option gets to the programs and back.
func TestBPFConfig(t *testing.T) {
	want := dualpi2.Defaults()
	if got := config(t, "bpf_dualpi2"); got != want {
		t.Errorf("by default\n%+v, want\n%+v", got, want)
	}
	for text, set := range map[string]func(*dualpi2.Config){
		"limit 100000":               func(c *dualpi2.Config) { c.Limit = 100000 },
		"limit 500 memlimit 1000000": func(c *dualpi2.Config) { c.Limit, c.MemLimit = 500, 1000000 },
		"target 20ms tupdate 10ms": func(c *dualpi2.Config) {
			c.Target, c.TUpdate = units.Duration(20e6), units.Duration(10e6)
		},
		"alpha 0.5 beta 3":                  func(c *dualpi2.Config) { c.Alpha, c.Beta = 128, 768 },
		"any_ect overflow":                  func(c *dualpi2.Config) { c.ECN, c.DropOverload = "any_ect", false },
		"coupling_factor 3 min_qlen_step 4": func(c *dualpi2.Config) { c.CouplingFactor, c.MinQlenStep = 3, 4 },
		"step_thresh 500us":                 func(c *dualpi2.Config) { c.StepThresh = units.Duration(500e3) },
		"step_thresh 5p":                    func(c *dualpi2.Config) { c.StepPackets = 5 },
		"drop_enqueue no_split_gso":         func(c *dualpi2.Config) { c.DropEnqueue, c.SplitGSO = true, false },
		"classic_protection 25%":            func(c *dualpi2.Config) { c.ClassicProtection = 25 },
		"rate 50mbit":                       func(c *dualpi2.Config) { c.Rate = 50e6 },
		"rate 50mbit ethernet": func(c *dualpi2.Config) {
			c.Rate, c.Raw, c.Overhead, c.MPU = 50e6, false, 38, 84
		},
		"raw overhead 4 ptm": func(c *dualpi2.Config) { c.Overhead, c.ATM = 4, "ptm" },
		"pppoa-vcmux": func(c *dualpi2.Config) {
			c.Raw, c.Overhead, c.ATM = false, 10, "atm"
		},
		"llll_mark 0x10/0xf0": func(c *dualpi2.Config) { c.LLLLMark, c.LLLLMask = 0x10, 0xf0 },
	} {
		text, want := "bpf_dualpi2 "+text, want
		set(&want)
		spec := mustParse(t, text)[0].(BPFDualPI2)
		if got := dualpi2.Config(spec); got != want {
			t.Errorf("%s:\n%+v, want\n%+v", text, got, want)
		}
		if back, err := specOf(want); err != nil || back != Spec(spec) {
			t.Errorf("%s reads back as %v, %v", text, back, err)
		}
		readsBack(t, spec)
	}
	// What tc has no words for is not guessed at.
	for _, spoil := range []func(*dualpi2.Config){
		func(c *dualpi2.Config) { c.ATM = "" }, func(c *dualpi2.Config) { c.Limit = 0 },
		func(c *dualpi2.Config) { c.Target = 1 },
		func(c *dualpi2.Config) { c.Rate = 1<<64 - 1 }, func(c *dualpi2.Config) { c.MPU = 5000 },
		func(c *dualpi2.Config) { c.CouplingFactor = 0 },
	} {
		c := want
		spoil(&c)
		if spec, err := specOf(c); err == nil {
			t.Errorf("%+v reads as %v", c, spec)
		}
	}
}

// What is not named stays; what is replaces, and is not added to.
func TestEdit(t *testing.T) {
	for _, c := range []struct{ from, words, want string }{
		{"bpf_dualpi2 rate 50mbit target 20ms", "rate 60mbit", "bpf_dualpi2 target 20ms rate 60mbit"},
		{"bpf_dualpi2 rate 50mbit", "unlimited", "bpf_dualpi2"},
		{"bpf_dualpi2 step_thresh 5p", "step_thresh 2ms", "bpf_dualpi2 step_thresh 2ms"},
		{"bpf_dualpi2 ethernet", "ether-vlan", "bpf_dualpi2 overhead 4 mpu 84"},
		{"bpf_dualpi2 ethernet", "raw", "bpf_dualpi2 mpu 84"},
		{"bpf_dualpi2 target 20ms", "max_rtt 100ms", "bpf_dualpi2 tupdate 16.666ms target 16.666ms alpha 0.1640625 " +
			"beta 3"},
		{"cake overhead 10", "bandwidth 5mbit", "cake bandwidth 5mbit overhead 10"},
		{"bpf_dualpi2", "rat 5mbit", `bpf_dualpi2: unknown option "rat" (did you mean "rate"?)`},
	} {
		spec, err := Edit(mustParse(t, c.from)[0], strings.Fields(c.words))
		got := fmt.Sprint(spec)
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), ";")
		}
		if got != c.want {
			t.Errorf("%s with %s is %s, want %s", c.from, c.words, got, c.want)
		}
	}
	if words := Words("bpf_dualpi2"); !slices.IsSorted(words) || !slices.Contains(words, "rate") ||
		!slices.Contains(words, "typical_rtt") || Words("nonesuch") != nil {
		t.Errorf("words are %q", words)
	}
}

// The root is an instance, by the name that only the kernel uses, if the programs say so.
func TestReadInstance(t *testing.T) {
	running := dualpi2.Instance{Kind: "dualpi2.0a1b2c", Placed: true, Known: true,
		Config: config(t, "bpf_dualpi2 rate 50mbit"),
		Stats: dualpi2.Stats{Probability: 1, DelayC: 15000, PacketsC: 7, ECNMarks: 5, StepMarks: 3,
			Credit: -2, MaxQueue: 9, Unmarked: 1, MemoryLimit: 30280000}}
	for name, c := range map[string]struct {
		spoil func(*dualpi2.Instance)
		err   error
		want  string
	}{
		"running":            {func(*dualpi2.Instance) {}, nil, "bpf_dualpi2 rate 50mbit"},
		"no privilege":       {func(*dualpi2.Instance) {}, fs.ErrPermission, ""},
		"only its marker":    {func(i *dualpi2.Instance) { i.Placed = false }, nil, ""},
		"another one":        {func(i *dualpi2.Instance) { i.Kind = "dualpi2.ffffff" }, nil, ""},
		"of another version": {func(i *dualpi2.Instance) { i.Known = false }, nil, ""},
		"of words to come":   {func(i *dualpi2.Instance) { i.Config.ATM = "" }, nil, ""},
		"memory limit by hand": {func(i *dualpi2.Instance) { i.Config.MemLimit = 5e6 }, nil,
			"bpf_dualpi2 memlimit 5000000 rate 50mbit"},
	} {
		t.Run(name, func(t *testing.T) {
			i := running
			c.spoil(&i)
			k := &kernel{links: [][]byte{link(2, 1500, 1000)},
				qdiscs: [][]byte{object(2, 0x10000, Root, 2, "dualpi2.0a1b2c", nil)},
				bpf:    &programs{instances: map[int]dualpi2.Instance{2: i}, err: c.err}}
			tree, err := k.dial(t).Tree(2)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := tree.Stack()
			if s.String() != c.want || ok != (c.want != "") {
				t.Fatalf("%s, %v; want %q", s, ok, c.want)
			}
			root, _ := tree.Root()
			if !ok {
				if err := tree.Restorable(); root.Kind != "dualpi2.0a1b2c" || root.Spec != nil || err == nil ||
					!strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
					t.Errorf("%+v, restorable: %v", root, err)
				}
				if err := k.dial(t).Restore(2, Tree{Qdiscs: []Qdisc{{Kind: "dualpi2.ffffff", Handle: 0x10000,
					Parent: Root}}}); err == nil || len(k.changes) > 0 {
					t.Errorf("restoring what cannot be: %v, after %d changes", err, len(k.changes))
				}
				return
			}
			if err := tree.Restorable(); err != nil {
				t.Error(err)
			}
			x, ok := root.Stats.X.(dualpi2.Stats)
			if !ok || root.Stats.Marks != 5 || x.Probability != 1 || x.DelayC != 15000 || x.PacketsC != 7 ||
				x.StepMarks != 3 || x.Credit != -2 || x.MaxQueue != 9 ||
				x.Unmarked != 1 || x.MemoryLimit != 30280000 {
				t.Errorf("statistics are %+v", root.Stats)
			}
			// A record of it is all that it takes to make it anew.
			var recorded Tree
			if b, err := json.Marshal(tree); err != nil || json.Unmarshal(b, &recorded) != nil || !recorded.Same(tree) {
				t.Fatalf("%s, %v", b, err)
			}
			if recorded.Qdiscs[0].Options[0] == 0 || decode("bpf_dualpi2", recorded.Qdiscs[0].Options,
				device{}) != s[0] {
				t.Errorf("the record reads as %v", decode("bpf_dualpi2", recorded.Qdiscs[0].Options, device{}))
			}
		})
	}
}

// In which order what is asked of the programs, and what of the kernel.
func TestInstallInstance(t *testing.T) {
	options, _ := mustParse(t, "bpf_dualpi2 rate 8mbit")[0].encode(nil)
	recorded := Tree{Qdiscs: []Qdisc{{Kind: "bpf_dualpi2", Handle: 0x70000, Parent: Root, Options: options}}}
	broken := Tree{Qdiscs: []Qdisc{{Kind: "bpf_dualpi2", Handle: 0x70000, Parent: Root, Options: []byte{1}}}}
	newFake := func() (*kernel, *programs) {
		p := &programs{instances: map[int]dualpi2.Instance{}}
		return &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: [][]byte{object(2, 0x10000, Root, 2, "cake", nil)},
			bpf: p}, p
	}
	for name, c := range map[string]struct {
		do            func(*Conn) error
		refuse        bool
		programs      []string
		kernel        []string
		fails         string
		errs, unclean error
	}{
		"replace": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "bpf_dualpi2 rate 16mbit")) },
			programs: []string{"install on 2: rate 2000000", "clean 2"},
			kernel:   []string{"replace qdisc 2: at root dualpi2.000001"}},
		"another instead": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "fq_codel")) },
			programs: []string{"clean 2"}, kernel: []string{"replace qdisc 2: at root fq_codel"}},
		"restore": {do: func(c *Conn) error { return c.Restore(2, recorded) },
			programs: []string{"install on 2: rate 1000000", "clean 2"},
			kernel:   []string{"replace qdisc 7: at root dualpi2.000001"}},
		"delete": {do: func(c *Conn) error { return c.Delete(2, Root) },
			programs: []string{"clean 2"}, kernel: []string{"change delete 0: at root"}},
		"restore what is not understood": {do: func(c *Conn) error { return c.Restore(2, broken) },
			programs: []string{"clean 2"}, fails: "another version"},
		"not supported": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "bpf_dualpi2")) },
			errs:     fmt.Errorf("%w: no BPF", bpf.ErrNotSupported),
			programs: []string{"install on 2: rate 0", "clean 2"},
			fails:    "interface 2: install bpf_dualpi2: not supported: no BPF"},
		"refused": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "bpf_dualpi2")) }, refuse: true,
			programs: []string{"install on 2: rate 0", "clean 2"},
			kernel:   []string{"replace qdisc 2: at root dualpi2.000001"}, fails: "put dualpi2.000001 in place: no"},
		"may not look": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "fq")) }, unclean: unix.EPERM,
			programs: []string{"clean 2"}, kernel: []string{"replace qdisc 2: at root fq"}},
		"cannot clean": {do: func(c *Conn) error { return c.Replace(2, mustParse(t, "fq")) },
			unclean:  errors.New("busy"),
			programs: []string{"clean 2"}, kernel: []string{"replace qdisc 2: at root fq"},
			fails: "interface 2: what a bpf_dualpi2 left: busy"},
	} {
		t.Run(name, func(t *testing.T) {
			k, p := newFake()
			p.err, p.clean = c.errs, c.unclean
			if c.refuse {
				k.refuse = func(netlink.Message) (unix.Errno, string) { return unix.EINVAL, "no" }
			}
			err := c.do(k.dial(t))
			checkFailure(t, err, c.fails)
			requests := k.requests(t)
			if !slices.Equal(requests, c.kernel) || !slices.Equal(p.asked, c.programs) {
				t.Errorf("asks the kernel for %q and the programs for %q, want %q and %q", requests, p.asked, c.kernel,
					c.programs)
			}
			for _, m := range k.changes {
				if _, attributes, err := split(m, uint16(m.Header.Type)); err != nil || len(attributes) > 1 {
					t.Errorf("the request has %v, %v: want the kind alone", attributes, err)
				}
			}
		})
	}
}

// A change is the programs' affair, and the kernel is asked for nothing.
func TestChangeInstance(t *testing.T) {
	p := &programs{}
	k := &kernel{links: [][]byte{link(2, 9000, 1000)}, bpf: p}
	now := Qdisc{Kind: "bpf_dualpi2", Handle: 0x10000, Parent: Root, Spec: mustParse(t, "bpf_dualpi2 rate 8mbit")[0]}
	for _, text := range []string{"bpf_dualpi2 rate 8mbit", "bpf_dualpi2 rate 16mbit"} {
		if err := k.dial(t).Change(2, now, mustParse(t, text)[0]); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"change on 2: rate 2000000, memlimit 0"}; !slices.Equal(p.asked, want) || len(k.changes) > 0 {
		t.Errorf("asks the programs for %q and the kernel for %d changes, want %q", p.asked, len(k.changes), want)
	}
	p.err = errors.New("the instance holds up to 16384 packets")
	if err := k.dial(t).Change(2, now, mustParse(t, "bpf_dualpi2 limit 20000")[0]); err == nil ||
		!strings.HasSuffix(err.Error(), "packets: replace it") {
		t.Errorf("%v", err)
	}

	// In place, and at once.
	p = &programs{instances: map[int]dualpi2.Instance{2: {Kind: "dualpi2.0a1b2c", Placed: true, Known: true,
		Config: dualpi2.Config(now.Spec.(BPFDualPI2))}}}
	k = &kernel{links: [][]byte{link(2, 1500, 1000)},
		qdiscs: [][]byte{object(2, 0x10000, Root, 2, "dualpi2.0a1b2c", nil)}, bpf: p}
	if err := k.dial(t).Adjust(2, mustParse(t, "bpf_dualpi2 rate 24mbit")); err != nil ||
		!slices.Equal(p.asked, []string{"change on 2: rate 3000000, memlimit 0"}) {
		t.Errorf("%q, %v", p.asked, err)
	}
	if got := p.instances[2].Config.Rate; got != 8e6 {
		t.Errorf("rate %s", got)
	}
}

// Since leaves what came after an earlier look.
func TestSince(t *testing.T) {
	stats := func(packets ...uint64) (s dualpi2.Stats) {
		var h dualpi2.Histogram
		for i, n := range packets {
			h.Count[1+8*i] = n
			h.Packets += n
			h.Sum += time.Duration(n) * time.Duration(i+1) * time.Microsecond
			h.Max = time.Second
		}
		s.PacketsL, s.ECNMarks, s.SojournL.Histogram = h.Packets, h.Packets/2, h
		return s
	}
	got := stats(100, 4).Since(stats(100, 0))
	if got.PacketsL != 4 || got.ECNMarks != 2 || got.SojournL.Packets != 4 ||
		got.SojournL.Mean != units.Duration(2*time.Microsecond) {
		t.Errorf("%+v", got)
	}
	if p := got.SojournL.P50; p < units.Duration(2*time.Microsecond) || p > units.Duration(3*time.Microsecond) {
		t.Errorf("median %v", p)
	}
}
