// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"weir/internal/host"
)

// routed is a host whose connections leave by the device that has the number of their cookie.
type routed struct {
	links []host.Link
	reads int
}

func (r *routed) Device(c host.Connection) int { return int(c.Cookie) }

func (r *routed) Links() ([]host.Link, error) {
	if r.reads++; r.links == nil {
		return nil, errors.New("no answer")
	}
	return r.links, nil
}

func (r *routed) Close() {}

// A copy by another device is not looked at, however much it carries.
func TestChooseOfDevice(t *testing.T) {
	links := []host.Link{{Index: 1, Name: "eth0"}, {Index: 2, Name: "wg0", Kind: "wireguard"},
		{Index: 3, Name: "docker0", Kind: "bridge"}, {Index: 4, Name: "eth1"}}
	e := eye{few: 2, least: map[netip.Addr]time.Duration{},
		ways: &ways{dev: "eth0", routes: &routed{links: links}}}
	at := func(step uint32) (all []host.Connection) {
		for i := range uint64(5) {
			all = append(all, connection(i, "192.0.2.1:443", step*uint32(i), 40_000))
		}
		return all
	}
	for step := range uint32(3) {
		e.choose(at(1000 * step))
		if len(e.chosen) != 2 || step > 0 && (e.chosen[0].Cookie != 2 || e.chosen[1].Cookie != 1) {
			t.Errorf("%d: chosen are %+v", step, e.chosen)
		}
	}
	if got := e.moved(at(9000)[1:3]); len(got) != 2 {
		t.Errorf("moved are %+v", got)
	}
}

// What goes on by another device does not say that this one still carries anything.
func TestCarryOn(t *testing.T) {
	links := []host.Link{{Index: 1, Name: "eth0"}, {Index: 3, Name: "docker0", Kind: "bridge"},
		{Index: 4, Name: "eth1"}}
	e := eye{ways: &ways{dev: "eth0", routes: &routed{links: links}}}
	all := func(uplink, others uint32) []host.Connection {
		return []host.Connection{connection(1, "192.0.2.1:443", uplink, 40_000),
			connection(3, "172.17.0.2:80", others, 100), connection(4, "192.0.2.9:443", others, 40_000)}
	}
	for i, c := range []struct {
		uplink, others uint32
		want           bool
	}{{10, 10, true}, {10, 20, false}, {10, 30, false}, {11, 30, true}, {11, 31, false}} {
		if got := e.carryOn(all(c.uplink, c.others)); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}

// A device that has come since is looked for, but not each time. What is not known counts.
func TestWays(t *testing.T) {
	by := func(device uint64) host.Connection { return host.Connection{Cookie: device} }
	r := &routed{}
	w := &ways{dev: "eth0", routes: r}
	if !w.pass(by(4)) || !w.pass(by(1)) || r.reads != 1 {
		t.Errorf("without an answer, after %d reads: something does not count", r.reads)
	}
	r.links = []host.Link{{Index: 1, Name: "eth0"}}
	w.read = time.Time{}
	if !w.pass(by(1)) || !w.pass(by(4)) || r.reads != 2 {
		t.Errorf("before there is eth1, after %d reads: something does not count", r.reads)
	}
	r.links = append(r.links, host.Link{Index: 4, Name: "eth1"})
	if !w.pass(by(4)) || r.reads != 2 {
		t.Errorf("eth1 was looked for at once: %d reads", r.reads)
	}
	w.read = time.Time{}
	if w.pass(by(4)) || !w.pass(by(1)) || r.reads != 3 {
		t.Errorf("once there is eth1, after %d reads: it counts, or eth0 does not", r.reads)
	}
}
