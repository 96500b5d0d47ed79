// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
	"weir/internal/units"
)

func forwards(f *host.Facts) { f.Sysctls["net.ipv4.ip_forward"] = host.Sysctl{Value: "1"} }

func bringsBBR(f *host.Facts) {
	f.Congestion.Brings, f.Objects = "89abcdef", map[string]host.Support{bbr.Name: host.Yes}
}

// hasBBR has the kernel have bpf_bbr in a version; "": built in.
func hasBBR(version string) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Congestion.Registered = version
		f.Congestion.Available = append(slices.Clone(f.Congestion.Available), bbr.Name)
	}
}

func tunnel(name, kind string, ports ...string) func(*host.Facts) {
	return func(f *host.Facts) {
		f.Admin = true
		f.Links = append(slices.Clone(f.Links), host.Link{Index: 8, Name: name, Kind: kind, Up: true, MTU: 1420,
			TxQueues: 1, Ports: ports})
	}
}

// apply is a host on which a plan was carried out.
func apply(t testing.TB, p Plan, f host.Facts) host.Facts {
	f.Sysctls, f.Links = maps.Clone(f.Sysctls), slices.Clone(f.Links)
	for _, c := range p.Changes {
		switch c.Kind {
		case kernel.Root, kernel.Ingress, kernel.Control, kernel.Sysctl, kernel.File:
		default:
			t.Fatalf("%s: apply cannot carry out a change of kind %s: add a case to it", c.Target, c.Kind)
		}
		switch want := c.New.(type) {
		case kernel.Incoming:
			arriving := want.Arriving
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == c.Name })
			f.Links[i].Redirect = qdisc.IFB
			for _, o := range arriving.Outer {
				f.Links[i].Passes = append(f.Links[i].Passes, o.String())
			}
			for k := range f.Links {
				if slices.Contains(arriving.Tunnels, f.Links[k].Name) {
					f.Links[k].Redirect = qdisc.IFB
				}
			}
			f.Links[i].Tree.Qdiscs = append(slices.Clone(f.Links[i].Tree.Qdiscs), ingress("ingress"))
			f.Links = append(f.Links, host.Link{Index: 9, Name: qdisc.IFB, Kind: "ifb", Up: true, MTU: 1500,
				TxQueues: 1, Tree: tree(t, arriving.Stack.String(), 1)})
		case kernel.Queue:
			i := slices.IndexFunc(f.Links, func(l host.Link) bool { return l.Name == c.Name })
			f.Links[i].Tree = tree(t, want.String(), f.Links[i].TxQueues)
		case kernel.Version:
			f.Congestion.Registered = want.String()
			f.Congestion.Available = append(slices.Clone(f.Congestion.Available), c.Name)
		case kernel.Setting:
			f.Sysctls[c.Name] = host.Sysctl{Value: string(want)}
		}
	}
	return f
}

func ingress(kind string) qdisc.Qdisc {
	return qdisc.Qdisc{Kind: kind, Handle: 0xFFFF0000, Parent: qdisc.Ingress}
}

func summary(p Plan) string {
	var lines []string
	for _, c := range p.Changes {
		name := cmp.Or(map[kernel.Kind]string{kernel.Root: "root", kernel.Ingress: "ingress",
			kernel.Sysctl: c.Name[strings.LastIndex(c.Name, ".")+1:]}[c.Kind], c.Name)
		lines = append(lines, name+": "+c.New.String())
	}
	return strings.Join(lines, "\n")
}

func ms(n int) units.Duration { return units.Duration(time.Duration(n) * time.Millisecond) }

// planned is a goal on a host, and its plan.
type planned struct {
	name  string
	goal  Goal
	facts host.Facts
	want  string // changes
	notes string // a word of each note that there must be
}

func ruled(t *testing.T) []planned {
	const lowat = "tcp_notsent_lowat: 131072"
	const cake50 = "root: cake bandwidth 49.875mbit besteffort dual-dsthost"
	const wide10 = "\ntcp_wmem: 4096 16384 5242880"
	const wide25 = "\ntcp_wmem: 4096 16384 12582912\ntcp_rmem: 4096 131072 12582912"
	const own50 = cake50 + " rtt 2s memlimit 4mb"
	unknownSpeed := func(f *host.Facts) { f.Links[1].Speed = 0 }
	return []planned{
		{
			name: "a narrow link", goal: Goal{Rate: 50e6}, facts: server(t),
			// 4 × 50 Mbit/s × 200 ms = 5 MB: above the default maximum for sending, below that for receiving.
			want: own50 + "\n" + lowat + "\ntcp_wmem: 4096 16384 5242880",
		},
		{
			name: "a narrow, short link", goal: Goal{Rate: 50e6, RTT: ms(48)}, facts: server(t),
			want: own50 + "\n" + lowat,
		},
		{
			name: "weir's own congestion control", goal: Goal{Rate: 50e6, RTT: ms(48), CC: "bpf_bbr"},
			facts: with(t, bringsBBR),
			want:  own50 + "\nbpf_bbr: 89abcdef\ntcp_congestion_control: bpf_bbr\n" + lowat,
		},
		{
			name: "weir's own congestion control, of another version",
			goal: Goal{Rate: 50e6, RTT: ms(48), CC: "bpf_bbr"},
			facts: with(t, bringsBBR, hasBBR("0123abcd"),
				func(f *host.Facts) { f.Sysctls[congestionControl] = host.Sysctl{Value: bbr.Name} }),
			want: own50 + "\nbpf_bbr: 89abcdef\n" + lowat,
		},
		{
			name: "weir's own congestion control, there already", goal: Goal{Rate: 50e6, RTT: ms(48), CC: "bpf_bbr"},
			facts: with(t, bringsBBR, hasBBR("89abcdef")),
			want:  own50 + "\ntcp_congestion_control: bpf_bbr\n" + lowat,
		},
		{
			name: "bpf_bbr that is somebody else's", goal: Goal{Rate: 50e6, RTT: ms(48), CC: "bpf_bbr"},
			facts: with(t, hasBBR(""), func(f *host.Facts) { f.Admin = true }),
			want:  own50 + "\ntcp_congestion_control: bpf_bbr\n" + lowat,
		},
		{
			name: "no rate, and a kernel that takes bpf_bbr", facts: with(t, bringsBBR),
			want: "bpf_bbr: 89abcdef\ntcp_congestion_control: bpf_bbr\n" + lowat, notes: "If the provider",
		},
		{
			name: "no rate, and none can be chosen", facts: with(t, bringsBBR, func(f *host.Facts) {
				f.Sysctls[congestionControl] = host.Sysctl{Value: "cubic", ReadOnly: true}
			}), want: lowat, notes: congestionControl + " cannot be written here: cubic stays, bpf_bbr wanted",
		},
		{
			name: "no rate, and bpf_bbr is in force", facts: with(t, bringsBBR, hasBBR("89abcdef"),
				func(f *host.Facts) { f.Sysctls[congestionControl] = host.Sysctl{Value: bbr.Name} }),
			want: lowat,
		},
		{
			name: "no rate, and bpf_bbr of an earlier version", facts: with(t, bringsBBR, hasBBR("0123abcd"),
				func(f *host.Facts) { f.Sysctls[congestionControl] = host.Sysctl{Value: bbr.Name} }),
			want: "bpf_bbr: 89abcdef\n" + lowat,
		},
		{
			name: "somebody's ifb", goal: Goal{Rate: 50e6, RTT: ms(48)},
			facts: with(t, func(f *host.Facts) {
				f.Links[1].Tree.Qdiscs = append(slices.Clone(f.Links[1].Tree.Qdiscs), ingress("ingress"))
				f.Links[1].Redirect = "ifb4eth0"
				f.Links = append(slices.Clone(f.Links),
					host.Link{Name: "ifb4eth0", Kind: "ifb", Tree: tree(t, "cake bandwidth 20mbit", 1)})
			}),
			want: own50 + "\n" + lowat,
			notes: "eth0 what comes in is shaped already, by cake on ifb4eth0, to 20mbit: weir did not make that, " +
				"and leaves it",
		},
		{
			name: "the link is down", goal: Goal{Rate: 50e6, RTT: ms(48)},
			facts: with(t, func(f *host.Facts) { f.Links[1].Up = false }),
			want:  own50 + "\n" + lowat, notes: "eth0 the link is down: nothing leaves by it now",
		},
		{
			name: "no rate, and a kernel that takes no bpf_bbr", facts: server(t),
			want: lowat, notes: "cubic stays: BBR helps where packets are lost",
		},
		{
			name: "no rate, and only root can tell", facts: with(t, func(f *host.Facts) {
				f.Admin, f.Objects = false, map[string]host.Support{bbr.Name: host.Unknown}
			}),
			want: lowat, notes: "root can tell: sudo weir plan",
		},
		{
			name: "no rate, and dctcp was chosen", facts: with(t, bringsBBR, func(f *host.Facts) {
				f.Sysctls[congestionControl] = host.Sysctl{Value: "dctcp"}
			}),
			want: lowat, notes: "dctcp stays",
		},
		{
			name: "no rate, and cubic is to stay", goal: Goal{CC: "keep"}, facts: with(t, bringsBBR),
			want: lowat, notes: "cubic, kept as asked",
		},
		{
			name: "the link's own speed", goal: Goal{Rate: 1e9, RTT: ms(10)}, facts: with(t, bringsBBR),
			want: lowat + "\ntcp_wmem: 4096 16384 5242880", notes: "cubic stays",
		},
		{
			name: "a rate that is to be found", goal: Goal{Follow: Auto}, facts: with(t, bringsBBR),
			want: lowat, notes: "cubic stays",
		},
		{
			name: "a router whose rate is not known", goal: Goal{Role: "relay", Carries: "route"},
			facts: with(t, bringsBBR, forwards), want: lowat, notes: "cubic stays",
		},
		{
			name: "a proxy whose rate is not known", goal: Goal{Role: "relay", Carries: "proxy"},
			facts: with(t, bringsBBR), want: "bpf_bbr: 89abcdef\ntcp_congestion_control: bpf_bbr\n" + lowat,
		},
		{
			name: "a QUIC server whose rate is not known", goal: Goal{Serves: "udp"}, facts: with(t, bringsBBR),
			want: lowat, notes: "cubic stays",
		},
		{
			name: "loss, and a kernel that takes bpf_bbr", goal: Goal{Rate: 50e6, RTT: ms(48), Loss: 0.02},
			facts: with(t, bringsBBR),
			want:  own50 + "\nbpf_bbr: 89abcdef\ntcp_congestion_control: bpf_bbr\n" + lowat,
		},
		{
			name: "a host that serves UDP", goal: Goal{Rate: 50e6, Serves: "udp", RTT: ms(10)}, facts: server(t),
			want: cake50 + "\n" + lowat,
		},
		{
			name: "a host with containers", goal: Goal{Rate: 50e6, RTT: ms(10)}, facts: with(t, forwards),
			want: cake50 + " rtt 233ms\n" + lowat,
		},
		{
			name: "a host with containers on a narrow link", goal: Goal{Rate: 7e6, RTT: ms(31)},
			facts: with(t, forwards),
			want:  "root: cake bandwidth 6.982496mbit besteffort dual-dsthost rtt 1.661s\n" + lowat,
		},
		{
			name: "a card of a machine's own", goal: Goal{Rate: 50e6, RTT: ms(10)}, facts: with(t, driver("igb")),
			want: "root: cake bandwidth 49.875mbit besteffort dual-dsthost overhead 38 mpu 84 rtt 2s memlimit 4mb\n" +
				lowat,
			notes: "38 bytes more",
		},
		{
			name: "a virtual machine's card", goal: Goal{Rate: 50e6, RTT: ms(10)}, facts: with(t, driver("virtio_net")),
			want: own50 + "\n" + lowat,
		},
		{
			name: "a framing that is told", goal: Goal{Rate: 50e6, RTT: ms(10),
				Overhead: qdisc.Framing{ATM: "atm", Overhead: 32}},
			facts: with(t, driver("igb")),
			want: "root: cake bandwidth 49.875mbit besteffort atm dual-dsthost overhead 32 rtt 2s memlimit 4mb\n" +
				lowat,
		},
		{
			name: "PPP", goal: Goal{Rate: 50e6, RTT: ms(10)},
			facts: with(t, func(f *host.Facts) { f.Links[1].Kind = "ppp" }),
			want:  "root: cake bandwidth 49.875mbit besteffort dual-dsthost overhead 44 rtt 2s memlimit 4mb\n" + lowat,
		},
		{
			name: "a framing without cake", goal: Goal{Rate: 50e6, RTT: ms(10), Overhead: qdisc.Framing{ATM: "noatm",
				Overhead: 38, MPU: 84}},
			facts: with(t, kernelWith("htb", "fq_codel")),
			want:  "root: htb rate 49.096mbit mpu 84 overhead 24 | fq_codel\n" + lowat,
		},
		{
			name: "no cake on a long path", goal: Goal{Rate: 50e6, RTT: ms(48)},
			facts: with(t, kernelWith("htb", "fq_codel")),
			want:  "root: htb rate 49.875mbit | fq_codel interval 480ms target 24ms\n" + lowat,
		},
		{
			name: "a satellite", goal: Goal{Rate: 10e6, RTT: ms(600)}, facts: server(t),
			want: "root: cake bandwidth 9.975mbit besteffort dual-dsthost rtt 2s memlimit 4mb\n" + lowat,
		},
		{
			name: "a wide, long link", goal: Goal{Rate: 500e6, RTT: ms(100)}, facts: server(t),
			want: "root: cake bandwidth 498.75mbit besteffort dual-dsthost rtt 1s\n" + lowat +
				"\ntcp_wmem: 4096 16384 25165824\ntcp_rmem: 4096 131072 25165824",
		},
		{
			name: "buffers stay within memory", goal: Goal{Rate: 500e6, RTT: ms(100)},
			facts: with(t, func(f *host.Facts) { f.Memory = 128 << 20 }),
			want: "root: cake bandwidth 498.75mbit besteffort dual-dsthost rtt 1s\n" + lowat +
				"\ntcp_wmem: 4096 16384 8388608\ntcp_rmem: 4096 131072 8388608",
			notes: "sixteenth",
		},
		{
			name: "several queues", goal: Goal{Rate: 50e6, RTT: ms(10)}, facts: with(t, uplink(t, "mq | fq_codel", 4)),
			want: own50 + "\n" + lowat,
		},
		{
			name: "several queues of a fast link", goal: Goal{Rate: 5e9, RTT: ms(1), CC: "cubic"},
			facts: with(t, uplink(t, "mq | fq_codel", 4), unknownSpeed),
			want:  "root: cake bandwidth 4.9875gbit besteffort dual-dsthost rtt 500ms\n" + lowat, notes: "no cake_mq",
		},
		{
			name: "several queues and cake_mq", goal: Goal{Rate: 50e6, RTT: ms(10)},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4)),
			want:  own50 + "\n" + lowat,
		},
		{
			name: "several queues of a fast link, and a cake_mq with a fault",
			goal: Goal{Rate: 5e9, RTT: ms(1), CC: "cubic"},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed,
				func(f *host.Facts) { f.Kernel = "7.1.2" }),
			want:  "root: cake bandwidth 4.9875gbit besteffort dual-dsthost rtt 500ms\n" + lowat,
			notes: "cake_mq of Linux 7.1.2 has a known fault",
		},
		{
			name: "several queues of a fast link and cake_mq", goal: Goal{Rate: 5e9, RTT: ms(1), CC: "cubic"},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed),
			want:  "root: cake_mq bandwidth 4.9875gbit besteffort dual-dsthost rtt 500ms\n" + lowat,
			notes: "is fair by itself",
		},
		{
			name: "one CAKE carries a fast link, as was measured", goal: Goal{Rate: 2.5e9, RTT: ms(1), CC: "cubic",
				OneCAKE: 4e9},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed),
			want:  "root: cake bandwidth 2.49375gbit besteffort dual-dsthost rtt 500ms\n" + lowat,
		},
		{
			name: "whole superpackets of a fast link", goal: Goal{Rate: 10e9, RTT: ms(1), CC: "cubic", OneCAKE: 5e9},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed),
			want:  "root: cake bandwidth 9.975gbit besteffort dual-dsthost rtt 500ms no-split-gso\n" + lowat + wide10,
			notes: "leaves them whole",
		},
		{
			name: "whole superpackets on one queue", goal: Goal{Rate: 2.5e9, RTT: ms(1), CC: "cubic", OneCAKE: 2e9},
			facts: with(t, kernelWith("cake"), unknownSpeed),
			want:  "root: cake bandwidth 2.49375gbit besteffort dual-dsthost rtt 500ms no-split-gso\n" + lowat,
		},
		{
			name:  "a fast link that forwards, and cake_mq",
			goal:  Goal{Rate: 10e9, RTT: ms(1), CC: "cubic", OneCAKE: 4e9},
			facts: with(t, kernelWith("cake", "cake_mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed, forwards),
			want:  "root: cake_mq bandwidth 9.975gbit besteffort dual-dsthost\n" + lowat + wide10,
			notes: "is fair by itself",
		},
		{
			name: "a fast link that forwards, without cake_mq", goal: Goal{Rate: 10e9, RTT: ms(1), CC: "cubic",
				OneCAKE: 4e9},
			facts: with(t, kernelWith("cake", "htb", "fq", "mq"), uplink(t, "mq | fq_codel", 4), unknownSpeed,
				forwards),
			want:  "root: mq | htb rate 2.49375gbit | fq\n" + lowat + wide10,
			notes: "no connection gets more than 2.49375gbit",
		},
		{
			name: "a fast link that forwards, with fq_codel alone", goal: Goal{Rate: 25e9, RTT: ms(1), CC: "cubic",
				OneCAKE: 4e9},
			facts: with(t, kernelWith("cake", "cake_mq", "htb", "fq_codel", "mq"), uplink(t, "mq | fq_codel", 4),
				unknownSpeed,
				forwards),
			want: "root: mq | htb rate 6.234375gbit | fq_codel\n" + lowat + wide25,
		},
		{
			name:  "a fast link that nothing here carries",
			goal:  Goal{Rate: 25e9, RTT: ms(1), CC: "cubic", OneCAKE: 3e9},
			facts: with(t, kernelWith("cake", "htb", "fq"), unknownSpeed),
			want:  lowat + wide25, notes: "no shaper: one CAKE carries 3gbit here",
		},
		{
			name: "no cake", goal: Goal{Rate: 50e6, RTT: ms(10)}, facts: with(t, kernelWith("htb", "fq_codel")),
			want: "root: htb rate 49.875mbit | fq_codel\n" + lowat,
		},
		{
			name: "L4S", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, kernelWith("cake", "htb", "dualpi2")),
			want:  "root: htb rate 49.875mbit | dualpi2\n" + lowat,
		},
		{
			name: "L4S without dualpi2", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"}, facts: server(t),
			want: own50 + "\n" + lowat, notes: "no dualpi2 to use, nor takes weir's own. Without",
		},
		{
			name: "L4S without dualpi2, and why not in BPF", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t,
				func(f *host.Facts) { f.Lacks = map[string]string{"bpf_dualpi2": "the kernel has no BPF qdiscs"} }),
			want: own50 + "\n" + lowat, notes: "nor takes weir's own: the kernel has no BPF qdiscs. Without",
		},
		{
			name: "L4S, by whom the kernel does not tell", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, func(f *host.Facts) { f.Admin, f.Qdiscs[qdisc.BPF] = false, host.Unknown }),
			want:  own50 + "\n" + lowat, notes: "only root can tell: sudo weir plan",
		},
		{
			name: "L4S in BPF", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, kernelWith("cake", "htb"), bpfDualPI2),
			want:  "root: bpf_dualpi2 rate 49.875mbit\n" + lowat, notes: "marks when packets come",
		},
		{
			name:  "L4S in BPF without another shaper, on several queues",
			goal:  Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, kernelWith("fq"), bpfDualPI2, uplink(t, "mq | fq", 4)),
			want:  "root: bpf_dualpi2 rate 49.875mbit\n" + lowat, notes: "all 4 queues go through the one lock",
		},
		{
			name: "L4S in BPF, forwarding", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, kernelWith("cake", "htb"), bpfDualPI2, sysctl("ipv4.ip_forward", "1")),
			want:  "root: bpf_dualpi2 rate 49.875mbit\n" + lowat, notes: "ethtool -K DEV gro off",
		},
		{
			name: "L4S in BPF, serving UDP", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s", Serves: "udp"},
			facts: with(t, kernelWith("cake", "htb"), bpfDualPI2),
			want:  "root: bpf_dualpi2 rate 49.875mbit\n" + lowat, notes: "several packets in one piece",
		},
		{
			name: "L4S, and the kernel's own first", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s"},
			facts: with(t, kernelWith("htb", "dualpi2"), bpfDualPI2),
			want:  "root: htb rate 49.875mbit | dualpi2\n" + lowat,
		},
		{
			name: "never BBR under DualPI2 in BPF", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s", Loss: 0.1},
			facts: with(t, bpfDualPI2, sysctl("ipv4.tcp_congestion_control", "bbr")),
			want:  "root: bpf_dualpi2 rate 49.875mbit\ntcp_congestion_control: cubic\n" + lowat,
		},
		{
			name: "DualPI2 in BPF without a rate", goal: Goal{Qdisc: "bpf_dualpi2", Loss: 0.1},
			facts: with(t, bpfDualPI2),
			want:  "root: bpf_dualpi2\ntcp_congestion_control: bbr\n" + lowat, notes: "bpf_dualpi2 has no rate",
		},
		{
			name: "a rate and a weight for each client", goal: Goal{Rate: 50e6, RTT: ms(10), CC: "cubic",
				Client: "10.8.0.0/24=weight:2,10.8.0.7=20mbit"},
			facts: with(t, kernelWith("cake", "fq"), bpfShaper),
			want: "root: bpf_shaper rate 50mbit clients 10.8.0.0/24=weight:2,10.8.0.7=20mbit | fq flow_limit 10000\n" +
				lowat,
		},
		{
			name: "a rate for each client both ways, that moves", goal: Goal{Rate: 50e6, Ingress: 20e6, RTT: ms(10),
				CC: "cubic", Client: "10.8.0.7=5mbit,fd00::7=5mbit", Follow: "20mbit..50mbit"},
			facts: with(t, kernelWith("fq"), bpfShaper),
			want: "root: bpf_shaper rate 50mbit prefix6 128 clients 10.8.0.7=5mbit,fd00::7=5mbit | fq flow_limit " +
				"10000\ningress: bpf_shaper rate 17mbit srchost prefix6 128 clients 10.8.0.7=5mbit,fd00::7=5mbit | " +
				"fq flow_limit 10000\n" + lowat,
		},
		{
			name: "a shaper on several queues", goal: Goal{Rate: 10e9, RTT: ms(1), CC: "cubic", FairTo: "src"},
			facts: with(t, kernelWith("cake", "cake_mq", "fq", "mq"), bpfShaper, uplink(t, "mq | fq_codel", 4),
				unknownSpeed),
			want: "root: bpf_shaper rate 10gbit srchost | mq | fq limit 165125 flow_limit 165125\n" + lowat + wide10,
		},
		{
			name:  "what one CAKE was seen to carry",
			goal:  Goal{Rate: 3e9, RTT: ms(1), CC: "cubic", OneCAKE: 5e9},
			facts: with(t, kernelWith("cake", "fq"), bpfShaper, unknownSpeed),
			want:  "root: cake bandwidth 2.9925gbit besteffort dual-dsthost rtt 500ms\n" + lowat,
		},
		{
			name: "a shaper without CAKE", goal: Goal{Rate: 50e6, RTT: ms(10), CC: "cubic", Follow: Auto},
			facts: with(t, kernelWith("fq", "htb", "fq_codel"), bpfShaper),
			want:  "root: bpf_shaper rate 50mbit | fq flow_limit 10000\n" + lowat,
		},
		{
			name: "without CAKE and behind a translation", goal: Goal{Rate: 50e6, RTT: ms(10), Role: "relay",
				Carries: "route", NAT: true},
			facts: with(t, kernelWith("fq", "htb", "fq_codel"), bpfShaper),
			want:  "root: htb rate 49.875mbit | fq_codel\n" + lowat + "\ntcp_ecn: 1",
		},
		{
			name: "without CAKE, as nobody but root can tell", goal: Goal{Rate: 50e6, RTT: ms(10), CC: "cubic"},
			facts: with(t, kernelWith("fq", "htb", "fq_codel"), func(f *host.Facts) {
				f.Admin, f.Qdiscs[qdisc.BPFShaping] = false, host.Unknown
			}),
			want: "root: htb rate 49.875mbit | fq_codel\n" + lowat, notes: "only root can tell: sudo weir plan",
		},
		{
			name: "a rate for each client, on several queues, by who sends",
			goal: Goal{Rate: 2e9, RTT: ms(1), CC: "cubic",
				Client: "10.8.0.0/24=weight:2", ClientDefault: 50e6, FairTo: "src"},
			facts: with(t, kernelWith("cake", "fq", "mq"), bpfShaper, uplink(t, "mq | fq_codel", 4), unknownSpeed),
			want: "root: bpf_shaper rate 2gbit srchost clients " +
				"0.0.0.0/0=50mbit,10.8.0.0/24=50mbit/weight:2,::/0=50mbit | mq | fq limit 33025 flow_limit 33025\n" +
				lowat,
		},
		{
			name: "a queue and nothing else", goal: Goal{Qdisc: "bpf_dualpi2 rate 50mbit", Only: true},
			facts: with(t, bpfDualPI2, sysctl("ipv4.tcp_rmem", "4096 16384 4194304"),
				func(f *host.Facts) { f.Init, f.Files = host.Systemd, map[string]host.File{} }),
			want: "root: bpf_dualpi2 rate 50mbit",
		},
		{
			name: "never BBR under DualPI2", goal: Goal{Rate: 50e6, RTT: ms(10), Prefer: "l4s", Loss: 0.1},
			facts: with(t, kernelWith("htb", "dualpi2"), sysctl("ipv4.tcp_congestion_control", "bbr")),
			want:  "root: htb rate 49.875mbit | dualpi2\ntcp_congestion_control: cubic\n" + lowat,
		},
		{
			name: "loss", goal: Goal{Loss: 0.1}, facts: server(t),
			want: "tcp_congestion_control: bbr\n" + lowat, notes: "no rate",
		},
		{
			name: "loss, shaped: buffers for BBR", goal: Goal{Loss: 0.01, Rate: 50e6}, facts: server(t),
			want: own50 + "\ntcp_congestion_control: bbr\n" + lowat + "\ntcp_wmem: 4096 16384 8388608",
		},
		{
			name: "little loss", goal: Goal{Loss: 0.001, CC: "auto"}, facts: server(t),
			want: lowat, notes: "cubic stays",
		},
		{
			name: "a little loss on a long path", goal: Goal{Loss: 0.003, Rate: 23e6, RTT: ms(210)}, facts: server(t),
			want: "root: cake bandwidth 22.942496mbit besteffort dual-dsthost rtt 2s memlimit " +
				"4mb\ntcp_congestion_control: bbr\n" +
				lowat,
		},
		{
			name: "a little loss on a short path", goal: Goal{Loss: 0.003, Rate: 5e6, RTT: ms(10)}, facts: server(t),
			want: "root: cake bandwidth 4.987496mbit besteffort dual-dsthost rtt 2s memlimit 4mb\n" + lowat,
		},
		{
			name: "loss and no bbr", goal: Goal{Loss: 0.1},
			facts: with(t, func(f *host.Facts) { f.Congestion.Loadable = nil }),
			want:  lowat, notes: "no bbr",
		},
		{name: "loss, keep", goal: Goal{Loss: 0.1, CC: "keep"}, facts: server(t), want: lowat, notes: "kept as asked"},
		{name: "a congestion control", goal: Goal{CC: "dctcp"}, facts: server(t),
			want: "tcp_congestion_control: dctcp\n" + lowat},
		{name: "no rate, a queue that is managed", facts: server(t), want: lowat, notes: "tell it with --rate"},
		{
			name: "no rate, a plain FIFO", facts: with(t, uplink(t, "pfifo_fast", 1)),
			want: "root: fq_codel\n" + lowat, notes: "tell it with --rate",
		},
		{
			name: "no rate, plain FIFOs", facts: with(t, uplink(t, "mq | pfifo_fast", 4)),
			want: "root: mq | fq\n" + lowat,
		},
		{
			name: "no rate, a plain FIFO, no AQM", facts: with(t, uplink(t, "pfifo_fast", 1), kernelWith("htb")),
			want: lowat, notes: "no fq_codel",
		},
		{
			name: "no rate, a virtual device", facts: with(t, uplink(t, "noqueue", 1),
				func(f *host.Facts) { f.Links[1].Kind = "veth" }),
			want: lowat,
		},
		{
			name: "no rate, the seed's", facts: with(t, uplink(t, "dualpi2", 1)),
			want: lowat, notes: "dualpi2 has no rate",
		},
		{
			name: "the link's own rate", goal: Goal{Rate: 1e9, RTT: ms(10)}, facts: server(t),
			want: lowat + "\ntcp_wmem: 4096 16384 5242880", notes: "the device is the limit",
		},
		{
			name: "a router", goal: Goal{Rate: 50e6, RTT: ms(10), Role: "relay", Carries: "route"}, facts: server(t),
			want: cake50 + " rtt 233ms\n" + lowat + "\ntcp_ecn: 1", notes: "queues at the provider as before",
		},
		{
			name: "a router with NAT", goal: Goal{Rate: 50e6, RTT: ms(10), Role: "relay", Carries: "route", NAT: true,
				FairTo: "src"}, facts: server(t),
			want:  "root: cake bandwidth 49.875mbit besteffort dual-srchost rtt 233ms nat\n" + lowat + "\ntcp_ecn: 1",
			notes: "shared evenly",
		},
		{
			name: "a router with BBR asks for no marks", goal: Goal{Rate: 50e6, RTT: ms(10), Role: "relay",
				Carries: "route", CC: "bbr"}, facts: server(t),
			want: cake50 + " rtt 233ms\ntcp_congestion_control: bbr\n" + lowat,
		},
		{
			name: "a relay that forwards", goal: Goal{Rate: 50e6, Role: "relay", NAT: true}, facts: with(t, forwards),
			want: "root: cake bandwidth 47mbit besteffort dual-dsthost rtt 500ms", notes: "--nat not set",
		},
		{
			name: "a relay that is told a faster way in", goal: Goal{Rate: 50e6, Ingress: 100e6, Role: "relay"},
			facts: with(t, forwards),
			want:  "root: cake bandwidth 49.875mbit besteffort dual-dsthost rtt 500ms",
		},
		{
			name: "a relay that is told a slower way in", goal: Goal{Rate: 100e6, Ingress: 50e6, Role: "relay"},
			facts: with(t, forwards),
			want:  "root: cake bandwidth 47mbit besteffort dual-dsthost rtt 500ms",
		},
		{
			name: "WireGuard", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("wg0", "wireguard")),
			want:  "root: cake bandwidth 46.552mbit besteffort dual-dsthost rtt 500ms",
		},
		{
			name: "WireGuard over IPv6 alone", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("wg0", "wireguard"),
				func(f *host.Facts) { f.Links[1].Addrs = []string{"2001:db8::1/64"} }),
			want: "root: cake bandwidth 45.937mbit besteffort dual-dsthost rtt 500ms",
		},
		{
			name: "a tunnel in user space", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("tun0", "tuntap", "udp/1194")),
			want: "root: cake bandwidth 49.875mbit besteffort dual-dsthost rtt 500ms\n" +
				"ingress: cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress, unpacked tun0 from " +
				"udp/1194",
		},
		{
			name: "a tunnel whose packets nobody knows", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("tun0", "tuntap")),
			want:  "root: cake bandwidth 46.552mbit besteffort dual-dsthost rtt 200ms",
			notes: "incoming traffic is not shaped",
		},
		{
			name: "for who is not root", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("tun0", "tuntap"), func(f *host.Facts) { f.Admin = false }),
			want: "root: cake bandwidth 49.875mbit besteffort dual-dsthost rtt 500ms\n" +
				"ingress: cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress, unpacked tun0 from",
			notes: "only root is told",
		},
		{
			name: "a tunnel that is down", goal: Goal{Rate: 50e6, Role: "relay", Carries: "tunnel"},
			facts: with(t, forwards),
			want: "root: cake bandwidth 49.875mbit besteffort dual-dsthost rtt 500ms\n" +
				"ingress: cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress",
			notes: "no device of it is up",
		},
		{
			name: "a kernel that tells no packets apart", goal: Goal{Rate: 50e6, Role: "relay"},
			facts: with(t, forwards, tunnel("tun0", "tuntap", "udp/1194"), func(f *host.Facts) { f.Unpack = host.No }),
			want:  "root: cake bandwidth 46.552mbit besteffort dual-dsthost rtt 200ms",
			notes: "has not all of cls_flower",
		},
		{
			name: "a proxy", goal: Goal{Rate: 50e6, Role: "relay"}, facts: server(t),
			want: "root: cake bandwidth 49.875mbit besteffort dual-dsthost rtt 500ms\n" +
				"ingress: cake bandwidth 45mbit besteffort dual-dsthost rtt 500ms nat ingress\n" + lowat +
				"\ntcp_wmem: 4096 16384 5242880\ntcp_ecn: 1",
		},
		{
			name: "WireGuard and a proxy", goal: Goal{Rate: 50e6, Role: "relay", RTT: ms(10)},
			facts: with(t, forwards, tunnel("wg0", "wireguard", "udp/51820"),
				func(f *host.Facts) { f.Relays = []host.Relay{{Name: "danted", Kind: host.ProxyProgram}} }),
			want: cake50 + "\ningress: cake bandwidth 45mbit besteffort dual-dsthost nat ingress, unpacked wg0 " +
				"from udp/51820\n" + lowat + "\ntcp_ecn: 1",
		},
		{
			name: "a relay without cake", goal: Goal{Rate: 50e6, Role: "relay", RTT: ms(10)},
			facts: with(t, forwards, kernelWith("htb", "fq_codel")),
			want:  "root: htb rate 47mbit | fq_codel",
		},
		{
			name: "a queue as asked", goal: Goal{Qdisc: "fq"}, facts: server(t), want: "root: fq\n" + lowat,
			notes: "fq has no rate",
		},
		{
			name: "jumbo frames", goal: Goal{Rate: 50e6, RTT: ms(10)},
			facts: with(t, kernelWith("htb", "fq_codel"), func(f *host.Facts) { f.Links[1].MTU = 9000 }),
			want:  "root: htb rate 49.875mbit burst 18028b cburst 18028b quantum 9014 | fq_codel\n" + lowat,
		},
		{
			name: "what a blog post lowered",
			facts: with(t, sysctl("ipv4.tcp_rmem", "4096 16384 4194304"), sysctl("ipv4.tcp_wmem", "4096 8192 16384"),
				sysctl("ipv4.tcp_notsent_lowat", "8192")),
			want: lowat + "\ntcp_wmem: 4096 16384 16384\ntcp_rmem: 4096 131072 4194304",
		},
		{name: "a lowat that is fine", facts: with(t, sysctl("ipv4.tcp_notsent_lowat", "1048576")), want: ""},
		{
			name: "a namespace that has less", goal: Goal{Recipe: "lossy-bbr"},
			facts: with(t, func(f *host.Facts) { delete(f.Sysctls, "net.core.default_qdisc") }),
			want:  "tcp_congestion_control: bbr", notes: "does not exist in this network namespace",
		},
		{
			name: "a namespace that may less", goal: Goal{Recipe: "dualpi2-bbr"},
			facts: with(t, kernelWith("dualpi2"), func(f *host.Facts) {
				f.Sysctls["net.core.rmem_max"] = host.Sysctl{Value: "212992", ReadOnly: true}
				delete(f.Sysctls, "net.core.wmem_max")
				delete(f.Sysctls, "net.core.default_qdisc")
			}),
			want: "root: dualpi2\ntcp_congestion_control: bbr\ntcp_ecn: 1\ntcp_fastopen: 3\ntcp_notsent_lowat: 8192\n" +
				"tcp_rmem: 4096 16384 4194304\nsomaxconn: 2048\ntcp_max_syn_backlog: 2048",
			notes: "cannot be written",
		},
		{
			name: "recipe server-cake", goal: Goal{Recipe: "server-cake", Rate: 2e8}, facts: server(t),
			want: "root: cake bandwidth 199.5mbit besteffort\n" + lowat,
		},
		{
			name: "both ways", goal: Goal{Rate: 50e6, Ingress: 100e6, RTT: ms(48)}, facts: server(t),
			want: own50 + "\ningress: cake bandwidth 85mbit besteffort dual-srchost rtt 480ms ingress\n" +
				lowat,
		},
		{
			name: "what arrives, alone", goal: Goal{Ingress: 100e6, Role: "relay", Carries: "route", NAT: true,
				FairTo: "src"}, facts: with(t, uplink(t, "mq | fq_codel", 4)),
			want: "ingress: cake bandwidth 85mbit besteffort dual-dsthost rtt 500ms nat ingress\n" + lowat,
		},
		{
			name: "what arrives, without cake", goal: Goal{Ingress: 100e6, RTT: ms(10)},
			facts: with(t, kernelWith("htb", "fq_codel")),
			want:  "ingress: htb rate 85mbit | fq_codel\n" + lowat,
		},
		{name: "recipe lossy-bbr", goal: Goal{Recipe: "lossy-bbr"}, facts: server(t),
			want: "default_qdisc: fq\ntcp_congestion_control: bbr"},
	}
}

func TestRules(t *testing.T) {
	for _, c := range ruled(t) {
		t.Run(c.name, func(t *testing.T) {
			p, err := planFor(c.goal, c.facts)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(p); got != c.want {
				t.Errorf("changes:\n%s\nwant:\n%s", got, c.want)
			}
			if c.notes != "" && !strings.Contains(fmt.Sprint(p.Considered), c.notes) {
				t.Errorf("no note has %q: %v", c.notes, p.Considered)
			}
			properties(t, c.goal, c.facts, p)
		})
	}
}

// properties are what holds of every plan.
func properties(t *testing.T, goal Goal, f host.Facts, p Plan) {
	t.Helper()
	seen := map[kernel.Target]bool{}
	for _, c := range p.Changes {
		if c.Reason == "" || c.Evidence == "" {
			t.Errorf("%s has no reason or no evidence: %+v", c.Target, c)
		}
		for _, file := range regexp.MustCompile(`scenarios/[-a-z0-9/]+\.toml`).FindAllString(c.Evidence, -1) {
			if _, err := os.Stat("../../" + file); err != nil {
				t.Errorf("%s: the evidence cannot be repeated: %v", c.Target, err)
			}
		}
		if c.Old.String() == c.New.String() || seen[c.Target] || c.Target.Text().Target() != c.Target {
			t.Errorf("not one change of one setting: %+v", c)
		}
		seen[c.Target] = true
		if before, ok := triple(c.Old.String()); ok && goal.Recipe == "" {
			after, _ := triple(c.New.String())
			for i := range after {
				if after[i] < before[i] {
					t.Errorf("%s is lowered: %s to %s", c.Target, c.Old, c.New)
				}
			}
		}
	}
	again, err := planFor(goal, apply(t, p, f))
	if err != nil || !again.Empty() {
		t.Errorf("carried out, the plan is not empty: %v %v", summary(again), err)
	}
	if same, _ := planFor(goal, f); fmt.Sprint(same) != fmt.Sprint(p) {
		t.Error("the same goal and facts give another plan")
	}
}

// The same, for goals and hosts that nobody thought of.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(50e6), int64(48e6), 0.1, uint8(0), uint8(0), "4096 131072 6291456", "4294967295", uint64(1<<30))
	f.Add(uint64(1e9), int64(0), 0.0, uint8(7), uint8(255), "1 2 3", "-1", uint64(0))
	f.Add(uint64(0), int64(-1), 2.0, uint8(31), uint8(9), "", "x", uint64(1))
	trees := []string{"fq_codel", "pfifo_fast", "mq | pfifo_fast", "noqueue", "dualpi2", "bpf_dualpi2 rate 1mbit",
		"cake bandwidth 1mbit", "htb rate 1mbit | fq_codel"}
	f.Fuzz(func(t *testing.T, rate uint64, rtt int64, loss float64, choices, has uint8, mem, lowat string,
		memory uint64) {
		pick := func(bit uint8, yes string) string {
			if choices&(1<<bit) != 0 {
				return yes
			}
			return ""
		}
		goal := Goal{Rate: units.Rate(rate), RTT: units.Duration(rtt), Loss: units.Share(loss),
			Ingress: units.Rate(rate * uint64(choices>>5&1)),
			Role:    pick(0, "relay"), NAT: choices&3 == 3, Prefer: pick(2, "l4s"), CC: pick(3, "bbr"),
			FairTo: pick(4, "src")}
		text := trees[int(has)%len(trees)]
		facts := with(t, uplink(t, text, 1+int(choices>>6)),
			sysctl("ipv4.tcp_rmem", strings.Join(strings.Fields(mem), " ")),
			sysctl("ipv4.tcp_wmem", strings.Join(strings.Fields(mem), " ")), sysctl("ipv4.tcp_notsent_lowat", lowat))
		facts.Memory = units.Size(memory)
		facts.Links[1].Speed = 0
		for i, kind := range []string{"cake", "cake_mq", "dualpi2", "fq", "fq_codel", "htb", "bpf_dualpi2"} {
			if has&(1<<i) == 0 {
				facts.Qdiscs[kind] = host.No
			} else {
				facts.Qdiscs[kind] = host.Yes
			}
		}
		p, err := planFor(goal, facts)
		if err != nil {
			var refusal *hint.Error
			if !errors.As(err, &refusal) || refusal.What == "" || refusal.Try == "" ||
				strings.Contains(refusal.What+refusal.Try, "\n") {
				t.Errorf("not a refusal of one line, with a hint: %#v", err)
			}
			return
		}
		properties(t, goal, facts, p)
	})
}

func unreadable(f *host.Facts) {
	f.Links[1].Tree = qdisc.Tree{Qdiscs: []qdisc.Qdisc{{Kind: "dualpi2.0a1b2c", Handle: 0x10000, Parent: qdisc.Root}}}
}

func TestRefusals(t *testing.T) {
	ethernet := func(f *host.Facts) {
		for i := range f.Links {
			f.Links[i].MAC = "52:54:00:12:34:56"
		}
	}
	for _, c := range []struct {
		name  string
		goal  Goal
		facts host.Facts
		what  string
		try   string
		usage bool
	}{
		{"no such device", Goal{Dev: "ens3"}, server(t), "ens3: no such device", "there are: eth0, eth1", false},
		{"loopback", Goal{Dev: "lo"}, server(t), "loopback", "eth0", false},
		{"no default route", Goal{}, with(t, func(f *host.Facts) { f.Uplink = "" }), "no default route", "--dev",
			false},
		{"a program's tunnel", Goal{Role: "relay", Carries: "openvpn"}, with(t), "is not known", "--carries tunnel",
			true},
		{"a misspelt tunnel", Goal{Role: "relay", Carries: "wiregard"}, with(t), "is not known", "--carries wireguard",
			true},
		{"a default route of policy routing alone", Goal{}, with(t, func(f *host.Facts) {
			f.Uplink, f.Defaults = "", []host.DefaultRoute{{Dev: "eth0", Table: 100}}
		}), "by eth0 in table 100", "--dev eth0", false},
		{"no device at all", Goal{}, with(t, func(f *host.Facts) { f.Uplink, f.Links = "", nil }), "no default route",
			"has none", false},
		{"above the line", Goal{Rate: 2e9}, server(t), "rate 2gbit is above the speed of eth0, 1gbit", "1gbit or less",
			false},
		{"too slow to reach", Goal{Rate: 1000}, server(t), "too little", "--rate", true},
		{"absurd RTT", Goal{RTT: ms(11000)}, server(t), "RTT 11s", "--rtt", true},
		{"RTT below all", Goal{RTT: 999}, server(t), "RTT", "--rtt", true},
		{"negative RTT", Goal{RTT: -1}, server(t), "RTT", "--rtt", true},
		{"absurd loss", Goal{Loss: 0.9}, server(t), "90%", "--loss", true},
		{"role", Goal{Role: "router"}, server(t), `--role "router"`, "server|relay", true},
		{"side", Goal{FairTo: "both"}, server(t), `--fair-to "both"`, "dst|src", true},
		{"preference", Goal{Prefer: "speed"}, server(t), `--prefer "speed"`, "latency|l4s", true},
		{"recipe", Goal{Recipe: "magic"}, server(t), `--recipe "magic"`, "dualpi2-bbr|lossy-bbr|server-cake", true},
		{"recipe without rate", Goal{Recipe: "server-cake"}, server(t), "none is given", "--rate", true},
		{"recipe and a choice", Goal{Recipe: "lossy-bbr", CC: "cubic"}, server(t), "to the letter", "lossy-bbr", true},
		{"nat on a server", Goal{NAT: true}, server(t), "--nat", "--role relay", true},
		{"qdisc and a choice", Goal{Qdisc: "fq", Prefer: "l4s", Rate: 1e6}, server(t), "as it is written", "--qdisc",
			true},
		{"qdisc unknown", Goal{Qdisc: "cark"}, server(t), "cark", "--qdisc", true},
		{"qdisc option unknown", Goal{Qdisc: "cake bandwith 1mbit"}, server(t), "bandwith", "--qdisc", true},
		{"qdisc that the kernel lacks", Goal{Qdisc: "dualpi2"}, server(t), "has no dualpi2", "--qdisc", false},
		{"a bucket that holds no packet", Goal{Qdisc: "tbf rate 49mbit burst 1500b latency 50ms"}, with(t, ethernet),
			"eth0: tbf with burst 1500b drops what is longer, and a packet has up to 1514b", "burst 1514b or more",
			false},
		{"a bucket at the peak", Goal{Qdisc: "tbf rate 4mbit burst 9kb limit 9kb peakrate 5mbit mtu 1kb"},
			with(t, ethernet), "eth0: tbf with mtu 1kb drops what is longer", "mtu 1514b or more", false},
		{"DualPI2 in BPF that the kernel does not take", Goal{Qdisc: "bpf_dualpi2"},
			with(t, func(f *host.Facts) {
				f.Qdiscs["bpf_dualpi2"], f.Lacks = host.No, map[string]string{"bpf_dualpi2": "requires Linux 6.16"}
			}),
			"has no bpf_dualpi2: requires Linux 6.16", "--qdisc", false},
		{"a queue that cannot be put back", Goal{Qdisc: "fq"}, with(t, unreadable),
			"what is there now could not be put back: dualpi2.0a1b2c is a BPF qdisc", "tc qdisc del dev eth0 root",
			false},
		{"a filter that cannot be put back", Goal{Qdisc: "fq"}, with(t, func(f *host.Facts) {
			f.Links[1].Tree.Qdiscs = []qdisc.Qdisc{{Kind: "prio", Handle: 0x10000, Parent: qdisc.Root}}
			f.Links[1].Tree.Filters = []qdisc.Filter{{Kind: "flow", Parent: 0x10000, Handle: 1, Priority: 5,
				Protocol: 0x800, Options: []byte{4, 0, 1, 0}}}
		}), "eth0: what is there now could not be put back: filter flow at 1: (protocol ip, pref 5): no test has shown",
			"if it need not come back: tc filter del dev eth0 parent 1: prio 5 protocol ip flow, and then again",
			false},
		{"a queue that no test has put back", Goal{Qdisc: "fq"}, with(t, func(f *host.Facts) {
			f.Admin = false
			f.Links[1].Tree.Qdiscs = []qdisc.Qdisc{{Kind: "red", Handle: 0x10000, Parent: qdisc.Root}}
		}), "qdisc red 1: no test has shown", "tc qdisc del dev eth0 root", false},
		{"a queue that nobody can read", Goal{Qdisc: "fq"},
			with(t, unreadable, func(f *host.Facts) { f.Admin = false }), "could not be read", "as root", false},
		{"only, and more", Goal{Qdisc: "fq", Only: true, CC: "bbr"}, server(t), "nothing else", "no other choice",
			true},
		{"L4S without rate", Goal{Prefer: "l4s"}, server(t), "L4S", "--rate", true},
		{"L4S and BBR", Goal{Prefer: "l4s", Rate: 1e6, CC: "bbr"}, server(t), "other people's packets", "--cc", true},
		{"no such congestion control", Goal{CC: "prague"}, server(t), "no congestion control prague", "cubic", false},
		{"weir's own congestion control, and the kernel takes none", Goal{CC: "bpf_bbr"}, with(t, func(f *host.Facts) {
			f.Objects = map[string]host.Support{bbr.Name: host.No}
			f.Lacks = map[string]string{bbr.Name: "the kernel says nothing of its types (CONFIG_DEBUG_INFO_BTF)"}
		}), "does not take bpf_bbr: the kernel says nothing of its types", "--cc bbr", false},
		{"weir's own congestion control, and root may not load it", Goal{CC: "bpf_bbr"}, with(t, func(f *host.Facts) {
			f.Admin, f.Objects = true, map[string]host.Support{bbr.Name: host.Unknown}
			f.Lacks = map[string]string{bbr.Name: "operation not permitted"}
		}), "takes bpf_bbr cannot be told: operation not permitted", "--cc keep", false},
		{"nothing to shape with", Goal{Rate: 1e6}, with(t, kernelWith("fq_codel")), "neither cake nor htb", "fq_codel",
			false},
		{"ingress too slow to reach", Goal{Ingress: 1000}, server(t), "ingress rate 1kbit would leave too little",
			"--ingress", true},
		{"ingress above the line", Goal{Ingress: 2e9}, server(t), "ingress 2gbit is above the speed of eth0, 1gbit",
			"no --ingress", false},
		{"ingress and a recipe", Goal{Ingress: 1e6, Recipe: "lossy-bbr"}, server(t), "to the letter", "lossy-bbr",
			true},
		{"ingress without the modules", Goal{Ingress: 1e6}, with(t, func(f *host.Facts) { f.Ingress = host.No }),
			"has not all of ifb, sch_ingress", "without --ingress", false},
		{"ingress, nothing to shape with", Goal{Ingress: 1e6}, with(t, kernelWith("fq_codel")), "neither cake nor htb",
			"leave --ingress out", false},
		{"somebody's filters", Goal{Ingress: 1e6}, with(t,
			func(f *host.Facts) { f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, ingress("clsact")) }),
			"somebody else has a qdisc at the ingress (clsact)", "tc qdisc del dev eth0 clsact", false},
		{"somebody's ifb", Goal{Ingress: 1e6}, with(t, func(f *host.Facts) {
			f.Links[1].Tree.Qdiscs = append(f.Links[1].Tree.Qdiscs, ingress("ingress"))
			f.Links[1].Redirect = "ifb4eth0"
			f.Links = append(f.Links,
				host.Link{Name: "ifb4eth0", Kind: "ifb", Tree: tree(t, "cake bandwidth 20mbit", 1)})
		}), "what comes in by eth0 is shaped already, by cake on ifb4eth0, to 20mbit", "without --ingress", false},
		{"somebody's device", Goal{Ingress: 1e6}, with(t,
			func(f *host.Facts) { f.Links = append(f.Links, host.Link{Name: qdisc.IFB, Kind: "dummy"}) }),
			"there is a device ifb-weir already", "ip link del ifb-weir", false},
		{"recipe, no dualpi2", Goal{Recipe: "dualpi2-bbr"}, server(t), "has no dualpi2", "--qdisc", false},
		{"recipe, no bbr", Goal{Recipe: "lossy-bbr"}, with(t, func(f *host.Facts) { f.Congestion.Loadable = nil }),
			"no congestion control bbr", "cubic", false},
		{"recipe, no fq", Goal{Recipe: "lossy-bbr"}, with(t, kernelWith("cake")), "has no fq", "--loss", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := planFor(c.goal, c.facts)
			var refusal *hint.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("%v, %v; want a refusal", p, err)
			}
			if !strings.Contains(refusal.What, c.what) || !strings.Contains(refusal.Try, c.try) ||
				refusal.Usage != c.usage {
				t.Errorf("%+v; want %q, try %q, usage %v", refusal, c.what, c.try, c.usage)
			}
		})
	}
}

// A rule can only use a sysctl that the facts have.
func TestEverySysctlIsRead(t *testing.T) {
	facts, err := host.Read()
	if err != nil {
		t.Skip("skipped, not passed: this host cannot be read: ", err)
	}
	for _, name := range []string{congestionControl, notsentLowat, tcpRmem, tcpWmem, tcpECN} {
		if _, ok := facts.Sysctls[name]; !ok {
			t.Errorf("%s is not among the facts", name)
		}
	}
}

// driver is a card with an address that some driver has.
func driver(name string) func(*host.Facts) {
	return func(f *host.Facts) { f.Links[1].Driver, f.Links[1].MAC = name, "52:54:00:12:34:56" }
}

// What a goal wants and cannot have is seen without being asked for.
func TestUnwritableIsSaid(t *testing.T) {
	f := with(t, func(f *host.Facts) {
		f.Sysctls["net.ipv4.tcp_notsent_lowat"] = host.Sysctl{Value: "4294967295", ReadOnly: true}
	})
	p, err := planFor(Goal{}, f)
	if err != nil || !slices.ContainsFunc(p.Considered, func(n Note) bool {
		return n.Subject == "net.ipv4.tcp_notsent_lowat" && n.Kind == Lack
	}) {
		t.Errorf("%+v, %v", p.Considered, err)
	}
}

// A limit that somebody has set is not lifted in silence.
func TestLimitIsNamed(t *testing.T) {
	const lifted = "htb there lets no more than 8mbit leave, and this plan "
	for what, c := range map[string]struct {
		there string
		goal  Goal
		want  string
	}{
		"a lower one": {"htb rate 8mbit", Goal{Rate: 50e6}, lifted +
			"lets 49.875mbit. If that limit is meant: --rate 8mbit"},
		"a higher one": {"htb rate 80mbit", Goal{Rate: 50e6}, ""},
		"none planned": {"htb rate 8mbit", Goal{Qdisc: "fq"}, lifted +
			"has no limit. If that one is meant: --rate 8mbit"},
		"none at all": {"fq", Goal{Rate: 50e6}, ""},
	} {
		p, err := planFor(c.goal, with(t, func(f *host.Facts) { f.Links[1].Tree = tree(t, c.there, 1) }))
		if err != nil {
			t.Fatal(err)
		}
		names := func(n Note) bool { return strings.Contains(n.Text, "there lets no more") }
		got := ""
		if i := slices.IndexFunc(p.Considered, names); i >= 0 {
			got = p.Considered[i].Text
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", what, got, c.want)
		}
	}
}
