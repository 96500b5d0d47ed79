// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: a whole Debian boots.

import (
	"context"
	"encoding/json"
	"math"
	"testing"
)

// threePeers makes this host the relay of a WireGuard tunnel with three peers, who are as far away as the client.
const threePeers = `umask 077
wg genkey >/run/relay.key
printf '[Interface]\nAddress = 10.9.0.1/24\nListenPort = 51820\nPrivateKey = %s\n' "$(cat /run/relay.key)" \
	>/etc/wireguard/wg0.conf
for i in 1 2 3; do
	wg genkey >/run/$i.key; wg pubkey </run/$i.key >/run/$i.pub
	printf '[Peer]\nPublicKey = %s\nAllowedIPs = 10.9.0.1%d/32\n' "$(cat /run/$i.pub)" $i >>/etc/wireguard/wg0.conf
	ip netns add peer$i; ip -n peer$i link set lo up
	ip link add peer$i netns internet type veth peer name eth0 netns peer$i
	ip -n internet address add 198.51.10$i.254/24 dev peer$i; ip -n internet link set peer$i up
	ip -n peer$i address add 198.51.10$i.1/24 dev eth0; ip -n peer$i link set eth0 up
	ip netns exec peer$i ethtool -K eth0 tso off tx-udp-segmentation off
	ip -n peer$i route add default via 198.51.10$i.254
	ip -n peer$i link add home type wireguard
	ip netns exec peer$i wg set home private-key /run/$i.key peer $(wg pubkey </run/relay.key) \
		allowed-ips 0.0.0.0/0 endpoint 192.0.2.1:51820
	ip -n peer$i address add 10.9.0.1$i/24 dev home
	ip -n peer$i link set home mtu 1420 up
	ip -n peer$i route add 203.0.113.0/24 dev home
done
systemctl -q enable --now wg-quick@wg0
for n in {1..8}; do # each has one connection at a time
	ip netns exec origin sh -c "nc -lk 203.0.113.1 500$n >/dev/null" </dev/null >/dev/null 2>&1 &
done
for i in 1 2 3; do until_ "ip netns exec peer$i curl -so /dev/null http://203.0.113.1/none"; done
`

// byteRates prints what the lines of count have more of after 20 s, in Mbit/s: each has a name and bytes.
const byteRates = `
all() { cut -d ' ' -f 1 /proc/uptime; for i in 1 2 3; do count $i; done; }
sleep 10
{ all; sleep 20; all; } | awk '
	NF == 1 { if (begin) took = $1 - begin; else begin = $1; next }
	took { printf "%s%.4f", i ? "," : "[", ($2 - was[$1]) * 8e-6 / took; i++; next }
	{ was[$1] = $2 }
	END { print "]" }'
`

// countSent counts what WireGuard has sent to a peer. countPassed counts what has passed this host from it, behind the
// shaper of what comes in: what that drops has come, too.
const (
	countSent = `count() { wg show wg0 transfer | awk -v "key=$(cat /run/$1.pub)" '$1 == key { print $1, $3 }'; }
`
	countPassed = `count() { nft list counter ip passed peer$1 | awk -v peer=$1 '/bytes/ { print peer, $4 }'; }
nft -f - <<'END'
table ip passed {
	counter peer1 {}; counter peer2 {}; counter peer3 {}
	chain forward {
		type filter hook forward priority filter
		ip saddr 10.9.0.11 counter name peer1
		ip saddr 10.9.0.12 counter name peer2
		ip saddr 10.9.0.13 counter name peer3
	}
}
END
`
)

// TestPeers: each of a tunnel's peers has the rate or the weight that it was given, by its key or its address, both
// ways, and over a reboot.
func TestPeers(t *testing.T) {
	if !everything {
		t.Skipf("skipped here: %s runs in make test-machines", t.Name())
	}
	m, suite := relayMachine(t)
	ctx, cancel := context.WithTimeout(t.Context(), longestFault)
	defer cancel()
	s := &subject{T: t, ctx: ctx, m: m, suite: suite, man: Networkd}
	s.sh(world + masquerade + threePeers)
	before := s.look()
	up := s.sh(`weir up --dev wg0 --rate 9mbit --ingress 9mbit --client "$(cat /run/1.pub)=2mbit" ` +
		`--client 10.9.0.12=weight:2 --client-default 8mbit && weir confirm && weir status && weir clients`)
	t.Log(up)

	rates := func(script string) (mbit [3]float64) {
		t.Helper()
		var all []float64
		if out := s.sh(script + byteRates); json.Unmarshal([]byte(out), &all) != nil || len(all) != len(mbit) {
			t.Fatal(out)
		}
		copy(mbit[:], all)
		return mbit
	}
	// What is counted of a packet of 1420 bytes takes 1494 on the wire.
	check := func(way string, got [3]float64, rate, countedSize float64) {
		t.Helper()
		for i := range got {
			got[i] *= 1494 / countedSize
		}
		t.Logf("%s: %.3f Mbit/s on the wire", way, got)
		// A few connections do not always fill so low a rate; what the first peer leaves is the others'.
		left := (rate*0.99 - got[0]) / 3
		if got[0] < 0.92*2 || got[0] > 1.01*2 || math.Abs(got[1]/(2*left)-1) > 0.04 || math.Abs(got[2]/left-1) > 0.04 {
			t.Errorf("%s: they were to have 2, %.3f and %.3f", way, 2*left, left)
		}
	}
	down := rates(countSent + `
for i in 1 1 1 1 2 2 3 3; do ip netns exec peer$i curl -sN -o /dev/null http://203.0.113.1/file & done
`)
	t.Log(s.sh("weir clients --for 3s; tc -s qdisc show dev wg0; pkill -x curl"))
	check("downloads", down, 9, 1452)
	uploads := rates(countPassed + `n=0
for i in 1 1 1 1 2 2 3 3; do
	n=$((n + 1))
	ip netns exec peer$i sh -c "nc 203.0.113.1 500$n </dev/zero" >/dev/null 2>&1 &
done
`)
	t.Log(s.sh("weir clients --for 3s; pkill -x nc; nft delete table ip passed"))
	check("uploads", uploads, 9*0.85, 1420)

	s.sh("weir down")
	if now := s.look(); now != before {
		t.Errorf("weir down leaves, against the host before:\n%s", difference(before, now))
	}
	s.sh(`weir up --dev wg0 --rate 9mbit --ingress 9mbit --client "$(cat /run/1.pub)=2mbit" && weir confirm`)
	s.reboot()
	s.sh("weir status && tc qdisc show dev wg0 | grep -w fq && weir clients | grep '^wg0'")
}
