// SPDX-License-Identifier: Apache-2.0

package change

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/lab/uml/umltest"
	"weir/internal/plan"
	"weir/internal/units"
)

func TestMain(m *testing.M) { umltest.Main(m) }

// While a rate is changed a probe that is running loses no packet, not even beside a queue that stands. In the lab,
// where a change takes no time, it loses none either while a queue takes another's place on an idle link. Elsewhere
// the kernel stops the device for that, for as long as its readers of the old one take (dev_deactivate,
// net/sched/sch_generic.c), and what stands in the old one is gone: counted, and told.
func TestProbeWhileChanging(t *testing.T) {
	inNamespace(t, probeWhileChanging)
}

func probeWhileChanging(t *testing.T) {
	if err := crossLink(); err != nil {
		t.Error(err)
		return
	}
	facts, err := host.Read()
	if err != nil {
		t.Error(err)
		return
	}
	shaper := "htb rate %s | fq_codel"
	if facts.Qdiscs["cake"] == host.Yes {
		shaper = "cake bandwidth %s besteffort"
	} else if facts.Qdiscs["fq_codel"] != host.Yes {
		shaper = "tbf rate %s burst 3000b limit 200000b"
	}
	queue := func(rate string) plan.Goal {
		return plan.Goal{Dev: "up0", Qdisc: fmt.Sprintf(shaper, rate), CC: "keep"}
	}
	s := liveStore(t.TempDir())
	up := func(goals ...plan.Goal) {
		for _, goal := range goals {
			if out, err := s.Up(goal, 0); err != nil || len(out.Failed) > 0 {
				t.Errorf("up %s: %v, %v", goal.Flags(), out.Failed, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	down := func() {
		if out, err := s.Down(Undo{}); err != nil || len(out.Failed)+len(out.Left) > 0 {
			t.Errorf("down: %+v, %v", out, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	const rounds = 5
	type changing struct {
		name   string
		load   bool
		change func()
		lose   bool
	}
	cases := []changing{
		{"another rate", false, func() { up(queue("50mbit"), queue("40mbit"), queue("60mbit")) }, false},
		{"up and down", false, func() { down(); up(queue("50mbit")) }, !umltest.Inside()},
		{"another rate, beside a standing queue", true,
			func() { up(queue("50mbit"), queue("40mbit"), queue("60mbit")) }, false},
		{"down and up, beside a standing queue", true, func() { down(); up(queue("50mbit")) }, true},
	}
	if facts.Qdiscs["cake"] == host.Yes {
		planned := func(rate units.Rate) plan.Goal {
			return plan.Goal{Dev: "up0", Rate: rate, RTT: units.Duration(48 * time.Millisecond), CC: "keep"}
		}
		cases = append(cases, changing{"another rate, as planned, beside a standing queue", true,
			func() { up(planned(50e6), planned(8e6), planned(60e6)) }, false})
	}
	for _, c := range cases {
		up(queue("50mbit"))
		sent, arrived, err := probe(c.load, func() {
			for range rounds {
				c.change()
			}
		})
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case arrived == 0 || arrived > sent:
			t.Errorf("%s: %d probes sent and %d arrived", c.name, sent, arrived)
		case arrived < sent && !c.lose:
			t.Errorf("%s: %d of %d probes were lost", c.name, sent-arrived, sent)
		default:
			t.Logf("%s, %d times: %d of %d probes lost, one sent each millisecond", c.name, rounds, sent-arrived, sent)
		}
	}
}

// crossLink makes the device up0, by which 192.0.2.1 is reached, and whose other end is far0.
func crossLink() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = "up0", 1, 1
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far0"}); err != nil {
		return err
	}
	// Nothing but the probes: no address resolution, no IPv6.
	if err := os.WriteFile(host.SysctlPath("net.ipv6.conf.all.disable_ipv6"), []byte("1"), 0); err != nil &&
		!os.IsNotExist(err) {
		return err
	}
	var up netlink.Link
	for _, name := range []string{"far0", "up0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		up = link
	}
	addr, _ := netlink.ParseAddr("192.0.2.2/24")
	if err := netlink.AddrAdd(up, addr); err != nil {
		return err
	}
	if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: up.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: net.IPv4(192, 0, 2, 1), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}); err != nil {
		return err
	}
	return arises("up0")
}

// arises waits for a link that was set up: on a busy machine the kernel is late to say that it is
// (net/core/link_watch.c).
func arises(name string) error {
	const patience, pause = 30 * time.Second, 10 * time.Millisecond
	for waited := time.Duration(0); waited < patience; waited += pause {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("%s is not up", name)
}

// probe sends a packet every millisecond while something is done, if asked beside more than 50 Mbit/s of others, and
// counts those that arrive.
func probe(load bool, do func()) (sent, arrived int, err error) {
	far, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC,
		int(binary.NativeEndian.Uint16([]byte{0x08, 0x00})))
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(far)
	link, err := netlink.LinkByName("far0")
	if err != nil {
		return 0, 0, err
	}
	if err := unix.Bind(far, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0x08, 0x00}),
		Ifindex: link.Attrs().Index}); err != nil {
		return 0, 0, err
	}
	_ = unix.SetsockoptInt(far, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	if err := unix.SetsockoptTimeval(far, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300_000}); err != nil {
		return 0, 0, err
	}
	socket := func(port int) (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: port})
		}
		return fd, err
	}
	near, err := socket(7)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(near)
	bulk, err := socket(9)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(bulk)

	var stop atomic.Bool
	mark := []byte("weir probe " + strings.Repeat(".", 20))
	sending := make(chan error)
	go func() {
		filler := make([]byte, 1200)
		for !stop.Load() {
			if err := unix.Send(near, mark, 0); err != nil {
				sending <- err
				return
			}
			sent++
			if load {
				for range 10 { // 96 Mbit/s
					_ = unix.Send(bulk, filler, 0) // which may well be more than fits
				}
			}
			time.Sleep(time.Millisecond)
		}
		sending <- nil
	}()
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		frame := make([]byte, 2048)
		for {
			n, _, err := unix.Recvfrom(far, frame, 0)
			switch {
			case err == unix.EINTR:
			case err != nil && stop.Load():
				return
			case err == nil && bytes.Contains(frame[:n], mark):
				arrived++
			}
		}
	}()
	time.Sleep(50 * time.Millisecond)
	do()
	time.Sleep(50 * time.Millisecond)
	stop.Store(true)
	err = <-sending
	<-counted
	return sent, arrived, err
}
