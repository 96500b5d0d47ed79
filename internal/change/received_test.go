// SPDX-License-Identifier: Apache-2.0

package change

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/host"
	"weir/internal/qdisc"
)

// What comes in is counted with the header of Ethernet, whatever kind of device the uplink is.
func TestLiveReceived(t *testing.T) {
	inNamespace(t, liveReceived)
}

func liveReceived(t *testing.T) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	const broadcast, source, vlan5, experimental = "\xff\xff\xff\xff\xff\xff", "\x02\x00\x00\x00\x00\x01",
		"\x81\x00\x00\x05", "\x88\xb5"
	for kind, c := range map[string]struct {
		tag string
		on  func(near netlink.Link, a netlink.LinkAttrs) netlink.Link
	}{
		"veth": {"", func(near netlink.Link, _ netlink.LinkAttrs) netlink.Link { return near }},
		"bridge": {"", func(near netlink.Link, a netlink.LinkAttrs) netlink.Link {
			return &netlink.Bridge{LinkAttrs: a}
		}},
		"vlan": {vlan5, func(near netlink.Link, a netlink.LinkAttrs) netlink.Link {
			a.ParentIndex = near.Attrs().Index
			return &netlink.Vlan{LinkAttrs: a, VlanId: 5}
		}},
	} {
		far, up, err := cable(kind, c.on)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Logf("not tested: this kernel makes no %s", kind)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		s := &Shaper{Link: up, conn: conn, taken: countsWithoutHeader(host.Link{Kind: kind})}
		const size = 1000
		frame := append([]byte(broadcast+source+c.tag+experimental), make([]byte, size-14)...)
		r, err := carry(s, far, frame)
		// The kernel itself may have sent a few small packets by the cable.
		if mean := float64(r.Bytes) / float64(r.Packets); err != nil || math.Abs(mean-size) > 7 {
			t.Errorf("%s: %.1f bytes a packet, not %d, %v", kind, mean, size, err)
		}
	}
}

// cable connects two devices, and puts one that is the uplink on one of them. It gives the other's index and the
// uplink's.
func cable(kind string, on func(netlink.Link, netlink.LinkAttrs) netlink.Link) (far, up int, err error) {
	name := func(what string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = what + kind
		return a
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: name("n-"), PeerName: "f-" + kind}); err != nil {
		return 0, 0, err
	}
	near, err := netlink.LinkByName("n-" + kind)
	if err != nil {
		return 0, 0, err
	}
	other, err := netlink.LinkByName("f-" + kind)
	if err != nil {
		return 0, 0, err
	}
	uplink := on(near, name("u-"))
	if uplink != near {
		if err := netlink.LinkAdd(uplink); err != nil {
			return 0, 0, err
		}
		if uplink.Type() == "bridge" {
			err = netlink.LinkSetMaster(near, uplink)
		}
	}
	for _, l := range []netlink.Link{other, near, uplink} {
		err = errors.Join(err, netlink.LinkSetUp(l))
	}
	return other.Attrs().Index, uplink.Attrs().Index, err
}

// carry sends a frame by a device again and again, until enough of them have come in where a shaper counts them.
func carry(s *Shaper, by int, frame []byte) (r qdisc.Received, err error) {
	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	defer unix.Close(raw)
	const enough, patience = 2000, time.Minute
	for begun := time.Now(); r.Packets < enough; {
		if time.Since(begun) > patience {
			return r, errors.New("too little comes in")
		}
		// Until the cable is up, nothing comes.
		err := unix.Sendto(raw, frame, 0, &unix.SockaddrLinklayer{Ifindex: by})
		if err != nil && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENOBUFS) {
			return r, err
		}
		if r, err = s.Received(); err != nil {
			return r, err
		}
	}
	return r, nil
}
