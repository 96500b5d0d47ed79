// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"net"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	snmpText = `Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos
Ip: 1 64 28946 0 0 28596 0
Icmp: InMsgs
Icmp: 3
Tcp: RtoAlgorithm RtoMin MaxConn ActiveOpens PassiveOpens InSegs OutSegs
Tcp: 1 200 -1 7 8 29082 18956
Udp: InDatagrams NoPorts InErrors OutDatagrams
Udp: 250 1 2 251
UdpLite: InDatagrams NoPorts InErrors OutDatagrams
UdpLite: 900 900 900 900
`
	snmp6Text = `Ip6InReceives                   	1000
Ip6OutForwDatagrams             	600
Ip6OutRequests                  	9000
Udp6InDatagrams                 	20
Udp6OutDatagrams                	30
UdpLite6InDatagrams             	900
Ip6InNoRoutes	x
`
	protocolsText = `protocol  size sockets  memory press maxhdr  slab module     cl co di ac io in de sh ss gs se re bi br ha uh gp em
PACKET    1600      9      -1   NI       0   yes  kernel      y  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n  n
MPTCPv6   2064      2     131   no       0   yes  kernel      y  y  y  n  y  y  y  y  y  y  y  y  n  n  y  y  y  n
TCPv6     2616     50     131   no     320   yes  kernel      y  y  y  y  y  y  y  y  y  y  y  y  y  n  y  y  y  y
MPTCP     1936      1     131   no       0   yes  kernel      y  y  y  n  y  y  y  y  y  y  y  y  n  n  y  y  y  n
`
)

// What a kernel writes about a split proxy and about IPv6 is read, both IP versions summed; MPTCP is both of its rows.
func TestPassing(t *testing.T) {
	want := Passing{IPIn: 29946, IPForwarded: 29196, TCPIn: 29082, TCPOut: 18956, UDPIn: 270, UDPOut: 281}
	for _, dir := range []string{"proc/thread-self/net", "proc/net"} {
		f := ReadFiles(fstest.MapFS{
			dir + "/snmp": file(snmpText), dir + "/snmp6": file(snmp6Text), dir + "/protocols": file(protocolsText),
		}, "6.1")
		if f.Passing != want || f.MPTCP != 3 {
			t.Errorf("%s: read %+v and %d sockets of MPTCP, want %+v and 3", dir, f.Passing, f.MPTCP, want)
		}
	}
	// The thread's own namespace comes before the process's, and its text alone counts.
	f := ReadFiles(fstest.MapFS{
		"proc/thread-self/net/snmp": file("Ip: InReceives\nIp: 5\n"), "proc/net/snmp": file(snmpText),
		"proc/net/snmp6":     file(snmp6Text),
		"proc/net/protocols": file(protocolsText),
	}, "6.1")
	if f.Passing != (Passing{IPIn: 5}) || f.MPTCP != 0 {
		t.Errorf("of another namespace: %+v, %d sockets of MPTCP", f.Passing, f.MPTCP)
	}
	if f := ReadFiles(fstest.MapFS{}, "6.1"); f.Passing != (Passing{}) || f.Relays != nil {
		t.Errorf("of nothing: %+v, %v", f.Passing, f.Relays)
	}
}

// Names are known as the kernel cuts them, and a process of another network namespace passes on nothing here.
func TestRelays(t *testing.T) {
	root := fstest.MapFS{"proc/thread-self/ns/net": link("net:[1]"), "proc/uptime": file("1 1\n"),
		"proc/9999": file("openvpn\n")}
	for id, p := range map[string][2]string{
		"1": {"systemd", "net:[1]"}, "20": {"openvpn", "net:[1]"}, "21": {"openvpn", "net:[1]"}, "22": {"openvpn",
			"net:[2]"},
		"30": {"haproxy", ""}, "31": {"haproxyd", ""}, "40": {"shadowsocks-ser", "net:[1]"}, "50": {"nginx",
			"net:[1]"}, "x60": {"xray", "net:[1]"},
	} {
		root["proc/"+id+"/comm"] = file(p[0] + "\n")
		if p[1] != "" {
			root["proc/"+id+"/ns/net"] = link(p[1])
		}
	}
	f := ReadFiles(unreadable{root}, "6.1")
	want := []Relay{{"haproxy", ProxyProgram, 1}, {"openvpn", TunnelProgram, 2}, {"shadowsocks-ser", ProxyProgram, 1}}
	if !reflect.DeepEqual(f.Relays, want) {
		t.Errorf("seen %v, want %v", f.Relays, want)
	}
	if !reflect.DeepEqual(f.Deep.Namespaces, []Namespace{{"net:[2]", 1}}) || len(f.Deep.Unknown) == 0 {
		t.Errorf("namespaces %v, unknown %v", f.Deep.Namespaces, f.Deep.Unknown)
	}
	for name := range relayPrograms() {
		const most = 15 // TASK_COMM_LEN, but for its zero
		if len(name) > most {
			t.Errorf("no process can be called %s: the kernel keeps %s", name, name[:most])
		}
	}
}

// unreadable is a host on which a namespace that is not said is somebody else's affair.
type unreadable struct{ fstest.MapFS }

func (u unreadable) ReadLink(name string) (string, error) {
	if _, there := u.MapFS[name]; !there && strings.HasSuffix(name, "/ns/net") &&
		u.MapFS[path.Dir(path.Dir(name))+"/comm"] != nil {
		return "", fs.ErrPermission
	}
	return u.MapFS.ReadLink(name)
}

// Whatever the kernel's texts hold, reading them ends, and no process is counted twice.
func FuzzRelay(f *testing.F) {
	f.Add(snmpText, snmp6Text, protocolsText, "openvpn\n")
	f.Add("Ip: InReceives\nIp: 18446744073709551615\n", "Ip6InReceives 1", "MPTCP 1 2147483647\nMPTCPv6 1 -1\nMPTCP",
		"\xff")
	f.Fuzz(func(t *testing.T, snmp, snmp6, protocols, comm string) {
		facts := ReadFiles(fstest.MapFS{
			"proc/net/snmp": file(snmp), "proc/net/snmp6": file(snmp6), "proc/net/protocols": file(protocols),
			"proc/1/comm":   file(comm),
			"proc/1/ns/net": link("net:[1]"), "proc/thread-self/ns/net": link("net:[1]"),
		}, "6.1")
		if len(facts.Relays) > 1 || len(facts.Relays) == 1 && facts.Relays[0].Processes != 1 || facts.MPTCP < 0 {
			t.Errorf("%v, %d", facts.Relays, facts.MPTCP)
		}
	})
}

// The kernel's own counters, in a namespace of the test's: packets that go through a tun device, and listeners of
// MPTCP.
func TestLiveRelay(t *testing.T) {
	inNamespace(t, func() {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		before, err := Read()
		must(err)

		tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Skipf("skipped, not passed: no tun device here: %v", err)
		}
		defer unix.Close(tun)
		var request struct {
			name  [unix.IFNAMSIZ]byte
			flags uint16
			_     [22]byte
		}
		copy(request.name[:], "tun7")
		request.flags = unix.IFF_TUN | unix.IFF_NO_PI
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(tun), unix.TUNSETIFF,
			uintptr(unsafe.Pointer(&request))); errno != 0 {
			t.Skipf("skipped, not passed: no tun device here: %v", errno)
		}
		dev, err := netlink.LinkByName("tun7")
		must(err)
		addr, _ := netlink.ParseAddr("198.51.100.1/24")
		must(netlink.AddrAdd(dev, addr))
		must(netlink.LinkSetUp(dev))
		a, _ := netlink.LinkByName("a")
		addr, _ = netlink.ParseAddr("192.0.2.2/24")
		must(netlink.AddrAdd(a, addr))
		must(netlink.NeighAdd(&netlink.Neigh{LinkIndex: a.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP:           net.IPv4(192, 0, 2, 9),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}))
		must(os.WriteFile(SysctlPath("net.ipv4.ip_forward"), []byte("1"), 0))
		const packets, size = 40, 1000
		packet := make([]byte, size) // IPv4 and UDP, of somebody behind the tunnel to somebody behind a
		copy(packet, []byte{0x45, 0, size >> 8, size & 0xff, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 198, 51, 100, 9,
			192, 0, 2, 9, 0, 9, 0, 9, size >> 8, (size - 20) & 0xff})
		sum := uint32(0)
		for i := 0; i < 20; i += 2 {
			sum += uint32(packet[i])<<8 | uint32(packet[i+1])
		}
		sum = ^(sum + sum>>16)
		packet[10], packet[11] = byte(sum>>8), byte(sum)
		for range packets {
			_, err := unix.Write(tun, packet)
			must(err)
		}
		listens := 0
		for _, protocol := range []int{unix.IPPROTO_MPTCP, unix.IPPROTO_TCP} {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				continue // a kernel without MPTCP
			}
			defer unix.Close(fd)
			must(unix.Bind(fd, &unix.SockaddrInet4{Port: 7000 + protocol}))
			must(unix.Listen(fd, 8))
			if protocol == unix.IPPROTO_MPTCP {
				listens++
			}
		}

		after, err := Read()
		must(err)
		link, _ := after.Link("tun7")
		if link.Kind != "tuntap" || link.TxQLen != 500 || link.RxBytes != packets*size || link.RxPkts != packets ||
			link.MAC != "" {
			t.Errorf("the tun device: %+v", link)
		}
		out, _ := after.Link("a")
		was, _ := before.Link("a")
		if n := out.TxBytes - was.TxBytes; n < packets*size {
			t.Errorf("a has sent %d bytes, of %d that came for it", n, packets*size)
		}
		in, forwarded := after.Passing.IPIn-before.Passing.IPIn, after.Passing.IPForwarded-before.Passing.IPForwarded
		if in < packets || forwarded != packets {
			t.Errorf("IP counts %d in and %d forwarded, of %d", in, forwarded, packets)
		}
		if after.MPTCP != listens || before.MPTCP != 0 {
			t.Errorf("%d sockets of MPTCP, then %d; %d listen", before.MPTCP, after.MPTCP, listens)
		}
	})
}

// Ports of a bridge, and what is made on a device, are told by name.
func TestLinkRelations(t *testing.T) {
	inNamespace(t, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Skipf("skipped, not passed: this kernel makes no bridge: %v", err)
		}
		a, _ := netlink.LinkByName("a")
		b, _ := netlink.LinkByName("b")
		if err := netlink.LinkSetMaster(a, bridge); err != nil {
			t.Error(err)
		}
		vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "b.7", ParentIndex: b.Attrs().Index}, VlanId: 7}
		vlanErr := netlink.LinkAdd(vlan)
		f, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		port, _ := f.Link("a")
		peer, _ := f.Link("b")
		if port.Master != "br" || port.Parent != "" || peer.Master != "" || peer.Parent != "" {
			t.Errorf("a %+v\nb %+v", port, peer)
		}
		if on, ok := f.Link("b.7"); vlanErr == nil && (!ok || on.Parent != "b") {
			t.Errorf("b.7 %+v", on)
		}
	})
}
