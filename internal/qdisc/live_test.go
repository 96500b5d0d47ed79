// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	netlinks "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/lab/uml/umltest"
)

// live gives a Conn in a network namespace of the test's own, and an Ethernet device there with four transmit queues,
// which is up. Its tests run in guests alone.
func live(t *testing.T) (*Conn, int) {
	t.Helper()
	if !guest() {
		t.Skip("skipped here: TestLabKernel runs it in the lab's kernel")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	attribute := func(typ uint16, data []byte) netlink.Attribute { return netlink.Attribute{Type: typ, Data: data} }
	pack := func(list ...netlink.Attribute) []byte {
		b, err := netlink.MarshalAttributes(list)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const peer = 1 // VETH_INFO_PEER
	execute := func(flags netlink.HeaderFlags, up uint32, ifindex int, attributes []byte) error {
		body := make([]byte, 16)
		binary.NativeEndian.PutUint32(body[4:], uint32(ifindex))
		binary.NativeEndian.PutUint32(body[8:], up)
		binary.NativeEndian.PutUint32(body[12:], up)
		_, err := c.nl.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_NEWLINK, Flags: netlink.Request | netlink.Acknowledge | flags},
			Data:   append(body, attributes...)})
		return err
	}
	far := append(make([]byte, 16), pack(attribute(unix.IFLA_IFNAME, []byte("far\x00")))...)
	err = execute(netlink.Create|netlink.Excl, 0, 0, pack(
		attribute(unix.IFLA_IFNAME, []byte("near\x00")),
		attribute(unix.IFLA_NUM_TX_QUEUES, u32bytes(4)), attribute(unix.IFLA_NUM_RX_QUEUES, u32bytes(4)),
		attribute(unix.IFLA_LINKINFO, pack(attribute(unix.IFLA_INFO_KIND, []byte("veth")),
			attribute(unix.IFLA_INFO_DATA, pack(attribute(peer, far))))),
	))
	if err != nil {
		t.Skipf("skipped, not passed: this kernel makes no veth pair: %v", err)
	}
	near := 0
	for _, name := range []string{"far", "near"} {
		link, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := execute(0, unix.IFF_UP, link.Index, nil); err != nil {
			t.Fatal(err)
		}
		near = link.Index
	}
	return c, near
}

// known skips what this kernel does not have.
func known(t *testing.T, c *Conn, s Stack) {
	t.Helper()
	for _, level := range s {
		ok, err := c.Probe(level.Kind())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			t.Skipf("skipped, not passed: this kernel does not know %s", level.Kind())
		}
	}
}

func mustParse(t *testing.T, text string) Stack {
	t.Helper()
	s, err := ParseStack(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is installed reads back as itself, survives being written down, and comes back exactly after something else
// was there.
func TestLiveReplaceAndRestore(t *testing.T) {
	c, ifindex := live(t)
	original, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"cake", "cake bandwidth 49.875mbit besteffort dual-dsthost",
		"cake bandwidth 5mbit raw overhead 3 ptm fwmark 0xf0 memlimit 1mb rtt 15us",
		"cake bandwidth 10gbit diffserv8 hosts wash no-split-gso ack-filter-aggressive ingress autorate-ingress " +
			"overhead -4 mpu 64",
		"cake_mq", "cake_mq bandwidth 1gbit besteffort dual-dsthost",
		"dualpi2", "dualpi2 max_rtt 37ms typical_rtt 17ms any_ect overflow no_split_gso",
		"dualpi2 limit 50 memlimit 100000 step_thresh 5p drop_enqueue",
		"dualpi2 step_thresh 600us min_qlen_step 2 classic_protection 25% coupling_factor 4 alpha 0.5 beta 77.25",
		"fq", "fq maxrate 50mbit limit 500 quantum 3000 initial_quantum 9000 ce_threshold 1ms timer_slack 7us " +
			"horizon 3s horizon_cap nopacing",
		"fq bands 3 priomap 0 1 2 2 1 2 0 0 1 1 1 1 1 1 1 2 weights 600000 200000 70000 orphan_mask 0xff buckets " +
			"256 low_rate_threshold 1mbit",
		"fq_codel", "fq_codel limit 777 flows 64 quantum 300 target 7ms interval 77ms noecn memory_limit 3mb " +
			"drop_batch 9",
		"fq_codel ce_threshold 1ms ce_threshold_selector 0x1/0x3", "codel",
		"codel limit 7 target 3ms ecn ce_threshold 2ms",
		"htb rate 49.875mbit", "htb rate 49.875mbit | fq_codel", "htb rate 49.875mbit | dualpi2",
		"htb default 1a direct_qlen 7 rate 40gbit ceil 60gbit | pfifo limit 9",
		"htb rate 1mbit burst 15kb cburst 20kb quantum 3000 prio 3 mpu 64 overhead 14 linklayer atm | cake",
		"tbf rate 49.875mbit burst 5kb latency 20ms", "tbf rate 10gbit burst 64kb limit 1mb | fq_codel",
		"tbf rate 5mbit burst 5kb limit 50kb peakrate 6mbit mtu 1514b mpu 64 overhead 4 linklayer atm",
		"netem delay 20ms 3ms 25% loss random 10% 5% duplicate 1% corrupt 0.1% rate 5mbit 4 48 5 seed 7",
		"netem loss gemodel 1% 10% 70% 0.1% ecn seed 42",
		"netem delay 10ms reorder 25% 50% gap 5 | pfifo limit 5", "netem rate 40gbit limit 5",
		"mq", "mq | fq", "mq | pfifo limit 7", "mq | htb rate 5mbit | fq_codel", "pfifo", "pfifo limit 7", "bfifo",
		"bfifo limit 64kb", "pfifo_fast",
		"noqueue", "pie", "fq_pie", "sfq", "prio",
	} {
		t.Run(text, func(t *testing.T) {
			s := mustParse(t, text)
			known(t, c, s)
			if err := c.Replace(ifindex, s); err != nil {
				t.Fatal(err)
			}
			tree, err := c.Tree(ifindex)
			if err != nil {
				t.Fatal(err)
			}
			back, ok := tree.Stack()
			if len(s) == 1 && s[0].Kind() == "mq" && len(back) > 1 {
				back = back[:1] // its queues are the kernel's choice
			}
			if !ok || !back.Equal(s) {
				t.Fatalf("reads back as %v, %v; the tree is %+v", back, ok, tree)
			}
			written, err := json.Marshal(tree)
			var read Tree
			if err == nil {
				err = json.Unmarshal(written, &read)
			}
			if again, _ := read.Stack(); err != nil || !read.Same(tree) || !again[:len(back)].Equal(back) {
				t.Fatalf("written down and read it is %v, %v", again, err)
			}
			if err := c.Replace(ifindex, Stack{fifoSpec{Limit: 3}}); err != nil {
				t.Fatal(err)
			}
			if err := c.Restore(ifindex, read); err != nil {
				t.Fatal(err)
			}
			if now, err := c.Tree(ifindex); err != nil || !now.Same(tree) {
				t.Fatalf("restored as %+v, %v", now, err)
			}
			// The same again, over itself with other options: the handles are in use.
			if err := c.Restore(ifindex, original); err != nil {
				t.Fatal(err)
			}
			if now, err := c.Tree(ifindex); err != nil || !now.Same(original) {
				t.Fatalf("the original is restored as %+v, %v", now, err)
			}
		})
	}
}

// The kernel makes another root by itself than it did when the tree was read. Only in the lab kernel: the setting is
// everybody's.
func TestLiveRestoreAfterTheDefaultChanged(t *testing.T) {
	if !umltest.Inside() {
		t.Skip("skipped here: it changes net.core.default_qdisc, which is the whole machine's; " +
			"TestLabKernel has it")
	}
	// Not on the locked thread: the setting is in the first network namespace only.
	setDefault := func(kind string) {
		done := make(chan error)
		go func() { done <- os.WriteFile("/proc/sys/net/core/default_qdisc", []byte(kind), 0) }()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	c, _ := live(t)
	setDefault("fq_codel")
	defer setDefault("pfifo_fast")
	if err := netlinks.LinkAdd(&netlinks.Ifb{LinkAttrs: netlinks.LinkAttrs{Name: "ifb", TxQLen: 32}}); err != nil {
		t.Fatal(err)
	}
	link, err := netlinks.LinkByName("ifb")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlinks.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	ifindex := link.Attrs().Index
	found, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	if root, _ := found.Root(); root.Kind != "fq_codel" || root.Handle != 0 {
		t.Fatalf("the kernel made %+v", root)
	}
	for _, kind := range []string{"fq_codel", "pfifo_fast"} {
		setDefault(kind)
		if err := c.Replace(ifindex, mustParse(t, "htb rate 5mbit")); err != nil {
			t.Fatal(err)
		}
		if err := c.Restore(ifindex, found); err != nil {
			t.Fatal(err)
		}
		now, err := c.Tree(ifindex)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := found.Stack()
		if got, _ := now.Stack(); !got.Equal(want) || now.Same(found) != (kind == "fq_codel") {
			t.Errorf("default %s: %s, want %s", kind, got, want)
		}
	}
}

// A change is made in place: the handle and the counters stay.
func TestLiveChange(t *testing.T) {
	c, ifindex := live(t)
	send := sender(t, ifindex, 100)
	for _, step := range []struct{ from, to string }{
		{"cake bandwidth 5mbit nat overhead 4", "cake bandwidth 6mbit besteffort dual-dsthost rtt 20ms"},
		{"cake_mq bandwidth 5mbit", "cake_mq bandwidth 6mbit besteffort"},
		{"dualpi2 memlimit 500000 step_thresh 4p", "dualpi2 memlimit 500000 limit 100 target 7ms alpha 1"},
		{"fq maxrate 5mbit", "fq limit 50 horizon_cap"}, {"fq_codel", "fq_codel target 7ms ce_threshold 1ms limit 7"},
		{"codel", "codel ecn limit 5"}, {"htb rate 5mbit", "htb rate 6mbit burst 9kb"},
		{"tbf rate 5mbit burst 5kb limit 9kb", "tbf rate 6mbit burst 6kb limit 10kb"},
		{"netem delay 10ms loss random 1% seed 5", "netem loss gemodel 1% 10% rate 5mbit limit 50"},
		{"netem delay 10ms reorder 25% gap 5", "netem delay 10ms reorder 25% gap 6"},
		{"pfifo limit 5", "pfifo limit 6"}, {"bfifo limit 5kb", "bfifo limit 6kb"},
	} {
		t.Run(step.from+" to "+step.to, func(t *testing.T) {
			from, to := mustParse(t, step.from), mustParse(t, step.to)
			known(t, c, from)
			if err := c.Replace(ifindex, from); err != nil {
				t.Fatal(err)
			}
			tree, err := c.Tree(ifindex)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := tree.Root()
			send(t)
			if err := c.Change(ifindex, before, to[0]); err != nil {
				t.Fatal(err)
			}
			tree, err = c.Tree(ifindex)
			if err != nil {
				t.Fatal(err)
			}
			after, _ := tree.Root()
			if back, ok := tree.Stack(); !ok || !back.Equal(to) || after.Handle != before.Handle {
				t.Fatalf("reads back as %v with handle %s, was %s", back, after.Handle, before.Handle)
			}
			if got := after.Stats; got.Packets+got.Qlen+got.Drops == 0 {
				t.Errorf("the packet sent before is not counted any more: %+v", got)
			}
		})
	}
}

// A stack of which the kernel refuses a part leaves what was there.
func TestLiveRefused(t *testing.T) {
	c, ifindex := live(t)
	s := mustParse(t, "htb rate 5mbit | pfifo limit 5")
	known(t, c, s)
	if err := c.Replace(ifindex, s); err != nil {
		t.Fatal(err)
	}
	before, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	// The device has no pacing of its own; or the kernel has no fq.
	err = c.Replace(ifindex, mustParse(t, "tbf rate 5mbit burst 5kb limit 9kb | fq offload_horizon 1s"))
	var op *netlink.OpError
	if err == nil || !errors.As(err, &op) || op.Message == "" || !strings.Contains(err.Error(), op.Message) {
		t.Errorf("the kernel's own words are missing: %v", err)
	}
	if after, err := c.Tree(ifindex); err != nil || !after.Same(before) {
		t.Errorf("it left %+v, %v", after, err)
	}
	if err := c.Change(ifindex, before.Qdiscs[0], fifoSpec{Limit: 5}); err == nil {
		t.Error("one kind was changed into another")
	}
	for range 2 { // the second time there is nothing to do
		if err := c.Delete(ifindex, Root); err != nil {
			t.Error(err)
		}
	}
	if err := c.Delete(ifindex, 0x10001); !errors.Is(err, unix.ENOENT) {
		t.Errorf("deleting what is not there: %v", err)
	}
	if _, err := c.Tree(12345); !errors.Is(err, unix.ENODEV) {
		t.Errorf("the tree of no device: %v", err)
	}
	if err := c.Replace(12345, s); !errors.Is(err, unix.ENODEV) {
		t.Errorf("replacing on no device: %v", err)
	}
}

// A probe leaves nothing, not even where it says yes.
func TestLiveProbe(t *testing.T) {
	c, _ := live(t)
	before, err := c.Trees()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range append(Kinds(), "red", "hfsc", "mqprio", "ingress", "clsact") {
		if _, err := c.Probe(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, kind := range []string{"pfifo", "mq", "noqueue"} { // in each kernel
		if ok, err := c.Probe(kind); !ok || err != nil {
			t.Errorf("%s: %v, %v", kind, ok, err)
		}
	}
	if ok, err := c.Probe("nonesuch"); ok || err != nil {
		t.Errorf("nonesuch: %v, %v", ok, err)
	}
	after, err := c.Trees()
	if err != nil || len(after) != len(before) {
		t.Fatal(after, err)
	}
	for i := range before {
		if !after[i].Same(before[i]) {
			t.Errorf("interface %d: %+v, was %+v", i, after[i], before[i])
		}
	}
}

// liveStatistics has, for a stack, what the discipline at its end counts of packets that are sent to it at once, beside
// what all kinds count. Below htb's 8kbit next to none of them gets through.
func liveStatistics(packets, length uint64) map[string]func(Stats) bool {
	n, size := uint32(packets), uint32(length)
	var none func(Stats) bool
	return map[string]func(Stats) bool{
		"mq": none, "pfifo": none, "cake_mq": none, "htb rate 1gbit": none,
		"cake": func(s Stats) bool {
			x, ok := s.X.(CakeStats)
			return ok && len(x.Tins) == 3 && x.Tins[1].SentPackets >= n && x.Tins[1].Interval == 100000 &&
				x.Tins[1].Target == 5000 && x.MaxLength >= size-14
		},
		"dualpi2": func(s Stats) bool {
			x, ok := s.X.(DualPI2Stats)
			return ok && x.PacketsC >= n && x.PacketsL == 0 && x.MemoryLimit == 10000*2*1514
		},
		"fq": func(s Stats) bool {
			x, ok := s.X.(fqStats)
			return ok && (x.Flows > 0 || x.FastPath > 0)
		},
		"htb rate 8kbit | fq_codel limit 5": func(s Stats) bool {
			x, ok := s.X.(fqCodelStats)
			return ok && uint64(x.DropOverlimit) == s.Drops && s.Drops > 0 && x.ECNMarks == 0 && x.CEMarks == 0 &&
				x.NewFlowCount > 0 && x.NewFlows+x.OldFlows > 0 && x.MemoryUsage < 1<<20 &&
				x.MaxPacket >= size && x.MaxPacket < 10*size && x.DropOvermemory == 0
		},
		"htb rate 8kbit | codel limit 5": func(s Stats) bool {
			x, ok := s.X.(codelStats)
			return ok && uint64(x.DropOverlimit) == s.Drops && s.Drops > 0 && x.MaxPacket >= size &&
				x.MaxPacket < 10*size && x.Count == 0 && x.ECNMarks == 0 && x.CEMarks == 0 && !x.Dropping
		},
		"htb rate 8kbit | pie": func(s Stats) bool {
			x, ok := s.X.(pieStats)
			return ok && uint64(x.Packets) == s.Packets+s.Qlen && x.Packets >= n && x.MaxQueue > 0 &&
				uint64(x.MaxQueue)+1 >= s.Qlen && x.MaxQueue < x.Packets && // the packet that comes is not in it yet
				x.ECNMarks == 0 && x.Overlimit == 0 &&
				uint64(x.Dropped) == s.Drops && x.Probability < 1
		},
		"netem loss random 100% limit 100": func(s Stats) bool {
			x, ok := s.X.(netemStats) // older kernels count nothing of their own
			return s.Drops >= packets && (s.X == nil || ok && x.Dropped == s.Drops && x.Delayed == 0 &&
				x.Corrupted == 0 && x.Duplicated == 0 && x.Reordered == 0 && x.ECNMarks == 0)
		},
	}
}

// Each packet is counted once, by each kind in its own way: where a struct is read from the wrong place, the kind's own
// counters are not those that all kinds have.
func TestLiveStats(t *testing.T) {
	c, ifindex := live(t)
	const packets, length = 100, 100
	send := sender(t, ifindex, length)
	for text, own := range liveStatistics(packets, length) {
		t.Run(text, func(t *testing.T) {
			s := mustParse(t, text)
			known(t, c, s)
			if err := c.Replace(ifindex, s); err != nil {
				t.Fatal(err)
			}
			for range packets {
				send(t)
			}
			tree, err := c.Tree(ifindex)
			if err != nil {
				t.Fatal(err)
			}
			root, _ := tree.Root()
			last := root
			for _, q := range tree.Qdiscs {
				if q.Kind == s[len(s)-1].Kind() {
					last = q
				}
			}
			for _, got := range []Stats{root.Stats, last.Stats} {
				if got.Packets+got.Qlen+got.Drops < packets ||
					got.Bytes+got.Backlog+got.Drops*length < packets*length || got.Marks != 0 {
					t.Errorf("%+v", got)
				}
			}
			if lossless := !strings.Contains(text, "limit"); lossless && root.Stats.Drops != 0 && last.Kind != "pie" {
				t.Errorf("%+v", root.Stats)
			}
			if own == nil && last.Stats.X != nil || own != nil && !own(last.Stats) {
				t.Errorf("%s: %+v", last.Kind, last.Stats)
			}
			if root.Kind == "htb" {
				checkHTB(t, tree, packets)
			}
		})
	}
}

// checkHTB looks at the one class of an htb that was given so many packets.
func checkHTB(t *testing.T, tree Tree, packets uint64) {
	t.Helper()
	if len(tree.Classes) != 1 {
		t.Fatalf("%+v", tree.Classes)
	}
	class := tree.Classes[0].Stats
	x, ok := class.X.(htbStats)
	if !ok || uint64(x.Lends) != class.Packets || x.Lends == 0 || x.Borrows != 0 || x.Giants != 0 ||
		tree.Classes[0].Rate != 1e9 && tree.Classes[0].Rate != 8000 {
		t.Errorf("%+v", tree.Classes[0])
	}
	if tree.Classes[0].Rate == 1e9 && class.Packets+class.Qlen < packets {
		t.Errorf("%+v", class)
	}
}

// The statistics of red, which Weir never installs itself.
func TestLiveREDStats(t *testing.T) {
	c, ifindex := live(t)
	if ok, err := c.Probe("red"); err != nil || !ok {
		t.Skipf("skipped, not passed: this kernel does not know red: %v", err)
	}
	const packets, length, limit = 100, 100, 1000
	send := sender(t, ifindex, length)
	if err := c.Replace(ifindex, mustParse(t, "htb rate 8kbit | pfifo")); err != nil {
		t.Fatal(err)
	}
	tree, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	// struct tc_red_qopt, with thresholds that are never reached: what does not fit is all that is dropped.
	options := pack(netlink.Attribute{Type: 1, Data: packed(uint32(limit), uint32(1<<20), uint32(1<<21),
		[]byte{9, 10, 5, 0})},
		netlink.Attribute{Type: 2, Data: make([]byte, 256)}, netlink.Attribute{Type: 3, Data: u32bytes(1 << 20)})
	_, err = c.nl.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWQDISC,
		Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Replace},
		Data: object(ifindex, 0x70000, tree.Classes[0].Handle, 0, "red", options)})
	if err != nil {
		t.Fatal(err)
	}
	for range packets {
		send(t)
	}
	if tree, err = c.Tree(ifindex); err != nil {
		t.Fatal(err)
	}
	for _, q := range tree.Qdiscs {
		if q.Kind != "red" {
			continue
		}
		x, ok := q.Stats.X.(redStats)
		if !ok || x.Full == 0 || uint64(x.Full) != q.Stats.Drops || x.Early != 0 || x.Other != 0 || x.Marked != 0 {
			t.Errorf("%+v", q.Stats)
		}
		return
	}
	t.Errorf("no red in %+v", tree)
}

// sender gives what sends a frame of this length through a device, past every protocol.
func sender(t *testing.T, ifindex, length int) func(*testing.T) {
	t.Helper()
	frame := make([]byte, length)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5") // broadcast, an experimental Ethernet type
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Skipf("skipped, not passed: this kernel has no packet sockets: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(raw) })
	return func(t *testing.T) {
		t.Helper()
		// A queue that is full says so with ENOBUFS.
		err := unix.Sendto(raw, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
	}
}

// The root's counters, read alone, are those of the tree; where there is nothing to count that is said, and nobody
// waits for an answer.
func TestLiveRootStats(t *testing.T) {
	c, ifindex := live(t)
	for _, text := range []string{"pfifo limit 7", "fq_codel", "mq | pfifo limit 7", "htb rate 5mbit | pfifo limit 5"} {
		s := mustParse(t, text)
		known(t, c, s)
		if err := c.Replace(ifindex, s); err != nil {
			t.Fatal(err)
		}
		tree, err := c.Tree(ifindex)
		if err != nil {
			t.Fatal(err)
		}
		root, _ := tree.Root()
		stats, ok, err := c.RootStats(ifindex)
		if err != nil || !ok || stats.Packets != root.Stats.Packets || stats.Backlog != root.Stats.Backlog {
			t.Errorf("%s: %+v, %v, %v; want %+v", text, stats, ok, err, root.Stats)
		}
	}
	if umltest.Inside() { // where a second of waiting is none
		marksOfQueues(t, c, ifindex)
	}
	if _, ok, err := c.RootStats(99999); ok || err == nil {
		t.Errorf("an interface that is not there: %v, %v", ok, err)
	}
	if _, err := c.Tree(ifindex); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// marksOfQueues shows that what the queues of cake_mq have marked is counted at the root, whichever way that is read.
func marksOfQueues(t *testing.T, c *Conn, ifindex int) {
	t.Helper()
	if err := c.Replace(ifindex, mustParse(t, "cake_mq bandwidth 1mbit")); err != nil {
		t.Fatal(err)
	}
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	const ect0, udp = 2, 17
	frame := append([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00E"), make([]byte, 485)...)
	frame[15], frame[17], frame[22], frame[23], frame[26], frame[30] = ect0, 0xe6, 64, udp, 10, 10
	frame[16] = 1   // 486 bytes
	for range 200 { // 0.8 s
		if err := unix.Sendto(raw, frame, 0, &unix.SockaddrLinklayer{Protocol: 8, Ifindex: ifindex}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	tree, err := c.Tree(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	root, _ := tree.Root()
	if stats, ok, err := c.RootStats(ifindex); err != nil || !ok || root.Stats.Marks == 0 ||
		stats.Marks != root.Stats.Marks {
		t.Errorf("%d marks, %v, %v; want %d, of some", stats.Marks, ok, err, root.Stats.Marks)
	}
}
