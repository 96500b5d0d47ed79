// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"weir/internal/stats"
)

// A relay is programs from Debian that make a host one, as an administrator would set them up.
type relay struct {
	name    string
	with    string   // the programs, as Debian's packages are called
	setup   string   // a script: what is done once, the client's end too
	start   string   // and what is started, and stopped, at the relay
	stop    string   //
	device  string   // of its tunnel, if it has one
	through string   // what ssh has to know to reach the origin through it: lines of its configuration
	curl    string   // what curl is given to fetch the origin's file through it
	flags   []string // of weir up, besides those of all relays
}

// masquerade is what makes a tunnel's end a way to the Internet.
const masquerade = forward + `nft -f - <<'END'
table ip relay { chain out { type nat hook postrouting priority srcnat; oifname wan0 masquerade; }; }
END
`

// peers has both ends of a WireGuard tunnel. The client's link must not have the name of the relay's. A program in user
// space is asked by a socket with the link's name, in a folder that all network namespaces share.
const peers = `umask 077
wg genkey >/run/relay.key; wg genkey >/run/client.key
cat >/etc/wireguard/wg0.conf <<END
[Interface]
Address = 10.9.0.1/24
ListenPort = 51820
PrivateKey = $(cat /run/relay.key)
[Peer]
PublicKey = $(wg pubkey </run/client.key)
AllowedIPs = 10.9.0.2/32
END
ip -n client link add home type wireguard
ip netns exec client wg set home private-key /run/client.key \
	peer $(wg pubkey </run/relay.key) allowed-ips 0.0.0.0/0 endpoint 192.0.2.1:51820
ip -n client address add 10.9.0.2/24 dev home
ip -n client link set home mtu 1420 up
ip -n client route add 203.0.113.0/24 dev home
`

const forward = "sysctl -q net.ipv4.ip_forward=1\n"

const direct = "HostName 203.0.113.1\n"

const file = "http://203.0.113.1/file"

func relays() []relay {
	const noNAT = "nft delete table ip relay; "
	return []relay{
		{
			name: "NAT", with: "nftables",
			start: forward + `nft -f - <<'END'
table ip relay {
	chain in {
		type nat hook prerouting priority dstnat;
		iifname wan0 tcp dport 80 dnat to 203.0.113.1;
		iifname wan0 tcp dport 2222 dnat to 203.0.113.1:22;
	}
	chain out {
		type nat hook postrouting priority srcnat;
		oifname wan0 masquerade;
	}
}
END`,
			stop:    noNAT,
			through: "HostName 192.0.2.1\nPort 2222\n", curl: "http://192.0.2.1/file",
		},
		{
			name: "a kernel tunnel", with: "wireguard-tools", device: "wg0",
			setup:   peers,
			start:   masquerade + "wg-quick up wg0",
			stop:    noNAT + "wg-quick down wg0",
			through: direct, curl: file,
		},
		{
			name: "a tunnel in user space", with: "wireguard-go", device: "wg0",
			setup: peers,
			start: masquerade + `wireguard-go wg0
wg-quick strip wg0 >/run/wg0.conf; wg setconf wg0 /run/wg0.conf
ip address add 10.9.0.1/24 dev wg0; ip link set wg0 mtu 1420 up`,
			stop:    noNAT + "wg-quick down wg0; until_ '! pgrep -x wireguard-go'",
			through: direct, curl: file,
		},
		{
			name: "a tunnel in user space", with: "openvpn", device: "tun0",
			setup: `openvpn --genkey secret /run/key
cat >/run/both.conf <<END
secret /run/key
cipher AES-256-CBC
proto udp
port 1194
dev tun0
daemon
END
(cat /run/both.conf; echo ifconfig 10.9.1.1 10.9.1.2; echo writepid /run/relay.pid) >/etc/openvpn/relay.conf
(cat /run/both.conf; echo ifconfig 10.9.1.2 10.9.1.1; echo remote 192.0.2.1
echo route 203.0.113.0 255.255.255.0) >/run/client.conf
ip netns exec client openvpn --config /run/client.conf --log /run/client.log`,
			start: masquerade + `openvpn --config /etc/openvpn/relay.conf --log /run/relay.log
for i in {1..60}; do ip route | grep -q tun0 && ip -n client route | grep -q 203.0.113.*tun0 && break; sleep 1; done
[ $i != 60 ] || { cat /run/client.log /run/relay.log; exit 1; }`,
			stop:    noNAT + "kill $(cat /run/relay.pid); until_ '! [ -e /sys/class/net/tun0 ]'",
			through: direct, curl: file,
		},
		{
			name: "an HTTP proxy", with: "tinyproxy",
			setup: `cat >/run/tinyproxy.conf <<'END'
Port 8888
Allow 198.51.100.0/24
LogFile "/run/tinyproxy.log"
PidFile "/run/tinyproxy.pid"
END`,
			start:   "tinyproxy -c /run/tinyproxy.conf; until_ '[ -s /run/tinyproxy.pid ]'",
			stop:    "kill $(cat /run/tinyproxy.pid); until_ '! pgrep -x tinyproxy'",
			through: direct + "ProxyCommand nc -X connect -x 192.0.2.1:8888 %h %p\n",
			curl:    "-x http://192.0.2.1:8888 " + file,
		},
		{
			name: "an encrypting proxy", with: "shadowsocks-libev",
			setup: "ip netns exec client ss-local -s 192.0.2.1 -p 8388 -k secret -m chacha20-ietf-poly1305 " +
				"-b 127.0.0.1 -l 1080 -f /run/client.pid",
			start: "ss-server -s 192.0.2.1 -p 8388 -k secret -m chacha20-ietf-poly1305 -f /run/relay.pid\n" +
				"until_ 'ss -ltnH sport = 8388 | grep .'",
			stop:    "pkill -x ss-server",
			through: direct + "ProxyCommand nc -X 5 -x 127.0.0.1:1080 %h %p\n", curl: "--socks5 127.0.0.1:1080 " + file,
		},
		{
			name: "TCP, passed on", with: "nginx, libnginx-mod-stream",
			setup: `cat >/run/stream.conf <<'END'
load_module modules/ngx_stream_module.so;
pid /run/stream.pid;
error_log /run/stream.log;
events { }
stream {
	server { listen 192.0.2.1:80; proxy_pass 203.0.113.1:80; }
	server { listen 192.0.2.1:2222; proxy_pass 203.0.113.1:22; }
}
END`,
			start:   "nginx -c /run/stream.conf",
			stop:    "nginx -c /run/stream.conf -s stop",
			through: "HostName 192.0.2.1\nPort 2222\n", curl: "http://192.0.2.1/file",
		},
	}
}

// relayRate is provisioned at the provider, for each direction. It leaves the emulated CPU most of its time.
const relayRate = "10mbit"

// world is a host with one card (wan0), its provider, and a client and an origin behind that: network namespaces.
// What is in front of the card, both ways, is the provider's: a FIFO of 200 ms.
// The wire carries packets of the MTU's size, and not what a card makes them from.
//
// Unlike a wire, veth carries the sender's hash of the flow. So an ifb would tell flows apart that are inside a tunnel:
// of an ifb with kernel WireGuard no figure from here is true.
const world = `set -e
ip link set $dev down
for n in provider internet client origin; do ip netns add $n; ip -n $n link set lo up; done
# join NAMESPACE DEVICE ADDRESS NAMESPACE DEVICE ADDRESS
join() {
	ip link add $2 netns $1 type veth peer name $5 netns $4
	ip -n $1 address add $3 dev $2; ip -n $1 link set $2 up
	ip -n $4 address add $6 dev $5; ip -n $4 link set $5 up
}
ip netns attach relay $$
join relay wan0 192.0.2.1/24 provider relay 192.0.2.254/24
join provider internet 10.255.0.1/30 internet provider 10.255.0.2/30
join internet client 198.51.100.254/24 client eth0 198.51.100.1/24
join internet origin 203.0.113.254/24 origin eth0 203.0.113.1/24
ip route add default via 192.0.2.254
ip -n provider route add default via 10.255.0.2
ip -n internet route add 192.0.2.0/24 via 10.255.0.1
ip -n client route add default via 198.51.100.254
ip -n origin route add default via 203.0.113.254
for n in provider internet; do ip netns exec $n sysctl -q net.ipv4.ip_forward=1; done
ethtool -K wan0 tso off tx-udp-segmentation off
for n in client origin; do ip netns exec $n ethtool -K eth0 tso off tx-udp-segmentation off; done
tc qdisc add dev wan0 root fq_codel # as any card has it from systemd, and veth has not
for d in relay internet; do
	tc -n provider qdisc add dev $d root tbf rate ` + relayRate + ` burst 3028 latency 200ms
done
tc -n internet qdisc add dev client root netem delay 40ms limit 10000
tc -n internet qdisc add dev origin root netem delay 20ms limit 10000

mkdir -p /root/.ssh /run/sshd /run/origin
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
systemctl start ssh
ip netns exec origin /usr/sbin/sshd -o PidFile=/run/origin/sshd.pid
truncate -s 1G /run/origin/file
cat >/run/origin.conf <<'END'
pid /run/origin.pid;
error_log /run/origin.log;
events { }
http { access_log off; sendfile on; server { listen 203.0.113.1:80; root /run/origin; } }
END
ip netns exec origin nginx -c /run/origin.conf
until_ '! ip -o address show tentative | grep .'
`

// sshConfig is the client's. ssh would hide keystrokes among others, which go every 20 ms, and that would be measured.
const sshConfig = `StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
ObscureKeystrokeTiming no
Host relay
HostName 192.0.2.1
Host through
`

// watch gives scripts the words to measure with.
const watch = `
keys() {
	# On a terminal, as a person has one: then nothing waits for more, or for an acknowledgement.
	local far='stty raw -echo; echo ready; exec cat'
	timeout 120 ip netns exec client /usr/lib/weir-test/keystrokes -for $1 ssh -tt $2 "$far"
}
# Bytes that curl has written, the time, and ticks of the CPU: idle, and all.
now() {
	local sum=0 p
	for p in $(pgrep -x curl); do sum=$((sum + $(sed -n 's/^wchar: //p' /proc/$p/io))); done
	echo $sum $(cut -d ' ' -f 1 /proc/uptime)
	awk '/^cpu / { for (i = 2; i <= NF; i++) all += $i; print $5 + $6, all }' /proc/stat
}
# Both sessions are measured at once, and what else goes on meanwhile.
measure() {
	local before=$(now)
	keys $1 through >/run/through & local through=$!
	keys $1 relay >/run/to && wait $through || return
	echo "{\"through\":$(cat /run/through),\"to\":$(cat /run/to),"
	echo $before $(now) |
		awk '{ printf "\"mbit\":%.3f,\"idle\":%.3f}\n", ($5 - $1) * 8e-6 / ($6 - $2), ($7 - $3) / ($8 - $4) }'
}
`

// relayed is what was measured at once: keystrokes of two ssh sessions, in milliseconds, and what four downloads got.
type relayed struct {
	Through stats.Dist `json:"through"` // to the origin
	To      stats.Dist `json:"to"`      // to the relay itself
	Mbit    float64    `json:"mbit"`
	Idle    float64    `json:"idle"` // of the CPU, as a share
}

func (s *subject) relayed(script string) relayed {
	s.Helper()
	var r relayed
	out := s.sh(watch + script)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		s.Fatalf("%v:\n%s", err, out)
	}
	return r
}

// relayReport is a relay's row: with no load, as found under load, and the same load with Weir.
type relayReport struct {
	relay
	none, found, weir relayed
}

// underLoad measures what stays when what a change does at first is over, slow start or a queue that drains.
const underLoad = "sleep 5; measure 10s"

// run measures a relay before and with Weir, and looks at what is left of both.
func (r relay) run(s *subject) relayReport {
	s.Helper()
	report := relayReport{relay: r}
	s.sh("cat >/root/.ssh/config <<'END'\n" + sshConfig + r.through + "END\n" + r.setup)
	// Once for the modules that it loads: they stay.
	s.sh(r.start)
	s.sh(r.stop)
	before := s.look()

	s.sh(r.start)
	report.none = s.relayed("measure 3s")
	downloads := "for i in 1 2 3 4; do ip netns exec client curl -sN -o /dev/null " + r.curl + " & done\n"
	report.found = s.relayed(downloads + underLoad)
	up := s.sh("weir up --yes --dev wan0 --rate " + relayRate + " --role relay " + strings.Join(r.flags, " "))
	report.weir = s.relayed(underLoad)
	s.Logf("%s\n%s", up, s.sh("tc -s qdisc show dev wan0 | grep -E '^qdisc|Sent'; pkill -x curl"))

	s.sh(r.stop)
	status := s.try("weir status")
	switch touched := r.device != "" && strings.Contains(up, r.device); {
	case touched && status.Status == 0:
		s.Errorf("the tunnel has gone, and weir status does not say so:\n%s", status.Out)
	case !touched && status.Status != 0:
		s.Errorf("weir status, when the relay's program has ended: status %d:\n%s", status.Status, status.Out)
	}
	s.sh("weir down")
	if now := s.look(); now != before {
		s.Errorf("weir down leaves, against the host before:\n%s", difference(before, now))
	}
	return report
}

// The bounds are of the effect's direction. What the lab measures on an exact link is in results/evidence.md.
const (
	// As found the provider's FIFO holds up to 200 ms, and four downloads keep it more than half full.
	leastQueue = 60.0
	// A packet takes 1.2 ms at this rate, and a keystroke waits for some when it crosses the card: that is a twentieth.
	// What a program in user space keeps in one queue waits for its other flows besides. A third is no cure.
	mostOfQueue = 1.0 / 3
	// The shares that a relay is shaped at cost 3 to 15 % of goodput.
	leastGoodput = 0.8
	// Less of the link's rate than this, less headers and a tunnel's, and it was not the link that was measured.
	leastOfRate = 0.75
	// Nor if the CPU had no time to spare.
	leastIdle = 0.25
)

func (r relayReport) check(t *testing.T) {
	t.Helper()
	for _, m := range []relayed{r.found, r.weir} {
		if m.Idle < leastIdle {
			t.Errorf("the CPU was idle for %.0f %% only: it is not the link that was measured", 100*m.Idle)
		}
	}
	if r.found.Mbit < 10*leastOfRate {
		t.Errorf("as found %.2f Mbit/s went through a link of 10", r.found.Mbit)
	}
	if r.weir.Mbit < leastGoodput*r.found.Mbit {
		t.Errorf("goodput fell from %.2f to %.2f Mbit/s", r.found.Mbit, r.weir.Mbit)
	}
	for _, way := range []struct {
		name              string
		none, found, weir stats.Dist
	}{
		{"through the relay", r.none.Through, r.found.Through, r.weir.Through},
		{"to the relay", r.none.To, r.found.To, r.weir.To},
	} {
		found, weir := way.found.P50-way.none.P50, way.weir.P50-way.none.P50
		if found < leastQueue {
			t.Errorf("ssh %s: as found the downloads add %.1f ms only: there is nothing to mend", way.name, found)
		}
		if weir > mostOfQueue*found {
			t.Errorf("ssh %s: the downloads add %.1f ms as found, and %.1f with weir", way.name, found, weir)
		}
	}
}

// relayMachine is a Debian that has what relays are made of.
func relayMachine(t *testing.T) (m *Machine, suite string) {
	t.Helper()
	dir := t.TempDir()
	image, err := Build(t.Context(), "trixie", Relay)
	if errors.Is(err, ErrNoTools) {
		t.Skipf("skipped, not passed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err = image.Start(t.Context(), Options{Manager: Networkd, Files: map[string]string{
		"/usr/bin/weir":                 program(t, dir, "weir/cmd/weir"),
		"/usr/lib/weir-test/keystrokes": program(t, dir, "weir/internal/lab/machine/keystrokes"),
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, image.Suite
}

// TestRelays: real programs that relay, on a host with one card, before and with Weir.
func TestRelays(t *testing.T) {
	if !everything {
		t.Skipf("skipped here: %s runs in make test-machines", t.Name())
	}
	m, suite := relayMachine(t)
	if err := m.Must(t.Context(), prelude+world); err != nil {
		t.Fatal(err)
	}
	const built = "world"
	if err := m.Save(built); err != nil {
		t.Fatal(err)
	}
	var reports []relayReport
	for _, r := range relays() {
		t.Run(r.with, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), longestFault)
			defer cancel()
			s := &subject{T: t, ctx: ctx, m: m, suite: suite, man: Networkd}
			s.must(m.Reset(ctx, built))
			report := r.run(s)
			t.Log("\n" + relayHead[strings.Index(relayHead, "| relay"):] + report.row())
			report.check(t)
			reports = append(reports, report)
		})
	}
	if path := os.Getenv("WEIR_RELAYS"); path != "" && !t.Failed() && len(reports) == len(relays()) {
		text := relayHead
		for _, r := range reports {
			text += r.row()
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

const relayHead = `# A host with one card that relays, before and with Weir

<!-- generated by make test-machines -->

Each row is a relay made of programs from Debian 13 on a whole emulated machine with Debian's kernel. The provider lets
10 Mbit/s through its one card each way, behind a FIFO of 200 ms each way. The client is 40 ms away, the origin 20 ms.
Four downloads (curl) run from the origin through the relay to the client. Meanwhile keystrokes of two ssh sessions of
the client's are timed: one *through* the relay to the origin, one *to* the relay itself. As found the card has
fq_codel. Then ` + "`weir up --yes --dev wan0 --rate 10mbit --role relay`" + ` is in force.

Times are in milliseconds: the median of 30 keystrokes without load, then median/90th percentile of 100. The emulator's
time is virtual, an instruction takes a nanosecond: the load of the host that emulates is not in them. Nor is it a CPU
that users have: what a relay costs it is not shown here.

| relay | programs | Mbit/s found | with Weir | through: no load | found | with Weir | to: no load | found | with Weir |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
`

func (r relayReport) row() string {
	ms := func(d stats.Dist) string { return fmt.Sprintf("%.1f/%.1f", d.P50, d.P90) }
	return fmt.Sprintf("| %s | %s | %.2f | %.2f | %.1f | %s | %s | %.1f | %s | %s |\n",
		r.name, r.with, r.found.Mbit, r.weir.Mbit,
		r.none.Through.P50, ms(r.found.Through), ms(r.weir.Through), r.none.To.P50, ms(r.found.To), ms(r.weir.To))
}
