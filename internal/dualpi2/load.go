// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNotSupported is in the chain of every error that says that this kernel cannot do it, or does not let us.
var ErrNotSupported = errors.New("not supported")

// Probe reports why this kernel cannot run an instance: an ErrNotSupported that says what it takes; nil if it can, as far as can be told by looking.
func Probe() error {
	types, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the kernel does not describe its types (requires CONFIG_DEBUG_INFO_BTF)", ErrNotSupported)
	case err != nil:
		return err
	case !bytes.Contains(types, []byte("\x00bpf_qdisc_bstats_update\x00")):
		return fmt.Errorf("%w: the kernel has no BPF qdiscs (requires Linux 6.16 with CONFIG_NET_SCH_BPF)", ErrNotSupported)
	}
	return nil
}

// Install makes a new instance for a device in the calling thread's network namespace. Place is called with the instance's kind when the kernel knows
// it, and must put it at the device's root. If anything fails, Install leaves nothing in the kernel, and what place has not changed is as it was.
//
// An instance takes the place of another without a packet being marked twice or by none: its marker does nothing before its qdisc is there, and the
// other's does nothing any more from then on.
func Install(ifindex int, c Config, place func(kind string) error) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	runtime.LockOSThread() // whose network namespace it is about
	defer runtime.UnlockOSThread()
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	// A second instance finds what the first has set, and must put back what was before that.
	segments, err := unsplit(ifindex, device)
	if err != nil {
		return err
	}
	spec, kind, err := newSpec(ifindex, c, device, segments)
	if err != nil {
		return err
	}
	// Kernels before 5.11 count maps as locked memory; nothing is lost where that cannot be lifted.
	_ = rlimit.RemoveMemlock()
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		return explain(err)
	}
	defer objects.Close()
	ops, err := link.AttachStructOps(link.StructOpsOptions{Map: objects.Maps[objectMapDualpi2]})
	if err != nil {
		return explain(err)
	}
	// The qdisc holds its programs, and the device its marker. All that is let go here is the name, which nobody else is to use.
	defer func() { err = errors.Join(err, ops.Close()) }()
	marker := objects.Programs[objectProgDualpi2Mark]
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: marker, Attach: ebpf.AttachTCXEgress}); err != nil {
		return explain(err)
	}
	if err := place(kind); err != nil {
		return errors.Join(err, detach(ifindex, marker))
	}
	if c.SplitGSO {
		if err := netlink.LinkSetGSOMaxSegs(device, 1); err != nil {
			return fmt.Errorf("gso_max_segs: %w", err)
		}
	}
	return Clean(ifindex)
}

// unsplit is the most segments of a packet that a device takes, when no instance is on it.
func unsplit(ifindex int, device netlink.Link) (uint32, error) {
	segments := device.Attrs().GSOMaxSegs
	found, err := markers(ifindex)
	defer found.close()
	for _, m := range found {
		if s := m.config.GsoMaxSegs; s != 0 {
			segments = s
		}
	}
	return segments, err
}

// newSpec is the programs for one device, under a name of their own.
func newSpec(ifindex int, c Config, device netlink.Link, segments uint32) (*ebpf.CollectionSpec, string, error) {
	spec, err := loadObject()
	if err != nil {
		return nil, "", err
	}
	var id [3]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, "", err
	}
	kind := fmt.Sprintf("%s%x", Prefix, id)
	cookie, err := netnsCookie()
	if err != nil {
		return nil, "", err
	}
	ring := Capacity(c.Limit)
	configs := objectConfigs{Layout: layout}
	configs.Slot[0] = c.encode(linkHeader(device))
	configs.Slot[0].GsoMaxSegs = segments
	for i := range kind {
		configs.Slot[0].Kind[i] = int8(kind[i])
	}
	configs.Slot[1] = configs.Slot[0]
	for _, v := range []struct {
		name  string
		value any
	}{
		{objectVarIfindex, uint32(ifindex)},
		{objectVarNetnsCookie, cookie},
		{objectVarRingMask, ring - 1},
		{objectVarConf, configs},
	} {
		if err := spec.Variables[v.name].Set(v.value); err != nil {
			return nil, "", fmt.Errorf("%s: %w", v.name, err)
		}
	}
	spec.Maps[objectMapRings].MaxEntries = 2 * ring
	return spec, kind, setName(spec.Maps[objectMapDualpi2], kind)
}

// setName gives the qdisc the name that the kernel is to know it by.
func setName(ops *ebpf.MapSpec, kind string) error {
	value, ok := btf.As[*btf.Struct](ops.Value)
	if !ok || len(ops.Contents) != 1 {
		return errors.New("the object has no struct_ops")
	}
	content, ok := ops.Contents[0].Value.([]byte)
	for _, m := range value.Members {
		if at := int(m.Offset.Bytes()); ok && m.Name == "id" && at+16 <= len(content) && len(kind) < 16 {
			clear(content[at : at+16])
			copy(content[at:], kind)
			return nil
		}
	}
	return errors.New("the object's struct_ops has no id")
}

// linkHeader is the length of the header that a device puts before IP, in bytes.
func linkHeader(device netlink.Link) int32 {
	if t := device.Attrs().EncapType; t == "ether" || t == "loopback" {
		return 14
	}
	return 0
}

func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("SO_NETNS_COOKIE: %w", err)
	}
	return cookie, nil
}

// explain says what a kernel is missing, where it can be told.
func explain(err error) error {
	if why := Probe(); why != nil {
		return why
	}
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("%w: the kernel's verifier does not take the programs: %w", ErrNotSupported, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: the kernel does not let this process load BPF programs (requires root, CAP_BPF and CAP_NET_ADMIN, and no lockdown): %w", ErrNotSupported, err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// Change gives the instance on a device other options, all at once and without touching a packet. Limit may not exceed what it was made for (see
// Capacity).
func Change(ifindex int, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	found, err := markers(ifindex)
	defer found.close()
	if err != nil {
		return err
	}
	m := found.placed()
	if m == nil {
		return fmt.Errorf("interface %d has no instance", ifindex)
	}
	if held := m.capacity; c.Limit > held {
		return fmt.Errorf("the instance holds up to %d packets", held)
	}
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	next := m.configs
	idle := (next.Active + 1) & 1
	header := int32(m.status.LinkHeader)
	next.Slot[idle] = c.encode(header)
	next.Slot[idle].Kind, next.Slot[idle].GsoMaxSegs = m.config.Kind, m.config.GsoMaxSegs
	if err := m.configMap.Update(uint32(0), &next, ebpf.UpdateExist); err != nil {
		return err
	}
	next.Active = idle
	if err := m.configMap.Update(uint32(0), &next, ebpf.UpdateExist); err != nil {
		return err
	}
	segments := int(m.config.GsoMaxSegs)
	if c.SplitGSO {
		segments = 1
	}
	if split := m.config.SplitGso != 0; split != c.SplitGSO {
		return netlink.LinkSetGSOMaxSegs(device, segments)
	}
	return nil
}

// Read gives the instance on a device, if there is one; one whose marker alone was left behind is one that is not Placed. It takes CAP_SYS_ADMIN.
func Read(ifindex int) (Instance, bool, error) {
	found, err := markers(ifindex)
	defer found.close()
	if err != nil || len(found) == 0 {
		return Instance{}, false, err
	}
	m := found.placed()
	if m == nil {
		m = found[0]
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Instance{}, false, err
	}
	return Instance{
		Kind:     unix.ByteSliceToString(kindOf(m.config)),
		Placed:   m.status.Owner != 0,
		Capacity: m.capacity,
		Config:   m.config.decode(int32(m.status.LinkHeader)),
		Stats:    m.status.decode(uint64(now.Nano()), m.heads()),
	}, true, nil
}

// heads is when the heads of the two queues came; 0 for one that is empty.
func (m *marker) heads() (ts [2]uint64) {
	for i, q := range m.status.Queue {
		var s slot
		at := q.Head&(m.capacity-1) + uint32(i)*m.capacity
		if q.Head != q.Tail && m.rings != nil && m.rings.Lookup(at, &s) == nil {
			ts[i] = s.Ts
		}
	}
	return ts
}

func kindOf(c objectConfig) []byte {
	b := make([]byte, len(c.Kind))
	for i, v := range c.Kind {
		b[i] = byte(v)
	}
	return b
}

// Clean takes away the markers on a device whose qdisc is gone, and what else they had set.
func Clean(ifindex int) error {
	found, err := markers(ifindex)
	defer found.close()
	if err != nil {
		return err
	}
	active := found.placed()
	for _, m := range found {
		if m.status.Owner != 0 {
			continue
		}
		err = errors.Join(err, detach(ifindex, m.program))
		if active == nil && m.config.SplitGso != 0 {
			err = errors.Join(err, rejoin(ifindex, m.config.GsoMaxSegs))
		}
	}
	return err
}

// rejoin lets superpackets through again, unless somebody has set another limit.
func rejoin(ifindex int, segments uint32) error {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil || device.Attrs().GSOMaxSegs != 1 {
		return err
	}
	return netlink.LinkSetGSOMaxSegs(device, int(segments))
}

func detach(ifindex int, marker *ebpf.Program) error {
	return link.RawDetachProgram(link.RawDetachProgramOptions{Target: ifindex, Program: marker, Attach: ebpf.AttachTCXEgress})
}

// A marker that is attached to a device, and what of its instance can be found from there: the kernel is asked for nothing but what it holds.
type marker struct {
	program   *ebpf.Program
	configMap *ebpf.Map
	rings     *ebpf.Map
	configs   objectConfigs
	config    objectConfig // the one in force
	status    objectStatus
	capacity  uint32
}

type markerList []*marker

func (l markerList) close() {
	for _, m := range l {
		m.program.Close()
		m.configMap.Close()
		m.rings.Close()
	}
}

// placed is the one whose qdisc is in place, or nil.
func (l markerList) placed() *marker {
	for _, m := range l {
		if m.status.Owner != 0 {
			return m
		}
	}
	return nil
}

// markers finds those of this program's instances among the TCX programs of a device.
func markers(ifindex int) (markerList, error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil // a kernel without TCX
	}
	if err != nil {
		return nil, err
	}
	var found markerList
	for _, a := range attached.Programs {
		m, err := open(a.ID)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) { // it has just gone
				continue
			}
			return found, err
		}
		if m != nil {
			found = append(found, m)
		}
	}
	return found, nil
}

// open reads what hangs on a program; nil if it is not a marker, or one of another layout.
func open(id ebpf.ProgramID) (m *marker, err error) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil, err
	}
	m = &marker{program: program}
	defer func() {
		if m == nil || err != nil {
			program.Close()
		}
	}()
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	maps, ok := info.MapIDs()
	if info.Name != objectProgDualpi2Mark || !ok {
		return nil, nil
	}
	var statusFound bool
	for _, id := range maps {
		held, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		switch {
		case int(held.ValueSize()) == binary.Size(m.configs) && m.configMap == nil:
			if err = held.Lookup(uint32(0), &m.configs); err == nil && m.configs.Layout == layout {
				m.configMap = held
				continue
			}
		case int(held.ValueSize()) == binary.Size(slot{}) && m.rings == nil:
			m.rings = held
			continue
		case int(held.ValueSize()) == binary.Size(m.status):
			err = held.Lookup(uint32(0), &m.status)
			statusFound = err == nil
		}
		held.Close()
		if err != nil {
			return nil, err
		}
	}
	if m.configMap == nil || m.rings == nil || !statusFound {
		m.configMap.Close()
		m.rings.Close()
		return nil, nil
	}
	m.config = m.configs.Slot[m.configs.Active&1]
	m.capacity = m.config.Capacity
	return m, nil
}
