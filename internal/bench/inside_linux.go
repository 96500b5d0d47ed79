// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/qdisc"
)

const (
	warmup  = 60 * time.Millisecond
	window  = 70 * time.Millisecond
	windows = 3 // of which the median counts
	clients = 8 // addresses that each thread sends to, by a socket each
	most    = 32
)

// errOthers keeps it out of a namespace that somebody uses: in a new one every device is down.
var errOthers = errors.New("this network namespace is not a new one: weir doctor --bench makes it")

// Inside measures in the network namespace of this process, where nobody else is, and writes a line for each result.
func Inside(w io.Writer) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 }) {
		return errOthers
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	senders := min(runtime.NumCPU(), most)
	all := candidates(senders)
	e := json.NewEncoder(w)
	for _, c := range all {
		result, err := measure(c, senders)
		if err != nil {
			return err
		}
		if err := e.Encode(line{unix.ByteSliceToString(uts.Release[:]), senders, len(all), result}); err != nil {
			return err
		}
	}
	return nil
}

// measure makes a device, puts a candidate there, and sends what it takes. A queue that this kernel has not is no
// error.
func measure(c Result, senders int) (Result, error) {
	queues := 1
	if c.several() {
		queues = max(senders, 2) // of one alone there can be no mq
	}
	link, err := device(queues)
	if err != nil {
		return c, err
	}
	defer netlink.LinkDel(link)
	stack, err := c.stack()
	if err != nil {
		return c, err
	}
	conn, err := qdisc.Dial(0)
	if err != nil {
		return c, err
	}
	defer conn.Close()
	if err := conn.Replace(link.Attrs().Index, stack); err != nil {
		c.Lacks = "this kernel has it not: " + err.Error()
		return c, nil
	}
	sockets, err := dial(senders)
	defer func() {
		for _, fd := range slices.Concat(sockets...) {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return c, err
	}
	return flood(c, link.Attrs().Name, sockets)
}

// device is one end of a veth. The other end takes what comes for somebody else's, and drops it.
func device(queues int) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "out", frame-14
	attrs.NumTxQueues, attrs.NumRxQueues = queues, queues
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "sink", PeerNumTxQueues: uint32(queues),
		PeerNumRxQueues: uint32(queues)})
	if err != nil {
		return nil, fmt.Errorf("a virtual device (veth): %w", err)
	}
	for _, name := range []string{"sink", "out"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return nil, err
		}
	}
	link, err := netlink.LinkByName("out")
	if err != nil {
		return nil, err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(198, 18, 0, 1), Mask: net.CIDRMask(16, 32)}}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return nil, err
	}
	for i := range clients {
		err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.IPv4(198, 18, 1, byte(i+1)), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}})
		if err != nil {
			return nil, err
		}
	}
	return link, nil
}

// dial opens the sockets of each thread, which hand over superpackets.
func dial(senders int) (all [][]int, err error) {
	for range senders {
		var own []int
		for i := range clients {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return append(all, own), err
			}
			own = append(own, fd)
			// What waits in the queue is bounded by the socket's buffer, as it is for TCP.
			for _, o := range [][3]int{{unix.SOL_UDP, unix.UDP_SEGMENT, payload},
				{unix.SOL_SOCKET, unix.SO_SNDBUF, 2 * together * payload}} {
				if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
					return append(all, own), fmt.Errorf("UDP superpackets (Linux 4.18): %w", err)
				}
			}
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 18, 1, byte(i + 1)}}); err != nil {
				return append(all, own), err
			}
		}
		all = append(all, own)
	}
	return all, nil
}

// flood sends from all threads at once, and counts what the device has taken.
func flood(c Result, device string, sockets [][]int) (Result, error) {
	var stop atomic.Bool
	var threads sync.WaitGroup
	for _, own := range sockets {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			block := make([]byte, together*payload)
			for i := 0; !stop.Load(); i++ {
				if _, err := unix.Write(own[i%len(own)], block); err != nil {
					unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil) // ENOBUFS: a queue was full
				}
			}
		})
	}
	defer threads.Wait()
	defer stop.Store(true)
	time.Sleep(warmup)
	var all []Result
	for range windows {
		before, begin, err := sent(device)
		if err != nil {
			return c, err
		}
		time.Sleep(window)
		after, end, err := sent(device)
		if err != nil {
			return c, err
		}
		all = append(all, c.counted(after-before, end.Sub(begin).Seconds()))
	}
	slices.SortFunc(all, func(a, b Result) int { return int(a.Rate) - int(b.Rate) })
	return all[windows/2], nil
}

// sent is how many frames a device has taken, and when.
func sent(device string) (uint64, time.Time, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return 0, time.Time{}, err
	}
	return link.Attrs().Statistics.TxPackets, time.Now(), nil
}
