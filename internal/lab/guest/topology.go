// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/lab/scenario"
	"weir/internal/qdisc"
	"weir/internal/traffic"
	"weir/internal/units"
)

/*
The network of a run:

		[origin --]  server -- provider --  [far --]  client …
		             eth0      limiter      loss,     base RTT,
		                                    jitter    on its own egress

	  - The server lives in the kernel's first namespace, as on a real machine: only there are all sysctls.
	  - Packets for the clients are routed by the provider before they meet its limiter. Over a bare veth pair the
	    sender's TCP Small Queues would see through to it, and every qdisc would look good.
	  - The whole base RTT is on the clients' egress, the way of the ACKs, so that no queue of ours delays what is
	    measured.
	  - A client with an access of its own has its modem before it, a router whose two ends are FIFOs. A neighbour is
	    another host of the provider's, whose packets meet the same limiter.
	  - far exists when something has to happen behind the limiter that is not the limiter: several clients, loss,
	    jitter. With both legs of a relay on one card the origin is behind it, too: what the relay passes on comes
	    and goes by eth0.
*/
type topology struct {
	version

	spaces   []int // file descriptors
	server   space
	origin   space // the server itself unless it relays
	provider space
	clients  []traffic.Host
	through  []traffic.Host // the clients as the origin's traffic knows them: inside their tunnels
	hosts    []space        // the clients'
	source   []traffic.Host // the server's addresses, or the origin's
	beside   traffic.Host   // the neighbour, if there is one
	tunnel   string         // the server's device of its tunnel, if it has one
	limiter  string         // the provider's interface towards the clients
	// whichever of its interfaces enforces the rate for most: the limiter unless all flows go up
	watched string
	policed string // the provider's interface by which what it watches comes in, when it polices there
}

// doorUp is the provider's interface towards the server.
const doorUp = "up0"

// space is one host's network namespace.
type space struct {
	fd    int // 0: the first
	links *netlink.Handle
	tc    *qdisc.Conn
}

func (t *topology) space() (space, error) {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return space{}, err
	}
	defer unix.Close(home)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return space{}, fmt.Errorf("new network namespace: %w", err)
	}
	s, err := currentSpace()
	if err != nil {
		return s, err
	}
	if s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return s, err
	}
	return s, unix.Setns(home, unix.CLONE_NEWNET)
}

// currentSpace opens the namespace that the thread is in.
func currentSpace() (s space, err error) {
	if s.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return s, err
	}
	if s.tc, err = qdisc.Dial(0); err != nil {
		return s, err
	}
	lo, err := s.links.LinkByName("lo")
	if err != nil {
		return s, err
	}
	return s, s.links.LinkSetUp(lo)
}

// in runs f with the thread inside s.
func (s space) in(f func() error) error {
	if s.fd == 0 {
		return f()
	}
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(home, unix.CLONE_NEWNET))
}

func (s space) index(name string) (int, error) {
	l, err := s.links.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return l.Attrs().Index, nil
}

func (s space) qdisc(dev, stack string) error { return s.configure(dev, stack, s.tc.Replace) }

// configure brings a stack into force by one of Conn's ways: Replace, Adjust.
func (s space) configure(dev, stack string, by func(int, qdisc.Stack) error) error {
	parsed, err := qdisc.ParseStack(stack)
	if err != nil {
		return err
	}
	i, err := s.index(dev)
	if err != nil {
		return err
	}
	if err := by(i, parsed); err != nil {
		return fmt.Errorf("%s on %s: %w", stack, dev, err)
	}
	return nil
}

// sysctl writes /proc/sys as s sees it.
func (s space) sysctl(values map[string]string) error {
	return s.in(func() error {
		var errs []error
		for key, value := range values {
			path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				errs = append(errs, fmt.Errorf("sysctl %s = %s: %w", key, value, err))
			}
		}
		return errors.Join(errs...)
	})
}

// version of IP, 4 or 6, which says what addresses look like: 10.NET.SUB.HOST in subnets of /24, or
// fd00:0:NET:SUB::HOST in subnets of /64. The router is host 254.
type version int

func (v version) addr(net byte, sub, host int) netip.Addr {
	if v == 6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 5: net, 7: byte(sub), 15: byte(host)})
	}
	return netip.AddrFrom4([4]byte{10, net, byte(sub), byte(host)})
}

// subnets are all those of net.
func (v version) subnets(net byte) string {
	bits := 16
	if v == 6 {
		bits = 48
	}
	return netip.PrefixFrom(v.addr(net, 0, 0), bits).String()
}

// subnet is one of them.
func (v version) subnet(net byte, sub int) string {
	bits := 24
	if v == 6 {
		bits = 64
	}
	return netip.PrefixFrom(v.addr(net, sub, 0), bits).String()
}

// forwarding is the sysctl that makes a host a router.
func (v version) forwarding() map[string]string {
	if v == 6 {
		return map[string]string{"net.ipv6.conf.all.forwarding": "1"}
	}
	return map[string]string{"net.ipv4.ip_forward": "1"}
}

// cable joins two hosts and gives the ends addresses.
func cable(a space, aName string, aAddr netip.Addr, queues int, b space, bName string, bAddr netip.Addr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	attrs.TxQLen = 1000
	attrs.NumTxQueues = queues
	attrs.NumRxQueues = queues
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerTxQLen: 1000, PeerNumTxQueues: uint32(queues),
		PeerNumRxQueues: uint32(queues)}
	if b.fd != 0 {
		veth.PeerNamespace = netlink.NsFd(b.fd)
	} else {
		veth.PeerNamespace = netlink.NsPid(1)
	}
	if err := a.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth %s–%s: %w", aName, bName, err)
	}
	return join(a, aName, aAddr, b, bName, bAddr)
}

// join gives the ends of a cable addresses, which may be more than one of each.
func join(a space, aName string, aAddr netip.Addr, b space, bName string, bAddr netip.Addr) error {
	aLink, err := a.up(aName, aAddr)
	if err != nil {
		return err
	}
	bLink, err := b.up(bName, bAddr)
	if err != nil {
		return err
	}
	// Neighbours are known from the start: a path that loses packets would lose ARP and ND, too, and three of those in
	// a row are "no route to host".
	return errors.Join(a.neighbour(aLink, bAddr, bLink), b.neighbour(bLink, aAddr, aLink))
}

func (s space) up(name string, a netip.Addr) (netlink.Link, error) {
	l, err := s.links.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return l, errors.Join(s.address(l, a), s.links.LinkSetUp(l))
}

func (s space) neighbour(l netlink.Link, a netip.Addr, other netlink.Link) error {
	return s.links.NeighAdd(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(),
		HardwareAddr: other.Attrs().HardwareAddr})
}

func (s space) address(l netlink.Link, a netip.Addr) error {
	bits, flags := 24, 0
	if a.Is6() {
		bits, flags = 64, unix.IFA_F_NODAD // usable at once: nobody has to be asked whether it is taken
	}
	return s.links.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())},
		Flags: flags})
}

func (s space) route(destination string, via netip.Addr) error {
	r := &netlink.Route{Gw: via.AsSlice()}
	if destination != "default" {
		_, prefix, err := net.ParseCIDR(destination)
		if err != nil {
			return err
		}
		r.Dst = prefix
	}
	return s.links.RouteAdd(r)
}

// roomy buffers for those who are not under test: a lab that limits a flow by itself is lying.
var roomyBuffers = map[string]string{"net.ipv4.tcp_rmem": "4096 131072 134217728",
	"net.ipv4.tcp_wmem": "4096 16384 134217728"}

// tcpPressure is how many pages TCP may hold in all hosts before the kernel takes from its buffers: half of the memory.
// The kernel's own mark is a sixteenth (tcp_init_mem, net/ipv4/tcp.c), for one host. Here both ends of each connection
// are in one kernel: a connection of 1 Gbit/s and 210 ms reaches it, and its receiver throws away what came.
func tcpPressure() int { return boot.MemoryMiB << 20 / 2 / os.Getpagesize() }

// tcpMem is tcp(7)'s tcp_mem, with the other marks as far from that of pressure as the kernel has them.
func tcpMem() string {
	mark := tcpPressure()
	return fmt.Sprint(mark/4*3, mark, mark/4*6)
}

// layOut builds the network of a job.
func layOut(job scenario.Job) (*topology, error) {
	s := job.Scenario
	t := &topology{version: version(s.Path.IP), limiter: "down0"}
	var err error
	if t.server, err = currentSpace(); err != nil {
		return nil, err
	}
	if t.provider, err = t.space(); err != nil {
		return nil, err
	}
	server, gateway := t.addr(0, 0, 1), t.addr(0, 0, 254)
	steps := []func() error{
		allowCongestionControls,
		func() error { return t.server.sysctl(map[string]string{"net.ipv4.tcp_mem": tcpMem()}) },
		func() error {
			return cable(t.server, scenario.Uplink, server, s.Server.Queues, t.provider, doorUp, gateway)
		},
		func() error { return t.server.route("default", gateway) },
		func() error { return t.provider.sysctl(t.forwarding()) },
		func() error { return t.layServer(job) },
		func() error { return t.layNeighbour(job) },
		func() error { return t.layClients(job) },
		func() error { return t.layProvider(job) },
		func() error { return t.server.sysctl(s.Server.Sysctl) },
		func() error { return t.server.qdisc(scenario.Uplink, s.Server.Qdisc) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// allowCongestionControls lets every network namespace choose any of them. Some, as dctcp, are kept for the first.
func allowCongestionControls() error {
	const folder = "/proc/sys/net/ipv4/"
	all, err := os.ReadFile(folder + "tcp_available_congestion_control")
	if err != nil {
		return err
	}
	return os.WriteFile(folder+"tcp_allowed_congestion_control", all, 0o644)
}

func (t *topology) layServer(job scenario.Job) error {
	s := job.Scenario.Server
	uplink, err := t.server.links.LinkByName(scenario.Uplink)
	if err != nil {
		return err
	}
	door, err := t.provider.links.LinkByName(doorUp)
	if err != nil {
		return err
	}
	t.source = []traffic.Host{{Addr: t.addr(0, 0, 1)}}
	for i := 2; i <= s.Addresses; i++ {
		if err := errors.Join(t.server.address(uplink, t.addr(0, 0, i)),
			t.provider.neighbour(door, t.addr(0, 0, i), uplink)); err != nil {
			return err
		}
		t.source = append(t.source, traffic.Host{Addr: t.addr(0, 0, i)})
	}
	t.origin = t.server
	if s.Relay && !job.Scenario.OneCard() {
		if t.origin, err = t.space(); err != nil {
			return err
		}
		if err := cable(t.origin, "out0", t.addr(2, 0, 1), 1, t.server, "eth1", t.addr(2, 0, 254)); err != nil {
			return err
		}
		t.source = []traffic.Host{{NetNS: t.origin.fd, Addr: t.addr(2, 0, 1)}}
		if err := errors.Join(t.origin.sysctl(roomyBuffers), t.origin.route("default", t.addr(2, 0, 254)),
			t.server.sysctl(t.forwarding()),
			t.origin.sysctl(tcpSysctls(s.Sysctl)), t.provider.route(t.subnets(2), t.addr(0, 0, 1))); err != nil {
			return err
		}
		if !s.GRO {
			if err := segment(t.origin, "out0"); err != nil {
				return err
			}
		}
	}
	if s.TSO {
		return nil
	}
	return segment(t.server, scenario.Uplink)
}

// segment turns TSO off: the qdisc still sees superpackets (GSO), the wire carries packets of the MTU.
func segment(s space, dev string) error {
	const setTSO = 0x1f // ETHTOOL_STSO, include/uapi/linux/ethtool.h
	return s.in(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		value := [2]uint32{setTSO, 0}
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:], dev)
		request.data = unsafe.Pointer(&value)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("%s: TSO off: %w", dev, errno)
		}
		return nil
	})
}

func (t *topology) layClients(job scenario.Job) error {
	s := job.Scenario
	router, far := t.provider, false
	if len(s.Client) > 1 || impairment(s.Path, 0) != "" || s.OneCard() {
		var err error
		if router, err = t.space(); err != nil {
			return err
		}
		far = true
		near, beyond := t.addr(9, 0, 1), t.addr(9, 0, 2)
		if err := errors.Join(cable(t.provider, t.limiter, near, 1, router, "in0", beyond),
			router.sysctl(t.forwarding()),
			t.provider.route(t.subnets(1), beyond), router.route("default", near)); err != nil {
			return err
		}
	}
	if s.OneCard() {
		if err := t.layOrigin(job, router); err != nil {
			return err
		}
	}
	for i, c := range s.Client {
		client, err := t.space()
		if err != nil {
			return err
		}
		dev := t.limiter
		if far {
			dev = fmt.Sprintf("to%d", i)
		}
		mine, gateway := t.addr(1, i, 1), t.addr(1, i, 254)
		rtt := s.RTT(c.Name)
		before := router // who hands it its packets
		inside := dev    // by which device
		if c.Rate != 0 {
			if before, err = t.layModem(c, i, router, dev); err != nil {
				return fmt.Errorf("client %q: %w", c.Name, err)
			}
			inside = modemInside
		}
		if err := errors.Join(client.sysctl(roomyBuffers), cable(before, inside, gateway, 1, client, "eth0", mine),
			client.route("default", gateway), client.sysctl(c.Sysctl)); err != nil {
			return err
		}
		if c.Rate != 0 {
			if err := before.qdisc(inside, fifo(c.Rate, c.Buffer.Bytes(c.Rate))); err != nil {
				return err
			}
		}
		if rtt -= s.Path.ForwardDelay(); rtt > 0 {
			if err := client.qdisc("eth0", wayBack(rtt)); err != nil {
				return err
			}
		}
		if impaired := impairment(s.Path, mix(job.Seed<<16|uint64(i))); impaired != "" {
			if err := router.qdisc(dev, impaired); err != nil {
				return err
			}
		}
		t.hosts = append(t.hosts, client)
		t.clients = append(t.clients, traffic.Host{NetNS: client.fd, Addr: mine})
	}
	t.through = t.clients
	if s.OneCard() {
		return t.relay(job)
	}
	return nil
}

// Nets of a modem towards the provider, and of the neighbour.
const (
	modemNet     = 7
	neighbourNet = 3
)

// The modem's devices.
const (
	modemInside  = "in0" // towards its client
	modemOutside = "out0"
)

// layModem puts the box before a client that its access ends at, at the end of a device of the router's. Its own queue
// towards the client comes with the client.
func (t *topology) layModem(c scenario.Client, i int, router space, dev string) (space, error) {
	modem, err := t.space()
	if err != nil {
		return modem, err
	}
	near, beyond := t.addr(modemNet, i, 1), t.addr(modemNet, i, 2)
	return modem, errors.Join(cable(router, dev, near, 1, modem, modemOutside, beyond),
		modem.sysctl(t.forwarding()), modem.route("default", near), router.route(t.subnet(1, i), beyond),
		modem.qdisc(modemOutside, fifo(c.Upload, c.Buffer.Bytes(c.Upload))))
}

// layNeighbour joins another host to the provider.
func (t *topology) layNeighbour(job scenario.Job) error {
	if !job.Scenario.HasNeighbour() {
		return nil
	}
	host, err := t.space()
	if err != nil {
		return err
	}
	mine, gateway := t.addr(neighbourNet, 0, 1), t.addr(neighbourNet, 0, 254)
	t.beside = traffic.Host{NetNS: host.fd, Addr: mine}
	return errors.Join(cable(t.provider, "near0", gateway, 1, host, scenario.Uplink, mine),
		host.route("default", gateway), host.qdisc(scenario.Uplink, "fq_codel"), segment(host, scenario.Uplink))
}

// mix spreads a number over all bits (the finaliser of SplitMix64), so that seeds that are neighbours draw nothing
// alike.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// wayBack is the netem of a client: all of the base RTT that is not on the way to it.
func wayBack(delay units.Duration) string { return fmt.Sprintf("netem limit 200000 delay %v", delay) }

// reroute gives the path to each client another base RTT.
func (t *topology) reroute(s scenario.Scenario, rtt units.Duration) error {
	for _, client := range t.hosts {
		if err := client.configure("eth0", wayBack(rtt-s.Path.ForwardDelay()), client.tc.Adjust); err != nil {
			return err
		}
	}
	return nil
}

// impairment is the netem of a path that loses, reorders or delays unevenly; "" of one that does not. Under jitter,
// which delays by 0 to twice its size, a rate far above every scenario's keeps packets in order.
func impairment(p scenario.Path, seed uint64) string {
	if p.Loss == 0 && p.Jitter == 0 && p.Reorder == 0 {
		return ""
	}
	text := "netem limit 200000"
	if p.Reorder > 0 {
		text += fmt.Sprintf(" delay %v reorder %v", scenario.ReorderLead, p.Reorder)
	}
	if p.Jitter > 0 {
		text += fmt.Sprintf(" delay %v %v rate 40gbit", p.Jitter, p.Jitter)
	}
	if p.Loss > 0 && p.Burst > 1 {
		// Gilbert: leave the bad state with r = 1/burst, enter it so that the stationary loss is the wanted one
		// (Gilbert 1960).
		r := 1 / p.Burst
		enter := r * float64(p.Loss) / (1 - float64(p.Loss))
		text += fmt.Sprintf(" loss gemodel %.6f%% %.6f%%", 100*enter, 100*r)
	} else if p.Loss > 0 {
		text += fmt.Sprintf(" loss %v", p.Loss)
	}
	return text + fmt.Sprintf(" seed %d", seed)
}

func (t *topology) layProvider(job scenario.Job) error {
	p := job.Scenario.Provider
	t.watched = t.limiter
	if job.Scenario.OnlyInward() {
		t.watched = doorUp
	}
	if p.Queue == "policer" {
		t.policed = doorUp
		if t.watched == doorUp {
			t.policed = t.limiter
		}
	}
	if err := t.limit(p, p.Rate, t.limiter, doorUp); err != nil {
		return err
	}
	if limitsInward(job.Scenario) {
		return t.limit(p, p.Inward(), doorUp, t.limiter)
	}
	return nil
}

// limitsInward reports whether a rate is enforced towards the server, too, as it is when anybody sends that way: with
// both legs of a relay on one link, everybody does, and a program may.
func limitsInward(s scenario.Scenario) bool {
	return s.OneCard() || len(s.Program) > 0 ||
		slices.ContainsFunc(s.Flow, func(f scenario.Flow) bool { return f.Direction == "up" })
}

// relimit has the provider enforce another rate. What waits stays.
func (t *topology) relimit(s scenario.Scenario, rate units.Rate) error {
	queue, by := limiter(s.Provider, s.Provider.Rate, rate), t.provider.tc.Adjust
	if s.Provider.Overhead != 0 {
		by = t.provider.adjustRoot // which has a size table
	}
	err := t.provider.configure(t.limiter, queue, by)
	if err == nil && limitsInward(s) && s.Provider.Ingress == 0 {
		err = t.provider.configure(doorUp, queue, by)
	}
	return err
}

// adjustRoot changes the root in place, whatever else is said of it.
func (s space) adjustRoot(ifindex int, stack qdisc.Stack) error {
	tree, err := s.tc.Tree(ifindex)
	if err != nil {
		return err
	}
	root, _ := tree.Root()
	return s.tc.Change(ifindex, root, stack[0])
}

// fifo is a queue with a rate. Its bucket has two packets: what leaves is paced.
func fifo(rate units.Rate, buffer units.Size) string {
	return fmt.Sprintf("tbf rate %v burst 3200b limit %db", rate, buffer)
}

// limiter is the queue of a provider, with the buffer of one rate and the speed of another.
func limiter(p scenario.Provider, sized, rate units.Rate) string {
	cells := ""
	if p.ATM {
		cells = " linklayer atm"
	}
	switch p.Queue {
	case "fifo":
		return fifo(rate, p.Buffer.Bytes(sized)) + cells
	case "bucket":
		bucket := fmt.Sprintf("tbf rate %v burst %db limit %db", rate, p.Burst, p.Buffer.Bytes(sized))
		if p.Peak != 0 {
			bucket += fmt.Sprintf(" peakrate %v mtu 3200b", p.Peak) // two packets, as a fifo's burst
		}
		return bucket + cells
	}
	return scenario.Rated(p.Queue, rate)
}

// limit enforces a rate of the provider's for what leaves by one of its interfaces, or comes in by the other.
func (t *topology) limit(p scenario.Provider, rate units.Rate, out, in string) error {
	switch p.Queue {
	case "none":
		return nil
	case "policer":
		return t.police(p, rate, in)
	}
	if err := t.provider.qdisc(out, limiter(p, rate, rate)); err != nil || p.Overhead == 0 {
		return err
	}
	return t.provider.counting(out, p.Overhead)
}

// counting makes the root of a device count so many bytes more of each packet than it is handed.
func (s space) counting(dev string, bytes int) error {
	i, err := s.index(dev)
	if err != nil {
		return err
	}
	tree, err := s.tc.Tree(i)
	if err != nil {
		return err
	}
	for j := range tree.Qdiscs {
		if tree.Qdiscs[j].Parent == qdisc.Root {
			tree.Qdiscs[j].SizeTable = qdisc.SizeTable(int32(bytes))
		}
	}
	return s.tc.Restore(i, tree)
}

// police drops at the provider's door what exceeds the rate.
func (t *topology) police(p scenario.Provider, rate units.Rate, door string) error {
	i, err := t.provider.index(door)
	if err != nil {
		return err
	}
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: i, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_INGRESS}}
	if err := t.provider.links.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("ingress: %w", err)
	}
	action := netlink.NewPoliceAction()
	action.Rate = uint32(rate / 8)
	action.Burst = uint32(p.Burst)
	action.Mtu = 65535
	action.ExceedAction = netlink.TC_POLICE_SHOT
	filter := &netlink.MatchAll{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: i, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1,
			Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{action},
	}
	if err := t.provider.links.FilterAdd(filter); err != nil {
		return fmt.Errorf("policer: %w", err)
	}
	return nil
}

// policedDrops counts what the policer has dropped.
func (t *topology) policedDrops() (uint64, error) {
	i, err := t.provider.index(t.policed)
	if err != nil {
		return 0, err
	}
	l, err := t.provider.links.LinkByIndex(i)
	if err != nil {
		return 0, err
	}
	filters, err := t.provider.links.FilterList(l, netlink.MakeHandle(0xffff, 0))
	if err != nil {
		return 0, err
	}
	var drops uint64
	for _, f := range filters {
		if m, ok := f.(*netlink.MatchAll); ok {
			for _, a := range m.Actions {
				if s := a.Attrs().Statistics; s != nil && s.Queue != nil {
					drops += uint64(s.Queue.Drops)
				}
			}
		}
	}
	return drops, nil
}
