// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/stats"
	"weir/internal/units"
)

// network is a veth pair of four queues from the first namespace to another, where the clients are: addresses that TCP
// is sent to and UDP echoed by. What comes back takes 10 ms.
type network struct {
	*testing.T
	here, there netns.NsHandle
	source      netns.NsHandle // where TCP is sent from: here, or another network that this one forwards for
	near, far   int
	clients     []*client
	bins        *ebpf.Map
}

type client struct {
	address netip.Addr
	got     atomic.Int64 // bytes of TCP, and of UDP that was not echoed
}

const (
	clientCount = 12
	echoed      = 100 // bytes: the largest datagram that is
	backTime    = 10 * time.Millisecond
)

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
		n.must(netlink.AddrAdd(device, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(16, 32)}}))
	}
	n.must(netlink.LinkSetUp(device))
	return device.Attrs().Index
}

const queues = 4

// pace puts an fq on each of a device's queues, with room for all that the tests send.
func (n *network) pace(ifindex int) {
	n.Helper()
	place := netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	n.must(netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: place, QdiscType: "mq"}))
	for i := range uint16(queues) {
		place.Handle, place.Parent = netlink.MakeHandle(2+i, 0), netlink.MakeHandle(1, 1+i)
		fq := netlink.NewFq(place)
		fq.PacketLimit, fq.FlowPacketLimit = 40000, 4000
		n.must(netlink.QdiscReplace(fq))
	}
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	kerneltest.In(t)
	runtime.LockOSThread()
	n := &network{T: t}
	var err error
	n.here, err = netns.Get()
	n.must(err)
	n.source = n.here
	n.there, err = netns.New()
	n.must(err)
	n.in(n.here)
	n.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", TxQLen: 1000, NumTxQueues: queues,
		NumRxQueues: queues}, PeerName: "far", PeerNamespace: netlink.NsFd(int(n.there))}))
	t.Cleanup(func() {
		device, err := netlink.LinkByIndex(n.near)
		n.must(err)
		n.must(netlink.LinkDel(device))
		n.there.Close()
		n.here.Close()
		runtime.UnlockOSThread()
	})
	n.near = n.up("near", netip.MustParseAddr("10.9.0.1"))
	n.in(n.there)
	defer n.in(n.here)
	var addresses []netip.Addr
	for i := range clientCount {
		c := &client{address: netip.AddrFrom4([4]byte{10, 9, 1, byte(i + 1)})}
		n.clients, addresses = append(n.clients, c), append(addresses, c.address)
	}
	n.far = n.up("far", addresses...)
	place := netlink.QdiscAttrs{LinkIndex: n.far, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	n.must(netlink.QdiscReplace(netlink.NewNetem(place, netlink.NetemQdiscAttrs{
		Latency: uint32(backTime.Microseconds()), Limit: 100000})))
	for _, c := range n.clients {
		n.serve(c)
	}
	return n
}

// count has what arrives counted from here on.
func (n *network) count() {
	n.Helper()
	n.in(n.there)
	defer n.in(n.here)
	spec, err := loadArrivals()
	n.must(err)
	objects, err := ebpf.NewCollection(spec)
	n.must(err)
	n.bins = objects.Maps[".bss"]
	n.Cleanup(objects.Close)
	n.must(netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: n.far,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	n.must(netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: n.far,
		Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd: objects.Programs[arrivalsProgArrivalsCount].FD(), Name: "arrivals", DirectAction: true}))
}

func (n *network) serve(c *client) {
	n.Helper()
	listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.address, 4000)))
	n.must(err)
	echo, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.address, 5000)))
	n.must(err)
	n.Cleanup(func() { listener.Close(); echo.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				block := make([]byte, 256<<10)
				for {
					m, err := conn.Read(block)
					c.got.Add(int64(m))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	go func() {
		packet := make([]byte, 2048)
		for {
			m, from, err := echo.ReadFromUDPAddrPort(packet)
			if err != nil {
				return
			}
			if m <= echoed {
				_, _ = echo.WriteToUDPAddrPort(packet[:m], from)
			} else {
				c.got.Add(int64(m))
			}
		}
	}()
}

// work runs until it is told to stop, which it waits for.
type work struct {
	done chan struct{}
	all  sync.WaitGroup
}

func newWork() *work { return &work{done: make(chan struct{})} }

func (w *work) stop() { close(w.done); w.all.Wait() }

func (w *work) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// send is a TCP connection that sends to a client what it can.
func (n *network) send(w *work, to *client) {
	w.all.Go(func() {
		runtime.LockOSThread()
		n.in(n.source)
		conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.address, 4000)))
		n.in(n.here)
		runtime.UnlockOSThread()
		if err != nil {
			n.Error(err)
			return
		}
		go func() {
			<-w.done
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}()
		block := make([]byte, 64<<10)
		for err == nil {
			_, err = conn.Write(block)
		}
	})
}

// flood sends datagrams at a rate in bits a second.
func (n *network) flood(w *work, to *client, rate units.Rate) {
	w.all.Go(func() {
		conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.address, 5000)))
		if err != nil {
			n.Error(err)
			return
		}
		defer conn.Close()
		const burst, size = 4, 1400
		gap := time.Duration(burst * size * 8 / float64(rate) * 1e9)
		packet := make([]byte, size)
		for !w.over() {
			for range burst {
				_, _ = conn.Write(packet)
			}
			time.Sleep(gap)
		}
	})
}

// probe sends a client a datagram every 5 ms or so. What is returned gives the times of all that came back so far, less
// the time of the way back, ms, in order.
func (n *network) probe(w *work, to *client) func() []float64 {
	n.Helper()
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.address, 5000)))
	n.must(err)
	var lock sync.Mutex
	var times []float64
	begin := monotonic()
	w.all.Go(func() {
		packet := make([]byte, echoed)
		for {
			m, err := conn.Read(packet)
			if err != nil || m < 8 {
				return
			}
			sent := time.Duration(binary.NativeEndian.Uint64(packet))
			lock.Lock()
			times = append(times, (monotonic()-begin-sent-backTime).Seconds()*1e3)
			lock.Unlock()
		}
	})
	w.all.Go(func() {
		defer conn.Close()
		packet := make([]byte, 64)
		for i := 0; !w.over(); i++ {
			binary.NativeEndian.PutUint64(packet, uint64(monotonic()-begin))
			_, _ = conn.Write(packet)
			time.Sleep(4500*time.Microsecond + time.Duration(i*7919%1000)*time.Microsecond)
		}
	})
	return func() []float64 {
		lock.Lock()
		defer lock.Unlock()
		slices.Sort(times)
		return slices.Clone(times)
	}
}

// monotonic is the guest's time, which is virtual: an instruction takes a nanosecond.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

// measured is what clients got in a time, Mbit/s of payload, and what was on the wire.
type measured struct {
	got      []float64
	wire     float64 // a part of the rate
	dropped  uint64  // packets, by the shaper
	provider float64 // ms: p99 of the queue before a link of that rate
	other    []float64
	same     []float64
}

func (m measured) String() string {
	return fmt.Sprintf("%.2f Mbit/s, Jain %.4f, %.2f %% of the rate; provider %.2f ms at p99; probes at p50 and p99: "+
		"another client's %.3f %.3f, the last one's %.3f %.3f ms", m.got, stats.Jain(m.got), m.wire*100, m.provider,
		stats.Rank(m.other, 0.5), stats.Rank(m.other, 0.99), stats.Rank(m.same, 0.5), stats.Rank(m.same, 0.99))
}

// measure is what the first clients get while a load runs.
func (n *network) measure(rate units.Rate, first int, load func(*work)) (m measured) {
	n.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would have the only CPU for milliseconds
	w := newWork()
	load(w)
	time.Sleep(time.Second)
	probes := newWork()
	other, same := n.probe(probes, n.clients[clientCount-1]), n.probe(probes, n.clients[first-1])
	var before []int64
	for _, c := range n.clients[:first] {
		before = append(before, c.got.Load())
	}
	const bins, shift = 1 << 16, 18
	dropped := func() uint64 {
		i, _, err := Read(n.near)
		n.must(err)
		return i.Stats.Drops
	}
	m.dropped = dropped()
	begin := monotonic()
	n.must(n.bins.Put(uint32(0), make([]uint64, bins)))
	time.Sleep(1500 * time.Millisecond)
	end := monotonic()
	for i, c := range n.clients[:first] {
		m.got = append(m.got, float64(c.got.Load()-before[i])*8/(end-begin).Seconds()/1e6)
	}
	m.dropped = dropped() - m.dropped
	counted := make([]uint64, bins)
	n.must(n.bins.Lookup(uint32(0), &counted))
	probes.stop()
	w.stop()
	m.other, m.same = other(), same()
	each := float64(rate) / 8 * (1 << shift) / 1e9 // bytes
	var queue, bytes float64
	var queues []float64
	for at := int64(begin)>>shift + 1; at < int64(end)>>shift; at++ {
		bytes += float64(counted[at&(bins-1)])
		queue = max(queue+float64(counted[at&(bins-1)])-each, 0)
		queues = append(queues, queue*8/float64(rate)*1e3)
	}
	slices.Sort(queues)
	m.wire, m.provider = bytes*8/(end-begin).Seconds()/float64(rate), stats.Rank(queues, 0.99)
	return m
}

func (n *network) install(rate units.Rate, rules ...Client) {
	n.Helper()
	n.pace(n.near)
	c := Defaults()
	c.Rate, c.Clients = rate, rules
	n.must(Install(n.near, n.near, c))
}

// TestInShares: what clients get over four queues, whatever they send with.
func TestInShares(t *testing.T) {
	n := newNetwork(t)
	n.count()
	const megabit = 1_000_000
	connections := func(counts ...int) func(*work) {
		return func(w *work) {
			for i, count := range counts {
				for range count {
					n.send(w, n.clients[i])
				}
			}
		}
	}
	flood := func(rate units.Rate) func(*work) {
		return func(w *work) {
			connections(1, 4)(w)
			n.flood(w, n.clients[2], rate)
		}
	}
	type row struct {
		name     string
		rate     units.Rate
		first    int
		load     func(*work)
		jain     float64
		provider float64 // ms
	}
	rows := []row{
		{"1:10", 100 * megabit, 2, connections(1, 10), 0.9995, 2},
		{"1:1:4:10", 100 * megabit, 4, connections(1, 1, 4, 10), 0.9995, 2},
		{"flood", 100 * megabit, 3, flood(200 * megabit), 0.999, 2},
	}
	if kerneltest.Everything { // which this CPU just does
		rows = append(rows,
			row{"1:10", 1000 * megabit, 2, connections(1, 10), 0.9995, 1},
			row{"1:1:4:10", 1000 * megabit, 4, connections(1, 1, 4, 10), 0.9995, 1},
			row{"flood", 1000 * megabit, 3, flood(2000 * megabit), 0.999, 1},
			row{"1:10", 2500 * megabit, 2, connections(1, 10), 0.9995, 1},
			row{"1:1:4:10", 2500 * megabit, 4, connections(1, 1, 4, 10), 0.9995, 1})
	}
	for _, test := range rows {
		t.Run(fmt.Sprintf("%s at %v", test.name, test.rate), func(t *testing.T) {
			n.T = t
			n.install(test.rate)
			m := n.measure(test.rate, test.first, test.load)
			t.Log(m)
			if got := stats.Jain(m.got); got < test.jain {
				t.Errorf("Jain %.5f, below %v", got, test.jain)
			}
			if m.wire < 0.985 || m.wire > 1 {
				t.Errorf("%.4f of the rate", m.wire)
			}
			if m.provider > test.provider {
				t.Errorf("the provider's queue is %.2f ms at p99", m.provider)
			}
			n.must(Remove(n.near))
		})
	}
	n.T = t
}

// forward has TCP sent from a network behind this one.
func (n *network) forward() {
	n.Helper()
	source, err := netns.New()
	n.must(err)
	n.Cleanup(func() { source.Close() })
	n.in(n.here)
	n.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "in", TxQLen: 1000}, PeerName: "out",
		PeerNamespace: netlink.NsFd(int(source))}))
	n.up("in", netip.MustParseAddr("10.7.0.1"))
	n.must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	n.in(source)
	n.up("out", netip.MustParseAddr("10.7.0.2"))
	n.must(netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(10, 7, 0, 1)}))
	n.in(n.there)
	n.must(netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 7, 0, 0).To4(), Mask: net.CIDRMask(16, 32)},
		Gw: net.IPv4(10, 9, 0, 1)}))
	n.in(n.here)
	n.source = source
}

// ecn has TCP of the sending end ask for ECN, or not.
func (n *network) ecn(value string) {
	n.Helper()
	n.in(n.source)
	defer n.in(n.here)
	n.must(os.WriteFile("/proc/sys/net/ipv4/tcp_ecn", []byte(value), 0))
}

// TestInForwarding: the same of TCP of another host, which does not see that a packet waits; with ECN none is dropped.
func TestInForwarding(t *testing.T) {
	n := newNetwork(t)
	n.count()
	n.forward()
	const rate = 100_000_000
	for _, ecn := range []string{"0", "1"} {
		n.ecn(ecn)
		n.install(rate)
		m := n.measure(rate, 2, func(w *work) {
			for i := range 11 {
				n.send(w, n.clients[min(i, 1)])
			}
		})
		i, _, err := Read(n.near)
		n.must(err)
		t.Logf("tcp_ecn %s: %v; %d marks, %d drops, of which %d since it has settled", ecn, m, i.Stats.Marks,
			i.Stats.Drops, m.dropped)
		if got := stats.Jain(m.got); got < 0.9995 || m.wire < 0.985 || m.provider > 2 {
			t.Errorf("Jain %.5f, %.4f of the rate", got, m.wire)
		}
		if ecn == "1" && i.Stats.Drops != 0 {
			t.Errorf("%d drops", i.Stats.Drops)
		}
		n.must(Remove(n.near))
	}
}

// TestInLife: what is put at a device is read back, changed and taken away, and leaves nothing.
func TestInLife(t *testing.T) {
	n := newNetwork(t)
	segments := func() uint32 {
		device, err := netlink.LinkByIndex(n.near)
		n.must(err)
		return device.Attrs().GSOMaxSegs
	}
	before := segments()
	if _, is, err := Read(n.near); is || err != nil {
		t.Errorf("there is one before: %v %v", is, err)
	}
	n.must(Remove(n.near))
	capped := Client{Prefix: netip.MustParsePrefix("10.9.1.1/32"), Rate: 5_000_000, Weight: 1}
	n.install(100_000_000, capped, Client{Prefix: netip.MustParsePrefix("10.9.0.0/16"), Weight: 2})
	check := func(rate units.Rate, clients int) Instance {
		t.Helper()
		i, is, err := Read(n.near)
		if err != nil || !is || !i.Known || i.Config.Rate != rate || len(i.Config.Clients) != clients {
			t.Errorf("%+v %v %v", i, is, err)
		}
		return i
	}
	check(100_000_000, 2)
	if got := segments(); got != 2 {
		t.Errorf("%d segments", got)
	}
	w := newWork()
	n.send(w, n.clients[0])
	time.Sleep(300 * time.Millisecond)
	all, err := ReadClients(n.near)
	if err != nil || len(all) == 0 || all[0].Client != capped.Prefix || all[0].Bytes == 0 || all[0].Weight != 1 {
		t.Errorf("%+v %v", all, err)
	}
	changed := Defaults()
	changed.Rate, changed.Clients = 200_000_000, []Client{{Prefix: capped.Prefix, Weight: 3}}
	n.must(Change(n.near, changed)) // of the same slots
	time.Sleep(300 * time.Millisecond)
	if i := check(200_000_000, 1); i.Stats.Bytes == 0 || i.Stats.Active <= 0 {
		t.Errorf("%+v", i.Stats)
	}
	if all, err = ReadClients(n.near); err != nil || len(all) == 0 || all[0].Weight != 3 {
		t.Errorf("%+v %v", all, err)
	}
	changed.Rate = 2_000_000_000
	n.must(Change(n.near, changed)) // of others
	check(2_000_000_000, 1)
	n.install(100_000_000) // in its place
	n.must(Clean(n.near))  // of nothing: it is whole
	check(100_000_000, 0)
	w.stop()
	n.must(Remove(n.near))
	if _, is, err := Read(n.near); is || err != nil {
		t.Errorf("it is still there: %v", err)
	}
	if got := segments(); got != before {
		t.Errorf("%d segments, not %d", got, before)
	}
	_, err = link.QueryPrograms(link.QueryOptions{Target: n.near, Attach: ebpf.AttachTCXEgress})
	places := func() (count int) {
		device, err := netlink.LinkByIndex(n.near)
		n.must(err)
		all, err := netlink.QdiscList(device)
		n.must(err)
		for _, q := range all {
			if q.Type() == "clsact" {
				count++
			}
		}
		return count
	}
	if places() != 0 {
		t.Error("a clsact is left")
	}
	n.must(netlink.QdiscAdd(clsact(n.near))) // as by an Install that was killed before its filter
	n.must(Clean(n.near))
	if got := places() != 0; got != tcx(err) {
		t.Errorf("a clsact that no filter came to is still there: %v", got)
	}
	if err := Install(n.near+1000, n.near, valid(nil)); err == nil {
		t.Error("a device that is not there")
	}
	if err := Change(n.near, valid(nil)); err == nil {
		t.Error("a change of nothing")
	}
}

// TestInQuiet: when all that was sent is out, nobody is active, and no byte is missing.
func TestInQuiet(t *testing.T) {
	n := newNetwork(t)
	n.install(100_000_000)
	w := newWork()
	for i := range 20 {
		n.send(w, n.clients[i%4])
	}
	n.flood(w, n.clients[4], 100_000_000)
	time.Sleep(time.Second)
	w.stop()
	time.Sleep(2 * time.Second)
	conn, err := net.Dial("udp4", netip.AddrPortFrom(n.clients[3].address, 5000).String())
	n.must(err)
	defer conn.Close()
	_, err = conn.Write(make([]byte, 64)) // has the calendar's slots ended
	n.must(err)
	i, _, err := Read(n.near)
	if err != nil || i.Stats.Active > 1 || i.Stats.Active < 0 {
		t.Errorf("%.3f clients are active: %v", i.Stats.Active, err)
	}
	var sent uint64
	all, err := ReadClients(n.near)
	n.must(err)
	for _, c := range all {
		sent += c.Bytes
	}
	found, err := find(n.near)
	n.must(err)
	defer found.close()
	var state objectShaper
	if is, err := found[0].Take(".bss", &state); !is || err != nil {
		t.Fatal(is, err)
	}
	if sent != i.Stats.Bytes || sent == 0 {
		t.Errorf("clients have sent %d bytes, and the calendar has counted %d", sent, i.Stats.Bytes)
	}
	parts := int64(0)
	for _, word := range state.Ends {
		parts += int64(int32(word))
	}
	if parts != state.Active {
		t.Errorf("%d parts are active, and %d in the calendar", state.Active, parts)
	}
	n.must(Remove(n.near))
}

// TestInClients: nobody is faster than his cap, a weight counts, and a change is at once.
func TestInClients(t *testing.T) {
	n := newNetwork(t)
	n.count()
	const megabit = 1_000_000
	rule := func(i int, rate units.Rate, weight uint32) Client {
		return Client{Prefix: netip.PrefixFrom(n.clients[i].address, 32), Rate: rate, Weight: weight}
	}
	n.install(100*megabit, rule(0, 10*megabit, 1), rule(1, 0, 2))
	load := func(w *work) {
		for i := range 3 {
			for range 4 {
				n.send(w, n.clients[i])
			}
		}
	}
	m := n.measure(100*megabit, 3, load)
	t.Log(m)
	const payload = 1448.0 / 1514
	for i, want := range []float64{10, 59.4, 29.7} { // of 99 Mbit/s
		if got := m.got[i] / payload; got > 1.02*want || got < 0.97*want {
			t.Errorf("client %d has %.2f Mbit/s on the wire, not %.1f", i, got, want)
		}
	}
	w := newWork()
	load(w)
	time.Sleep(500 * time.Millisecond)
	c := Defaults()
	c.Rate, c.Clients = 100*megabit, []Client{rule(0, 20*megabit, 1)}
	n.must(Change(n.near, c))
	time.Sleep(50 * time.Millisecond)
	before, begin := n.clients[0].got.Load(), monotonic()
	time.Sleep(500 * time.Millisecond)
	got := float64(n.clients[0].got.Load()-before) * 8 / (monotonic() - begin).Seconds() / megabit / payload
	if got < 18 || got > 20.5 {
		t.Errorf("%.2f Mbit/s after a change to 20", got)
	}
	w.stop()
	n.must(Remove(n.near))
}

// loaded is a shaper that no device has, to be run by hand.
func loaded(t *testing.T, c Config) *ebpf.Collection {
	t.Helper()
	kerneltest.In(t)
	spec, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	var configs objectConfigs
	configs.Slot[0] = c.encode(14, 1)
	if err := errors.Join(spec.Variables[objectVarConf].Set(configs),
		spec.Variables[objectVarOwn].Set(objectInstance{Layout: layout})); err != nil {
		t.Fatal(err)
	}
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objects.Close)
	return objects
}

// frame is one of Ethernet, with these tags, and what they say of what follows: an EtherType each.
func frame(payload []byte, types ...uint16) []byte {
	b := make([]byte, 12)
	for i, typ := range types {
		b = binary.BigEndian.AppendUint16(b, typ)
		if i < len(types)-1 {
			b = append(b, 0, 1) // the tag
		}
	}
	return append(b, payload...)
}

func ipv4(from, to string, ecn byte) []byte {
	b := make([]byte, 60)
	b[0], b[1], b[8], b[9] = 0x45, ecn, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], 60)
	copy(b[12:], netip.MustParseAddr(from).AsSlice())
	copy(b[16:], netip.MustParseAddr(to).AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^sum(b[:20]))
	return b
}

// sum is that of the Internet's checksum (RFC 1071): 0xffff of a header that is whole.
func sum(b []byte) uint16 {
	var all uint32
	for i := 0; i < len(b); i += 2 {
		all += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for all > 0xffff {
		all = all>>16 + all&0xffff
	}
	return uint16(all)
}

// ipv6 has a header of hop-by-hop options.
func ipv6(from, to string) []byte {
	b := make([]byte, 80)
	b[0], b[6], b[7] = 0x60, unix.IPPROTO_HOPOPTS, 64
	binary.BigEndian.PutUint16(b[4:], 40)
	copy(b[8:], netip.MustParseAddr(from).AsSlice())
	copy(b[24:], netip.MustParseAddr(to).AsSlice())
	b[40] = unix.IPPROTO_NONE
	return b
}

// TestInPackets: whose a packet is, whatever is around it.
func TestInPackets(t *testing.T) {
	const vlan, qinq, arp = 0x8100, 0x88a8, 0x0806
	four := ipv4("192.0.2.1", "198.51.100.2", 0)
	for _, test := range []struct {
		name   string
		packet []byte
		source bool
		bits   int
		want   string
	}{
		{"IPv4", frame(four, unix.ETH_P_IP), false, 64, "198.51.100.2/32"},
		{"its source", frame(four, unix.ETH_P_IP), true, 64, "192.0.2.1/32"},
		{"VLAN", frame(four, vlan, unix.ETH_P_IP), false, 64, "198.51.100.2/32"},
		{"QinQ", frame(four, qinq, vlan, unix.ETH_P_IP), false, 64, "198.51.100.2/32"},
		{"three tags", frame(four, qinq, vlan, vlan, unix.ETH_P_IP), false, 64, "::/128"},
		{"IPv6", frame(ipv6("2001:db8::1", "2001:db8:1:2:3:4:5:6"), unix.ETH_P_IPV6), false, 64, "2001:db8:1:2::/64"},
		{"by /56", frame(ipv6("2001:db8::1", "2001:db8:1:2ff:3:4:5:6"), unix.ETH_P_IPV6), false, 56,
			"2001:db8:1:200::/56"},
		{"its source", frame(ipv6("2001:db8::1", "2001:db8:1:2::3"), unix.ETH_P_IPV6), true, 64, "2001:db8::/64"},
		{"ARP", frame(make([]byte, 46), arp), false, 64, "::/128"},
		{"no IP behind its type", frame(make([]byte, 46), unix.ETH_P_IP), false, 64, "::/128"},
	} {
		objects := loaded(t, valid(func(c *Config) { c.BySource, c.Prefix6 = test.source, test.bits }))
		said, _, err := objects.Programs[objectProgShaperStamp].Test(test.packet)
		if err != nil || int32(said) != -1 {
			t.Errorf("%s: %d, %v", test.name, int32(said), err)
			continue
		}
		var address objectAddress
		var entry objectEntry
		count := 0
		for each := objects.Maps[objectMapClients].Iterate(); each.Next(&address, &entry); count++ {
			if got := address.client(test.bits).String(); got != test.want {
				t.Errorf("%s is %s's, not %s's", test.name, got, test.want)
			}
		}
		if count != 1 {
			t.Errorf("%s: %d clients", test.name, count)
		}
	}
}

// TestInVerifying: loading takes as long as the verifier has to walk, which on a slow machine is long, and with what
// comes in shaped, too, it is done twice.
func TestInVerifying(t *testing.T) {
	const most = 150_000 // instructions that the verifier walks through: the kernel gives up at a million
	info, err := loaded(t, valid(func(*Config) {})).Programs[objectProgShaperStamp].Info()
	if err != nil {
		t.Fatal(err)
	}
	count, told := info.VerifiedInstructions()
	t.Logf("%d instructions", count)
	if !told || count > most {
		t.Errorf("more than %d, or not told", most)
	}
}

// TestInMarks: of what is too much, packets that take marks are marked, with a checksum that is right, and others are
// dropped; far too much is.
func TestInMarks(t *testing.T) {
	for ecn := range byte(3) {
		marks := ecn != 0
		objects := loaded(t, valid(func(c *Config) { c.Rate = 10_000_000 }))
		packet := frame(append(ipv4("192.0.2.1", "198.51.100.2", ecn), make([]byte, 1400)...), unix.ETH_P_IP)
		out := make([]byte, 2048)
		const contextLen = 192 // struct __sk_buff: without one the packet has no length on the wire
		run := ebpf.RunOptions{Data: packet, DataOut: out, Context: make([]byte, contextLen),
			Repeat: 150} // 180 ms at this rate
		if _, err := objects.Programs[objectProgShaperStamp].Run(&run); err != nil {
			t.Fatal(err)
		}
		if is := out[15]&3 == 3; is != marks || sum(out[14:34]) != 0xffff {
			t.Errorf("ECN %d became %d, and the checksum %#x", ecn, out[15]&3, sum(out[14:34]))
		}
		var entry objectEntry
		var address objectAddress
		if !objects.Maps[objectMapClients].Iterate().Next(&address, &entry) {
			t.Fatal("there is no client")
		}
		if (entry.Marks > 0) != marks || entry.Drops == 0 {
			t.Errorf("ECN %d: %d marks and %d drops", ecn, entry.Marks, entry.Drops)
		}
	}
}

// TestInCost: a packet with nothing before it costs 12 % more with the shaper than with its qdiscs alone, at most, from
// the write to the driver: in instructions, as that is what this kernel's time is. What else the kernel does in between
// is not to count, so it is the least of some.
func TestInCost(t *testing.T) {
	kerneltest.In(t)
	n := &network{T: t}
	n.must(netlink.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "drain", TxQLen: 1000, NumTxQueues: 4}}))
	n.near = n.up("drain", netip.MustParseAddr("10.8.0.1"))
	defer func() {
		device, err := netlink.LinkByIndex(n.near)
		n.must(err)
		n.must(netlink.LinkDel(device))
	}()
	n.must(netlink.NeighAdd(&netlink.Neigh{LinkIndex: n.near, State: netlink.NUD_PERMANENT,
		IP: net.IPv4(10, 8, 0, 2), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}}))
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 8, 0, 2), Port: 4000})
	n.must(err)
	defer conn.Close()
	file, err := conn.File()
	n.must(err)
	defer file.Close()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	payload := make([]byte, 1000)
	// What stays there moves the place of the others in their slabs: at some places each packet takes a new page.
	kept, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	n.must(err)
	n.must(unix.SetsockoptInt(kept[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<24))
	defer unix.Close(kept[0])
	defer unix.Close(kept[1])
	cost := func() float64 {
		const packets, rounds = 100, 45 // each too short for a tick of the kernel's clock
		least := math.Inf(1)
		for range rounds {
			_, err := unix.Write(kept[0], payload)
			n.must(err)
			begin := monotonic()
			for range packets {
				_, err := unix.Write(int(file.Fd()), payload)
				n.must(err)
			}
			least = min(least, float64(monotonic()-begin)/packets)
		}
		return least
	}
	plain, shaped := math.Inf(1), math.Inf(1)
	for range 3 {
		n.pace(n.near)
		plain = min(plain, cost())
		c := Defaults()
		c.Rate = 10_000_000_000
		n.must(Install(n.near, n.near, c))
		shaped = min(shaped, cost())
		n.must(Remove(n.near))
	}
	t.Logf("mq and fq take %.0f instructions a packet, and the shaper with them %.0f: %.3f times as many", plain,
		shaped, shaped/plain)
	if shaped > 1.12*plain {
		t.Error("that is too much")
	}
}
