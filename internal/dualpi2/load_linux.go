// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
)

// Probe reports why this kernel cannot run an instance, or does not let this process, as bpf.Probe does.
func Probe() error {
	return bpf.Probe("bpf_qdisc_bstats_update",
		"the kernel has no BPF qdiscs (requires Linux 6.16 with CONFIG_NET_SCH_BPF)")
}

func explain(err error) error { return bpf.Explain(err, Probe) }

// Install makes a new instance for a device in the calling thread's network namespace. Place is called with the
// instance's kind when the kernel knows it, and must put it at the device's root. If anything fails before that,
// Install leaves nothing in the kernel; if anything fails after it, a qdisc is in place that its caller has to replace.
//
// An instance takes the place of another without a gap: its marker does nothing before its qdisc is there, and the
// other's does nothing any more once its own is gone. In the microseconds in which both are there the new one's say
// counts.
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
	before := uint32(device.Attrs().GSOMaxSegs)
	segments, err := unsplit(ifindex, before)
	if err != nil {
		return explain(err)
	}
	spec, kind, err := newSpec(ifindex, c, device, segments)
	if err != nil {
		return err
	}
	// Kernels before 5.11 count maps as locked memory; nothing is lost where that cannot be lifted.
	_ = rlimit.RemoveMemlock()
	// All the kernel's types that the programs name are in vmlinux. Left to itself the loader reads those of every
	// module, too, which takes a second where modules come with copies of them.
	types := btf.NewCache()
	kernel, err := types.Kernel()
	if err != nil {
		return explain(err)
	}
	objects, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: kernel}, Cache: types})
	if err != nil {
		return explain(err)
	}
	defer objects.Close()
	program := objects.Programs[objectProgDualpi2Mark]
	info, err := program.Info()
	if err != nil {
		return explain(err)
	}
	id, _ := info.ID()
	// What was loaded has to be found again, later and by others, which takes more than to load it.
	own, err := open(id)
	if err == nil && own == nil {
		err = errors.New("the kernel has no maps for them")
	}
	if err != nil {
		return fmt.Errorf("the programs that were loaded cannot be read back: %w", explain(err))
	}
	own.Close()
	ops, err := link.AttachStructOps(link.StructOpsOptions{Map: objects.Maps[objectMapDualpi2]})
	if err != nil {
		return explain(err)
	}
	// The qdisc holds its programs, and the device its marker. All that is let go here is the name, which nobody else
	// is to use.
	defer func() { err = errors.Join(err, ops.Close()) }()
	if err := attach(ifindex, program); err != nil {
		return explain(err)
	}
	undo := func(err error) error {
		return errors.Join(err, detach(ifindex, program), setSegments(device, before))
	}
	want := segments
	if c.SplitGSO {
		want = 1
	}
	if err := setSegments(device, want); err != nil {
		return undo(err)
	}
	if err := place(kind); err != nil {
		return undo(err)
	}
	// Somebody else's Clean may have taken the marker for one that was left behind.
	if attached, err := isAttached(ifindex, id); err != nil || !attached {
		if err := errors.Join(err, attach(ifindex, program)); err != nil {
			return err
		}
	}
	return Clean(ifindex)
}

// unsplit is the most segments of a packet that a device takes when no instance is on it, and now takes so many.
func unsplit(ifindex int, now uint32) (uint32, error) {
	found, err := markers(ifindex)
	defer found.close()
	for _, m := range found {
		if m.instance.SplitGso != 0 {
			return m.instance.GsoMaxSegs, err
		}
	}
	return now, err
}

func setSegments(device netlink.Link, segments uint32) error {
	now, err := netlink.LinkByIndex(device.Attrs().Index)
	if err != nil || now.Attrs().GSOMaxSegs == segments {
		return err
	}
	if err := netlink.LinkSetGSOMaxSegs(device, int(segments)); err != nil {
		return fmt.Errorf("gso_max_segs %d: %w", segments, err)
	}
	return nil
}

// attach puts the marker before whatever else is there: a program may end what comes after it.
func attach(ifindex int, marker *ebpf.Program) error {
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: marker,
		Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
}

// detach is content if it is not there.
func detach(ifindex int, marker *ebpf.Program) error {
	err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: ifindex, Program: marker,
		Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func isAttached(ifindex int, id ebpf.ProgramID) (bool, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.Programs, func(p link.AttachedProgram) bool { return p.ID == id }), nil
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
	cookie, err := bpf.NetnsCookie()
	if err != nil {
		return nil, "", err
	}
	var secret [2]uint64
	if err := binary.Read(rand.Reader, binary.NativeEndian, &secret); err != nil {
		return nil, "", err
	}
	secret[0] |= 1
	ring := capacity(c.Limit)
	instance := objectInstanceData{Layout: layout, SplitGso: flag(c.SplitGSO), GsoMaxSegs: segments}
	for i := range kind {
		instance.Kind[i] = int8(kind[i])
	}
	var configs objectConfigs
	configs.Slot[0] = c.encode(int32(bpf.LinkHeader(device.Attrs().EncapType)))
	configs.Slot[1] = configs.Slot[0]
	for _, v := range []struct {
		name  string
		value any
	}{
		{objectVarIfindex, uint32(ifindex)},
		{objectVarNetnsCookie, cookie},
		{objectVarRingMask, ring - 1},
		{objectVarSecret, secret},
		{objectVarConf, configs},
		{objectVarInstance, instance},
	} {
		if err := spec.Variables[v.name].Set(v.value); err != nil {
			return nil, "", fmt.Errorf("%s: %w", v.name, err)
		}
	}
	spec.Maps[objectMapRings].MaxEntries = 2 * ring
	return spec, kind, bpf.SetID(spec.Maps[objectMapDualpi2], kind)
}

// Change gives the instance on a device other options, all at once and without touching a packet. Limit may not exceed
// what it was made for (see capacity).
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
	if m == nil || m.rings == nil {
		return fmt.Errorf("interface %d has no instance of this version", ifindex)
	}
	if held := m.capacity(); c.Limit > held {
		return fmt.Errorf("the instance holds up to %d packets", held)
	}
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	next := m.configs
	idle := (next.Active + 1) & 1
	next.Slot[idle] = c.encode(int32(m.config.LinkHeader))
	if err := m.Maps[configName].Update(uint32(0), &next, ebpf.UpdateExist); err != nil {
		return err
	}
	next.Active = idle
	if err := m.Maps[configName].Update(uint32(0), &next, ebpf.UpdateExist); err != nil {
		return err
	}
	instance := m.instance
	segments := instance.GsoMaxSegs
	if c.SplitGSO {
		if instance.SplitGso == 0 {
			instance.GsoMaxSegs = device.Attrs().GSOMaxSegs
		}
		segments = 1
	} else if instance.SplitGso == 0 {
		segments = device.Attrs().GSOMaxSegs
	}
	// What is to be put back is known before there is anything to put back, and forgotten after.
	instance.SplitGso = 1
	if c.SplitGSO {
		err = m.Maps[instanceName].Update(uint32(0), &instance, ebpf.UpdateExist)
	}
	if err = errors.Join(err, setSegments(device, segments)); err == nil && !c.SplitGSO {
		instance.SplitGso = 0
		err = m.Maps[instanceName].Update(uint32(0), &instance, ebpf.UpdateExist)
	}
	return err
}

// Read returns the instance on a device, if there is one; one whose marker alone was left behind is one that is not
// Placed. One of another version has no Config and no Stats. It takes CAP_SYS_ADMIN.
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
	i := Instance{Kind: m.kind(), Placed: m.owner != 0}
	if m.rings == nil {
		return i, true, nil
	}
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return Instance{}, false, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Instance{}, false, err
	}
	i.Known, i.Capacity = true, m.capacity()
	i.Config = m.config.decode(int32(m.config.LinkHeader))
	i.Config.SplitGSO = m.instance.SplitGso != 0 && device.Attrs().GSOMaxSegs == 1
	i.Stats = m.status.decode(uint64(now.Nano()), m.heads())
	if i.Stats.MemoryLimit = m.config.MemLimit; i.Stats.MemoryLimit == 0 {
		i.Stats.MemoryLimit = uint32(min(uint64(m.config.Limit)*2*uint64(m.status.Mtu), math.MaxUint32))
	}
	return i, true, nil
}

// heads is when the heads of the two queues came; 0 for one that is empty.
func (m *marker) heads() (ts [2]uint64) {
	capacity := m.capacity()
	for i, q := range m.status.Queue {
		var s slot
		if q.Head != q.Tail && m.rings.Lookup(q.Head&(capacity-1)+uint32(i)*capacity, &s) == nil {
			ts[i] = s.Ts
		}
	}
	return ts
}

// capacity is how many packets a queue holds: the two have one ring after the other.
func (m *marker) capacity() uint32 { return m.rings.MaxEntries() / 2 }

func (m *marker) kind() string {
	b := make([]byte, len(m.instance.Kind))
	for i, v := range m.instance.Kind {
		b[i] = byte(v)
	}
	return unix.ByteSliceToString(b)
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
		if m.owner != 0 {
			continue
		}
		if active == nil && m.instance.SplitGso != 0 {
			err = errors.Join(err, rejoin(ifindex, m.instance.GsoMaxSegs))
		}
		err = errors.Join(err, detach(ifindex, m.Program))
	}
	return err
}

// rejoin lets superpackets through again, unless somebody has set another limit.
func rejoin(ifindex int, segments uint32) error {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil || device.Attrs().GSOMaxSegs != 1 {
		return err
	}
	return setSegments(device, segments)
}

// A marker that is attached to a device, and what of its instance can be found from there: the kernel is asked for
// nothing but what it holds.
type marker struct {
	*bpf.Opened
	instance objectInstanceData
	owner    uint64

	// nil, and zero, in an instance of another version.
	rings   *ebpf.Map
	configs objectConfigs
	config  objectConfig // the one in force
	status  objectStatus
}

type markerList []*marker

func (l markerList) close() {
	for _, m := range l {
		m.Close()
	}
}

// placed is the one whose qdisc is in place, or nil.
func (l markerList) placed() *marker {
	for _, m := range l {
		if m.owner != 0 {
			return m
		}
	}
	return nil
}

// markers finds those of instances, of this version or another, among the TCX programs of a device.
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
		switch {
		case errors.Is(err, os.ErrNotExist): // it has just gone
		case err != nil:
			return found, err
		case m != nil:
			found = append(found, m)
		}
	}
	return found, nil
}

// The maps of an instance, by the names that the kernel has for them.
const (
	instanceName = ".data.instance"
	ownerName    = ".data.owner"
	configName   = ".data.config"
	statusName   = ".bss"
)

// open reads what hangs on a program; nil if it is not a marker.
func open(id ebpf.ProgramID) (*marker, error) {
	opened, err := bpf.Open(id)
	if err != nil {
		return nil, err
	}
	m := &marker{Opened: opened}
	is, err := m.read()
	if err != nil || !is {
		opened.Close()
		return nil, err
	}
	return m, nil
}

// read reports whether it is a marker, and reads its maps.
func (m *marker) read() (is bool, err error) {
	take := func(name string, v any) (taken bool) {
		if err == nil {
			taken, err = m.Take(name, v)
		}
		return taken
	}
	if m.Name != objectProgDualpi2Mark || !take(instanceName, &m.instance) || !take(ownerName, &m.owner) {
		return false, err
	}
	rings := m.Maps[objectMapRings]
	if m.instance.Layout == layout && take(configName, &m.configs) && take(statusName, &m.status) && rings != nil {
		m.rings, m.config = rings, m.configs.Slot[m.configs.Active&1]
	}
	return err == nil, err
}
