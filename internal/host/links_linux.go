// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/qdisc"
	"weir/internal/units"
)

func readLinks(f *Facts) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	conn, err := qdisc.Dial(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	trees, err := conn.Trees()
	if err != nil {
		return err
	}
	links, err := retryInterrupted(h.LinkList)
	if err != nil {
		return fmt.Errorf("list of links: %w", err)
	}
	addrs, err := retryInterrupted(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list of addresses: %w", err)
	}
	tool, err := openEthtool()
	if err != nil {
		return err
	}
	defer tool.close()
	names := linkNames(links)
	for _, link := range links {
		l := readLink(link, trees[link.Attrs().Index], addrs, tool, names)
		if l.Parent == "" && l.Tunnel() != "" && link.Attrs().NetNsID < 0 {
			l.Parent = deviceBelowTunnel(h, link, names)
		}
		f.Links = append(f.Links, l)
	}
	slices.SortFunc(f.Links, func(a, b Link) int { return a.Index - b.Index })
	if err := f.readRedirects(conn); err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		f.Defaults = append(f.Defaults, defaults(h, family, f.Links)...)
	}
	slices.SortStableFunc(f.Defaults, func(a, b DefaultRoute) int { return min(a.Table, 1) - min(b.Table, 1) })
	if len(f.Defaults) > 0 && f.Defaults[0].Table == 0 {
		f.Uplink = f.Defaults[0].Dev
	}
	return nil
}

// linkNames are the links' names, by their index.
func linkNames(links []netlink.Link) map[int]string {
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	return names
}

// deviceBelowTunnel is the device by which the kernel sends a tunnel's packets; "" where it is bound to none, and has
// no single other end, or no route.
func deviceBelowTunnel(h *netlink.Handle, tunnel netlink.Link, names map[int]string) string {
	if vxlan, ok := tunnel.(*netlink.Vxlan); ok && vxlan.VtepDevIndex != 0 {
		return names[vxlan.VtepDevIndex]
	}
	remote := remoteOf(tunnel)
	if remote == nil || remote.IsUnspecified() || remote.IsMulticast() {
		return ""
	}
	routes, err := h.RouteGet(remote)
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == tunnel.Attrs().Index {
		return ""
	}
	return names[routes[0].LinkIndex]
}

// remoteOf is the address of a tunnel's other end; nil if it has none.
func remoteOf(tunnel netlink.Link) net.IP {
	switch t := tunnel.(type) {
	case *netlink.Gretun:
		return t.Remote
	case *netlink.Gretap:
		return t.Remote
	case *netlink.Iptun:
		return t.Remote
	case *netlink.Ip6tnl:
		return t.Remote
	case *netlink.Sittun:
		return t.Remote
	case *netlink.Vti:
		return t.Remote
	case *netlink.Vxlan:
		return t.Group
	case *netlink.Geneve:
		return t.Remote
	}
	return nil
}

// linkIdentity tells which device a link is, and what it is made on.
func linkIdentity(link netlink.Link, names map[int]string) Link {
	a := link.Attrs()
	l := Link{Index: a.Index, Name: a.Name, Loopback: a.Flags&net.FlagLoopback != 0, Master: names[a.MasterIndex]}
	if link.Type() != "device" {
		l.Kind = link.Type()
	}
	if len(a.HardwareAddr) == 6 {
		l.MAC = a.HardwareAddr.String()
	}
	if a.NetNsID < 0 && l.Kind != "veth" { // in this network namespace; a veth device has its peer there
		l.Parent = names[a.ParentIndex]
	}
	return l
}

// readLink makes a Link of what the kernel and the driver say of a device.
func readLink(link netlink.Link, tree qdisc.Tree, addrs []netlink.Addr, tool ethtool, names map[int]string) Link {
	a := link.Attrs()
	l := linkIdentity(link, names)
	// Many virtual devices have no notion of a carrier; "unknown" is up.
	l.Up = a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown && a.OperState != netlink.OperLowerLayerDown
	l.MTU, l.TxQueues, l.GSOBytes, l.GSOSegs = a.MTU, a.NumTxQueues, int(a.GSOMaxSize), int(a.GSOMaxSegs)
	l.Tree = tree
	l.Driver = tool.driver(a.Name)
	// The drivers of veth and tun report a speed that is a constant and limits nothing.
	if l.Kind != "veth" && l.Kind != "tuntap" {
		l.Speed = tool.speed(a.Name)
	}
	// A card may have more queues than it uses: virtio_net on a machine with few CPUs.
	if n := tool.txChannels(a.Name); n > 0 && n < l.TxQueues {
		l.TxQueues = n
	}
	for _, addr := range addrs {
		if addr.LinkIndex == a.Index && addr.IPNet != nil {
			l.Addrs = append(l.Addrs, addr.IPNet.String())
		}
	}
	l.TxQLen = max(a.TxQLen, 0)
	if s := a.Statistics; s != nil {
		l.RxBytes, l.TxBytes, l.RxPkts = s.RxBytes, s.TxBytes, s.RxPackets
	}
	return l
}

// readRedirects finds where traffic is led.
func (f *Facts) readRedirects(conn *qdisc.Conn) error {
	for i, l := range f.Links {
		out, err := conn.LedOut(l.Index, l.Tree)
		switch {
		case errors.Is(err, unix.ENODEV): // it has gone meanwhile
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		for _, to := range f.Links {
			if slices.Contains(out, to.Index) {
				f.Links[i].LedOut = append(f.Links[i].LedOut, to.Name)
			}
		}
		if !slices.ContainsFunc(l.Tree.Qdiscs, func(q qdisc.Qdisc) bool { return q.Parent == qdisc.Ingress }) {
			continue
		}
		to, ok, err := conn.Redirect(l.Index)
		others := err == nil && !ok
		if others {
			to, ok, err = conn.Diverted(l.Index)
		}
		var passes []qdisc.Outer
		if err == nil {
			passes, err = conn.Passes(l.Index) // also where nothing redirects any more
		}
		switch {
		case errors.Is(err, unix.ENODEV): // it has gone meanwhile
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		for _, o := range passes {
			f.Links[i].Passes = append(f.Links[i].Passes, o.String())
		}
		at := slices.IndexFunc(f.Links, func(l Link) bool { return l.Index == to })
		switch {
		case ok && at >= 0:
			f.Links[i].Redirect = f.Links[at].Name
		case ok && !others:
			f.Links[i].Redirect = Gone
		}
	}
	return nil
}

// retryInterrupted repeats a listing that the kernel says was interrupted by a change: what it gave may lack a link
// or name one twice.
func retryInterrupted[T any](list func() ([]T, error)) (got []T, err error) {
	for range 4 {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

// defaults are the default routes of a family, those of the main table first, by metric. A host without IPv6 refuses to
// list its routes: then there is none.
func defaults(h *netlink.Handle, family int, links []Link) (found []DefaultRoute) {
	routes, err := retryInterrupted(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Type: unix.RTN_UNICAST},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil
	}
	parts := map[DefaultRoute][]netip.Prefix{} // of the addresses, of which a device may have nearly all
	add := func(d DefaultRoute) {
		if !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	for _, r := range routes {
		to, ok := destination(r, family)
		if !ok || to.Bits() > longestPart {
			continue
		}
		table := r.Table
		if table == unix.RT_TABLE_MAIN {
			table = 0
		}
		for _, index := range nextHops(r) {
			at := slices.IndexFunc(links, func(l Link) bool { return l.Index == index })
			if at < 0 {
				continue
			}
			d := DefaultRoute{links[at].Name, family == netlink.FAMILY_V6, r.Priority, table}
			if to.Bits() == 0 {
				add(d)
			} else {
				d.Metric = 0
				parts[d] = append(parts[d], to)
			}
		}
	}
	byMetric := func(a, b DefaultRoute) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Dev, b.Dev))
	}
	slices.SortStableFunc(found, func(a, b DefaultRoute) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Metric, b.Metric))
	})
	for _, d := range slices.SortedFunc(maps.Keys(parts), byMetric) {
		if !coversNearlyAll(parts[d]) {
			continue
		}
		// A longer prefix comes before a default route, whatever their metrics.
		place := slices.IndexFunc(found, func(r DefaultRoute) bool { return r.Table >= d.Table })
		if place < 0 {
			place = len(found)
		}
		found = slices.Insert(slices.DeleteFunc(found, func(other DefaultRoute) bool {
			return other.Dev == d.Dev && other.Table == d.Table
		}), min(place, len(found)), d)
	}
	return found
}

// destination is the prefix of the addresses that a route is for; false if it cannot be read.
func destination(r netlink.Route, family int) (to netip.Prefix, ok bool) {
	switch {
	case r.Dst == nil && family == netlink.FAMILY_V6:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
	case r.Dst == nil:
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
	}
	addr, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, bits := r.Dst.Mask.Size()
	if bits == 32 {
		addr = addr.Unmap()
	}
	to = netip.PrefixFrom(addr, ones)
	return to, ok && to.IsValid()
}

// nextHops are the devices, by their indexes, by which a route leads.
func nextHops(r netlink.Route) (indexes []int) {
	if len(r.MultiPath) == 0 {
		return []int{r.LinkIndex}
	}
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	return indexes
}

// longestPart bounds the prefixes that are looked at for that: those of a list of all but the private addresses end
// sooner.
const longestPart = 24

// coversNearlyAll reports whether these prefixes of one family hold 95 % of the addresses that the Internet has: those
// below 224.0.0.0, and 2000::/3. VPNs lead all traffic to themselves so, without touching the default route: 0.0.0.0/1
// and 128.0.0.0/1 (openvpn(8), redirect-gateway def1), or all but the private ones.
func coversNearlyAll(prefixes []netip.Prefix) bool {
	const share = 0.95
	internet := []netip.Prefix{netip.MustParsePrefix("2000::/3")}
	if prefixes[0].Addr().Is4() {
		internet = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/2"),
			netip.MustParsePrefix("192.0.0.0/3")}
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	size := func(bits int) float64 { return math.Ldexp(1, -bits) }
	all, held := 0.0, 0.0
	for _, part := range internet {
		all += size(part.Bits())
		var last netip.Prefix // what is in it comes next
		for _, p := range prefixes {
			if part.Overlaps(p) && !(last.IsValid() && last.Overlaps(p)) {
				held += size(max(part.Bits(), p.Bits()))
				last = p
			}
		}
	}
	return held >= share*all
}

// ethtool asks drivers by ioctl: it is of the caller's network namespace, which /sys/class/net need not be, and older
// than netlink's.
type ethtool int

func openEthtool() (ethtool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return ethtool(fd), nil
}

func (e ethtool) close() { unix.Close(int(e)) }

func (e ethtool) driver(dev string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(int(e), dev)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// speed of a link; 0 when it has none or does not say. From struct ethtool_cmd: the low half at byte 12, the high half
// at 28.
func (e ethtool) speed(dev string) units.Rate {
	var cmd [44]byte
	if !e.get(dev, unix.ETHTOOL_GSET, cmd[:]) {
		return 0
	}
	mbit := uint32(binary.NativeEndian.Uint16(cmd[28:]))<<16 | uint32(binary.NativeEndian.Uint16(cmd[12:]))
	if mbit > math.MaxInt32 { // SPEED_UNKNOWN is -1
		return 0
	}
	return units.Rate(mbit) * 1e6
}

// txChannels counts transmit queues in use; 0 when the driver does not say. From struct ethtool_channels, nine numbers:
// the command, the maxima of rx, tx, other and combined, then the counts in the same order.
func (e ethtool) txChannels(dev string) int {
	var channels [36]byte
	if !e.get(dev, unix.ETHTOOL_GCHANNELS, channels[:]) {
		return 0
	}
	tx, combined := binary.NativeEndian.Uint32(channels[24:]), binary.NativeEndian.Uint32(channels[32:])
	if tx > math.MaxUint16 || combined > math.MaxUint16 {
		return 0
	}
	return int(tx + combined)
}

// offloads lists which of the three that gather segments are on. From struct ethtool_value: the command, then a number.
func (e ethtool) offloads(dev string) []string {
	on := []string{}
	for _, o := range []struct {
		name    string
		command uint32
	}{{"gro", unix.ETHTOOL_GGRO}, {"gso", unix.ETHTOOL_GGSO}, {"tso", unix.ETHTOOL_GTSO}} {
		var value [8]byte
		if e.get(dev, o.command, value[:]) && binary.NativeEndian.Uint32(value[4:]) != 0 {
			on = append(on, o.name)
		}
	}
	return on
}

// counters hands over the names of what a driver counts, and the values, where there are some, and no more than any
// driver has. The kernel writes as many as there are by then, so there is a page behind that nobody may write to.
func (e ethtool) counters(dev string, take func(names, values []byte)) {
	const (
		statistics            = 1     // ETH_SS_STATS (include/uapi/linux/ethtool.h)
		most                  = 8192  // counters
		namesHead, valuesHead = 12, 8 // bytes of struct ethtool_gstrings, struct ethtool_stats
	)
	var set [20]byte // struct ethtool_sset_info: the command, a mask of sets, and how many are in that one
	binary.NativeEndian.PutUint64(set[8:], 1<<statistics)
	if !e.get(dev, unix.ETHTOOL_GSSET_INFO, set[:]) || binary.NativeEndian.Uint64(set[8:]) == 0 {
		return
	}
	n := binary.NativeEndian.Uint32(set[16:])
	if n == 0 || n > most {
		return
	}
	names, err := guardedBuffer(namesHead + most*nameLen)
	if err != nil {
		return
	}
	defer unix.Munmap(names)
	values, err := guardedBuffer(valuesHead + most*valueLen)
	if err != nil {
		return
	}
	defer unix.Munmap(values)
	binary.NativeEndian.PutUint32(names[4:], statistics)
	binary.NativeEndian.PutUint32(names[8:], n)
	binary.NativeEndian.PutUint32(values[4:], n)
	if e.get(dev, unix.ETHTOOL_GSTRINGS, names) && e.get(dev, unix.ETHTOOL_GSTATS, values) &&
		binary.NativeEndian.Uint32(names[8:]) == n && binary.NativeEndian.Uint32(values[4:]) == n {
		take(names[namesHead:][:n*nameLen], values[valuesHead:][:n*valueLen])
	}
}

// guardedBuffer is room for so many bytes, with a page behind it at which the kernel's writing ends.
func guardedBuffer(size int) ([]byte, error) {
	page := os.Getpagesize()
	whole := (size+page-1)/page*page + page
	room, err := unix.Mmap(-1, 0, whole, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if err := unix.Mprotect(room[whole-page:], unix.PROT_NONE); err != nil {
		unix.Munmap(room)
		return nil, fmt.Errorf("mprotect: %w", err)
	}
	return room, nil
}

func (e ethtool) get(dev string, command uint32, data []byte) bool {
	binary.NativeEndian.PutUint32(data, command)
	// struct ifreq: the name, then a pointer to the data, padded to its size in the kernel.
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	if len(dev) >= len(request.name) {
		return false
	}
	copy(request.name[:], dev)
	request.data = unsafe.Pointer(&data[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errno == 0
}
