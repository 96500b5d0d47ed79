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
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"weir/internal/qdisc"
	"weir/internal/wire"
)

const (
	warmup            = 60 * time.Millisecond
	window            = 70 * time.Millisecond
	windows           = 3 // of which the median counts
	connectionsPerCPU = 4 // connections for each CPU
	clients           = 8 // addresses that they go to
	port              = 9
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
	// CAKE draws random numbers, and until they are seeded each takes the kernel thousands of instructions.
	if _, err := unix.Getrandom(make([]byte, 1), 0); err != nil {
		return err
	}
	cpus := runtime.NumCPU()
	queues := max(min(cpus, 32), 2) // of one alone there can be no mq
	all := candidates(queues)
	e := json.NewEncoder(w)
	for _, c := range all {
		q := queues
		if !c.multiqueue {
			q = 1
		}
		result, err := measure(c, q, connectionsPerCPU*min(cpus, 32))
		if err != nil {
			return err
		}
		if err := e.Encode(line{unix.ByteSliceToString(uts.Release[:]), cpus, len(all), result}); err != nil {
			return err
		}
	}
	return nil
}

// measure makes a device, puts a candidate there, and sends what it takes. A queue that this kernel has not is no
// error.
func measure(c Result, queues, connections int) (Result, error) {
	stack, err := c.stack()
	if err != nil {
		return c, err
	}
	far, err := newFar()
	if err != nil {
		return c, err
	}
	defer far.close()
	ifindex, err := device(queues, far)
	if err != nil {
		return c, err
	}
	defer netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: ifindex}})
	conn, err := qdisc.Dial(0)
	if err != nil {
		return c, err
	}
	defer conn.Close()
	if err := conn.Replace(ifindex, stack); err != nil {
		c.Lacks = "this kernel has it not: " + err.Error()
		return c, nil
	}
	return flood(c, far, connections)
}

// far is the network namespace of those who receive. It ends when it is closed, and its device with it.
type far struct {
	ns       int
	listener net.Listener
	received atomic.Int64
}

func newFar() (*far, error) {
	f, done := &far{ns: -1}, make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			f.listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		f.close()
		return nil, err
	}
	go func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			go f.receive(conn)
		}
	}()
	return f, nil
}

func (f *far) receive(conn net.Conn) {
	defer conn.Close()
	block := make([]byte, 256<<10)
	for {
		n, err := conn.Read(block)
		f.received.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (f *far) close() {
	if f.listener != nil {
		f.listener.Close()
	}
	if f.ns >= 0 {
		unix.Close(f.ns)
	}
}

// device is one end of a veth, whose other end is far.
func device(queues int, to *far) (ifindex int, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.NumTxQueues, attrs.NumRxQueues = "out", wire.EthernetMTU, queues, queues
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "in", PeerNamespace: netlink.NsFd(to.ns),
		PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues)}); err != nil {
		return 0, fmt.Errorf("a virtual device (veth): %w", err)
	}
	home, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer home.Close()
	sink, err := netlink.NewHandleAt(netns.NsHandle(to.ns), unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer sink.Close()
	for i := range clients {
		if _, err := up(sink, "in", net.IPv4(198, 18, 0, byte(i+2))); err != nil {
			return 0, err
		}
	}
	return up(home, "out", net.IPv4(198, 18, 0, 1))
}

// up gives a device an address, and makes it ready.
func up(h *netlink.Handle, name string, ip net.IP) (ifindex int, err error) {
	link, err := h.LinkByName(name)
	if err != nil {
		return 0, err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}
	if err := h.AddrAdd(link, addr); err != nil {
		return 0, err
	}
	return link.Attrs().Index, h.LinkSetUp(link)
}

// flood sends over so many connections at once, and counts what has come.
func flood(c Result, to *far, connections int) (Result, error) {
	block := make([]byte, 1<<20)
	for i := range connections {
		conn, err := net.DialTimeout("tcp4", fmt.Sprintf("198.18.0.%d:%d", i%clients+2, port), 5*time.Second)
		if err != nil {
			return c, err
		}
		defer conn.Close()
		go func() {
			for {
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
		}()
	}
	time.Sleep(warmup)
	var all []Result
	for range windows {
		before, begin := to.received.Load(), time.Now()
		time.Sleep(window)
		all = append(all, c.counted(to.received.Load()-before, time.Since(begin).Seconds()))
	}
	slices.SortFunc(all, func(a, b Result) int { return int(a.Rate) - int(b.Rate) })
	return all[windows/2], nil
}
