// SPDX-License-Identifier: Apache-2.0

package dualpi2_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/dualpi2"
	"weir/internal/host"
	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/qdisc"
)

// network is a veth pair from the first namespace to another, with addresses at both ends.
type network struct {
	*testing.T
	ifindex int
	here    netns.NsHandle
	there   netns.NsHandle
	conn    *qdisc.Conn
}

var (
	near4, far4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	near6, far6 = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
)

const port = 4000

func newNetwork(t *testing.T) *network {
	t.Helper()
	kerneltest.In(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	n := &network{T: t}
	var err error
	if n.here, err = netns.Get(); err != nil {
		t.Fatal(err)
	}
	if n.there, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	n.in(n.here)
	n.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", TxQLen: 1000}, PeerName: "far",
		PeerNamespace: netlink.NsFd(int(n.there))}))
	n.ifindex = n.up("near", near4, near6)
	n.in(n.there)
	n.up("far", far4, far6)
	n.in(n.here)
	if n.conn, err = qdisc.Dial(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.conn.Close()
		if device, err := netlink.LinkByIndex(n.ifindex); err == nil {
			n.must(netlink.LinkDel(device))
		}
		n.there.Close()
		n.here.Close()
	})
	return n
}

func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *network) in(ns netns.NsHandle) { n.Helper(); n.must(netns.Set(ns)) }

func (n *network) up(name string, addresses ...netip.Addr) int {
	n.Helper()
	device, err := netlink.LinkByName(name)
	n.must(err)
	for _, a := range addresses {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		n.must(netlink.AddrAdd(device, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(),
			Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}))
	}
	n.must(netlink.LinkSetUp(device))
	return device.Attrs().Index
}

// sink listens at the far end, and counts what comes by the ECN field that it comes with.
type sink struct{ count [4]atomic.Int64 }

func (n *network) sink() *sink {
	n.Helper()
	n.in(n.there)
	defer n.in(n.here)
	s := &sink{}
	n.receive(s, "udp4", unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_TOS)
	n.receive(s, "udp6", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS)
	return s
}

func (n *network) receive(s *sink, network string, level, wanted, given int) {
	n.Helper()
	conn, err := net.ListenUDP(network, &net.UDPAddr{Port: port})
	n.must(err)
	n.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	n.must(err)
	n.must(raw.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), level, wanted, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	}))
	n.must(err)
	go func() {
		buf, control := make([]byte, 2048), make([]byte, 256)
		for {
			_, cn, _, _, err := conn.ReadMsgUDP(buf, control)
			if err != nil {
				return
			}
			messages, _ := unix.ParseSocketControlMessage(control[:cn])
			for _, m := range messages {
				if int(m.Header.Level) == level && int(m.Header.Type) == given {
					s.count[m.Data[0]&3].Add(1)
				}
			}
		}
	}()
}

func (s *sink) all() (sum int64) {
	for i := range s.count {
		sum += s.count[i].Load()
	}
	return sum
}

// source is a socket to the far end.
type source struct {
	mark, priority int
	ecn            int
	to             netip.Addr
}

func (n *network) dial(s source) *net.UDPConn {
	n.Helper()
	if !s.to.IsValid() {
		s.to = far4
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.to, port)))
	n.must(err)
	n.Cleanup(func() { conn.Close() })
	raw, err := conn.SyscallConn()
	n.must(err)
	n.must(raw.Control(func(fd uintptr) {
		level, option := unix.IPPROTO_IP, unix.IP_TOS
		if s.to.Is6() {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		err = errors.Join(unix.SetsockoptInt(int(fd), level, option, s.ecn),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, s.mark),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, s.priority),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20))
	}))
	n.must(err)
	return conn
}

// put installs an instance, or changes the one that is there.
func (n *network) put(text string) {
	n.Helper()
	stack, err := qdisc.ParseStack(text)
	n.must(err)
	n.must(n.conn.Replace(n.ifindex, stack))
}

func (n *network) read() dualpi2.Instance {
	n.Helper()
	i, ok, err := dualpi2.Read(n.ifindex)
	n.must(err)
	if !ok {
		n.Fatal("there is no instance")
	}
	return i
}

// quiet keeps the kernel from sending anything by itself, as IPv6 does when a device is new, and ARP when it asks a
// neighbour again after half a minute.
func (n *network) quiet() {
	n.Helper()
	n.must(os.WriteFile("/proc/sys/net/ipv6/conf/near/disable_ipv6", []byte("1"), 0))
	n.in(n.there)
	far, err := netlink.LinkByName("far")
	n.must(err)
	n.in(n.here)
	n.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: n.ifindex, State: netlink.NUD_PERMANENT, IP: far4.AsSlice(),
		HardwareAddr: far.Attrs().HardwareAddr}))
	time.Sleep(100 * time.Millisecond)
}

// settle waits until all that was sent has left the queues and arrived.
func (n *network) settle() {
	n.Helper()
	for range 200 {
		time.Sleep(20 * time.Millisecond)
		if s := n.read().Stats; s.MemoryUsed == 0 {
			time.Sleep(100 * time.Millisecond) // for those who count what arrives
			return
		}
	}
	n.Fatal("the queues do not empty")
}

// held is every BPF object in the kernel, by kind and id.
func held(t *testing.T) []string {
	t.Helper()
	var all []string
	for id := range ids(ebpf.ProgramGetNextID) {
		name := "?"
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			if info, err := p.Info(); err == nil {
				name = info.Name
			}
			p.Close()
		}
		all = append(all, fmt.Sprintf("program %d %s", id, name))
	}
	for id := range ids(ebpf.MapGetNextID) {
		name := "?"
		if m, err := ebpf.NewMapFromID(id); err == nil {
			if info, err := m.Info(); err == nil {
				name = info.Name
			}
			m.Close()
		}
		all = append(all, fmt.Sprintf("map %d %s", id, name))
	}
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		all = append(all, fmt.Sprintf("link %d", links.ID))
	}
	return all
}

// ids are those that next gives, each after the one before.
func ids[ID ~uint32](next func(ID) (ID, error)) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		id, err := next(0)
		for err == nil && yield(id) {
			id, err = next(id)
		}
	}
}

// nothingMore fails when the kernel holds BPF objects that it did not hold before. They go when the kernel's grace
// periods have passed; and what this process has mapped goes with the garbage.
func nothingMore(t *testing.T, before []string) {
	t.Helper()
	var more []string
	for range 100 {
		runtime.GC()
		more = slices.DeleteFunc(held(t), func(s string) bool { return slices.Contains(before, s) })
		if len(more) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left in the kernel: %s", strings.Join(more, ", "))
}

func kindOf(t *testing.T, c *qdisc.Conn, ifindex int) string {
	t.Helper()
	tree, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := tree.Root()
	return root.Kind
}

const (
	// noticed is longer than a request may take until the qdisc is in place. Its programs are verified and compiled in
	// that time, by an emulated CPU at a nanosecond an instruction.
	noticed = 300 * time.Millisecond
	// mostVerified is below half of what the kernel takes of an unprivileged program (BPF_MAXINSNS, 4096), which is the
	// kernel's own idea of a small one.
	mostVerified = 2000
)

// TestInLife: an instance is what it was asked to be, takes the place of another, and goes without a trace; its
// programs are as small as they are said to be.
func TestInLife(t *testing.T) {
	n := newNetwork(t)
	before := held(t)
	// A kernel that has just booted has no random numbers yet, and is testing its ciphers.
	_, err := rand.Read(make([]byte, 1))
	n.must(err)
	time.Sleep(time.Second)
	begin := time.Now()
	n.put("bpf_dualpi2 rate 50mbit")
	if took := time.Since(begin); took > noticed {
		t.Errorf("from the request to the qdisc in place: %v", took)
	} else {
		t.Logf("from the request to the qdisc in place: %v", took)
	}
	n.put("bpf_dualpi2 rate 40mbit typical_rtt 20ms any_ect overhead 24 mpu 84 ptm limit 500")
	tree, err := n.conn.Tree(n.ifindex)
	n.must(err)
	if stack, ok := tree.Stack(); !ok || !strings.Contains(stack.String(), "rate 40mbit") {
		t.Errorf("it reads back as %v", stack)
	}
	for _, o := range held(t) {
		var id ebpf.ProgramID
		if _, err := fmt.Sscanf(o, "program %d dualpi2_", &id); err != nil {
			continue
		}
		p, err := ebpf.NewProgramFromID(id)
		n.must(err)
		info, err := p.Info()
		n.must(err)
		verified, _ := info.VerifiedInstructions()
		size, _ := info.JitedSize()
		t.Logf("%s: %d verified instructions, %d bytes", info.Name, verified, size)
		if verified > mostVerified {
			t.Errorf("%s takes %d verified instructions", info.Name, verified)
		}
		p.Close()
	}
	device, err := netlink.LinkByIndex(n.ifindex)
	n.must(err)
	if s := device.Attrs().GSOMaxSegs; s != 1 {
		t.Errorf("split_gso, and the device takes %d segments", s)
	}
	n.must(n.conn.Delete(n.ifindex, qdisc.Root))
	device, err = netlink.LinkByIndex(n.ifindex)
	n.must(err)
	if s := device.Attrs().GSOMaxSegs; s != 65535 {
		t.Errorf("afterwards the device takes %d segments", s)
	}
	if _, ok, err := dualpi2.Read(n.ifindex); ok || err != nil {
		t.Errorf("afterwards there is an instance: %v, %v", ok, err)
	}
	nothingMore(t, before)
}

// TestInLargeMTU: the credit is in proportion to the device's MTU, and has room for what a kernel's dualpi2 lets that
// count, not for the 2^31-1 bytes that it may be.
func TestInLargeMTU(t *testing.T) {
	n := newNetwork(t)
	const loopback, header, most, shares = 1, 14, 1 << 20, 10 - 90 // bytes, and percents of C and L
	lo, err := netlink.LinkByIndex(loopback)
	n.must(err)
	stack, err := qdisc.ParseStack("bpf_dualpi2 rate 50mbit")
	n.must(err)
	for _, mtu := range []int{1500, most - header, most, 26_843_546 - header, 1 << 30, 1<<31 - 1} {
		n.must(netlink.LinkSetMTU(lo, mtu))
		n.must(n.conn.Replace(loopback, stack))
		i, ok, err := dualpi2.Read(loopback)
		n.must(err)
		if want := min(mtu+header, most) * shares; !ok || int(i.Stats.Credit) != want {
			t.Errorf("MTU %d: the credit is %d, want %d", mtu, i.Stats.Credit, want)
		}
		n.must(n.conn.Delete(loopback, qdisc.Root))
	}
	n.must(netlink.LinkSetMTU(lo, lo.Attrs().MTU))
}

// TestInClasses: which queue a packet goes to, and that the marks that are counted are those that arrive.
func TestInClasses(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.put("bpf_dualpi2 rate 20mbit llll_mark 0x10/0xf0")
	tree, err := n.conn.Tree(n.ifindex)
	n.must(err)
	root, _ := tree.Root()
	major := int(root.Handle)
	n.must(netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "near.7", ParentIndex: n.ifindex},
		VlanId: 7}))
	tagged := netip.MustParseAddr("198.51.100.1")
	n.up("near.7", tagged)
	for _, c := range []struct {
		name string
		source
		l    bool
		mark bool
	}{
		{"not ECT", source{ecn: 0}, false, false},
		{"ECT(1)", source{ecn: 1}, true, true},
		{"ECT(0)", source{ecn: 2}, false, false},
		{"CE", source{ecn: 3}, true, false},
		{"IPv6, ECT(1)", source{ecn: 1, to: far6}, true, true},
		{"IPv6, not ECT", source{ecn: 0, to: far6}, false, false},
		{"by its mark", source{ecn: 0, mark: 0x15}, true, false},
		{"by another mark", source{ecn: 0, mark: 0x25}, false, false},
		{"by its priority to L4S", source{ecn: 2, priority: major | 1}, true, true},
		{"by its priority past the AQM", source{ecn: 2, priority: major | 2}, true, false},
		{"by its priority to C", source{ecn: 0, priority: major}, false, false},
	} {
		n.must(pinged(n, c.to))
		before, marks := n.read().Stats, s.count[3].Load()
		conn := n.dial(c.source)
		const packets = 40 // 24 ms at this rate, so the step marks most of those that it applies to
		for range packets {
			_, err := conn.Write(make([]byte, 1400))
			n.must(err)
		}
		n.settle()
		after := n.read().Stats
		inC, inL := after.PacketsC-before.PacketsC, after.PacketsL-before.PacketsL
		if c.l && inL < packets || !c.l && inC < packets {
			t.Errorf("%s: %d packets to C and %d to L", c.name, inC, inL)
		}
		counted, arrived := int64(after.ECNMarks-before.ECNMarks), s.count[3].Load()-marks
		if c.ecn == 3 {
			arrived -= packets
		}
		if counted != arrived || c.mark != (counted > packets/2) {
			t.Errorf("%s: %d marks are counted, and %d arrived", c.name, counted, arrived)
		}
	}
	// Behind a tag that the device adds, behind one that is part of the packet, behind two of those; and what is no IP.
	for _, c := range []struct {
		name   string
		header []byte
		l      bool
	}{
		{"802.1Q", []byte{0x81, 0, 0, 7, 8, 0}, true},
		{"802.1ad and 802.1Q", []byte{0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0}, true},
		{"no IP", []byte{0x88, 0xb5}, false},
	} {
		before := n.read().Stats
		for range 20 {
			n.must(rawFrame(n.ifindex, c.header))
		}
		n.settle()
		after := n.read().Stats
		if inL := after.PacketsL - before.PacketsL; c.l != (inL >= 20) {
			t.Errorf("%s: %d packets to L", c.name, inL)
		}
	}
	before := n.read().Stats
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: tagged.AsSlice()},
		&net.UDPAddr{IP: net.IPv4(198, 51, 100, 255), Port: port})
	n.must(err)
	raw, err := conn.SyscallConn()
	n.must(err)
	n.must(raw.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 1))
	}))
	n.must(err)
	for range 20 {
		_, err := conn.Write(make([]byte, 100))
		n.must(err)
	}
	conn.Close()
	n.settle()
	if inL := n.read().Stats.PacketsL - before.PacketsL; inL < 20 {
		t.Errorf("by a VLAN device: %d packets to L", inL)
	}
	if u := n.read().Stats.Unmarked; u != 0 {
		t.Errorf("%d packets did not pass the marker", u)
	}
}

// pinged makes the two ends know each other's link address.
func pinged(n *network, to netip.Addr) error {
	conn := n.dial(source{to: to})
	_, err := conn.Write([]byte("here"))
	n.settle()
	return err
}

// rawFrame sends an Ethernet frame of an ECT(1) IPv4 packet behind the given types and tags.
func rawFrame(ifindex int, header []byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, header...)
	frame = append(frame, 0x45, 1, 0, 40, 0, 0, 0, 0, 64, 17)
	frame = append(frame, make([]byte, 60)...)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex,
		Protocol: uint16(header[0]) | uint16(header[1])<<8})
}

// TestInChange: options change while packets wait, and none is lost or passes by.
func TestInChange(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.put("bpf_dualpi2 rate 50mbit")
	n.must(pinged(n, far4))
	before := s.all()
	conn := n.dial(source{ecn: 1})
	changes := []string{
		"rate 20mbit", "rate 100mbit overhead 24 ptm", "target 5ms tupdate 8ms", "alpha 0.3 beta 2", "step_thresh 5p",
		"step_thresh 2ms min_qlen_step 3", "coupling_factor 4",
		"any_ect overflow", "drop_enqueue classic_protection 25%", "limit 20000 memlimit 90000000", "no_split_gso",
		"llll_mark 0x1/0xff", "drop_on_overload", "rate 50mbit",
	}
	sent := int64(0)
	for range 5 {
		for _, c := range changes {
			for range 20 {
				if _, err := conn.Write(make([]byte, 1000)); err == nil {
					sent++
				}
			}
			stack, err := qdisc.ParseStack("bpf_dualpi2 " + c)
			n.must(err)
			if c == "limit 20000 memlimit 90000000" {
				if err := n.conn.Adjust(n.ifindex, stack); err == nil {
					t.Error("an instance for 16384 packets takes a limit of 20000")
				}
				continue
			}
			n.must(n.conn.Adjust(n.ifindex, stack))
			tree, err := n.conn.Tree(n.ifindex)
			n.must(err)
			if now, ok := tree.Stack(); !ok || !now.Equal(stack) {
				t.Errorf("changed to %s it is %v", stack, now)
			}
		}
	}
	n.settle()
	if got := s.all() - before; got != sent {
		t.Errorf("%d packets of %d arrived", got, sent)
	}
}

// TestInGone: however the device goes, or the qdisc behind our back, nothing stays.
func TestInGone(t *testing.T) {
	kerneltest.In(t)
	before := held(t)
	for name, end := range map[string]func(n *network){
		"down and up": func(n *network) {
			device, err := netlink.LinkByIndex(n.ifindex)
			n.must(err)
			n.must(netlink.LinkSetDown(device))
			n.must(netlink.LinkSetUp(device))
			s := n.sink()
			n.must(pinged(n, far4))
			for range 100 {
				if s.all() > 0 {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if s.all() == 0 {
				n.Error("after down and up nothing comes through")
			}
			n.must(n.conn.Delete(n.ifindex, qdisc.Root))
		},
		"the device is removed": func(n *network) {
			device, err := netlink.LinkByIndex(n.ifindex)
			n.must(err)
			n.must(netlink.LinkDel(device))
		},
		"another qdisc takes its place": func(n *network) { n.put("fq_codel") },
		"deleted by somebody else": func(n *network) {
			n.must(deleteRoot(n.ifindex))
			i, ok, err := dualpi2.Read(n.ifindex)
			n.must(err)
			if !ok || i.Placed {
				n.Errorf("the marker that is left: %v, placed %v", ok, i.Placed)
			}
			s := n.sink()
			conn := n.dial(source{ecn: 1})
			for range 50 {
				_, _ = conn.Write(make([]byte, 1400))
			}
			for range 100 {
				if s.count[1].Load() == 50 {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if got := s.count[1].Load(); got != 50 {
				n.Errorf("a marker without its qdisc: %d of 50 packets came as they were sent", got)
			}
			n.must(dualpi2.Clean(n.ifindex))
		},
		"with packets in it": func(n *network) {
			conn := n.dial(source{})
			for range 500 {
				_, _ = conn.Write(make([]byte, 1400))
			}
			n.must(n.conn.Delete(n.ifindex, qdisc.Root))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			n.put("bpf_dualpi2 rate 10mbit")
			n.must(pinged(n, far4))
			end(n)
			nothingMore(t, before)
		})
	}
	t.Run("the namespace is destroyed", func(t *testing.T) {
		n := newNetwork(t)
		n.in(n.there)
		device, err := netlink.LinkByName("far")
		n.must(err)
		conn, err := qdisc.Dial(0)
		n.must(err)
		stack, err := qdisc.ParseStack("bpf_dualpi2 rate 10mbit")
		n.must(err)
		n.must(conn.Replace(device.Attrs().Index, stack))
		conn.Close()
		n.in(n.here)
		n.must(n.there.Close())
		nothingMore(t, before)
	})
}

func deleteRoot(ifindex int) error {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	list, err := netlink.QdiscList(device)
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			err = netlink.QdiscDel(q)
		}
	}
	return err
}

// TestInUDPSegments: the device's limit of segments holds TCP. What UDP has sent with GSO comes in one piece, and all
// of it arrives.
func TestInUDPSegments(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.put("bpf_dualpi2 rate 100mbit") // all of it waits for less than the target
	n.must(pinged(n, far4))
	conn, arrived := n.dial(source{}), s.all()
	raw, err := conn.SyscallConn()
	n.must(err)
	n.must(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000)
	}))
	n.must(err)
	const pieces, each = 10, 8
	for range pieces {
		_, err := conn.Write(make([]byte, 1000*each))
		n.must(err)
	}
	n.settle()
	if whole := n.read().Stats.Superpackets; whole != pieces {
		t.Errorf("%d superpackets came, want %d", whole, pieces)
	}
	if got := s.all() - arrived; got != pieces*each {
		t.Errorf("%d of %d packets arrived", got, pieces*each)
	}
}

// TestInSegments: however instances follow each other, the device takes as many segments as it did before the first,
// once the last is gone.
func TestInSegments(t *testing.T) {
	n := newNetwork(t)
	before := held(t)
	const found = 60000
	n.must(netlink.LinkSetGSOMaxSegs(mustLink(n, "near"), found))
	for _, steps := range [][]string{
		{"bpf_dualpi2"}, {"bpf_dualpi2 no_split_gso"}, {"bpf_dualpi2", "bpf_dualpi2 no_split_gso"},
		{"bpf_dualpi2 no_split_gso", "bpf_dualpi2"}, {"bpf_dualpi2", "bpf_dualpi2"},
		{"bpf_dualpi2", "lost", "bpf_dualpi2 no_split_gso"}, {"bpf_dualpi2", "lost", "bpf_dualpi2"},
		{"bpf_dualpi2", "change no_split_gso", "change split_gso", "change rate 5mbit"},
		{"bpf_dualpi2 no_split_gso", "change split_gso", "change no_split_gso"}, {"bpf_dualpi2", "fq_codel"},
		{"bpf_dualpi2", "change no_split_gso", "lost"},
	} {
		split := false
		for _, step := range steps {
			words, change := strings.CutPrefix(step, "change ")
			switch {
			case step == "lost":
				n.must(deleteRoot(n.ifindex))
				continue
			case change:
				stack, err := qdisc.ParseStack("bpf_dualpi2 " + words)
				n.must(err)
				n.must(n.conn.Adjust(n.ifindex, stack))
			default:
				n.put(step)
			}
			split = !strings.Contains(step, "no_split") && step != "fq_codel"
			want := uint32(found)
			if split {
				want = 1
			}
			if now := mustLink(n, "near").Attrs().GSOMaxSegs; now != want {
				t.Errorf("%q: after %s the device takes %d segments", steps, step, now)
			}
			if i, ok, err := dualpi2.Read(n.ifindex); err != nil || ok && i.Config.SplitGSO != split {
				t.Errorf("%q: after %s split_gso reads %v, %v", steps, step, i.Config.SplitGSO, err)
			}
		}
		if split { // somebody else's hand is seen
			n.must(netlink.LinkSetGSOMaxSegs(mustLink(n, "near"), 7))
			if i, ok, _ := dualpi2.Read(n.ifindex); ok && i.Config.SplitGSO {
				t.Errorf("%q: the device takes 7 segments, and split_gso is in force", steps)
			}
			n.must(netlink.LinkSetGSOMaxSegs(mustLink(n, "near"), 1))
		}
		n.must(n.conn.Delete(n.ifindex, qdisc.Root))
		if now := mustLink(n, "near").Attrs().GSOMaxSegs; now != found {
			t.Errorf("%q: in the end the device takes %d segments", steps, now)
		}
	}
	nothingMore(t, before)
}

// late is how long after its time a packet goes at most, where an instruction is a nanosecond. The shaper's clock
// does not run late; a packet does, by the timer's interrupt, the softirq, and the one write to a socket that it may
// have to wait for, none of which takes 15,000 instructions.
const late = 45 * time.Microsecond

// TestInShaper: packets take the time on the wire that their length, the overhead and the framing make of them;
// exactly, in a time that is.
func TestInShaper(t *testing.T) {
	n := newNetwork(t)
	n.sink()
	n.quiet()
	n.neighbour()
	const packets, ip = 200, 1028 // bytes, of a datagram of 1000
	for text, wire := range map[string]float64{
		"rate 5mbit":                           ip + 14,
		"rate 5mbit overhead 38":               ip + 38,
		"rate 5mbit overhead -10":              ip - 10,
		"rate 5mbit raw overhead 10":           ip + 14 + 10,
		"rate 5mbit overhead 18 mpu 256":       ip + 18,
		"rate 5mbit overhead 40 atm":           23 * 53, // 1068 bytes are 23 cells
		"rate 5mbit overhead 30 ptm":           1058 + 17,
		"rate 2mbit no_split_gso drop_enqueue": ip + 14,
	} {
		n.put("bpf_dualpi2 target 4s " + text) // so that nothing is dropped by the probability
		before := n.read().Stats.SojournC.Histogram
		conn := n.dial(source{})
		payload := make([]byte, 1000)
		var began, ended [packets]time.Time
		for i := range packets {
			began[i] = time.Now()
			_, err := conn.Write(payload)
			ended[i] = time.Now()
			n.must(err)
		}
		n.settle()
		after := n.read()
		if sent := after.Stats.SojournC.Packets - before.Packets; sent != packets {
			t.Errorf("%s: %d packets of %d left", text, sent, packets)
		}
		// The first goes when it comes, and each of the others when those before it are through. It came while it was
		// written.
		least := time.Duration(float64(packets) / 2 * float64(packets-1) * wire / float64(after.Config.Rate/8) * 1e9)
		most := least + packets*late
		for i := range packets {
			least -= ended[i].Sub(began[0])
			most -= max(began[i].Sub(ended[0]), 0)
		}
		// A packet's time on the wire is cut to whole nanoseconds, and so is a byte's to 2^-20 of one.
		least -= 2 * packets * packets / 2
		got := after.Stats.SojournC.Histogram.Sum - before.Sum
		if got < least || got > most {
			t.Errorf("%s: packets waited for %v in all, which is not within %v and %v", text, got, least, most)
		}
		t.Logf("%s: %v, within %v and %v", text, got, least, most)
	}
}

// neighbour tells the near end the far one's link address for good, so that it asks for none.
func (n *network) neighbour() {
	n.Helper()
	n.in(n.there)
	address := mustLink(n, "far").Attrs().HardwareAddr
	n.in(n.here)
	n.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: n.ifindex, State: netlink.NUD_PERMANENT, IP: far4.AsSlice(),
		HardwareAddr: address}))
}

// TestInLimits: what the queues do not hold is dropped when it comes, and counted; what cannot be marked in the L
// queue is dropped by the step.
func TestInLimits(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.quiet()
	const (
		packets  = 100                                      // datagrams of 1000 bytes, one right after the other
		wire     = (1000 + 28 + 14) * 8 * time.Second / 5e6 // what each takes at 5mbit
		truesize = 2304                                     // what the kernel counts for each, in bytes
		first    = 1                                        // finds the wire free, and goes at once
		within   = int64(20 * time.Millisecond / wire)      // of those behind it, those whose turn comes in 20 ms
	)
	for _, c := range []struct {
		text   string
		source source
		least  int64 // that arrive
	}{
		// The queue holds as many as the limit says.
		{"rate 5mbit limit 50", source{}, first + 50},
		{"rate 5mbit memlimit 40000", source{}, first + 40000/truesize},
		// All have come when the second's turn is, and a packet is dropped that leaves more than 5 behind it.
		{"rate 5mbit step_thresh 5p", source{priority: 1}, first + 1 + 5},
		// Those arrive whose turn comes within the threshold. It holds when they go: drop_enqueue is not about it.
		{"rate 5mbit step_thresh 20ms", source{priority: 1}, first + within},
		{"rate 5mbit step_thresh 20ms drop_enqueue", source{priority: 1}, first + within},
		// The step does not hold for fewer packets than that in the queue.
		{"rate 5mbit step_thresh 1ms min_qlen_step 200", source{priority: 1}, packets},
	} {
		n.put("bpf_dualpi2 target 4s " + c.text)
		n.must(pinged(n, far4))
		tree, err := n.conn.Tree(n.ifindex)
		n.must(err)
		root, _ := tree.Root()
		if c.source.priority != 0 {
			c.source.priority |= int(root.Handle)
		}
		before := s.all()
		conn := n.dial(c.source)
		began := time.Now()
		for range packets {
			_, _ = conn.Write(make([]byte, 1000))
		}
		took := time.Since(began)
		n.settle()
		tree, err = n.conn.Tree(n.ifindex)
		n.must(err)
		root, _ = tree.Root()
		arrived := s.all() - before
		// As many more as went while the others were written, and one that was just due.
		most := min(c.least+int64(took/wire)+1, packets)
		if arrived < c.least || arrived > most || int64(root.Stats.Drops) != packets-arrived {
			t.Errorf("%s: %d of %d packets arrived, of %d to %d, and %d drops are counted", c.text, arrived, packets,
				c.least, most, root.Stats.Drops)
		}
	}
}

// TestInRefused: an instance serves its device and no other; what cannot be is one error, and leaves everything as it
// was.
func TestInRefused(t *testing.T) {
	n := newNetwork(t)
	n.put("fq_codel")
	before := held(t)
	kind, segments := kindOf(t, n.conn, n.ifindex), mustLink(n, "near").Attrs().GSOMaxSegs
	n.must(netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "other"}}))
	other := n.up("other")
	refused := func(what string, err error, want error) {
		t.Helper()
		if err == nil || want != nil && !errors.Is(err, want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
		if now := kindOf(t, n.conn, n.ifindex); now != kind {
			t.Errorf("%s: the root is %s now", what, now)
		}
		if now := mustLink(n, "near").Attrs().GSOMaxSegs; now != segments {
			t.Errorf("%s: the device takes %d segments now", what, now)
		}
		if _, ok, _ := dualpi2.Read(n.ifindex); ok {
			t.Errorf("%s: something is left on the device", what)
		}
	}
	c := dualpi2.Defaults()
	refused("another device", dualpi2.Install(n.ifindex, c, func(kind string) error { return putKind(other, kind) }),
		unix.EBUSY)
	refused("a caller who gives up", dualpi2.Install(n.ifindex, c, func(string) error { return errors.New("no") }), nil)
	refused("no such device", dualpi2.Install(9999, c, func(string) error { return nil }), nil)
	for what, spoil := range map[string]func(*dualpi2.Config){
		"no limit":    func(c *dualpi2.Config) { c.Limit = 0 },
		"too much":    func(c *dualpi2.Config) { c.Limit = dualpi2.MaxLimit + 1 },
		"no alpha":    func(c *dualpi2.Config) { c.Alpha = 0 },
		"no tupdate":  func(c *dualpi2.Config) { c.TUpdate = 0 },
		"no coupling": func(c *dualpi2.Config) { c.CouplingFactor = 0 },
		"over 100 %":  func(c *dualpi2.Config) { c.ClassicProtection = 101 },
	} {
		c := dualpi2.Defaults()
		spoil(&c)
		refused(what, dualpi2.Install(n.ifindex, c, func(kind string) error { return putKind(n.ifindex, kind) }), nil)
	}
	if err := dualpi2.Change(n.ifindex, c); err == nil {
		t.Error("a device without an instance is changed")
	}
	n.with(1<<unix.CAP_NET_ADMIN, func() {
		err := dualpi2.Install(n.ifindex, c, func(kind string) error { return putKind(n.ifindex, kind) })
		refused("without CAP_SYS_ADMIN", err, bpf.ErrNotSupported)
		facts, err := host.Read()
		n.must(err)
		if why := facts.Lacks["bpf_dualpi2"]; facts.Qdiscs["bpf_dualpi2"] != host.No ||
			!strings.Contains(why, "requires CAP_SYS_ADMIN") || strings.Contains(why, "\n") {
			t.Errorf("without CAP_SYS_ADMIN: %s: %s", facts.Qdiscs["bpf_dualpi2"], why)
		}
	})
	// What root may do they cannot tell.
	n.with(0, func() {
		facts, err := host.Read()
		n.must(err)
		if s := facts.Qdiscs["bpf_dualpi2"]; s != host.Unknown {
			t.Errorf("without capabilities: %s", s)
		}
	})
	nothingMore(t, before)
}

// with runs f with no capabilities but these, a bit for each.
func (n *network) with(capabilities uint32, f func()) {
	n.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	n.must(unix.Capget(&header, &all[0]))
	few := all
	few[0].Effective, few[1].Effective = capabilities, 0
	n.must(unix.Capset(&header, &few[0]))
	defer func() { n.must(unix.Capset(&header, &all[0])) }()
	f()
}

// putKind is a bare request for a kind at a root.
func putKind(ifindex int, kind string) error {
	return netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex,
		Parent: netlink.HANDLE_ROOT}, QdiscType: kind})
}

// leastRounds are those in which each device gets an instance where there was none, in place of another, and where one
// was deleted: on a slow machine they take longer than the storm is to last.
const leastRounds = 4

// TestInStorm: installed, changed and deleted on two devices at once, while other CPUs send.
func TestInStorm(t *testing.T) {
	n := newNetwork(t)
	n.sink()
	before := held(t)
	n.must(netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "second"}}))
	second := n.up("second", netip.MustParseAddr("203.0.113.1"))
	stop := make(chan struct{})
	for i := range 3 {
		conn := n.dial(source{ecn: i})
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = conn.Write(make([]byte, 1200))
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	}
	rounds := 0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end) || rounds < leastRounds; rounds++ {
		for _, device := range []int{n.ifindex, second} {
			stack, err := qdisc.ParseStack(fmt.Sprintf("bpf_dualpi2 rate %dmbit", 5+rounds%50))
			n.must(err)
			n.must(n.conn.Replace(device, stack))
			stack, err = qdisc.ParseStack("bpf_dualpi2 rate 30mbit any_ect")
			n.must(err)
			n.must(n.conn.Adjust(device, stack))
			if rounds%3 == 0 {
				n.must(n.conn.Delete(device, qdisc.Root))
			}
		}
	}
	close(stop)
	t.Logf("%d rounds", rounds)
	n.must(n.conn.Delete(n.ifindex, qdisc.Root))
	n.must(n.conn.Delete(second, qdisc.Root))
	device, err := netlink.LinkByName("second")
	n.must(err)
	n.must(netlink.LinkDel(device))
	nothingMore(t, before)
}

// TestInKilled: a loader that is killed before each thing that it does leaves the device with the old qdisc or with
// the new one, whole, and nothing that the next one does not take away.
func TestInKilled(t *testing.T) {
	n := newNetwork(t)
	n.put("fq_codel")
	before := held(t)
	run := func(at int) (string, int) {
		command := exec.Command(kerneltest.Killat, "-at", strconv.Itoa(at), "/init", "-test.run=^TestLoader$")
		command.Env = append(os.Environ(), loader+"="+strconv.Itoa(n.ifindex))
		said, _ := command.CombinedOutput()
		return string(said), command.ProcessState.ExitCode()
	}
	steps := 0
	if m := regexp.MustCompile(`killat: (\d+) steps`).FindStringSubmatch(first(run(0))); m != nil {
		steps, _ = strconv.Atoi(m[1])
	}
	if steps < 5 {
		t.Fatalf("the loader takes %d steps", steps)
	}
	t.Logf("the loader takes %d steps", steps)
	placed := 0
	for at := 1; at <= steps+1; at++ { // the last one is not killed: to put it in place may be the last step
		n.put("fq_codel")
		said, status := run(at)
		if killed := status == 128+int(unix.SIGKILL); killed != (at <= steps) {
			t.Errorf("step %d of %d: the loader ends with status %d\n%s", at, steps, status, said)
		}
		kind := kindOf(t, n.conn, n.ifindex)
		i, ok, err := dualpi2.Read(n.ifindex)
		n.must(err)
		switch {
		case kind == "fq_codel" && (!ok || !i.Placed):
		case kind == "bpf_dualpi2" && ok && i.Placed && i.Config.SplitGSO:
			placed++
		default:
			t.Errorf("killed at step %d: the root is %s, and the instance is there: %v, in place: %v\n%s", at, kind, ok,
				i.Placed, said)
		}
		n.put("fq_codel")
		if device, err := netlink.LinkByIndex(n.ifindex); err != nil || device.Attrs().GSOMaxSegs != 65535 {
			t.Errorf("killed at step %d: the device takes other segments than before", at)
		}
	}
	if placed == 0 || placed > steps {
		t.Errorf("of %d steps it was in place after %d: it is not put there, or no kill came before that", steps, placed)
	}
	t.Logf("%d steps; it was in place after the last %d", steps, placed)
	nothingMore(t, before)
}

func first(said string, _ int) string { return said }

const loader = "WEIR_LOADER"

// TestLoader is a process that installs an instance, for tests that run it and may kill it.
func TestLoader(t *testing.T) {
	ifindex, err := strconv.Atoi(os.Getenv(loader))
	if err != nil {
		t.Skip("skipped here: a test inside a kernel runs it")
	}
	conn, err := qdisc.Dial(0)
	if err != nil {
		t.Fatal(err)
	}
	stack, err := qdisc.ParseStack("bpf_dualpi2 rate 20mbit")
	if err == nil {
		err = conn.Replace(ifindex, stack)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestInCost: what a packet costs on its whole way out, from a program's write to the device's driver, in
// instructions: in a time that is exact, one takes a nanosecond. Nothing waits in the queues, so it is what a server
// pays for the qdisc when there is room.
func TestInCost(t *testing.T) {
	n := newNetwork(t)
	n.must(netlink.LinkDel(mustLink(n, "near")))
	one, many := n.drain("drain", 1), n.drain("drains", txQueues)
	n.ifindex = one.ifindex
	kinds := countedUDP()
	payload := make([]byte, 1000)
	const rounds, packets = 5, 2000
	cost := map[string]float64{}
	debug.SetGCPercent(-1)
	defer debug.SetGCPercent(100)
	for range rounds { // of which the cheapest counts: what else the machine does is in all
		for _, text := range kinds {
			d := one
			if several(text) {
				d = many
			}
			if n.ifindex = d.ifindex; !n.has(text) || text == between {
				continue
			}
			send := func(packets int) float64 {
				begin := time.Now()
				for i := range packets {
					_, err := unix.Write(d.sockets[i&1], payload)
					n.must(err)
				}
				return float64(time.Since(begin)) / float64(packets)
			}
			passed := func() uint64 {
				if text == "noqueue" {
					return 0
				}
				stats, _, err := n.conn.RootStats(n.ifindex)
				n.must(err)
				return stats.Packets
			}
			send(1000)
			before := passed()
			c := send(packets)
			if got := passed() - before; text != "noqueue" && got < packets {
				t.Errorf("of %d packets %d pass %s", packets, got, text)
			}
			if known, ok := cost[text]; !ok || c < known {
				cost[text] = c
			}
		}
	}
	n.ifindex = one.ifindex
	for _, text := range kinds {
		if c, ok := cost[text]; ok {
			t.Logf("cost UDP: %s takes %.0f instructions a packet", text, c)
		} else if text != between && !mayLack(text) {
			t.Errorf("%s was not measured", text)
		}
	}
	// TestCost holds the mean to what results/dualpi2.md says. Of one boot, no more is certain than the order.
	atMost(t, "UDP", cost, "bpf_dualpi2 rate 10gbit", "cake bandwidth 10gbit besteffort", 1)
	atMost(t, "UDP", cost, "fq_codel", "bpf_dualpi2 rate 10gbit", 1)
	atMost(t, "UDP", cost, "bpf_dualpi2", "bpf_dualpi2 rate 10gbit", 1) // a shaper is not for nothing
}

// countedUDP are the qdiscs that TestInCost measures.
func countedUDP() []string {
	return []string{
		"noqueue", "pfifo", "fq_codel", "fq", "htb rate 10gbit | fq_codel", "htb rate 10gbit | fq",
		"htb rate 10gbit | dualpi2", "cake bandwidth 10gbit besteffort", between, "cake_mq bandwidth 10gbit besteffort",
		between, "mq | htb rate 10gbit | fq", between, "bpf_dualpi2 rate 10gbit", between, "bpf_dualpi2",
	}
}

// countedTCP are those that TestInSplit measures. Those that want several queues are the last.
func countedTCP() []string {
	return []string{
		"noqueue", "fq_codel", "fq", "htb rate 10gbit | fq_codel", "htb rate 10gbit | fq",
		"bpf_dualpi2 no_split_gso", "htb rate 10gbit | dualpi2", "cake bandwidth 10gbit besteffort no-split-gso",
		"cake bandwidth 10gbit besteffort", "bpf_dualpi2", "bpf_dualpi2 rate 10gbit",
		"cake_mq bandwidth 10gbit besteffort", "cake_mq bandwidth 10gbit besteffort no-split-gso",
		"mq | htb rate 10gbit | fq",
	}
}

// TestCostTable: the table of costs has a row for each of them.
func TestCostTable(t *testing.T) {
	text, err := os.ReadFile("../../results/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Concat(countedUDP(), countedTCP()) {
		row := "\n| " + strings.ReplaceAll(kind, "|", `\|`) + " | "
		if kind != between && !strings.Contains(string(text), row) {
			t.Errorf("results/rules.md lacks %q (make results-rules SECTION=packet-costs)", row)
		}
	}
}

// between has what is left to be done after one not counted for the next.
const between = "pfifo limit 100"

// txQueues are those of a device for qdiscs that want several.
const txQueues = 4

func several(text string) bool {
	return strings.HasPrefix(text, "cake_mq") || strings.HasPrefix(text, "mq")
}

// mayLack tells of what not every kernel has.
func mayLack(text string) bool {
	return strings.HasSuffix(text, "dualpi2") || strings.HasPrefix(text, "cake_mq")
}

// drain is a device that drops what it is given to send, and two sockets to it, of which one sends ECT(1).
type drain struct {
	ifindex int
	sockets []int
}

func (n *network) drain(name string, queues int) (d drain) {
	n.Helper()
	n.must(netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: 1000,
		NumTxQueues: queues}}))
	own := netip.AddrFrom4([4]byte{198, 18, byte(queues), 1})
	d.ifindex = n.up(name, own)
	for _, ecn := range []int{0, 1} {
		f, err := n.dial(source{ecn: ecn, to: own.Next()}).File()
		n.must(err)
		n.Cleanup(func() { f.Close() })
		d.sockets = append(d.sockets, int(f.Fd()))
	}
	return d
}

// bootsDiffer is how far a boot's ratio of two costs may be above the mean: two percent for each (results/dualpi2.md).
const bootsDiffer = 0.04

// atMost asserts what results/dualpi2.md says of costs: one is at most so many times another's.
func atMost(t *testing.T, what string, cost map[string]float64, one, other string, times float64) {
	t.Helper()
	if cost[one] == 0 || cost[other] == 0 {
		t.Errorf("%s: %s or %s was not measured", what, one, other)
		return
	}
	if ratio := cost[one] / cost[other]; ratio > times*(1+bootsDiffer) {
		t.Errorf("%s: %s takes %.2f times the instructions of %s, at most %g", what, one, ratio, other, times)
	}
}

// has puts a queue there, and waits for what that leaves to be done; false if the kernel has no such queue.
func (n *network) has(text string) bool {
	n.Helper()
	stack, err := qdisc.ParseStack(text)
	n.must(err)
	if err := n.conn.Replace(n.ifindex, stack); err != nil {
		n.Logf("%s: %v", text, err)
		return false
	}
	time.Sleep(time.Second)
	return true
}

func mustLink(n *network, name string) netlink.Link {
	n.Helper()
	device, err := netlink.LinkByName(name)
	n.must(err)
	return device
}

// TestInSplit: what it costs a sender to let no superpackets come: TCP to the other end of a veth, both ends
// together, for each packet of 1448 bytes.
func TestInSplit(t *testing.T) {
	n := newNetwork(t)
	n.in(n.there)
	listener, err := net.Listen("tcp4", fmt.Sprintf("%v:%d", far4, port))
	n.must(err)
	n.in(n.here)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	debug.SetGCPercent(-1)
	defer debug.SetGCPercent(100)
	cost, many := map[string]float64{}, false
	for _, text := range countedTCP() {
		if several(text) && !many {
			n.spread()
			many = true
		}
		if !n.has(text) {
			continue
		}
		conn, err := net.Dial("tcp4", fmt.Sprintf("%v:%d", far4, port))
		n.must(err)
		block := make([]byte, 1<<16)
		send := func(blocks int) time.Duration {
			begin := time.Now()
			for range blocks {
				_, err := conn.Write(block)
				n.must(err)
			}
			return time.Since(begin)
		}
		send(20)
		const blocks = 200
		cost[text] = float64(send(blocks)) / (blocks * float64(len(block)) / 1448)
		t.Logf("cost TCP: %s takes %.0f instructions a packet", text, cost[text])
		conn.Close()
	}
	// What it costs to let no superpackets come. TestCost holds the mean to what the help of "weir dualpi2" says; how
	// large the few superpackets of one boot are is chance. It is not for nothing, or they came.
	atMost(t, "TCP", cost, "bpf_dualpi2", "bpf_dualpi2 no_split_gso", 10)
	atMost(t, "TCP", cost, "bpf_dualpi2", "cake bandwidth 10gbit besteffort", 2.1)
	atMost(t, "TCP", cost, "bpf_dualpi2 no_split_gso", "bpf_dualpi2", 0.25)
}

// TestInVersion: an instance of another version is one whose words are not known; another takes its place, and
// nothing of it is left.
func TestInVersion(t *testing.T) {
	n := newNetwork(t)
	before := held(t)
	n.put("bpf_dualpi2 rate 5mbit")
	for _, o := range held(t) {
		var id ebpf.MapID
		if _, err := fmt.Sscanf(o, "map %d .data.instance", &id); err != nil || slices.Contains(before, o) {
			continue
		}
		m, err := ebpf.NewMapFromID(id)
		n.must(err)
		value, err := m.LookupBytes(uint32(0))
		n.must(err)
		value[0] = 99 // its layout
		n.must(m.Update(uint32(0), value, ebpf.UpdateExist))
		m.Close()
	}
	i := n.read()
	if !i.Placed || i.Known {
		t.Errorf("it reads as placed %v, known %v", i.Placed, i.Known)
	}
	tree, err := n.conn.Tree(n.ifindex)
	n.must(err)
	if root, _ := tree.Root(); root.Spec != nil || root.Kind != i.Kind {
		t.Errorf("the root is %s, %v", root.Kind, root.Spec)
	}
	n.put("bpf_dualpi2 rate 6mbit")
	if i := n.read(); !i.Known || i.Config.Rate != 6e6 {
		t.Errorf("the next one is %+v", i.Config)
	}
	n.must(n.conn.Delete(n.ifindex, qdisc.Root))
	if s := mustLink(n, "near").Attrs().GSOMaxSegs; s != 65535 {
		t.Errorf("afterwards the device takes %d segments", s)
	}
	nothingMore(t, before)
}

// TestInTunnel: on a device without a link's header the IP header is looked for, and marked, where it is.
func TestInTunnel(t *testing.T) {
	n := newNetwork(t)
	tunnel := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tunnel"}, Mode: netlink.TUNTAP_MODE_TUN, Queues: 1}
	n.must(netlink.LinkAdd(tunnel))
	defer tunnel.Fds[0].Close()
	n.must(netlink.LinkDel(mustLink(n, "near")))
	n.ifindex = n.up("tunnel", near4, near6)
	n.put("bpf_dualpi2 rate 5mbit target 4s")
	before := n.read().Stats
	for _, to := range []netip.Addr{far4, far6} {
		for _, ecn := range []int{0, 1} {
			conn := n.dial(source{ecn: ecn, to: to})
			for range 40 {
				_, err := conn.Write(make([]byte, 1000))
				n.must(err)
			}
		}
	}
	marked, all := 0, 0
	buf := make([]byte, 2048)
	fd := int(tunnel.Fds[0].Fd())
	for all < 160 {
		if ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000); err != nil ||
			ready == 0 {
			t.Fatalf("after %d packets (%d marked) no more come: %v; %+v", all, marked, err, n.read().Stats.PacketsL)
		}
		m, err := unix.Read(fd, buf)
		n.must(err)
		packet := buf[:m]
		switch {
		case len(packet) < 1000:
			continue // the kernel's own
		case packet[0]>>4 == 4 && packet[1]&3 == 3, packet[0]>>4 == 6 && packet[1]>>4&3 == 3:
			marked++
		}
		if packet[0]>>4 == 4 {
			sum := uint32(0)
			for i := 0; i < 20; i += 2 {
				sum += uint32(packet[i])<<8 | uint32(packet[i+1])
			}
			if sum = sum&0xffff + sum>>16; sum != 0xffff {
				t.Fatalf("a header's checksum is off: % x", packet[:20])
			}
		}
		all++
	}
	s := n.read().Stats
	if inL := s.PacketsL - before.PacketsL; inL != 80 || marked != int(s.ECNMarks-before.ECNMarks) || marked < 40 {
		t.Errorf("%d packets went to L, %d came marked, and %d marks are counted", inL, marked,
			s.ECNMarks-before.ECNMarks)
	}
}

// TestInStall: without a rate it follows the device. Where that stops, packets wait, and the age of those that do is
// what marks the next.
func TestInStall(t *testing.T) {
	n := newNetwork(t)
	s := n.sink()
	n.quiet()
	n.put("bpf_dualpi2")
	conn := n.dial(source{ecn: 1})
	send := func(packets int) {
		for range packets {
			_, err := conn.Write(make([]byte, 1000))
			n.must(err)
		}
	}
	send(500)
	n.settle()
	if s := n.read().Stats; s.ECNMarks != 0 {
		t.Errorf("where nothing waited %d were marked", s.ECNMarks)
	}
	arrived := s.all()

	const ring = 256 // packets that a veth holds for a receiver that polls (drivers/net/veth.c, VETH_RING_SIZE)
	n.thread()
	resume := n.alone()
	send(ring + 20)
	if s := n.read().Stats; s.MemoryUsed == 0 {
		t.Fatal("the device has not stopped")
	}
	wait := func(d time.Duration) {
		for begin := time.Now(); time.Since(begin) < d; {
		}
	}
	wait(5 * time.Millisecond)
	send(10)
	resume()
	n.settle()
	i := n.read().Stats
	if i.ECNMarks != 10 || i.StepMarks != 10 || s.count[3].Load() != 10 {
		t.Errorf("10 packets came when others had waited for 5 ms: %d are marked, %d of them by the step, and %d "+
			"arrived so", i.ECNMarks, i.StepMarks, s.count[3].Load())
	}
	if got := s.all() - arrived; got != ring+30 {
		t.Errorf("%d of %d packets arrived", got, ring+30)
	}
	if i.SojournL.Histogram.Max < 5*time.Millisecond || i.SojournL.Histogram.Max > 20*time.Millisecond {
		t.Errorf("the longest wait was %v", i.SojournL.Histogram.Max)
	}

	// With a rate, too: that the wire has been free for long does not mean that the next packet goes at once.
	n.put("bpf_dualpi2 rate 1gbit")
	resume = n.alone()
	send(ring + 20)
	wait(5 * time.Millisecond)
	send(130)
	resume()
	n.settle()
	if i = n.read().Stats; i.StepMarks != 130 {
		t.Errorf("130 packets came when others had waited for 5 ms: the step marked %d", i.StepMarks)
	}
}

// thread has the far end take packets out of a ring, in a thread of the kernel's, as it does for a near end that
// leaves no segmentation to it.
func (n *network) thread() {
	n.Helper()
	n.ethtool("near", 0x1f, 0) // ETHTOOL_STSO, include/uapi/linux/ethtool.h
	n.in(n.there)
	defer n.in(n.here)
	n.ethtool("far", 0x2c, 1) // ETHTOOL_SGRO
	sys := n.TempDir()        // of this namespace
	n.must(unix.Mount("none", sys, "sysfs", 0, ""))
	n.Cleanup(func() { n.must(unix.Unmount(sys, 0)) })
	n.must(os.WriteFile(sys+"/class/net/far/threaded", []byte("1"), 0))
}

func (n *network) ethtool(device string, command, to uint32) {
	n.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	n.must(err)
	defer unix.Close(fd)
	value := [2]uint32{command, to}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		n.Fatalf("%s: ethtool %#x: %v", device, command, errno)
	}
}

// alone lets no other thread run on the one CPU, until the function that it gives is called.
func (n *network) alone() func() {
	n.Helper()
	schedule := func(policy, priority uint32) {
		n.must(unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}, 0))
	}
	schedule(unix.SCHED_FIFO, 1)
	return func() { schedule(unix.SCHED_NORMAL, 0) }
}

// spread has a device of several queues take the place of the near one.
func (n *network) spread() {
	n.Helper()
	n.must(netlink.LinkDel(mustLink(n, "near")))
	n.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", TxQLen: 1000,
		NumTxQueues: txQueues, NumRxQueues: txQueues}, PeerName: "far", PeerNamespace: netlink.NsFd(int(n.there))}))
	n.ifindex = n.up("near", near4, near6)
	n.in(n.there)
	n.up("far", far4, far6)
	n.in(n.here)
}

// TestInQueues: a device with several queues has one instance for all of them, and one rate; and when it goes each
// queue has its own again.
func TestInQueues(t *testing.T) {
	n := newNetwork(t)
	n.spread()
	s := n.sink()
	n.quiet()
	n.put("mq | fq_codel")
	queues := func() (all int) {
		tree, err := n.conn.Tree(n.ifindex)
		n.must(err)
		return len(tree.Qdiscs)
	}
	before := queues()
	if before != 5 {
		t.Fatalf("mq has %d qdiscs", before)
	}
	n.put("bpf_dualpi2 rate 5mbit target 4s")
	if q := queues(); q != 1 {
		t.Errorf("beside it there are %d others", q-1)
	}
	n.neighbour()
	n.must(pinged(n, far4))
	start := s.all()
	var began, ended []time.Time
	for range 8 { // sockets, which the device spreads over its queues
		conn := n.dial(source{})
		for range 25 {
			began = append(began, time.Now())
			_, err := conn.Write(make([]byte, 1000))
			ended = append(ended, time.Now())
			n.must(err)
		}
	}
	n.settle()
	longest := n.read().Stats.SojournC.Histogram.Max
	if got := s.all() - start; got != 200 {
		t.Errorf("%d of 200 packets arrived", got)
	}
	// The last waits for all others, but for the time in which they came.
	rate := time.Duration(199 * float64(28+1000+14) / 625e3 * 1e9)
	least, most := rate-ended[199].Sub(began[0])-2*200, rate-began[199].Sub(ended[0])+late
	if longest < least || longest > most {
		t.Errorf("the last one waited for %v, and one rate makes it %v to %v", longest, least, most)
	}
	n.put("mq | fq_codel")
	if after := queues(); after != before {
		t.Errorf("afterwards mq has %d qdiscs", after)
	}
}

// TestInLockdown: a kernel that shows nobody its memory takes an instance all the same, which reads of it only what
// the verifier has seen to. It is the last test: there is no way back.
func TestInLockdown(t *testing.T) {
	n := newNetwork(t)
	const folder, level = "/sys/kernel/security", "confidentiality"
	n.must(unix.Mount("securityfs", folder, "securityfs", 0, ""))
	n.must(os.WriteFile(folder+"/lockdown", []byte(level), 0))
	state, err := os.ReadFile(folder + "/lockdown")
	n.must(err)
	if !strings.Contains(string(state), "["+level+"]") {
		t.Fatalf("lockdown: %s", state)
	}
	n.must(dualpi2.Probe())
	command := exec.Command("/init", "-test.run=^TestLoader$") // a process that does not know yet what the kernel takes
	command.Env = append(os.Environ(), loader+"="+strconv.Itoa(n.ifindex))
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	n.must(pinged(n, far4))
	if s := n.read().Stats; s.PacketsC+s.PacketsL == 0 || s.Unmarked != 0 {
		t.Errorf("%d packets, and %d of them unmarked", s.PacketsC+s.PacketsL, s.Unmarked)
	}
}
