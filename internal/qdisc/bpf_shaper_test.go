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

	"weir/internal/shaper"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// shapers are internal/shaper as a Conn sees it: one interface's, which notes what it is asked for.
type shapers struct {
	calls []string
	now   *shaper.Instance
	err   error // of everything but reading
	read  error
}

func (s *shapers) set(verb string, c shaper.Config) error {
	s.calls = append(s.calls, fmt.Sprintf("%s rate %s", verb, c.Rate))
	if s.err == nil {
		s.now = &shaper.Instance{Known: true, Config: c, Stats: shaper.Stats{Marks: 3, Drops: 2}}
	}
	return s.err
}

func (s *shapers) Install(_, _ int, c shaper.Config) error { return s.set("install", c) }
func (s *shapers) Change(_ int, c shaper.Config) error     { return s.set("change", c) }
func (s *shapers) Read(int) (shaper.Instance, bool, error) {
	if s.now == nil || s.read != nil {
		return shaper.Instance{}, false, s.read
	}
	return *s.now, true, nil
}

func (s *shapers) Remove(int) error {
	if s.now != nil {
		s.calls, s.now = append(s.calls, "remove"), nil
	}
	return s.err
}

func (s *shapers) Clean(int) error {
	s.calls = append(s.calls, "clean")
	return s.err
}

// running is a shaper that has been told this.
func running(t *testing.T, text string) *shapers {
	t.Helper()
	config, err := mustParse(t, text+" | fq")[0].(BPFShaper).config()
	if err != nil {
		t.Fatal(err)
	}
	return &shapers{now: &shaper.Instance{Known: true, Config: config, Stats: shaper.Stats{Marks: 3, Drops: 2}}}
}

// What is said gets to the programs, and is said back in one way.
func TestShaperWords(t *testing.T) {
	for text, want := range map[string]string{
		"rate 1gbit":                              "",
		"rate 1000mbit share 99%":                 "rate 1gbit",
		"rate 1gbit share 97.5% srchost":          "",
		"rate 1gbit prefix6 56":                   "",
		"rate 1gbit ethernet":                     "rate 1gbit overhead 38 mpu 84",
		"rate 1gbit clients 10.8.0.7=20mbit":      "",
		"rate 1gbit clients 10.8.0.7/32=weight:2": "rate 1gbit clients 10.8.0.7=weight:2",
		"rate 1gbit clients fd00::/48=5mbit/weight:3,10.8.0.0/24=weight:2,10.8.0.7=weight:1/20mbit": "rate 1gbit " +
			"clients 10.8.0.0/24=weight:2,10.8.0.7=20mbit,fd00::/48=5mbit/weight:3",
		"rate 1gbit clients ::ffff:10.8.0.7=weight:1": "rate 1gbit clients 10.8.0.7=weight:1",
	} {
		spec := mustParse(t, "bpf_shaper "+text+" | fq")[0].(BPFShaper)
		if want == "" {
			want = text
		}
		if got := spec.String(); got != "bpf_shaper "+want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
		readsBack(t, spec)
		config, err := spec.config()
		if err != nil {
			t.Fatal(err)
		}
		options := shaperOf(config)
		if back, err := sayable(&options); err != nil || back != Spec(spec) {
			t.Errorf("%s reads back as %v, %v", text, back, err)
		}
	}
}

// A rate for everybody else does not change one that somebody has.
func TestClientsOr(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "0.0.0.0/0=50mbit,::/0=50mbit",
		"10.8.0.7=20mbit":    "0.0.0.0/0=50mbit,10.8.0.7=20mbit,::/0=50mbit",
		"10.8.0.7=weight:2":  "0.0.0.0/0=50mbit,10.8.0.7=50mbit/weight:2,::/0=50mbit",
		"::/0=5mbit":         "0.0.0.0/0=50mbit,::/0=5mbit",
		"0.0.0.0/0=weight:3": "0.0.0.0/0=50mbit/weight:3,::/0=50mbit",
	} {
		if got, err := Clients(text).Or(50e6); err != nil || string(got) != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := Clients("here").Or(50e6); err == nil {
		t.Errorf("%q", got)
	}
}

func FuzzParseClients(f *testing.F) {
	f.Add("10.8.0.7=20mbit,10.8.0.0/24=weight:2,fd00::/48=5mbit/weight:3")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseClients(text); err == nil {
			if again, err := ParseClients(string(c)); err != nil || again != c {
				t.Errorf("%q is %q, and that %q, %v", text, c, again, err)
			}
		}
	})
}

func TestShaperRefused(t *testing.T) {
	for text, want := range map[string]string{
		"bpf_shaper":                                                          "needs a rate",
		"bpf_shaper rate 1gbit":                                               "goes fq, or mq | fq on a device",
		"bpf_shaper rate 1gbit | cake":                                        "below bpf_shaper goes fq",
		"bpf_shaper rate 1gbit | mq":                                          "below bpf_shaper goes fq",
		"bpf_shaper rate 1gbit | mq | fq_codel":                               "below bpf_shaper goes fq",
		"bpf_shaper rate 1gbit | htb rate 5mbit":                              "below bpf_shaper goes fq",
		"mq | bpf_shaper rate 1gbit | fq":                                     "bpf_shaper can only be the root",
		"cake | mq":                                                           "nothing can hang below cake",
		"htb rate 5mbit | mq":                                                 "mq can only be the root",
		"bpf_shaper rate 500kbit | fq":                                        "is out of range (1mbit to 200gbit)",
		"bpf_shaper rate 1gbit share 20% | fq":                                "is out of range (50% to 100%)",
		"bpf_shaper rate 1gbit prefix6 129 | fq":                              "prefix6",
		"bpf_shaper rate 1gbit clients here | fq":                             "write it like 10.8.0.7=20mbit",
		"bpf_shaper rate 1gbit clients x=1mbit|fq":                            `"x" is no address, nor a prefix`,
		"bpf_shaper rate 1gbit clients 10.8.0.7/24=1mbit | fq":                "write 10.8.0.0/24",
		"bpf_shaper rate 1gbit clients 10.8.0.7=1mbit,10.8.0.7=2mbit | fq":    "client 10.8.0.7 is given twice",
		"bpf_shaper rate 1gbit clients 10.8.0.7=weight:65 | fq":               "is not one of 1 to 64",
		"bpf_shaper rate 1gbit clients 10.8.0.7=weight: | fq":                 "is not one of 1 to 64",
		"bpf_shaper rate 1gbit clients 10.8.0.7=1kbit | fq":                   "rate 1kbit is below 100kbit",
		"bpf_shaper rate 1gbit clients 10.8.0.7=fast | fq":                    "client 10.8.0.7: ",
		"bpf_shaper rate 1gbit clients fe80::1%eth0=1mbit | fq":               "is no address, nor a prefix",
		"bpf_shaper rate 1gbit clients 10.8.0.7=1mbit clients 10.8.0.8=2 |fq": `"clients" is given twice`,
	} {
		if s, err := ParseStack(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s is %v, %v; want %q", text, s, err, want)
		}
	}
}

// Where a shaper runs and what is below keeps its times, it is the root; a record of the tree makes it anew.
func TestReadShaper(t *testing.T) {
	one := [][]byte{object(2, 0x10000, Root, 2, "fq", nil)}
	several := [][]byte{object(2, 0x10000, Root, 2, "mq", nil), object(2, 0x20000, 0x10001, 1, "fq", nil),
		object(2, 0x30000, 0x10002, 1, "fq", nil)}
	made := [][]byte{object(2, 0, Root, 2, "mq", nil), object(2, 0, 1, 1, "fq", nil), object(2, 0, 2, 1, "fq", nil)}
	differing := slices.Clone(several)
	differing[2] = object(2, 0x30000, 0x10002, 1, "cake", nil)
	for name, c := range map[string]struct {
		qdiscs [][]byte
		spoil  func(*shapers)
		want   string
	}{
		"one queue":            {one, func(*shapers) {}, "bpf_shaper rate 1gbit | fq"},
		"several":              {several, func(*shapers) {}, "bpf_shaper rate 1gbit | mq | fq"},
		"the kernel's own":     {made, func(*shapers) {}, "bpf_shaper rate 1gbit | mq | fq"},
		"none":                 {one, func(s *shapers) { s.now = nil }, "fq"},
		"may not be read":      {one, func(s *shapers) { s.read = fs.ErrPermission }, "fq"},
		"a queue without":      {differing, func(*shapers) {}, ""},
		"another's root":       {[][]byte{object(2, 0x10000, Root, 2, "cake", nil)}, func(*shapers) {}, "cake"},
		"of another version":   {one, func(s *shapers) { s.now.Known = false }, ""},
		"of words to come":     {one, func(s *shapers) { s.now.Config.ATM = "" }, ""},
		"before the device is": {nil, func(*shapers) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := running(t, "bpf_shaper rate 1gbit")
			c.spoil(s)
			k := &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: c.qdiscs, shaper: s}
			tree, err := k.dial(t).Tree(2)
			if err != nil {
				t.Fatal(err)
			}
			stack, ok := tree.Stack()
			if stack.String() != c.want || ok != (c.want != "") {
				t.Fatalf("%s, %v; want %q", stack, ok, c.want)
			}
			root, _ := tree.Root()
			if root.Kind != BPFShaping {
				return
			}
			if !ok {
				if err := tree.Restorable(); err == nil || !strings.Contains(err.Error(), "could not be read") {
					t.Errorf("restorable: %v", err)
				}
				if err := k.dial(t).Restore(2, tree); err != nil { // it is what is there
					t.Error(err)
				}
				return
			}
			if err := tree.Restorable(); err != nil || root.Rate() != 1e9 || root.Stats.Marks != 3 ||
				root.Stats.Drops != 2 {
				t.Errorf("%+v, restorable: %v", root, err)
			}
			var recorded Tree
			if b, err := json.Marshal(tree); err != nil || json.Unmarshal(b, &recorded) != nil ||
				!recorded.Same(tree) {
				t.Errorf("%s, %v", b, err)
			}
			s.now.Config.Rate = 2e9
			if now, err := k.dial(t).Tree(2); err != nil || now.Same(tree) {
				t.Errorf("with another rate it is the same; %v", err)
			}
		})
	}
}

// The order in which the program and the kernel are asked. In between, a shaper may be over a queue that ignores times
// of departure: then nothing is shaped, and nothing is lost.
func TestChangeShaper(t *testing.T) {
	fq := [][]byte{object(2, 0x10000, Root, 2, "fq", nil)}
	cake := [][]byte{object(2, 0x10000, Root, 2, "cake", nil)}
	several := [][]byte{object(2, 0x10000, Root, 2, "mq", nil), object(2, 0x20000, 0x10001, 1, "fq", nil),
		object(2, 0x30000, 0x10002, 1, "fq", nil)}
	recorded := func(s *shapers, qdiscs [][]byte) Tree {
		tree, err := (&kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: qdiscs, shaper: s}).dial(t).Tree(2)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	none := func() *shapers { return &shapers{} }
	some := func() *shapers { return running(t, "bpf_shaper rate 8mbit") }
	replace := func(text string) func(*Conn) error {
		return func(c *Conn) error { return c.Replace(2, mustParse(t, text)) }
	}
	adjust := func(text string) func(*Conn) error {
		return func(c *Conn) error { return c.Adjust(2, mustParse(t, text)) }
	}
	restore := func(tree Tree) func(*Conn) error { return func(c *Conn) error { return c.Restore(2, tree) } }
	clean := func(before [][]byte) func(*Conn) error {
		return func(c *Conn) error { return c.Clean(2, recorded(none(), before)) }
	}
	for name, c := range map[string]struct {
		qdiscs  [][]byte
		shaper  func() *shapers
		do      func(*Conn) error
		program []string
		kernel  []string
		after   [][]byte // what the kernel has once it was asked
		refuse  bool
		fails   string
	}{
		"new": {qdiscs: cake, shaper: none, do: replace("bpf_shaper rate 16mbit | fq"),
			program: []string{"install rate 16mbit"}, kernel: []string{"replace qdisc 2: at root fq"}, after: fq},
		"another rate": {qdiscs: fq, shaper: some, do: adjust("bpf_shaper rate 16mbit | fq"),
			program: []string{"change rate 16mbit"}},
		"another rate of several": {qdiscs: several, shaper: some, do: adjust("bpf_shaper rate 16mbit | mq | fq"),
			program: []string{"change rate 16mbit"}},
		"in place of it": {qdiscs: fq, shaper: some, do: replace("cake"),
			program: []string{"remove"}, kernel: []string{"replace qdisc 2: at root cake"}},
		"to what is below it": {qdiscs: fq, shaper: some, do: adjust("fq"),
			fails: "what is there has another shape: replace it"},
		"back to another": {qdiscs: fq, shaper: some, do: restore(recorded(none(), cake)),
			program: []string{"remove"},
			kernel:  []string{"replace qdisc 2: at root pfifo", "replace qdisc 1: at root cake"}},
		"back to none": {qdiscs: fq, shaper: some, do: restore(recorded(none(), fq)), program: []string{"remove"}},
		"back to it": {qdiscs: cake, shaper: none, do: restore(recorded(some(), fq)),
			program: []string{"install rate 8mbit"}, after: fq,
			kernel: []string{"replace qdisc 2: at root pfifo", "replace qdisc 1: at root fq"}},
		"back to its rate": {qdiscs: several, shaper: func() *shapers { return running(t, "bpf_shaper rate 9mbit") },
			do: restore(recorded(some(), several)), program: []string{"change rate 8mbit"}},
		"gone from below it": {qdiscs: cake, shaper: some, do: restore(recorded(none(), cake)),
			program: []string{"remove"}},
		"cleaned":        {qdiscs: cake, shaper: some, do: clean(cake), program: []string{"remove", "clean"}},
		"cleaned in use": {qdiscs: fq, shaper: some, do: clean(cake), program: []string{"clean"}},
		"cleaned beside filters that were there before": {qdiscs: cake, shaper: none,
			do: clean(append(cake, object(2, 0xFFFF0000, Ingress, 1, "clsact", nil)))},
		"not cleaned": {qdiscs: cake, shaper: func() *shapers { return &shapers{err: errors.New("busy")} },
			do: clean(cake), program: []string{"clean"}, fails: "interface 2: what a bpf_shaper left: busy"},
		"may not be cleaned": {qdiscs: cake, shaper: func() *shapers { return &shapers{err: fs.ErrPermission} },
			do: clean(cake), program: []string{"clean"}},
		"deleted": {qdiscs: fq, shaper: some, do: func(c *Conn) error { return c.Delete(2, Root) },
			program: []string{"remove"}, kernel: []string{"change delete 0: at root"}},
		"not supported": {qdiscs: cake, shaper: func() *shapers { return &shapers{err: errors.New("no BPF")} },
			do: replace("bpf_shaper rate 16mbit | fq"), program: []string{"install rate 16mbit"},
			fails: "interface 2: install bpf_shaper rate 16mbit: no BPF"},
		"refused": {qdiscs: cake, shaper: none, do: replace("bpf_shaper rate 16mbit | fq"), refuse: true,
			program: []string{"install rate 16mbit", "remove"}, kernel: []string{"replace qdisc 2: at root fq"},
			fails: "install fq: no"},
		"may not be taken away": {qdiscs: cake, shaper: func() *shapers { return &shapers{err: fs.ErrPermission} },
			do: replace("fq_codel"), kernel: []string{"replace qdisc 2: at root fq_codel"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.shaper()
			k := &kernel{links: [][]byte{link(2, 1500, 1000)}, qdiscs: c.qdiscs, shaper: s}
			k.refuse = func(netlink.Message) (unix.Errno, string) {
				if c.refuse {
					return unix.EINVAL, "no"
				}
				if c.after != nil {
					k.qdiscs = c.after
				}
				return 0, ""
			}
			err := c.do(k.dial(t))
			checkFailure(t, err, c.fails)
			requests := k.requests(t)
			if !slices.Equal(requests, c.kernel) || !slices.Equal(s.calls, c.program) {
				t.Errorf("asks the kernel for %q and the program for %q, want %q and %q", requests, s.calls, c.kernel,
					c.program)
			}
		})
	}
}
