// SPDX-License-Identifier: Apache-2.0

// Package rtt knows the RTTs of TCP connections that a host forwards. The kernel keeps those of its own sockets alone.
// So a BPF program looks at what leaves a device, behind its queue, and at the acknowledgements. Its RTTs hold no wait
// of this host's.
//
// It changes, marks and drops no packet. It may not decide anything, nor which devices are looked at. The program is
// the filter of packet sockets that this process alone holds, so it is gone when the process is, be that by SIGKILL:
// nothing needs to be journaled or undone.
package rtt

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
)

// ID is a connection whose data leaves by a device.
type ID struct {
	Device      int // its index
	Here, There netip.AddrPort
}

// Flow is what was seen of a connection since it is known.
type Flow struct {
	ID

	// RTTs from when a packet has left this host until There has acknowledged it
	Last, Least time.Duration
	Smooth      time.Duration // as RFC 6298 has it
	Sum         time.Duration // of all
	Samples     uint32        // of these; 0: none is known yet

	Sent, Acked uint64 // bytes of data
	Again       uint64 // of Sent, what went out a second time: it was lost beyond this host
	Packets     uint32 // that carried Sent
	MSS         uint32 // bytes of data in the largest
}

// Watch looks at devices, until it is closed.
type Watch struct {
	objects *ebpf.Collection
	sockets []int
}

// maxFlows is how many connections are known at a time, or more on a host of many CPUs. Of more, those are forgotten
// that have not moved for longest.
const maxFlows = 4096

// perCPUReserve is what a CPU may keep of the map's room for itself, twice (kernel/bpf/bpf_lru_list.c).
const perCPUReserve = 256

// Open begins to look at devices, by their index in the calling thread's network namespace. Where the kernel cannot do
// that, or does not let this process, the error is a bpf.ErrNotSupported that says what it takes.
func Open(devices ...int) (_ *Watch, err error) {
	spec, err := loadObject()
	if err != nil {
		return nil, err
	}
	if cpus, err := ebpf.PossibleCPU(); err == nil {
		spec.Maps[objectMapFlows].MaxEntries = uint32(max(maxFlows, perCPUReserve*cpus))
	}
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps as locked memory
	w := &Watch{}
	if w.objects, err = ebpf.NewCollection(spec); err != nil {
		return nil, explain(err)
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for _, device := range devices {
		if err = w.add(device); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add looks at a device by a socket that gets nothing, since its filter lets nothing through.
func (w *Watch) add(device int) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the kernel does not let this process see packets (requires CAP_NET_RAW)",
			bpf.ErrNotSupported)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: the kernel has no packet sockets (requires CONFIG_PACKET)", bpf.ErrNotSupported)
	case err != nil:
		return fmt.Errorf("a packet socket: %w", err)
	}
	w.sockets = append(w.sockets, fd)
	// The filter comes before the device, so that nothing gets into the socket meanwhile.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF,
		w.objects.Programs[objectProgRtt].FD()); err != nil {
		return fmt.Errorf("the filter of a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(unix.ETH_P_ALL), Ifindex: device}); err != nil {
		return fmt.Errorf("the packets of device %d: %w", device, err)
	}
	return nil
}

// explain says what a kernel is missing that does not take the programs.
func explain(err error) error {
	return bpf.Explain(err, func() error {
		if errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("%w: the kernel has no BPF (requires CONFIG_BPF_SYSCALL)", bpf.ErrNotSupported)
		}
		return nil
	})
}

// Close ends the looks, and leaves nothing in the kernel.
func (w *Watch) Close() error {
	var all error
	for _, fd := range w.sockets {
		all = errors.Join(all, unix.Close(fd))
	}
	w.sockets = nil
	w.objects.Close()
	return all
}

// Read returns all connections that are known.
func (w *Watch) Read() (all []Flow, err error) {
	const batch = 256
	keys, values := make([]objectFlowKey, batch), make([]objectFlow, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := w.objects.Maps[objectMapFlows].BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all = append(all, flow(keys[i], values[i]))
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist): // that was the last batch
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}

// Again returns those of some connections that are still known.
func (w *Watch) Again(some []Flow) (now []Flow, err error) {
	for _, f := range some {
		var v objectFlow
		k := f.key()
		switch err := w.objects.Maps[objectMapFlows].Lookup(&k, &v); {
		case errors.Is(err, ebpf.ErrKeyNotExist):
		case err != nil:
			return nil, err
		default:
			now = append(now, flow(k, v))
		}
	}
	return now, nil
}

// Ports are in network order on both sides: the kernel's programs compare them, and no more.
func swap(port uint16) uint16 { return port<<8 | port>>8 }

func (f Flow) key() objectFlowKey {
	return objectFlowKey{Here: f.Here.Addr().As16(), There: f.There.Addr().As16(), HerePort: swap(f.Here.Port()),
		TherePort: swap(f.There.Port()), Ifindex: uint32(f.Device)}
}

func flow(k objectFlowKey, v objectFlow) Flow {
	end := func(a [16]byte, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a).Unmap(), swap(port))
	}
	µs := func(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
	return Flow{ID: ID{int(k.Ifindex), end(k.Here, k.HerePort), end(k.There, k.TherePort)},
		Last: µs(v.Last), Least: µs(v.Least), Smooth: µs(v.Smooth) / 8, Samples: v.Samples,
		Sum:  time.Duration(min(v.Sum, math.MaxInt64/1000)) * time.Microsecond,
		Sent: v.Sent, Acked: v.Acked, Again: v.Again, Packets: v.Packets, MSS: v.Mss}
}
