// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/units"
)

// Probe reports why this kernel cannot run a shaper, or does not let this process, as bpf.Probe does.
func Probe() error {
	return bpf.Probe("bpf_loop", "the kernel's BPF has no loops (requires Linux 5.17)")
}

func explain(err error) error { return bpf.Explain(err, Probe) }

// Install puts a shaper at a device's egress, in the place of another of this package's if there is one. What is below
// has to keep times of departure: fq, which is its caller's part. Packets have the link header of the device that they
// come from: an ifb's are as they were when they arrived at another, and of any other device it is that itself.
func Install(ifindex, from int, c Config) error {
	device, err := netlink.LinkByIndex(from)
	if err != nil {
		return fmt.Errorf("interface %d: %w", from, err)
	}
	return install(ifindex, bpf.LinkHeader(device.Attrs().EncapType), c)
}

// install is Install for packets that have a link header of so many bytes.
func install(ifindex int, header uint32, c Config) (err error) {
	if err := c.Check(); err != nil {
		return err
	}
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	spec, err := loadObject()
	if err != nil {
		return err
	}
	var configs objectConfigs
	configs.Slot[0] = c.encode(header, 1)
	configs.Slot[1] = configs.Slot[0]
	before, err := find(ifindex)
	defer before.close()
	if err != nil {
		return err
	}
	made, err := prepare(device)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && made { // with what hangs below it
			err = errors.Join(err, netlink.QdiscDel(clsact(ifindex)))
		}
	}()
	own := objectInstance{Layout: layout, GsoMaxSegs: before.segments(device)}
	if made || before.madePlace() {
		own.Clsact = 1
	}
	if err := errors.Join(spec.Variables[objectVarConf].Set(configs),
		spec.Variables[objectVarOwn].Set(own)); err != nil {
		return err
	}
	// Kernels before 5.11 count maps as locked memory; nothing is lost where that cannot be lifted.
	_ = rlimit.RemoveMemlock()
	types := btf.NewCache()
	objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return explain(err)
	}
	defer objects.Close()
	if err := setRules(objects.Maps[objectMapPolicies], nil, c.Clients); err != nil {
		return err
	}
	if err := attach(device, objects.Programs[objectProgShaperStamp]); err != nil {
		return explain(err)
	}
	return errors.Join(before.detach(device), setSegments(device, c.segments(own.GsoMaxSegs)))
}

// layout is the version of what is read back from a program: it changes with any of the types of its maps.
const layout = 2

// segments is the most segments of a packet that a device takes when no shaper is on it, and now takes so many.
func (all programs) segments(device netlink.Link) uint32 {
	for _, p := range all {
		if p.instance.GsoMaxSegs != 0 {
			return p.instance.GsoMaxSegs
		}
	}
	return device.Attrs().GSOMaxSegs
}

func setSegments(device netlink.Link, segments uint32) error {
	if device.Attrs().GSOMaxSegs == segments {
		return nil
	}
	if err := netlink.LinkSetGSOMaxSegs(device, int(segments)); err != nil {
		return fmt.Errorf("gso_max_segs %d: %w", segments, err)
	}
	return nil
}

// setRules makes a map's rules those of clients; before are the ones that it has.
func setRules(held *ebpf.Map, before, clients []Client) error {
	keep := map[objectPrefix]bool{}
	for _, client := range clients {
		key, rule := client.encode()
		if err := held.Put(key, rule); err != nil {
			return fmt.Errorf("client %v: %w", client.Prefix, err)
		}
		keep[key] = true
	}
	for _, client := range before {
		if key, _ := client.encode(); !keep[key] {
			if err := held.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("client %v: %w", client.Prefix, err)
			}
		}
	}
	return nil
}

// Change gives the shaper on a device other options, all at once and without touching a packet.
func Change(ifindex int, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	found, err := find(ifindex)
	defer found.close()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found, func(p program) bool { return p.instance.Layout == layout })
	if i < 0 {
		return fmt.Errorf("interface %d has no shaper of this version", ifindex)
	}
	own := found[i]
	var configs objectConfigs
	if is, err := own.Take(configName, &configs); err != nil || !is {
		return errors.Join(err, errors.New("the shaper's options cannot be read"))
	}
	before := configs.current()
	if before.Params.SlotShift != slotShift(c.Rate) { // its calendar cannot have other slots
		return install(ifindex, before.LinkHeader, c)
	}
	rules, err := own.rules()
	if err != nil {
		return err
	}
	if err := setRules(own.Maps[objectMapPolicies], rules, c.Clients); err != nil {
		return err
	}
	next := (configs.Active + 1) & 1
	configs.Slot[next] = c.encode(before.LinkHeader, before.Generation+1)
	if err := own.Maps[configName].Put(uint32(0), &configs); err != nil {
		return err
	}
	configs.Active = next
	return errors.Join(own.Maps[configName].Put(uint32(0), &configs),
		setSegments(device, c.segments(found.segments(device))))
}

// configName is the kernel's name for the map of the options.
const configName = ".data.config"

// rules are the clients' in its map.
func (p program) rules() (all []Client, err error) {
	var key objectPrefix
	var rule objectPolicy
	each := p.Maps[objectMapPolicies].Iterate()
	for each.Next(&key, &rule) {
		all = append(all, decodeClient(key, rule))
	}
	slices.SortFunc(all, func(a, b Client) int { return a.Prefix.Compare(b.Prefix) })
	return all, each.Err()
}

// Read returns the shaper on a device, if there is one. One of another version has no Config and no Stats. It takes
// CAP_SYS_ADMIN.
func Read(ifindex int) (Instance, bool, error) {
	found, err := find(ifindex)
	defer found.close()
	if err != nil || len(found) == 0 {
		return Instance{}, false, err
	}
	p := found[0]
	var configs objectConfigs
	var state objectShaper
	var totals objectTotals
	if p.instance.Layout != layout {
		return Instance{}, true, nil
	}
	for name, v := range map[string]any{configName: &configs, ".bss": &state, ".data.total": &totals} {
		if is, err := p.Take(name, v); err != nil || !is {
			return Instance{}, true, err
		}
	}
	i := Instance{Known: true, Config: configs.current().decode()}
	if i.Config.Clients, err = p.rules(); err != nil {
		return Instance{}, true, err
	}
	i.Stats.Marks, i.Stats.Drops, i.Stats.Wait = totals.Marks, totals.Drops, units.Duration(totals.Wait)
	i.Stats.After = p.after
	i.Stats.Bytes = state.Sent + uint64(state.Late)
	for _, word := range state.Leaves {
		i.Stats.Bytes += word & math.MaxUint32
	}
	i.Stats.Active = float64(state.Active) / parts
	return i, true, nil
}

// ReadClients returns the clients that the shaper on a device remembers, by what they have sent, the most first.
func ReadClients(ifindex int) (all []ClientStats, err error) {
	found, err := find(ifindex)
	defer found.close()
	if err != nil || len(found) == 0 || found[0].instance.Layout != layout {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, err
	}
	var configs objectConfigs
	if is, err := found[0].Take(configName, &configs); err != nil || !is {
		return nil, err
	}
	length := configs.current().decode().Prefix6
	var address objectAddress
	var entry objectEntry
	each := found[0].Maps[objectMapClients].Iterate()
	for each.Next(&address, &entry) {
		all = append(all, entry.decode(address.client(length), uint64(now.Nano())))
	}
	slices.SortFunc(all, func(a, b ClientStats) int { return cmp.Compare(b.Bytes, a.Bytes) })
	if errors.Is(each.Err(), ebpf.ErrIterationAborted) { // it changes while it is read: what was seen is true
		return all, nil
	}
	return all, each.Err()
}

// Remove takes away the shapers at a device's egress. What they have given a time leaves at it.
func Remove(ifindex int) error {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	found, err := find(ifindex)
	defer found.close()
	if err != nil || len(found) == 0 {
		return err
	}
	if found.madePlace() && found.alone(device) { // in one step: who is killed before the second would leave the clsact
		err = netlink.QdiscDel(clsact(ifindex))
	} else {
		err = found.detach(device)
	}
	return errors.Join(err, setSegments(device, found.segments(device)))
}

// Clean takes away what an Install has left that was ended half-way, on kernels before 6.6: a clsact without a filter.
// It looks like anybody's, so its caller has to know that there was none before.
func Clean(ifindex int) error {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	_, err = link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if tcx(err) {
		return err
	}
	there, err := netlink.QdiscList(device)
	if err != nil {
		return err
	}
	isEmptyPlace := func(q netlink.Qdisc) bool { return q.Type() == "clsact" && (programs{}).alone(device) }
	if !slices.ContainsFunc(there, isEmptyPlace) {
		return nil
	}
	return netlink.QdiscDel(clsact(ifindex))
}

// A program at a device's egress: a TCX one, or the filter of clsact that has it on kernels before 6.6.
type program struct {
	*bpf.Opened
	filter   *netlink.BpfFilter
	instance objectInstance // zero in one of another layout
	after    string         // the programs of others that come after it
}

type programs []program

func (all programs) close() {
	for _, p := range all {
		p.Close()
	}
}

// detach is content if they are not there.
func (all programs) detach(device netlink.Link) (err error) {
	for _, p := range all {
		var failed error
		if p.filter != nil {
			failed = netlink.FilterDel(p.filter)
		} else {
			failed = link.RawDetachProgram(link.RawDetachProgramOptions{Target: device.Attrs().Index,
				Program: p.Program, Attach: ebpf.AttachTCXEgress})
		}
		if !errors.Is(failed, unix.ENOENT) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// find opens the shapers at a device's egress.
func find(ifindex int) (all programs, err error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXEgress})
	if !tcx(err) {
		return findFilters(ifindex)
	}
	if err != nil {
		return nil, err
	}
	for _, a := range attached.Programs {
		if all, err = all.add(a.ID, nil); err != nil {
			return all, err
		}
	}
	return all, nil
}

// follow notes that another program comes after all of these.
func (all programs) follow(name string) {
	for i := range all {
		all[i].after = strings.TrimPrefix(all[i].after+", "+name, ", ")
	}
}

// tcx reports whether a kernel has TCX, by what it said to a question.
func tcx(err error) bool {
	return !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL)
}

func findFilters(ifindex int) (all programs, err error) {
	device, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, err
	}
	filters, err := netlink.FilterList(device, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return nil, nil // no clsact
	}
	for _, f := range filters {
		filter, ok := f.(*netlink.BpfFilter)
		if !ok || filter.Id <= 0 {
			all.follow(f.Type())
			continue
		}
		if all, err = all.add(ebpf.ProgramID(filter.Id), filter); err != nil {
			return all, err
		}
	}
	return all, nil
}

// add opens a program if it is a shaper.
func (all programs) add(id ebpf.ProgramID, filter *netlink.BpfFilter) (programs, error) {
	opened, err := bpf.Open(id)
	switch {
	case errors.Is(err, os.ErrNotExist): // it has just gone
		return all, nil
	case err != nil:
		return all, err
	case opened.Name != objectProgShaperStamp:
		opened.Close()
		all.follow(opened.Name)
		return all, nil
	}
	p := program{Opened: opened, filter: filter}
	if is, err := opened.Take(".data.instance", &p.instance); err != nil || is && p.instance.Layout != layout {
		p.instance = objectInstance{}
	}
	return append(all, p), nil
}

// attach puts a program after whatever else is at a device's egress, whose times of departure it is not to lose.
func attach(device netlink.Link, program *ebpf.Program) error {
	index := device.Attrs().Index
	err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: program,
		Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	if tcx(err) {
		return err
	}
	return netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: index,
		Parent: netlink.HANDLE_MIN_EGRESS, Protocol: unix.ETH_P_ALL, Priority: filterPriority}, Fd: program.FD(),
		Name: objectProgShaperStamp, DirectAction: true})
}

// filterPriority is the last of all.
const filterPriority = 0xc000

// clsact is what filters at a device's egress hang below, on kernels without TCX.
func clsact(ifindex int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0),
		Parent: netlink.HANDLE_CLSACT}}
}

// prepare makes sure that a kernel without TCX has a clsact on a device, and reports whether it made one. Where an
// ingress discipline is, there can be none.
func prepare(device netlink.Link) (made bool, err error) {
	_, err = link.QueryPrograms(link.QueryOptions{Target: device.Attrs().Index, Attach: ebpf.AttachTCXEgress})
	if tcx(err) {
		return false, nil
	}
	there, err := netlink.QdiscList(device)
	if err != nil {
		return false, err
	}
	for _, q := range there {
		switch q.Type() {
		case "clsact":
			return false, nil
		case "ingress":
			return false, fmt.Errorf("%s has an ingress discipline, beside which this kernel takes no program at its "+
				"egress (requires Linux 6.6)", device.Attrs().Name)
		}
	}
	return true, netlink.QdiscAdd(clsact(device.Attrs().Index))
}

// madePlace reports whether clsact was added for one of them.
func (all programs) madePlace() bool {
	return slices.ContainsFunc(all, func(p program) bool { return p.instance.Clsact != 0 })
}

// alone reports whether nobody else has a filter at a device's clsact.
func (all programs) alone(device netlink.Link) bool {
	count := 0
	for _, hook := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
		filters, err := netlink.FilterList(device, hook)
		if err != nil {
			return false
		}
		count += len(filters)
	}
	return count == len(all)
}
