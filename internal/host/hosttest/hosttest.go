// SPDX-License-Identifier: Apache-2.0

// Package hosttest makes up the facts of hosts, for the tests of what is made of facts: a server, and what can be
// different on it. It reads no host, and no code but tests may use it.
package hosttest

import (
	"maps"
	"testing"

	"weir/internal/host"
	"weir/internal/qdisc"
	"weir/internal/units"
)

// Tree is the tree that a stack makes on a device, as far as Tree.Stack looks at it.
func Tree(t testing.TB, text string, queues int) qdisc.Tree {
	t.Helper()
	stack, err := qdisc.ParseStack(text)
	if err != nil {
		t.Fatal(err)
	}
	var built qdisc.Tree
	major := qdisc.Handle(0)
	var add func(parent qdisc.Handle, levels qdisc.Stack)
	add = func(parent qdisc.Handle, levels qdisc.Stack) {
		major += 0x10000
		own, below := major, min(len(levels)-1, 1)
		built.Qdiscs = append(built.Qdiscs, qdisc.Qdisc{Kind: levels[0].Kind(), Handle: own, Parent: parent,
			Spec: levels[0]})
		switch {
		case levels[0].Kind() == "mq" && below > 0:
			below = queues
		case levels[0].Kind() == "htb":
			htb, _ := levels[0].(qdisc.HTB)
			built.Classes = append(built.Classes, qdisc.Class{Kind: "htb", Handle: own + 1, Parent: qdisc.Root,
				Rate: htb.Rate, Ceil: htb.Ceil})
		}
		for i := range below {
			add(own+qdisc.Handle(i+1), levels[1:])
		}
	}
	add(qdisc.Root, stack)
	if got, ok := built.Stack(); !ok || !got.Equal(stack) {
		t.Fatalf("the test's tree for %q has the stack %q", text, got)
	}
	return built
}

// Server is a Debian server as it comes, with an uplink of 1 Gbit/s.
func Server(t testing.TB) host.Facts {
	return host.Facts{
		Kernel: "6.12.107", Admin: true, Memory: 4 << 30, Uplink: "eth0",
		Links: []host.Link{
			{Index: 1, Name: "lo", Loopback: true, Up: true, MTU: 65536, TxQueues: 1, Tree: Tree(t, "noqueue", 1)},
			{Index: 2, Name: "eth0", Up: true, MTU: 1500, Speed: 1e9, TxQueues: 1, Tree: Tree(t, "fq_codel", 1)},
			{Index: 3, Name: "eth1", MTU: 1500, TxQueues: 1, Tree: Tree(t, "pfifo_fast", 1)},
		},
		Sysctls: map[string]host.Sysctl{
			"net.core.default_qdisc":          {Value: "fq_codel"},
			"net.core.rmem_max":               {Value: "212992"},
			"net.core.wmem_max":               {Value: "212992"},
			"net.core.somaxconn":              {Value: "4096"},
			"net.ipv4.tcp_congestion_control": {Value: "cubic"},
			"net.ipv4.tcp_ecn":                {Value: "2"},
			"net.ipv4.tcp_fastopen":           {Value: "1"},
			"net.ipv4.tcp_max_syn_backlog":    {Value: "512"},
			"net.ipv4.tcp_notsent_lowat":      {Value: "4294967295"},
			"net.ipv4.tcp_recovery":           {Value: "1"},
			"net.ipv4.tcp_rmem":               {Value: "4096 131072 6291456"},
			"net.ipv4.tcp_wmem":               {Value: "4096 16384 4194304"},
			"net.mptcp.enabled":               {Value: "1"},
		},
		Congestion: host.Congestion{Available: []string{"cubic", "reno"}, Loadable: []string{"bbr", "dctcp"}},
		Qdiscs: map[string]host.Support{
			"cake": host.Yes, "cake_mq": host.No, "dualpi2": host.No, "fq": host.Yes, "fq_codel": host.Yes,
			"htb": host.Yes, "mq": host.Yes,
		},
	}
}

// With changes the facts of a server.
func With(t testing.TB, edits ...func(*host.Facts)) host.Facts {
	f := Server(t)
	for _, edit := range edits {
		edit(&f)
	}
	return f
}

// Kernel has these kinds of queueing disciplines and no others.
func Kernel(has ...string) func(*host.Facts) {
	return func(f *host.Facts) {
		for kind := range f.Qdiscs {
			f.Qdiscs[kind] = host.No
		}
		for _, kind := range has {
			f.Qdiscs[kind] = host.Yes
		}
	}
}

// BPFDualPI2 takes Weir's own.
func BPFDualPI2(f *host.Facts) {
	f.Qdiscs = maps.Clone(f.Qdiscs)
	f.Qdiscs[qdisc.BPF] = host.Yes
}

// BPFShaper takes Weir's own.
func BPFShaper(f *host.Facts) {
	f.Qdiscs = maps.Clone(f.Qdiscs)
	f.Qdiscs[qdisc.BPFShaping] = host.Yes
}

// Sysctl sets one, by its name without "net.".
func Sysctl(name, value string) func(*host.Facts) {
	return func(f *host.Facts) { f.Sysctls["net."+name] = host.Sysctl{Value: value} }
}

// Uplink has this stack at the root, and so many queues.
func Uplink(t testing.TB, text string, queues int) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Links[1].Tree, f.Links[1].TxQueues = Tree(t, text, queues), queues
	}
}

// Traffic is what a host has seen of it: bytes of the uplink, received and sent, and packets of IP, in and forwarded.
func Traffic(rx, tx, in, forwarded float64) func(*host.Facts) {
	return func(f *host.Facts) {
		for i := range f.Links {
			if f.Links[i].Name == f.Uplink {
				f.Links[i].RxBytes, f.Links[i].TxBytes = uint64(rx), uint64(tx)
			}
		}
		f.Passing = host.Passing{IPIn: uint64(in), IPForwarded: uint64(forwarded), TCPIn: 100, TCPOut: 100,
			UDPIn: 250, UDPOut: 250}
	}
}

// Edits make a host of a server.
type Edits = []func(*host.Facts)

// Device adds a link that is up, with bytes received and sent.
func Device(kind, name string, rx, tx float64, edits ...func(*host.Link)) func(*host.Facts) {
	return func(f *host.Facts) {
		l := host.Link{Index: len(f.Links) + 1, Name: name, Kind: kind, Up: true, MTU: 1420, RxBytes: uint64(rx),
			TxBytes: uint64(tx)}
		for _, edit := range edits {
			edit(&l)
		}
		f.Links = append(f.Links, l)
	}
}

// Runs adds programs of a kind that carries for others.
func Runs(kind string, names ...string) func(*host.Facts) {
	return func(f *host.Facts) {
		for _, name := range names {
			f.Relays = append(f.Relays, host.Relay{Name: name, Kind: kind, Processes: 1})
		}
	}
}

// TCP sets how many segments came for sockets.
func TCP(in float64) func(*host.Facts) { return func(f *host.Facts) { f.Passing.TCPIn = uint64(in) } }

// Pairs sets the share by which accepted connections carry what dialled ones do.
func Pairs(share float64) func(*host.Facts) {
	return func(f *host.Facts) {
		if f.Deep == nil {
			f.Deep = &host.Deep{}
		}
		f.Deep.Sockets.Passed = units.Share(share)
	}
}

// What a relay looked like from inside it, five seconds long: four downloads and an upload over one card of 50 Mbit/s.
const second5 = 5 * 1e6 / 8 // bytes, of one Mbit/s

// MeasuredNAT is a relay that translates addresses.
func MeasuredNAT(f *host.Facts) { Traffic(46.6*second5, 46.5*second5, 28946, 28596)(f) }

// MeasuredWireGuard is one by WireGuard, in the kernel.
func MeasuredWireGuard(f *host.Facts) {
	Traffic(46.5*second5, 46.5*second5, 43157, 28059)(f)
	f.Passing.UDPIn, f.Passing.UDPOut = 14998, 250
	Device("wireguard", "wg0", 23.3*second5, 22.6*second5, func(l *host.Link) { l.RxPkts = 14748 })(f)
}

// MeasuredTun is one by a program's tunnel.
func MeasuredTun(f *host.Facts) {
	Traffic(46.6*second5, 46.5*second5, 43738, 29533)(f)
	f.Passing.UDPIn, f.Passing.UDPOut = 14089, 15708
	Device("tuntap", "tun0", 17.8*second5, 26.6*second5, func(l *host.Link) { l.RxPkts, l.TxQLen = 13839, 500 })(f)
}

// MeasuredProxy is one by a proxy.
func MeasuredProxy(f *host.Facts) {
	Traffic(50.0*second5, 41.3*second5, 29333, 0)(f)
	f.Passing.TCPIn, f.Passing.TCPOut = 29082, 18956
}
