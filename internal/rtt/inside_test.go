// SPDX-License-Identifier: Apache-2.0

package rtt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/qdisc"
)

// relay is the first namespace between two others: an origin, and a client beyond "near".
type relay struct {
	*testing.T
	here, origin, client netns.NsHandle
	near                 int // index of the device to the client
}

const delay = 40 * time.Millisecond // from the client to the relay

const paced = "tbf rate 20mbit burst 3100b limit 200kb" // a queue of 80 ms

func newRelay(t *testing.T) *relay {
	t.Helper()
	kerneltest.In(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r := &relay{T: t}
	var err error
	r.here, err = netns.Get()
	r.must(err)
	for _, ns := range []*netns.NsHandle{&r.origin, &r.client} {
		*ns, err = netns.New()
		r.must(err)
		r.in(r.here)
	}
	r.near = r.join("near", r.client, "192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64", "2001:db8::2/64")
	r.join("inner", r.origin, "198.51.100.1/24", "198.51.100.2/24", "2001:db8:1::1/64", "2001:db8:1::2/64")
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		r.must(os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0))
	}
	r.in(r.client)
	r.route("192.0.2.1", "2001:db8::1")
	r.queue("far", fmt.Sprintf("netem limit 100000 delay %v", delay))
	r.in(r.origin)
	r.route("198.51.100.1", "2001:db8:1::1")
	r.in(r.here)
	t.Cleanup(func() {
		r.in(r.here)
		for _, name := range []string{"near", "inner"} {
			device, err := netlink.LinkByName(name)
			r.must(err)
			r.must(netlink.LinkDel(device))
		}
		for _, ns := range []netns.NsHandle{r.here, r.origin, r.client} {
			ns.Close()
		}
	})
	return r
}

func (r *relay) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *relay) in(ns netns.NsHandle) { r.Helper(); r.must(netns.Set(ns)) }

// join makes a cable to another namespace, where its end is called "far". Addresses are in pairs.
func (r *relay) join(name string, ns netns.NsHandle, addresses ...string) int {
	r.Helper()
	r.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: 1000}, PeerName: "far",
		PeerNamespace: netlink.NsFd(int(ns))}))
	index := r.up(name, addresses[0], addresses[2])
	r.in(ns)
	defer r.in(r.here)
	r.up("far", addresses[1], addresses[3])
	return index
}

func (r *relay) up(name string, addresses ...string) int {
	r.Helper()
	device, err := netlink.LinkByName(name)
	r.must(err)
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		r.must(err)
		a.Flags = unix.IFA_F_NODAD
		r.must(netlink.AddrAdd(device, a))
	}
	r.must(netlink.LinkSetUp(device))
	return device.Attrs().Index
}

func (r *relay) route(gateways ...string) {
	r.Helper()
	for _, g := range gateways {
		r.must(netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP(g)}))
	}
}

func (r *relay) queue(name, text string) {
	r.Helper()
	stack, err := qdisc.ParseStack(text)
	r.must(err)
	device, err := netlink.LinkByName(name)
	r.must(err)
	conn, err := qdisc.Dial(0)
	r.must(err)
	defer conn.Close()
	r.must(conn.Replace(device.Attrs().Index, stack))
}

func (r *relay) open(devices ...int) *Watch {
	r.Helper()
	w, err := Open(devices...)
	r.must(err)
	r.Cleanup(func() { w.Close() })
	return w
}

// download has the origin send so many bytes to the client, which calls by an address of the origin's.
func (r *relay) download(to string, bytes int64) {
	r.Helper()
	r.in(r.origin)
	listener, err := net.Listen("tcp", net.JoinHostPort(to, "4000"))
	r.must(err)
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, _ = io.CopyN(c, zeros{}, bytes)
			c.Close()
		}
	}()
	r.in(r.client)
	defer r.in(r.here)
	c, err := net.Dial("tcp", listener.Addr().String())
	r.must(err)
	defer c.Close()
	if n, err := io.Copy(io.Discard, c); n != bytes || err != nil {
		r.Fatalf("%d of %d bytes came: %v", n, bytes, err)
	}
	time.Sleep(5 * delay) // the last acknowledgements are on their way
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// only is the one connection that is known.
func (r *relay) only(w *Watch) Flow {
	r.Helper()
	all, err := w.Read()
	r.must(err)
	if len(all) != 1 {
		r.Fatalf("%d connections are known: %+v", len(all), all)
	}
	again, err := w.Again(all)
	if err != nil || len(again) != 1 || again[0] != all[0] {
		r.Fatalf("looked at again it is %+v: %v", again, err)
	}
	return all[0]
}

// The RTT is what netem delays, over each version of IP and through tags of VLANs.
func TestInRTT(t *testing.T) {
	for name, to := range map[string]string{"IPv4": "198.51.100.2", "IPv6": "2001:db8:1::2"} {
		for tags := range 3 {
			t.Run(fmt.Sprintf("%s, %d tags", name, tags), func(t *testing.T) {
				r := newRelay(t)
				if tags > 0 {
					r.over(r.tag(tags))
				}
				w := r.open(r.near)
				const bytes = 4 << 20
				r.download(to, bytes)
				f := r.only(w)
				t.Logf("%+v", f)
				rtts := map[string]time.Duration{"least": f.Least, "last": f.Last, "smoothed": f.Smooth}
				for what, got := range rtts {
					if off := got - delay; off < 0 || off > time.Millisecond {
						t.Errorf("the %s RTT is %v, and netem delays by %v", what, got, delay)
					}
				}
				if f.Samples < 8 || f.Sent != bytes || f.Acked < bytes || f.Acked > bytes+1 || f.Again != 0 {
					t.Errorf("of %d bytes it has seen %+v", bytes, f)
				}
				if want := uint32((bytes + int(f.MSS) - 1) / int(f.MSS)); f.MSS < 1400 || f.Packets < want {
					t.Errorf("%d packets of %d bytes at most carried %d", f.Packets, f.MSS, bytes)
				}
				here := netip.AddrPortFrom(netip.MustParseAddr(to), 4000)
				if f.There.Addr().Is4() != (name == "IPv4") || f.Here != here {
					t.Errorf("it goes from %v to %v", f.Here, f.There)
				}
			})
		}
	}
}

// over puts the way to the client into devices on top of the cable, which are made at both of its ends.
func (r *relay) over(make func(parent netlink.Link) netlink.Link) {
	r.Helper()
	for _, end := range []struct {
		ns        netns.NsHandle
		name      string
		addresses []string
		gateways  []string
	}{
		{r.here, "near", []string{"192.0.2.1/24", "2001:db8::1/64"}, nil},
		{r.client, "far", []string{"192.0.2.2/24", "2001:db8::2/64"}, []string{"192.0.2.1", "2001:db8::1"}},
	} {
		r.in(end.ns)
		device, err := netlink.LinkByName(end.name)
		r.must(err)
		for _, text := range end.addresses {
			a, err := netlink.ParseAddr(text)
			r.must(err)
			r.must(netlink.AddrDel(device, a))
		}
		r.up(make(device).Attrs().Name, end.addresses...)
		r.route(end.gateways...)
	}
	r.in(r.here)
}

// tag makes tags of VLANs.
func (r *relay) tag(tags int) func(netlink.Link) netlink.Link {
	return func(device netlink.Link) netlink.Link {
		for i := range tags {
			name := fmt.Sprintf("vlan%d", i)
			r.must(netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name,
				ParentIndex: device.Attrs().Index}, VlanId: 5 + i}))
			var err error
			device, err = netlink.LinkByName(name)
			r.must(err)
			r.must(netlink.LinkSetUp(device))
		}
		return device
	}
}

// tunnel puts the way to the client into a tunnel that this process carries, and which loses each packet out of so many
// that goes to the client; 0: none. It gives the tunnel's device.
func (r *relay) tunnel(loses int) (near int) {
	r.Helper()
	var ends []*os.File
	r.over(func(netlink.Link) netlink.Link {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK, 0)
		r.must(err)
		request, err := unix.NewIfreq("tun0")
		r.must(err)
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		r.must(unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
		ends = append(ends, os.NewFile(uintptr(fd), "tun0"))
		device, err := netlink.LinkByName("tun0")
		r.must(err)
		if len(ends) > 1 {
			r.queue("tun0", fmt.Sprintf("netem limit 100000 delay %v", delay))
		} else {
			near = device.Attrs().Index
		}
		return device
	})
	for i := range ends {
		r.Cleanup(func() { ends[i].Close() })
		go func() {
			packet := make([]byte, 1<<16)
			for count := 1; ; count++ {
				n, err := ends[i].Read(packet)
				if err != nil {
					return
				}
				if i == 0 && loses > 0 && count%loses == 0 {
					continue
				}
				_, _ = ends[1-i].Write(packet[:n])
			}
		}()
	}
	return near
}

// Packets of a tunnel's have no header before IP.
func TestInTunnel(t *testing.T) {
	r := newRelay(t)
	w := r.open(r.tunnel(0))
	r.queue("tun0", paced)
	const bytes = 1 << 20
	r.download("198.51.100.2", bytes)
	f := r.only(w)
	t.Logf("%+v", f)
	if off := f.Least - delay; off < 0 || off > time.Millisecond || f.Acked < bytes || f.Samples < 8 {
		t.Errorf("netem delays by %v, and it has seen %+v", delay, f)
	}
}

// Superpackets may be larger than IP's field for the length holds (BIG TCP), which is 0 then. Kernels before 6.3 make
// none over IPv4. Over IPv6 older ones add a header to each, with which none of full size is forwarded.
func TestInBig(t *testing.T) {
	for name, to := range map[string]string{"IPv4": "198.51.100.2", "IPv6": "2001:db8:1::2"} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t)
			r.big("near")
			r.in(r.origin)
			r.big("far")
			// As large as the window lets it.
			r.must(os.WriteFile("/proc/sys/net/ipv4/tcp_tso_rtt_log", []byte("20"), 0))
			r.in(r.here)
			w := r.open(r.near)
			const bytes = 8 << 20
			r.download(to, bytes)
			f := r.only(w)
			t.Logf("%+v", f)
			if f.Sent != bytes || f.Acked < bytes || f.Acked > bytes+1 || f.Again != 0 {
				t.Errorf("of %d bytes it has seen %+v", bytes, f)
			}
		})
	}
}

// big lets a device's superpackets be larger than usual.
func (r *relay) big(name string) {
	r.Helper()
	const size = 200_000
	device, err := netlink.LinkByName(name)
	r.must(err)
	r.must(netlink.LinkSetGSOMaxSize(device, size))
	_ = netlink.LinkSetGSOIPv4MaxSize(device, size) // which kernels before 6.3 do not know
}

// What packets wait in this host's own queue is in no RTT.
func TestInQueue(t *testing.T) {
	r := newRelay(t)
	r.queue("near", paced)
	w := r.open(r.near)
	r.download("198.51.100.2", 4<<20)
	f := r.only(w)
	t.Logf("%+v", f)
	mean := f.Sum / time.Duration(max(1, f.Samples))
	for what, got := range map[string]time.Duration{"least": f.Least, "mean": mean, "smoothed": f.Smooth} {
		if off := got - delay; off < 0 || off > 2*time.Millisecond {
			t.Errorf("the %s RTT is %v, and netem delays by %v", what, got, delay)
		}
	}
	if f.Samples < 30 {
		t.Errorf("it has seen %+v", f)
	}
}

// wire is what two namespaces hand each other through the relay, frame by frame.
type wire struct {
	*relay
	out, in packets
	flow    uint32 // of many; 0: the one
}

// segment is one of TCP. Numbers count from 1000.
type segment struct {
	in       bool // from the client; else to it
	seq, ack uint32
	flags    byte
	bytes    int
	sack     []uint32 // where blocks begin and end
}

const syn, ackFlag = 2, 16

func (w *wire) pass(s segment) {
	w.Helper()
	w.send(s)
	time.Sleep(time.Millisecond)
}

func (w *wire) send(s segment) {
	w.Helper()
	const origin = 1000
	options := []byte{}
	if len(s.sack) > 0 {
		options = append(options, 1, 1, 5, byte(2+4*len(s.sack)))
		for _, n := range s.sack {
			options = binary.BigEndian.AppendUint32(options, origin+n)
		}
	}
	size := 20 + 20 + len(options) + s.bytes
	frame := make([]byte, 14, 14+size)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	ends := []byte{192, 0, 2, 9, 192, 0, 2, 2}
	ports := []byte{byte(w.flow >> 8), byte(w.flow) + 80, 1, 1 + byte(w.flow>>16)}
	to := w.out
	if s.in {
		ends, ports, to = append(ends[4:8:8], ends[:4]...), append(ports[2:4:4], ports[:2]...), w.in
	}
	frame = append(frame, 0x45, 0, byte(size>>8), byte(size), 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0)
	frame = append(append(frame, ends...), ports...)
	frame = binary.BigEndian.AppendUint32(frame, origin+s.seq)
	frame = binary.BigEndian.AppendUint32(frame, origin+s.ack)
	frame = append(frame, byte(5+len(options)/4)<<4, s.flags, 1, 0, 0, 0, 0, 0)
	frame = append(append(frame, options...), make([]byte, s.bytes)...)
	w.must(unix.Sendto(to.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: to.ifindex}))
}

// What an acknowledgement tells, segment by segment. Each row is a connection of its own.
func TestInSegments(t *testing.T) {
	data := func(from, bytes uint32) segment { return segment{seq: from, flags: ackFlag, bytes: int(bytes)} }
	ack := func(n uint32, sack ...uint32) segment { return segment{in: true, ack: n, flags: ackFlag, sack: sack} }
	r := newRelay(t)
	r.mirror("inner", "near")
	for name, c := range map[string]struct {
		segments     []segment
		samples      uint32
		acked, again uint64
	}{
		"two segments":                     {[]segment{data(0, 1000), data(1000, 1000), ack(2000)}, 1, 2000, 0},
		"one, which may have been put off": {[]segment{data(0, 1000), ack(1000)}, 0, 1000, 0},
		"one of two":                       {[]segment{data(0, 1000), data(1000, 1000), ack(1000)}, 0, 1000, 0},
		"between two ends": {
			[]segment{data(0, 1000), data(1000, 1000), data(2000, 1000), ack(2500)}, 0, 2500, 0},
		"selective": {[]segment{data(0, 1000), data(1000, 1000), ack(0, 1000, 2000)}, 1, 0, 0},
		"selective, of what has been acknowledged": {
			[]segment{data(0, 1000), data(1000, 1000), ack(1000), ack(1000, 0, 1000)}, 0, 1000, 0},
		"selective, of what was never sent": {
			[]segment{data(0, 1000), data(1000, 1000), ack(0, 5000, 6000)}, 0, 0, 0},
		"of what was never sent": {
			[]segment{data(0, 1000), data(1000, 1000), ack(9000), ack(2000)}, 1, 2000, 0},
		"sent again": {
			[]segment{data(0, 1000), data(1000, 1000), data(1000, 1000), ack(2000)}, 0, 2000, 1000},
		"sent again in other pieces": {
			[]segment{data(0, 1000), data(1000, 1000), data(600, 1400), ack(2000)}, 0, 2000, 1400},
		"two small ones, which may have been put off": {
			[]segment{data(0, 200), data(200, 200), ack(400)}, 0, 400, 0},
		"lost before this host, so that the others have waited for it": {
			[]segment{data(0, 1000), data(2000, 1000), data(1000, 1000), ack(3000)}, 0, 3000, 0},
		"lost beyond this host, so that the others have waited for it": {[]segment{data(0, 1000), data(1000, 1000),
			data(2000, 1000), data(0, 1000), ack(3000)}, 0, 3000, 1000},
		"after a hole was filled": {[]segment{data(0, 1000), data(2000, 1000), data(1000, 1000), ack(3000),
			data(3000, 1000), data(4000, 1000), ack(5000)}, 1, 5000, 0},
		"an old one": {[]segment{data(0, 1000), data(1000, 1000), ack(2000), data(2000, 1000), data(3000, 1000),
			ack(1000)}, 1, 2000, 0},
		"another connection with these ports": {[]segment{data(1<<20, 1000), data(1<<20+1000, 1000),
			{seq: 4, flags: syn | ackFlag}, data(5, 1000), data(1005, 1000), ack(2005)}, 1, 2000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{relay: r, out: r.packets(r.origin, false), in: r.packets(r.client, false)}
			watch := r.open(r.near)
			defer watch.Close()
			for _, s := range c.segments {
				w.pass(s)
			}
			time.Sleep(2 * delay)
			if f := r.only(watch); f.Samples != c.samples || f.Acked != c.acked || f.Again != c.again {
				t.Errorf("%+v", f)
			}
		})
	}
}

// What is lost beyond this host is told from what was lost before, or in its own queue. RTTs stay what they are.
func TestInLosses(t *testing.T) {
	// A queue that is too short never loses the first segment, before which nobody knows what is missing.
	const bytes, loses = 4 << 20, "tbf rate 20mbit burst 3100b limit 20kb"
	for _, where := range []string{"before", "here", "beyond"} {
		t.Run(where, func(t *testing.T) {
			r, near := newRelay(t), 0
			switch where {
			case "before":
				r.in(r.origin)
				r.queue("far", loses)
				r.in(r.here)
				near = r.near
			case "here":
				near = r.near
				r.queue("near", loses)
			case "beyond":
				near = r.tunnel(50)
			}
			w := r.open(near)
			r.download("198.51.100.2", bytes)
			f := r.only(w)
			t.Logf("%+v", f)
			if again := f.Sent - bytes; f.Again != again || again > 0 != (where == "beyond") {
				t.Errorf("it says that %d bytes were lost beyond, of %d, and %d were to be sent",
					f.Again, f.Sent, bytes)
			}
			if off := f.Sum/time.Duration(max(1, f.Samples)) - delay; off < 0 || off > 2*time.Millisecond {
				t.Errorf("netem delays by %v, and the mean is off by %v", delay, off)
			}
		})
	}
}

// What this host sends itself is not looked at: its sockets know more.
func TestInOwn(t *testing.T) {
	r := newRelay(t)
	w := r.open(r.near)
	listener, err := net.Listen("tcp", "192.0.2.1:4000")
	r.must(err)
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.CopyN(c, zeros{}, 1<<20)
			c.Close()
		}
	}()
	r.in(r.client)
	c, err := net.Dial("tcp", "192.0.2.1:4000")
	r.must(err)
	if n, err := io.Copy(io.Discard, c); n != 1<<20 || err != nil {
		t.Fatalf("%d bytes came: %v", n, err)
	}
	r.in(r.here)
	if all, err := w.Read(); len(all) != 0 || err != nil {
		t.Errorf("of this host's own it knows %+v: %v", all, err)
	}
}

// Every packet passes as it is, whatever it is: as many, and with the same bytes as without the programs.
func TestInPasses(t *testing.T) {
	r := newRelay(t)
	// Frames do not go through IP, which would let go of the odd ones: a filter hands copies on, which have no socket.
	r.mirror("inner", "near")
	r.mirror("near", "inner")
	const frames, least = 20000, 0.99 // a tag that is cut short does not get through
	fromOrigin, atClient := r.packets(r.origin, false), r.packets(r.client, true)
	fromClient, atOrigin := r.packets(r.client, false), r.packets(r.origin, true)
	way := func(from, to packets, turned bool) (int, uint32) {
		to.sum(r) // what was there before
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range frames {
			r.must(unix.Sendto(from.fd, odd(rng, turned), 0, &unix.SockaddrLinklayer{Ifindex: from.ifindex}))
			if i%100 == 0 { // the kernel keeps a thousand for the other end (net.core.netdev_max_backlog)
				time.Sleep(time.Millisecond)
			}
		}
		return to.sum(r)
	}
	n, out := way(fromOrigin, atClient, false)
	m, in := way(fromClient, atOrigin, true)
	if min(n, m) < int(least*frames) || out == in {
		t.Errorf("without the programs %d and %d of %d frames came", n, m, frames)
	}
	w := r.open(r.near)
	if got, crc := way(fromOrigin, atClient, false); got != n || crc != out {
		t.Errorf("%d frames left with a sum of %x, and %d with one of %x without", got, crc, n, out)
	}
	if got, crc := way(fromClient, atOrigin, true); got != m || crc != in {
		t.Errorf("%d frames came with a sum of %x, and %d with one of %x without", got, crc, m, in)
	}
	all, err := w.Read()
	r.must(err)
	answered := 0
	for _, f := range all {
		if f.Samples > 0 {
			answered++
		}
	}
	t.Logf("%d frames out and %d in, %d connections in them, and RTTs of %d", n, m, len(all), answered)
	if len(all) < 200 || answered == 0 {
		t.Error("the programs have not read them")
	}
}

// mirror hands copies of all that comes by a device on, by another.
func (r *relay) mirror(from, to string) {
	r.Helper()
	in, err := netlink.LinkByName(from)
	r.must(err)
	out, err := netlink.LinkByName(to)
	r.must(err)
	index := in.Attrs().Index
	r.must(netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	copies := netlink.NewMirredAction(out.Attrs().Index)
	copies.MirredAction, copies.Attrs().Action = netlink.TCA_EGRESS_MIRROR, netlink.TC_ACT_SHOT
	r.must(netlink.FilterAdd(&netlink.MatchAll{FilterAttrs: netlink.FilterAttrs{LinkIndex: index,
		Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 1}, Actions: []netlink.Action{copies}}))
}

// packets is a socket for frames at a namespace's end of its cable.
type packets struct{ fd, ifindex int }

func (r *relay) packets(ns netns.NsHandle, listens bool) packets {
	r.Helper()
	r.in(ns)
	defer r.in(r.here)
	far, err := netlink.LinkByName("far")
	r.must(err)
	protocol := uint16(0)
	if listens {
		protocol = swap(unix.ETH_P_ALL)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(protocol))
	r.must(err)
	r.Cleanup(func() { unix.Close(fd) })
	r.must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20))
	r.must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 256<<20))
	r.must(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: far.Attrs().Index}))
	return packets{fd, far.Attrs().Index}
}

// sum is how many frames of this test's have come, and their checksum.
func (p packets) sum(r *relay) (n int, crc uint32) {
	r.Helper()
	time.Sleep(5 * delay)
	buffer := make([]byte, 1<<16)
	for {
		size, from, err := unix.Recvfrom(p.fd, buffer, 0)
		if err != nil {
			return n, crc
		}
		l, ok := from.(*unix.SockaddrLinklayer)
		if ok && l.Pkttype != unix.PACKET_OUTGOING && [6]byte(buffer[6:12]) == [6]byte{} { // no host's
			n, crc = n+1, crc32.Update(crc, crc32.IEEETable, buffer[:size])
		}
	}
}

// odd is a frame like one of TCP, with some of it wrong: options, lengths, fragments, tags, an end in the middle. Those
// that are turned answer the others.
func odd(rng *rand.Rand, turned bool) []byte {
	frame := make([]byte, 14, 200)
	ip := 14
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	if rng.IntN(4) == 0 {
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_8021Q)
		frame, ip = append(frame, 0, 7, 8, 0), ip+4
	}
	header := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0, 192, 0, 2, 9, 192, 0, 2, 2}
	if rng.IntN(3) == 0 {
		header = make([]byte, 40)
		header[0], header[6] = 0x60, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(frame[ip-2:], unix.ETH_P_IPV6)
	}
	segment := []byte{0, 80, 1, byte(rng.IntN(256)), 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 5, 10,
		0, 0, 0, byte(rng.IntN(256)), 0, 0, 0, byte(rng.IntN(60))}
	if turned {
		at := len(header) - 8
		if header[0] == 0x45 {
			copy(header[at:], []byte{192, 0, 2, 2, 192, 0, 2, 9})
		}
		segment[0], segment[1], segment[2], segment[3] = segment[2], segment[3], segment[0], segment[1]
	}
	frame = append(append(append(frame, header...), segment...), make([]byte, rng.IntN(60))...)
	size := len(frame) - ip
	if header[0] == 0x45 {
		binary.BigEndian.PutUint16(frame[ip+2:], uint16(size))
	} else {
		binary.BigEndian.PutUint16(frame[ip+4:], uint16(size-40))
	}
	for range rng.IntN(4) {
		frame[ip+rng.IntN(size)] = byte(rng.IntN(256))
	}
	if rng.IntN(4) == 0 {
		frame = frame[:ip+rng.IntN(size)]
	}
	return frame
}

const holds = "WEIR_RTT_HOLDS"

// hold is a process that looks at a device until it is killed.
func hold() {
	device, err := strconv.Atoi(os.Getenv(holds))
	if err == nil {
		_, err = Open(device)
	}
	fmt.Println(err)
	select {}
}

// Nothing is left in the kernel: of a watch that is closed, nor of a process that is killed.
func TestInGone(t *testing.T) {
	r := newRelay(t)
	before := r.attached()
	w := r.open(r.near)
	if n := r.attached(); n != before+1 {
		t.Fatalf("%d sockets look at it, and were %d before", n, before)
	}
	r.must(w.Close())
	if n := r.attached(); n != before {
		t.Errorf("%d sockets look at it after all is closed", n)
	}
	self, err := os.Executable()
	r.must(err)
	child := exec.Command(self)
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", holds, r.near))
	said, err := child.StdoutPipe()
	r.must(err)
	r.must(child.Start())
	line := make([]byte, 200)
	n, _ := said.Read(line)
	if got := string(line[:n]); got != "<nil>\n" || r.attached() != before+1 {
		t.Fatalf("it says %q, and %d sockets look at it", got, r.attached())
	}
	r.must(child.Process.Kill())
	_ = child.Wait()
	for range 100 {
		if r.attached() == before && maps() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("after SIGKILL %d sockets look at it, and %d maps are there", r.attached(), maps())
}

// attached is how many packet sockets look at the device to the client.
func (r *relay) attached() (n int) {
	r.Helper()
	const column = 4 // Iface
	all, err := os.ReadFile("/proc/thread-self/net/packet")
	r.must(err)
	for line := range strings.Lines(string(all)) {
		if f := strings.Fields(line); len(f) > column && f[column] == strconv.Itoa(r.near) {
			n++
		}
	}
	return n
}

// maps is how many maps the kernel holds that could be ours.
func maps() (n int) {
	for id, err := ebpf.MapGetNextID(0); err == nil; id, err = ebpf.MapGetNextID(id) {
		if m, err := ebpf.NewMapFromID(id); err == nil {
			if m.MaxEntries() == maxFlows {
				n++
			}
			m.Close()
		}
	}
	return n
}

// Of more connections than there is room for, some are forgotten, and what is there stays right.
func TestInMany(t *testing.T) {
	r := newRelay(t)
	w := r.open(r.near)
	flows := w.objects.Maps[objectMapFlows]
	for i := range 2 * maxFlows {
		k := objectFlowKey{Ifindex: uint32(i)}
		r.must(flows.Put(&k, &objectFlow{Samples: uint32(i)}))
	}
	r.download("198.51.100.2", 1<<20)
	all, err := w.Read()
	r.must(err)
	ours := 0
	for _, f := range all {
		if f.Here.Port() == 4000 && f.Acked >= 1<<20 {
			ours++
		}
	}
	if len(all) > maxFlows || len(all) < maxFlows/2 || ours != 1 {
		t.Errorf("%d connections are known, of at most %d, and %d is the one that moved", len(all), maxFlows, ours)
	}
}

// Whoever sends here may make up as many connections as he likes. Those that move go on being known.
func TestInFlood(t *testing.T) {
	r := newRelay(t)
	r.mirror("inner", "near")
	w := &wire{relay: r, out: r.packets(r.origin, false), in: r.packets(r.client, false)}
	watch := r.open(r.near)
	const rounds, flood = 12, 1000
	for i := range rounds {
		from := uint32(i) * 2000
		w.pass(segment{seq: from, flags: ackFlag, bytes: 1000})
		w.pass(segment{seq: from + 1000, flags: ackFlag, bytes: 1000})
		for j := range flood {
			w.flow = uint32(1 + i*flood + j)
			w.send(segment{seq: 0, flags: ackFlag, bytes: 1000})
		}
		w.flow = 0
		w.pass(segment{in: true, ack: from + 2000, flags: ackFlag})
		time.Sleep(2 * delay)
	}
	all, err := watch.Read()
	r.must(err)
	for _, f := range all {
		if f.There == netip.MustParseAddrPort("192.0.2.2:257") && f.Here == netip.MustParseAddrPort("192.0.2.9:80") {
			t.Logf("%+v, of %d", f, len(all))
			if f.Samples != rounds || f.Acked != 2000*rounds {
				t.Error("it was forgotten meanwhile")
			}
			return
		}
	}
	t.Errorf("it is none of the %d that are known", len(all))
}

// What it costs: in this virtual machine an instruction takes a nanosecond.
func TestInCost(t *testing.T) {
	r := newRelay(t)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	r.must(err)
	defer stats.Close()
	w := r.open(r.near)
	r.download("198.51.100.2", 16<<20)
	f := r.only(w)
	const most = 2000
	stat, err := w.objects.Programs[objectProgRtt].Stats()
	r.must(err)
	each := float64(stat.Runtime) / float64(stat.RunCount)
	t.Logf("cost: it takes %.0f instructions a packet, of %d", each, stat.RunCount)
	if math.IsNaN(each) || each > most {
		t.Errorf("it takes %.0f instructions a packet, at most %d", each, most)
	}
	info, err := w.objects.Maps[objectMapFlows].Info()
	r.must(err)
	bytes, _ := info.Memlock()
	t.Logf("cost: the map of %d connections takes %d KiB; %d packets carried %d bytes", most, bytes>>10, f.Packets,
		f.Sent)
	if bytes == 0 || bytes > 2<<20 {
		t.Errorf("the map takes %d bytes", bytes)
	}
}
