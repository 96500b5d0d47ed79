// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Passing counts packets in the network namespace since it was made: in the first one, since the boot. IPv4 and IPv6
// are summed. From /proc/net/snmp and snmp6 (net/ipv4/proc.c, net/ipv6/proc.c). Segments that arrive are counted after
// the device has joined them (GRO), those that leave before it takes them apart. What goes over the loopback device
// counts too. What a flow table carries past IP does not.
type Passing struct {
	IPIn        uint64 `json:"ip_in"`        // packets received (InReceives)
	IPForwarded uint64 `json:"ip_forwarded"` // packets routed on (ForwDatagrams)
	TCPIn       uint64 `json:"tcp_in"`       // segments for sockets (InSegs)
	TCPOut      uint64 `json:"tcp_out"`      // segments of sockets (OutSegs)
	UDPIn       uint64 `json:"udp_in"`       // datagrams for sockets, a kernel tunnel's among them (InDatagrams)
	UDPOut      uint64 `json:"udp_out"`      // datagrams of programs (OutDatagrams); a kernel tunnel counts none
}

// What a program does that passes on what others send.
const (
	TunnelProgram = "tunnel" // carries packets of a tun or tap device in its own UDP or TCP
	ProxyProgram  = "proxy"  // ends connections, and dials others for what they carry
)

// Relay is a program that is known to pass on what others send, as far as its name tells.
type Relay struct {
	Name      string `json:"name"`      // /proc/PID/comm, of which the kernel keeps 15 bytes
	Kind      string `json:"kind"`      // TunnelProgram or ProxyProgram
	Processes int    `json:"processes"` // that are not known to be in another network namespace
}

// relayPrograms are their kinds, by name. Who also serves what is his own, as nginx does, is not among them.
func relayPrograms() map[string]string {
	kinds := map[string]string{}
	for kind, names := range map[string]string{
		TunnelProgram: `amneziawg-go boringtun boringtun-cli edge fastd n2n-edge nebula netbird ocserv ocserv-main
			ocserv-worker openconnect openvpn sstpd supernode tailscaled tinc tincd vpnserver vtund wireguard-go
			zerotier-one`,
		ProxyProgram: `3proxy brook danted dumbproxy envoy frps glider gost haproxy hysteria hysteria-linux-
			hysteria-server microsocks mtg mtproto-proxy naive pound privoxy redsocks shadowsocks-ser sing-box sniproxy
			sockd socat squid srelay ss-redir ss-server sslh ssserver stunnel stunnel4 tinyproxy tor trojan trojan-go
			tuic-server v2ray xray`,
	} {
		for _, name := range strings.Fields(names) {
			kinds[name] = kind
		}
	}
	return kinds
}

// readRelay reads what shows without root that a host passes on what others send, and returns what it saw of processes.
func readRelay(root fs.FS, f *Facts) processes {
	for _, dir := range []string{"proc/thread-self/net", "proc/net"} {
		snmp, err := fs.ReadFile(root, dir+"/snmp")
		if err != nil {
			continue
		}
		snmp6, _ := fs.ReadFile(root, dir+"/snmp6") // a kernel without IPv6 has none
		f.Passing = sumPassing(string(snmp), string(snmp6))
		protocols, _ := fs.ReadFile(root, dir+"/protocols")
		f.MPTCP = mptcpSockets(string(protocols))
		break
	}
	p := readProcesses(root, f.Namespace)
	f.Relays = p.relays
	return p
}

// sumPassing sums up the texts of /proc/net/snmp and snmp6. TCP counts both IP versions together, in the first.
func sumPassing(snmp, snmp6 string) Passing {
	four, six := counters(snmp), counters6(snmp6)
	return Passing{
		IPIn:        four["Ip.InReceives"] + six["Ip6InReceives"],
		IPForwarded: four["Ip.ForwDatagrams"] + six["Ip6OutForwDatagrams"],
		TCPIn:       four["Tcp.InSegs"],
		TCPOut:      four["Tcp.OutSegs"],
		UDPIn:       four["Udp.InDatagrams"] + six["Udp6InDatagrams"],
		UDPOut:      four["Udp.OutDatagrams"] + six["Udp6OutDatagrams"],
	}
}

// counters6 reads /proc/net/snmp6: "name value" on each line.
func counters6(text string) map[string]uint64 {
	all := map[string]uint64{}
	for l := range strings.Lines(text) {
		if fields := strings.Fields(l); len(fields) == 2 {
			if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
				all[fields[0]] = n
			}
		}
	}
	return all
}

// mptcpSockets reads how many sockets MPTCP and MPTCPv6 have, from /proc/net/protocols: "name size sockets …"
// (net/core/sock.c, proto_seq_printf). They are those of the reader's network namespace, and reading loads no module.
// What a listener accepted from somebody who speaks plain TCP is a socket of TCP, and not among them.
func mptcpSockets(text string) int {
	n := 0
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if len(fields) < 3 || fields[0] != "MPTCP" && fields[0] != "MPTCPv6" {
			continue
		}
		if sockets, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			n += int(sockets)
		}
	}
	return n
}

// processes is what one look at all processes tells.
type processes struct {
	relays     []Relay        // by name
	namespaces map[string]int // by network namespace, of how many processes it is known
	hidden     int            // processes whose namespace only root may read
}

// readProcesses looks at all processes, or at the first of very many.
func readProcesses(root fs.FS, own string) processes {
	const most = 32768
	p := processes{namespaces: map[string]int{}}
	kinds, seen := relayPrograms(), map[string]int{}
	entries, _ := fs.ReadDir(root, "proc")
	for _, e := range entries[:min(len(entries), most)] {
		name := e.Name()
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		id, err := fs.ReadLink(root, "proc/"+name+"/ns/net")
		switch {
		case err == nil:
			p.namespaces[id]++
			if id != own {
				continue
			}
		case os.IsPermission(err):
			p.hidden++
		default:
			continue // it has ended meanwhile
		}
		if comm := line(root, "proc/"+name+"/comm"); kinds[comm] != "" {
			seen[comm]++
		}
	}
	for name, n := range seen {
		p.relays = append(p.relays, Relay{name, kinds[name], n})
	}
	slices.SortFunc(p.relays, func(a, b Relay) int { return cmp.Compare(a.Name, b.Name) })
	return p
}
