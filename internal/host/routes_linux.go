// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Routes knows by which device a connection's packets leave.
type Routes struct {
	h     *netlink.Handle
	known map[way]int
	until time.Time // from when on all is asked anew
}

// way is what a route depends on. Marks, and users' rules, are not seen from outside.
type way struct {
	from, to netip.Addr
	device   uint32
}

// OpenRoutes asks the kernel of the calling thread's network namespace. It needs no root.
func OpenRoutes() (*Routes, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Routes{h: h}, nil
}

// Close closes the socket.
func (r *Routes) Close() { r.h.Close() }

// Links are the devices that there are now, and what each is made on; nothing else is said of them.
func (r *Routes) Links() (all []Link, err error) {
	links, err := retryInterrupted(r.h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list of links: %w", err)
	}
	names := linkNames(links)
	for _, link := range links {
		all = append(all, linkIdentity(link, names))
	}
	return all, nil
}

// deviceOf is Device, of a socket as the kernel tells of it; 0 where that is no connection.
func (r *Routes) deviceOf(msg []byte) int {
	a := &aggregate{Sockets: &Sockets{}}
	if len(msg) < diagLen {
		return 0
	}
	if c, ok := a.connection(msg[:diagLen]); ok {
		return r.Device(c)
	}
	return 0
}

// Device is the index of the device to which a connection is bound, or to which the kernel routes it; 0 where it has no
// route. An answer is kept for some seconds.
func (r *Routes) Device(c Connection) int {
	const keep, most = 10 * time.Second, 4096
	if now := time.Now(); r.known == nil || len(r.known) >= most || now.After(r.until) {
		r.known, r.until = map[way]int{}, now.Add(keep)
	}
	w := way{c.Local, c.Remote.Addr(), c.device}
	device, known := r.known[w]
	if !known {
		device = r.lookUp(w)
		r.known[w] = device
	}
	return device
}

func (r *Routes) lookUp(w way) int {
	if w.device != 0 {
		return int(w.device)
	}
	routes, err := r.h.RouteGetWithOptions(net.IP(w.to.AsSlice()), &netlink.RouteGetOptions{SrcAddr: w.from.AsSlice()})
	if err != nil || len(routes) == 0 {
		return 0
	}
	return routes[0].LinkIndex
}
