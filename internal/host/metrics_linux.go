// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// readMetrics lists the routes that set more for connections than where they go. It needs no root.
func readMetrics(links []Link) (found []RouteMetrics, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer conn.Close()
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	request := netlink.Message{Data: make([]byte, unix.SizeofRtMsg), Header: netlink.Header{
		Type: unix.RTM_GETROUTE, Flags: netlink.Request | netlink.Dump}}
	if _, err := conn.Send(request); err != nil {
		return nil, fmt.Errorf("list of routes: %w", err)
	}
	const most, silence = 10_000, 10 * time.Second // routes, of which the default ones come first in a table
	conn.SetReadDeadline(time.Now().Add(silence))
	n := 0
	for m, err := range conn.ReceiveIter() {
		if err != nil {
			return found, fmt.Errorf("list of routes: %w", err)
		}
		if n++; n > most {
			break
		}
		if r, sets := readRoute(m.Data, names); sets {
			found = append(found, r)
		}
	}
	return found, nil
}

// readRoute reads a struct rtmsg and its attributes (include/uapi/linux/rtnetlink.h); false where it sets nothing, or
// is no way to another host.
func readRoute(b []byte, names map[int]string) (r RouteMetrics, sets bool) {
	const family, prefix, table, typ = 0, 1, 4, 7 // bytes of struct rtmsg
	if len(b) < unix.SizeofRtMsg || b[typ] != unix.RTN_UNICAST ||
		b[family] != unix.AF_INET && b[family] != unix.AF_INET6 {
		return r, false
	}
	attributes, err := netlink.NewAttributeDecoder(b[unix.SizeofRtMsg:])
	if err != nil {
		return r, false
	}
	r = RouteMetrics{To: "default", IPv6: b[family] == unix.AF_INET6, Table: int(b[table])}
	for attributes.Next() {
		switch data := attributes.Bytes(); attributes.Type() {
		case unix.RTA_DST:
			r.To = fmt.Sprintf("%s/%d", net.IP(data), b[prefix])
		case unix.RTA_OIF:
			r.Dev = names[int(attributes.Uint32())]
		case unix.RTA_MULTIPATH:
			const index = 4 // in struct rtnexthop
			if len(data) >= index+4 {
				r.Dev = names[int(binary.NativeEndian.Uint32(data[index:]))]
			}
		case unix.RTA_TABLE:
			r.Table = int(attributes.Uint32())
		case unix.RTA_METRICS:
			attributes.Nested(r.metrics)
		}
	}
	if r.Table == unix.RT_TABLE_MAIN {
		r.Table = 0
	}
	return r, attributes.Err() == nil && (len(r.Metrics) > 0 || r.Congestion != "")
}

func (r *RouteMetrics) metrics(d *netlink.AttributeDecoder) error {
	known := map[uint16]string{unix.RTAX_MTU: "mtu", unix.RTAX_WINDOW: "window", unix.RTAX_CWND: "cwnd",
		unix.RTAX_ADVMSS: "advmss", unix.RTAX_INITCWND: "initcwnd", unix.RTAX_INITRWND: "initrwnd",
		unix.RTAX_RTO_MIN: "rto_min", unix.RTAX_QUICKACK: "quickack"}
	r.Metrics = map[string]int{}
	var locks uint32
	for d.Next() {
		switch name := known[d.Type()]; {
		case d.Type() == unix.RTAX_CC_ALGO:
			r.Congestion = d.String()
		case d.Type() == unix.RTAX_LOCK:
			locks = d.Uint32()
		case name != "":
			r.Metrics[name] = int(d.Uint32())
		}
	}
	for number, name := range known {
		if _, set := r.Metrics[name]; set && locks&(1<<number) != 0 {
			r.Locked = append(r.Locked, name)
		}
	}
	slices.Sort(r.Locked)
	return nil
}
