// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fault is something that goes wrong, or that a host's life brings: a row of results/reliability.md.
type fault struct {
	name   string
	on     []Manager // of the uplink, where it matters
	suites []string  // all, if none is named
	kind   Kind      // of the image
	quick  bool      // runs in go test ./... too
	run    func(*subject)
}

func faults() []fault {
	one, all := []Manager{Networkd}, Managers()
	released := []string{"bookworm", "trixie"} // for what takes long
	list := []fault{
		{name: "nobody confirms", on: all, quick: true, run: nobodyConfirms},
		{name: "ssh is cut off by what is brought up", on: all, run: cutOff},
		{name: "two at once", on: one, quick: true, run: twoAtOnce},
		{name: "no space for the journal", on: one, quick: true, run: fullDisk},
		{name: "no file can be written", on: one, run: readOnly},
		{name: "the kernel has no cake", on: one, run: noCake},
		{name: "confirmed, then a reboot", on: all, quick: true, run: reboots},
		{name: "a rate is followed, and the follower killed", on: one, quick: true, run: followed},
		{name: "a rate is followed through jumps of the clock, a sleep and another card", on: one, run: followedOn},
		{name: "a rate that nobody knows is looked for, and found", on: one, quick: true, run: learnt},
		{name: "tried over ssh by who knows no rate, and kept", on: one, run: triedAndKept},
		{name: "tried over ssh, and not kept", on: one, run: triedAndPutBack},
		{name: "tried over ssh by one whom sudo asks for a password", on: one, run: triedBy("sudo")},
		{name: "tried over ssh by one whom doas asks for a password", on: one, run: triedBy("doas")},
		{name: "a reboot while not confirmed", on: one, run: rebootsUnconfirmed},
		{name: "a power cut at a step", on: one, suites: released, run: powerCuts},
		{name: "the card comes after the boot, goes and comes again", on: all, run: hotplug},
		{name: "the device is renamed while in force", on: one, run: renamed},
		{name: "the device has another name after a reboot", on: one, run: renamedForGood},
		{name: "a file that sorts later sets a value", on: one, run: laterFile},
		{name: "others set the queue and a setting at each boot", on: all, run: setAtBoot},
		{name: "the kernel has no cake any more after a reboot", on: one, run: losesCake},
		{name: "a queue with filters: all kinds at once, and what does not come back", on: one, run: filtered},
		{name: "the manager configures the uplink again", on: all, run: reconfigured},
		{name: "the disk of the journal becomes read-only before the time is over", on: one, run: readOnlyState},
		{name: "the program is replaced before the time is over", on: one, run: replaced},
		{name: "in a PID namespace that ends with weir up", on: one, run: contained},
		{name: "the service, or a session's scope, that weir up ran in is stopped", on: one, run: stoppedWith},
		{name: "the login that weir up ran in ends, and all of it is killed", on: one, run: loggedOut},
		{name: "in another network namespace, and what waits is killed", on: one, run: elsewhere},
		{name: "two uplinks", on: one, run: twoUplinks},
		{name: "DualPI2 in BPF, then a reboot", on: one, suites: []string{"sid"}, run: l4sReboots},
		{name: "DualPI2 in BPF, and another's TCX programs write its note", on: one, suites: []string{"sid"},
			run: overwritten},
		{name: "a rate for each client both ways, then a reboot", on: one, quick: true, run: clientsReboot},
		{name: "weir's congestion control, then a reboot", on: one, quick: true, run: controlReboots},
		{name: "weir's congestion control, and an upgrade beside open connections", on: one, quick: true,
			run: controlUpgraded},
		{name: "the package is installed, upgraded, removed and purged", on: one, run: purged},
	}
	for _, f := range filters() {
		list = append(list, fault{name: "a queue with filters: " + f.kind, on: one, run: f.run})
	}
	for _, k := range slices.Concat(kills("weir down"), clientKills()) {
		list = append(list, fault{name: "SIGKILL at every step: " + k.name, on: one, suites: released, run: k.run})
	}
	const two = " (beside another uplink)"
	for _, f := range []fault{{name: "confirmed, then a reboot", run: reboots},
		{name: "a power cut at a step", run: powerCuts},
		{name: "the card comes after the boot, goes and comes again", run: hotplug}} {
		list = append(list, fault{name: f.name + two, on: one, suites: []string{"trixie"}, run: beside(f.run)})
	}
	for _, k := range kills(downOne) {
		list = append(list, fault{name: "SIGKILL at every eighth step: " + k.name + two, on: one,
			suites: []string{"trixie"}, run: beside(k.run)})
	}
	return append(list, openRCFaults()...)
}

// beside lets a fault run while a second uplink has a goal, too, which it is to leave as it is.
func beside(run func(*subject)) func(*subject) {
	return func(s *subject) {
		s.sh(`cd /etc/systemd/network
			printf '[NetDev]\nName=lan0\nKind=veth\nMACAddress=52:54:00:00:01:00\n\n[Peer]\nName=lan1\n` +
			`MACAddress=52:54:00:00:01:01\n' >20-lan.netdev
			printf '[Match]\nName=lan0 lan1\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nLinkLocalAddressing=no\n` +
			`IPv6AcceptRA=no\nConfigureWithoutCarrier=yes\n' >20-lan.network
			sync; networkctl reload; until_ 'ip link show dev lan0 2>/dev/null | grep -q LOWER_UP'`)
		s.settled()
		s.sh("weir up --dev lan0 --rate 30mbit --rtt 40ms && weir confirm")
		s.down, s.from, s.every = downOne, "beside", 8
		s.also = "{ until_ 'tc qdisc show dev lan0 | grep -q \"cake .*bandwidth 29925Kbit\"'; }"
		s.must(s.m.Save(s.from))
		run(s)
	}
}

// downOne is weir down of one of several uplinks.
const downOne = "weir down --dev $dev"

// goal is what is brought up, earlier what had been confirmed before it.
const (
	goal    = "--rate 50mbit --rtt 48.3ms"
	earlier = "--rate 20mbit --rtt 30ms"
)

// inForce succeeds if Weir says that the goal is, and tools that know nothing of Weir say so too.
func inForce(rate string) string {
	return fmt.Sprintf(`{ weir status && tc -s qdisc show dev $dev | grep -q 'cake .*bandwidth %s' && [ "$(sysctl -n net.ipv4.tcp_notsent_lowat)" = 131072 ]; }`, rate)
}

const (
	goalRate    = "49875Kbit"
	earlierRate = "19950Kbit"
)

// whileLooking is long enough to look at what weir up did, in seconds.
const whileLooking = 40

// within is the option that gives nobody more than so many seconds to confirm, where this host has nothing else to do.
// Where it has, the emulated one is slower, and arming a timer takes it longer: as much as weir plan says.
func (s *subject) within(seconds int) string {
	s.Helper()
	took := s.sh("from=$(date +%s%N); weir plan --rate 50mbit >/dev/null; echo $(($(date +%s%N) - from))")
	ns, err := strconv.ParseInt(strings.TrimSpace(took), 10, 64)
	s.must(err)
	after := time.Duration(seconds)*time.Second + 5*time.Duration(ns)
	return "--timeout " + after.Truncate(time.Millisecond).String() + " "
}

// onlyLooks runs what changes nothing, as root and as somebody else: no module is loaded for it.
func (s *subject) onlyLooks() {
	s.sh(`modules() { cut -d' ' -f1 /proc/modules | sort; }
		rmmod tcp_diag 2>/dev/null; ! grep '^tcp_diag ' /proc/modules && modules >/run/modules || exit 1
		for c in doctor plan 'plan --rate auto' status 'watch --once'; do
			weir $c >/run/said 2>&1; setpriv --reuid=nobody --regid=nogroup --clear-groups weir $c >/dev/null 2>&1
			modules | diff /run/modules - || { echo "by $c"; exit 1; }
		done
		weir plan --rate auto | tr '\n' ' ' | grep 'module *tcp_diag'`)
}

func nobodyConfirms(s *subject) {
	s.onlyLooks()
	before := s.look()
	s.sh("weir up " + s.within(whileLooking) + goal + "; " + inForce(goalRate) +
		" && systemctl list-units --no-legend 'weir-revert*' | grep running")
	s.sh("until_ '! tc qdisc show dev $dev | grep -q cake'; until_ '! systemctl list-units --all --no-legend " +
		"\"weir-revert*\" | grep -q .'; until_ 'weir status | grep \"^Put back\"'")
	s.same(asBefore, s.look(), before, "nobody confirmed")

	// With a goal confirmed earlier it goes back to that.
	s.sh("weir up " + earlier + " && weir confirm")
	before = s.look()
	s.sh("weir up " + s.within(10) + goal)
	s.sh("until_ 'tc qdisc show dev $dev | grep -q " + earlierRate +
		"'; until_ '! systemctl list-units --all --no-legend \"weir-revert*\" | grep -q .'; weir status")
	s.same(asBefore, s.look(), before, "nobody confirmed the second goal")
}

// cutOff brings up, over ssh, what ends that ssh.
func cutOff(s *subject) {
	dir := s.TempDir()
	key := filepath.Join(dir, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		s.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	s.must(err)
	s.sh("mkdir -p /root/.ssh && chmod 700 /root/.ssh && cat >/root/.ssh/authorized_keys <<'END'\n" + string(public) +
		"END\nsystemctl start ssh")
	port, err := s.m.Forwarded()
	s.must(err)
	ssh := func(command string) (string, error) {
		out, err := exec.CommandContext(s.ctx, "ssh", "-F", "none", "-i", key, "-p", port, "-o", "BatchMode=yes", "-o",
			"StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
			"-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=3", "-o",
			"ServerAliveCountMax=2", "root@127.0.0.1", command).CombinedOutput()
		return string(out), err
	}
	if out, err := ssh("ss -tin state established"); err != nil || !strings.Contains(out, "cubic") {
		s.Fatalf("ssh: %v: %s", err, out)
	}
	before := s.look()
	if out, err := ssh("weir up --timeout 10s --qdisc 'netem loss 100%'"); err == nil {
		s.Fatalf("it was not cut off: %s", out)
	}
	s.sh("until_ '! tc qdisc show dev $dev | grep -q netem'; until_ '! systemctl list-units --all --no-legend " +
		"\"weir-revert*\" | grep -q .'")
	if out, err := ssh("weir status"); err == nil || !strings.Contains(out, "Put back") {
		s.fails("ssh does not answer: %v: %s", err, out)
		return
	}
	s.same(asBefore, s.look(), before, "cut off")
}

func twoAtOnce(s *subject) {
	s.sh(`weir up --yes ` + earlier + ` >/run/a 2>&1 & weir up --yes ` + goal + ` >/run/b 2>&1; b=$?; wait %1; a=$?
		echo "$a: $(cat /run/a)"; echo "$b: $(cat /run/b)"
		[ $a = 0 ] || grep -q 'another weir' /run/a; [ $b = 0 ] || grep -q 'another weir' /run/b`)
	s.holds(asPlanned, "two at once", inForce(goalRate)+" || "+inForce(earlierRate))
}

// refused is a script that succeeds if a command fails with one line, and a hint, and nothing else. How long it takes
// is told while it does, where this host is busy.
func refused(command string) string {
	return command + ` >/run/out 2>/run/err && exit 1; cat /run/out /run/err; sed -i '/ · [0-9]*s$/d' /run/err
		[ ! -s /run/out ] && [ "$(wc -l </run/err)" -le 2 ] && grep -q '^weir: ' /run/err`
}

func fullDisk(s *subject) {
	s.sh("mkdir /var/lib/weir && mount -t tmpfs -o size=4k,nr_inodes=2 none /var/lib/weir && : >/var/lib/weir/full")
	before := s.look()
	s.sh(refused("weir up " + goal))
	s.same(asBefore, s.look(), before, "no space")
}

func readOnly(s *subject) {
	s.sh("mount --bind /etc /etc && mount -o remount,bind,ro /etc")
	before := s.look()
	r := s.try("weir up --yes " + goal)
	if r.Status == 0 {
		// What needs no file there is in force, and taken back.
		s.holds(asPlanned, "/etc read-only", inForce(goalRate)+" && weir down")
	}
	s.same(asBefore, s.look(), before, "/etc read-only")
}

// away takes the kernel's cake away, as on a kernel that was built without.
const away = "rmmod sch_cake 2>/dev/null; rm /lib/modules/$(uname -r)/kernel/net/sched/sch_cake.ko*; depmod\n"

func noCake(s *subject) {
	s.sh(away)
	before := s.look()
	said := s.sh("weir plan --rate 50mbit; weir up --yes --rate 50mbit && tc qdisc show dev $dev")
	for _, want := range []string{"bpf_shaper rate 50mbit", "qdisc fq ", "has no CAKE to use"} {
		if !strings.Contains(said, want) {
			s.fails("%q is missing:\n%s", want, said)
			return
		}
	}
	s.holds(asPlanned, "without cake", "weir status")
	s.sh("weir down")
	s.same(asBefore, s.look(), before, "without cake, taken down")
}

func reboots(s *subject) {
	found := s.look()
	s.sh("weir up " + goal + " && weir confirm")
	s.persists()
	s.reboot()
	s.holds(asPlanned, "after the reboot", inForce(goalRate))
	s.holds(asPlanned, "what systemd says of the files", `
		[ -z "$(systemctl --failed --no-legend)" ] || { systemctl --failed; exit 1; }
		systemd-analyze security --no-pager --threshold=30 weir.service >/run/security || { cat /run/security; exit 1; }
		systemctl is-active weir.service
		# the manual comes with the package
		said=$(systemd-analyze verify --man=no /etc/systemd/system/weir.service 2>&1); echo "$said"; [ -z "$said" ]`)
	s.sh(s.down)
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.reboot()
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "a reboot later")
}

// followed is a goal whose rate moves: what the follower sets is in force, whatever becomes of the follower.
func followed(s *subject) {
	const at = "until_ 'weir status | grep -q \"^Followed:  %s \"' && weir status"
	found := s.look()
	s.sh("weir up --rtt 48.3ms --rate 20mbit..100mbit && weir confirm")
	s.persists()
	s.holds(asPlanned, "followed once confirmed", fmt.Sprintf(at, "19.95mbit"))
	s.holds(asPlanned, "what systemd says of the follower", `
		[ -z "$(systemctl --failed --no-legend)" ] || { systemctl --failed; exit 1; }
		systemd-analyze security --no-pager --threshold=30 weir-follow.service >/run/security || { cat /run/security; exit 1; }
		said=$(systemd-analyze verify --man=no /etc/systemd/system/weir-follow.service 2>&1); echo "$said"; [ -z "$said" ]`)
	s.sh("systemctl stop weir-follow; change() { tc qdisc change dev $dev root cake bandwidth $1; }; change 33mbit")
	s.holds(asPlanned, "another rate, and nobody follows", "weir status | grep 'does not run: the rate stays 33mbit'"+
		" && weir status | grep 'To start it: *systemctl start weir-follow$'")
	s.sh("systemctl start weir-follow")
	s.holds(asPlanned, "followed from there", fmt.Sprintf(at, "33mbit"))
	s.sh("systemctl kill -s KILL weir-follow")
	s.holds(asPlanned, "killed", "weir status && tc qdisc show dev $dev | grep 'bandwidth 33Mbit'")
	s.holds(asPlanned, "started again", fmt.Sprintf(at, "33mbit"))
	s.reboot()
	s.holds(asPlanned, "after the reboot", fmt.Sprintf(at, "19.95mbit"))
	s.sh("weir down")
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.holds(asBefore, "the follower has ended", "until_ '! systemctl is-active -q weir-follow.service'; "+
		"! systemctl is-active weir-follow.service")
}

// followedOn is a goal whose rate moves while the clock jumps, the follower sleeps, and the card goes and comes back.
func followedOn(s *subject) {
	const at = "until_ 'weir status | grep -q \"^Followed:  %s \"' && weir status && [ $(systemctl show -P NRestarts " +
		"weir-follow) = 0 ]"
	found := s.look()
	s.sh("weir up --rtt 48.3ms --rate 20mbit..100mbit && weir confirm")
	s.persists()
	s.sh("until_ 'systemctl is-active -q weir-follow'; systemctl stop weir-follow; " +
		"tc qdisc change dev $dev root cake bandwidth 33mbit; systemctl start weir-follow")
	s.holds(asPlanned, "followed", fmt.Sprintf(at, "33mbit"))
	s.sh("systemctl stop systemd-timesyncd 2>/dev/null; date -s '+30 days'; sleep 2")
	s.holds(asPlanned, "the clock is a month later", fmt.Sprintf(at, "33mbit"))
	s.sh("date -s '-60 days'; sleep 2")
	s.holds(asPlanned, "the clock is a month earlier", fmt.Sprintf(at, "33mbit"))
	s.sh("date -s '+30 days'; systemctl kill -s STOP weir-follow; sleep 5; systemctl kill -s CONT weir-follow; sleep 2")
	s.holds(asPlanned, "after a sleep", fmt.Sprintf(at, "33mbit"))
	s.must(s.m.Unplug())
	s.sh("until_ '! ip link show dev $dev 2>/dev/null'; sleep 2; systemctl is-active weir-follow")
	s.must(s.m.Plug())
	s.settled()
	s.holds(asPlanned, "the card is back", fmt.Sprintf(at, "19.95mbit"))
	s.sh("weir down")
	number := regexp.MustCompile(`(?m)^\d+: `) // of a device: another card's is another
	plain := func(look string) string { return number.ReplaceAllString(acrossBoots(look), "") }
	s.same(asBefore, plain(s.look()), plain(found), "taken down")
}

// learnt is a rate that nobody knows. What weir follow does once it has found one, it can do from its service's
// sandbox.
func learnt(s *subject) {
	const known = "until_ 'weir status | grep -q \"^Followed:  31.92mbit \"' && weir status && grep -q auto /etc/weir.toml"
	from := func(unit, command string) string {
		return "sed 's/ follow$/ " + command + "/; s/^Restart=always/Type=oneshot/; /^RestartSec=/d' " +
			"/etc/systemd/system/weir-follow.service >/run/systemd/system/" + unit + ".service && " +
			"systemctl daemon-reload && systemctl start " + unit
	}
	const up, whileConfirming = "up --rate 32mbit --rtt 48.3ms --follow auto ", "--timeout 10m"
	found := s.look()
	s.sh("weir up --rtt 48.3ms --rate auto && weir confirm")
	s.persists()
	s.holds(asPlanned, "looked for once confirmed", "until_ 'weir status | grep -q \"^The rate is not known yet: \"' && "+
		"weir status && ! tc qdisc show dev $dev | grep cake")
	before := s.look()
	s.sh(from("weir-found", up+strings.TrimSpace(s.within(whileLooking))))
	s.holds(asPlanned, "brought up from the sandbox", "tc qdisc show dev $dev | grep 'cake .*bandwidth 31920Kbit' && "+
		"systemctl list-units --no-legend 'weir-revert*' | grep running")
	s.sh("until_ '! tc qdisc show dev $dev | grep -q cake'; until_ '! systemctl list-units --all --no-legend " +
		"\"weir-revert*\" | grep -q .'")
	s.same(asBefore, s.look(), before, "nobody confirmed what was found")
	s.sh(from("weir-found", up+whileConfirming) + " && " + from("weir-sure", "confirm"))
	s.holds(asPlanned, "confirmed from the sandbox", known)
	s.sh("rm /run/systemd/system/weir-found.service /run/systemd/system/weir-sure.service; systemctl daemon-reload")
	s.reboot()
	s.holds(asPlanned, "after the reboot", known)
	s.sh("weir down")
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
}

// afar prepares weir try from a host behind a link of 10 Mbit/s each way, and gives the script that runs it there at a
// terminal, as a user here, with answers. Both hosts are in the machine, in namespaces of their own. Its emulated
// processor does not always fill the link, so which rate is found is not looked at: internal/follow's TestLone does.
func (s *subject) afar(user string) func(answers, options string) string {
	s.sh(`mkdir -p /root/.ssh && chmod 700 /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
		cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
		printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' >/root/.ssh/config
		systemctl start ssh
		for n in wan home; do ip netns add $n && ip -n $n link set lo up; done
		ip link add far0 type veth peer name near netns wan
		ip -n wan link add lan type veth peer name home0 netns home
		ip addr add 10.77.1.1/24 dev far0 && ip link set far0 up && ip route add 10.77.2.0/24 via 10.77.1.2
		ip -n wan addr add 10.77.1.2/24 dev near && ip -n wan link set near up
		ip -n wan addr add 10.77.2.2/24 dev lan && ip -n wan link set lan up
		ip netns exec wan sysctl -qw net.ipv4.ip_forward=1
		ip -n home addr add 10.77.2.1/24 dev home0 && ip -n home link set home0 up
		ip -n home route add default via 10.77.2.2
		tc qdisc add dev far0 root fq_codel
		for d in near lan; do tc -n wan qdisc add dev $d root tbf rate 10mbit burst 5kb limit 250kb; done
		tc -n home qdisc add dev home0 root netem delay 20ms limit 1000`)
	return func(answers, options string) string {
		return fmt.Sprintf(`printf '%s' | ip netns exec home script -qec "weir try %s@10.77.1.1 --dev far0 `+
			`%s" /dev/null >/run/said 2>&1; said=$?; cat /run/said; `, answers, user, options)
	}
}

// unknown are the options of who knows no rate: the link is measured, which takes minutes here.
const unknown = "--rate auto"

func triedAndKept(s *subject) {
	s.sh(s.afar("root")(`y\ny\n`, unknown) + `[ $said = 0 ] && ` +
		`grep -E 'The way from .* carries [0-9.]+mbit' /run/said && grep 'Kept, also over a reboot' /run/said`)
	s.holds(asPlanned, "tried, and kept", "weir status && tc qdisc show dev far0 | grep 'cake .*bandwidth ' && "+
		"! ls -d /tmp/weir-try.*")
}

func triedAndPutBack(s *subject) {
	try := s.afar("root")
	before := s.look()
	s.sh(try(`n\n`, unknown) + `[ $said = 1 ] && grep 'the rate of its link is not known' /run/said`)
	s.same(asBefore, s.look(), before, "the line is not said to be faster")
	s.sh(try("", unknown+" --yes") + `[ $said = 1 ] && grep -E 'try: --rate [0-9.]+mbit, if it is' /run/said`)
	s.same(asBefore, s.look(), before, "nobody could be asked")
	s.sh(try(`y\nn\n`, unknown) + `[ $said = 1 ] && grep 'Put back: .* as it was' /run/said`)
	s.same(asBefore, s.look(), before, "tried, and not kept")
}

// triedBy is a user who becomes root by sudo, or by doas where sudo is not.
func triedBy(program string) func(*subject) {
	return func(s *subject) {
		try := s.afar("someone")
		s.someone()
		if program == "doas" {
			s.sh("mv /usr/bin/sudo /usr/bin/sudo.away; echo permit someone >/etc/doas.conf; chmod 600 /etc/doas.conf")
		}
		before := s.look()
		s.sh(try(`wrong\n`, unknown) + `[ $said = 1 ] && grep '` + program +
			` on .* lets nobody in with that password' /run/said`)
		s.same(asBefore, s.look(), before, "the password was wrong")
		s.sh(try(`secret\nn\n`, "--rate 9mbit") + `[ $said = 1 ] && grep 'Put back: .* as it was' /run/said`)
		s.same(asBefore, s.look(), before, "tried, and not kept")
		s.sh(try(`secret\ny\ny\n`, unknown) + `[ $said = 0 ] && grep 'Kept, also over a reboot' /run/said`)
		s.holds(asPlanned, "tried, and kept", "weir status && tc qdisc show dev far0 | grep 'cake .*bandwidth ' && "+
			"! ls -d /tmp/weir-try.*")
	}
}

func rebootsUnconfirmed(s *subject) {
	found := s.look()
	s.sh("weir up --timeout 1h " + goal)
	s.reboot()
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "not confirmed")

	s.must(s.m.Reset(s.ctx, Booted))
	s.sh("weir up " + earlier + " && weir confirm")
	s.persists()
	s.sh("weir up --timeout 1h " + goal)
	s.reboot()
	s.holds(asBefore, "the goal confirmed earlier", inForce(earlierRate))
}

// acrossBoots leaves out what the kernel computes from the memory that it finds free when it boots, the numbers of
// devices, which follow from who was found first, and what hwclock(8) writes when a host without systemd goes down.
func acrossBoots(look string) string {
	fromMemory := regexp.MustCompile(
		`(?m)^/proc/sys/net/ipv4/(tcp_mem|udp_mem|tcp_rmem|tcp_wmem|inet_peer_threshold):.*\n`)
	look = fromMemory.ReplaceAllString(look, "")
	look = regexp.MustCompile(`(?m)^[0-9a-f]+  /etc/adjtime\n`).ReplaceAllString(look, "")
	number := regexp.MustCompile(`^\d+: `)
	var devices, rest []string
	for line := range strings.Lines(look) {
		if n := number.FindString(line); n != "" {
			devices = append(devices, line[len(n):])
		} else {
			rest = append(rest, line)
		}
	}
	slices.Sort(devices)
	return strings.Join(append(devices, rest...), "")
}

// kill is a command that is killed at each of its steps, and what comes before it.
type kill struct {
	name, setup, command string
}

func kills(down string) []kill {
	return []kill{
		{"up", "", "weir up --timeout 1h " + goal},
		{"up over a goal that was confirmed", "weir up " + earlier + " && weir confirm", "weir up --timeout 1h " +
			goal},
		{"up --yes", "", "weir up --yes " + goal},
		{"confirm", "weir up --timeout 1h " + goal, "weir confirm"},
		{"down", "weir up --timeout 1h " + goal + " && weir confirm", down},
		{"recover", "weir up --timeout 1h " + goal, "weir recover"},
	}
}

// clientGoal has a program of weir's at both ends of the uplink.
const clientGoal = goal + " --ingress 20mbit --client 10.0.2.2=5mbit --client-default 10mbit"

func clientKills() []kill {
	return []kill{
		{"up --yes, a rate for each client", "", "weir up --yes " + clientGoal},
		{"down, a rate for each client", "weir up --timeout 1h " + clientGoal + " && weir confirm", "weir down"},
	}
}

const prepared = "prepared"

// prepare brings the machine to where the command is to run, and gives the looks before it and after it, and its
// number of steps.
func (k kill) prepare(s *subject) (found, before, planned string, steps int) {
	found = s.look()
	if k.setup != "" {
		s.sh(k.setup)
	}
	before = s.look()
	s.must(s.m.Save(prepared))
	said := s.sh("$killat " + k.command + " 2>&1")
	planned = s.look()
	match := regexp.MustCompile(`killat: (\d+) steps`).FindStringSubmatch(said)
	if match == nil {
		s.Fatalf("killat did not count:\n%s", said)
	}
	steps, _ = strconv.Atoi(match[1])
	return found, before, planned, steps
}

func (k kill) run(s *subject) {
	found, before, planned, steps := k.prepare(s)
	clean := s.down + " && ! ls -A /var/lib/weir | grep ."
	if s.also != "" { // the journal of the other stays
		clean = "{ " + s.down + " 2>/run/down || grep -q 'weir is not up on' /run/down; } && " + s.also
	}
	asFound := false // and needs no snapshot, after which the emulator translates all code anew
	for n := 1; n <= steps; n += s.every {
		if !asFound || k.setup != "" {
			s.must(s.m.Reset(s.ctx, prepared))
			// a snapshot's card comes back with its link down for a moment, and systemd 252 then configures it again
			s.settled()
		}
		asFound = false
		r := s.try(fmt.Sprintf("$killat -at %d %s 2>&1", n, k.command))
		if r.Status == 0 && n > 1 {
			s.Logf("%d steps this time, and %d before", n-1, steps)
			break
		}
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		at := lines[len(lines)-1]
		if !strings.Contains(r.Out, "killed before step") {
			s.fails("%s: status %d: %s", k.command, r.Status, r.Out)
			continue
		}
		now := s.look()
		o := bad
		switch now {
		case before:
			o = asBefore
		case planned:
			o = asPlanned
		default:
			r := s.try("weir recover")
			if now = s.look(); r.Status == 0 && (now == before || now == planned || now == found) {
				o = recovered
				break
			}
			s.fails("%s\nand weir recover (status %d: %s) leaves, against the host before:\n%s\nagainst the host "+
				"as planned:\n%s", at, r.Status, r.Out, difference(before, now), difference(planned, now))
			continue
		}
		// However it ended, the way back to the host as found is open, and no timer is left.
		r = s.try("weir recover && until_ '! systemctl list-units --all --no-legend \"weir-revert*\" | grep -q .' && " +
			clean)
		if now = s.look(); r.Status != 0 || now != found {
			s.fails("%s\nthen weir recover and weir down (status %d: %s) leave, against the host as found:\n%s", at,
				r.Status, r.Out, difference(found, now))
			continue
		}
		s.ended(o)
		asFound = true
	}
}

// powerCuts takes the power away while a command stands before one of its steps.
func powerCuts(s *subject) {
	for _, k := range kills(s.down) {
		if k.name == "recover" {
			continue
		}
		s.must(s.m.Reset(s.ctx, s.from))
		_, _, _, steps := k.prepare(s)
		// What was confirmed before the command, and what will have been after it; "" for the host as found.
		rates := map[string][2]string{
			"up": {"", ""}, "up over a goal that was confirmed": {earlierRate, earlierRate}, "up --yes": {"", goalRate},
			"confirm": {"", goalRate}, "down": {goalRate, ""},
		}[k.name]
		at := []int{steps / 3, 2 * steps / 3, steps}
		if s.also != "" {
			at = at[1:2] // a boot takes minutes
		}
		for _, n := range at {
			s.must(s.m.Reset(s.ctx, prepared))
			// It may take fewer steps this time: how often it asks systemd is a matter of time.
			s.sh(fmt.Sprintf("$killat -hang %d %s >/run/hang 2>&1 & "+
				"until_ 'grep -q -E \"hangs before step|killat: [0-9]+ steps\" /run/hang'", max(n, 1), k.command))
			s.powerCut()
			s.sh("sleep 1; until_ '! systemctl is-active -q weir.service || weir status >/dev/null'; true")
			what := fmt.Sprintf("%s, a power cut before step %d of %d", k.name, n, steps)
			s.afterBoot(what, rates[0], rates[1])
		}
	}
}

// afterBoot counts how a host came up: with the rate before, or the one planned.
func (s *subject) afterBoot(what, before, planned string) {
	s.Helper()
	now := s.try("tc qdisc show dev $dev")
	is := func(rate string) bool {
		if rate == "" {
			return !strings.Contains(now.Out, "cake")
		}
		return s.try(inForce(rate)).Status == 0
	}
	switch {
	case s.also != "" && s.try(s.also).Status != 0:
		s.fails("%s: after the boot the other uplink is not as it was", what)
	case is(before):
		s.ended(asBefore)
	case is(planned):
		s.ended(asPlanned)
	default:
		s.fails("%s: after the boot it is neither as before nor as planned:\n%s%s", what, now.Out,
			s.try("weir status; journalctl -b --no-pager -t weir").Out)
	}
}

func hotplug(s *subject) {
	s.sh("weir up " + goal + " && weir confirm")
	s.persists()
	s.must(s.m.Shutdown(s.ctx))
	s.must(s.m.Unplug())
	s.must(s.m.Boot(s.ctx))
	s.sh("! ip link show dev $dev 2>/dev/null")
	for _, when := range []string{"plugged in after the boot", "pulled out and put back"} {
		s.must(s.m.Plug())
		if s.man == Ifupdown {
			// "auto", and not "allow-hotplug": as an administrator would
			s.sh("until_ 'ip link show dev $dev 2>/dev/null'; ifquery --state $dev || ifup $dev")
		}
		s.settled()
		s.holds(asPlanned, when, "for i in {1..30}; do if "+inForce(goalRate)+
			"; then exit; fi; sleep 1; done; journalctl -b --no-pager -t weir; exit 1")
		if when == "plugged in after the boot" {
			s.must(s.m.Unplug())
			s.sh("until_ '! ip link show dev $dev 2>/dev/null'; sleep 2")
		}
	}
}

func renamed(s *subject) {
	before := s.look()
	s.sh("weir up --yes " + goal + "; ip link set $dev down && ip link set $dev name wan0 && ip link set wan0 up")
	s.holds(asPlanned, "renamed", "weir status | tee /dev/stderr | grep -q 'was called' && tc qdisc show dev wan0 "+
		"| grep -q "+goalRate)
	// udev of Debian 12 has given it its old name as an alternative one meanwhile.
	s.sh("weir down && ip link set wan0 down && { ip link property del dev wan0 altname $dev 2>/dev/null; ip link " +
		"set wan0 name $dev; } && ip link set $dev up && until_ \"ip -o addr show dev $dev scope link | grep -q -v " +
		"tentative\"")
	s.settled()
	now := s.look()
	s.same(asBefore, routeless(now), routeless(before), "renamed, and taken down")
}

// routeless leaves out what a manager puts on a link in an order of its own.
func routeless(look string) string {
	return regexp.MustCompile(`(?m)^(default|\d+\.\d+|\d+: ).*\n`).ReplaceAllString(look, "")
}

func renamedForGood(s *subject) {
	s.sh("weir up " + goal + " && weir confirm")
	s.persists()
	s.sh(`printf '[Match]\nMACAddress=52:54:00:00:00:03\n\n[Link]\nName=wan0\n' >/etc/systemd/network/05-wan.link
		sed -i 's/^Name=.*/Name=wan0/' /etc/systemd/network/10-uplink.network`)
	s.must(s.m.Reboot(s.ctx))
	s.sh("until_ 'ip link show dev wan0'")
	s.holds(asPlanned, "another name after the reboot", "dev=wan0; for i in {1..30}; do if "+inForce(goalRate)+
		"; then exit; fi; sleep 1; done; journalctl -b --no-pager -t weir; exit 1")
}

func laterFile(s *subject) {
	s.sh("weir up " + goal + " && weir confirm")
	s.persists()
	s.sh("echo net.ipv4.tcp_notsent_lowat=4096 >/etc/sysctl.d/99-zzz.conf")
	s.reboot()
	r := s.try("{ weir status; weir doctor; } 2>&1 | tee /run/said; grep -q 99-zzz.conf /run/said")
	if r.Status != 0 {
		s.fails("the file is not named:\n%s", r.Out)
		return
	}
	s.ended(asPlanned)
}

// setter is a way in which others set the uplink's queue, a setting, or both, at each boot.
type setter struct {
	file   string // that does so, which weir doctor is to name
	script string // makes it so
}

// setters are those of a manager of the uplink, and in their own time those of any.
func (m Manager) setters() []setter {
	const queue = "tc qdisc replace dev $dev root cake bandwidth 20mbit"
	const setting = "sysctl -qw net.ipv4.tcp_notsent_lowat=4096"
	switch m {
	case Networkd:
		return []setter{
			{"/etc/systemd/network/10-uplink.network",
				`printf '\n[CAKE]\nBandwidth=20M\n' >>/etc/systemd/network/10-uplink.network`},
			{"/etc/ufw/sysctl.conf", `sed -i 's/^ENABLED=.*/ENABLED=yes/' /etc/ufw/ufw.conf; systemctl -q enable ufw
				echo net/ipv4/tcp_notsent_lowat=4096 >>/etc/ufw/sysctl.conf`},
			{"/etc/wireguard/wg0.conf", `key=$(wg genkey)
				printf '[Interface]\nPrivateKey = %s\nAddress = 10.9.0.1/24\nPostUp = %s\nPostUp = %s\n' "$key" ` +
				"\"" + queue + "\" '" + setting + "' " + `>/etc/wireguard/wg0.conf; systemctl -q enable wg-quick@wg0`},
		}
	case NetworkManager:
		return []setter{{"/etc/NetworkManager/dispatcher.d/50-queue", `f=/etc/NetworkManager/dispatcher.d/50-queue
			printf '#!/bin/sh\n[ "$2" = up ] && [ "$1" = %s ] || exit 0\n%s\n%s\n' $dev "` + queue + `" '` + setting +
			`' >$f
			chmod 755 $f; systemctl -q enable NetworkManager-dispatcher`}}
	}
	return []setter{{"/etc/network/interfaces", `printf '\tpost-up %s\n\tpost-up %s\n' "` + queue + `" '` + setting +
		`' >>/etc/network/interfaces`}}
}

// setAtBoot has others set at each boot what Weir sets: weir.service comes after them, and doctor names their file.
func setAtBoot(s *subject) {
	for _, w := range s.man.setters() {
		s.must(s.m.Reset(s.ctx, s.from))
		s.sh(w.script)
		s.sh("weir up " + goal + " && weir confirm")
		s.persists()
		s.reboot()
		s.holds(asPlanned, w.file, "sleep 5; "+inForce(goalRate))
		s.holds(asPlanned, w.file+" is named", "weir doctor -v 2>&1 | tee /dev/stderr | grep -qF "+w.file)
	}
}

func losesCake(s *subject) {
	s.sh("weir up " + goal + " && weir confirm")
	s.persists()
	s.sh(away)
	s.reboot()
	s.holds(asPlanned, "no cake any more", "weir status | tee /dev/stderr | grep -q cake && journalctl -b "+
		"--no-pager -t weir | tee /dev/stderr | grep -q 'has no CAKE'")
}

// filter is a kind of filter or action, and some of it at a queue.
type filter struct {
	kind string
	at   []string
}

func filters() []filter {
	return []filter{
		{"u32", []string{"protocol ip prio 5 u32 match ip dport 22 0xffff flowid 1:2",
			"protocol ip prio 5 u32 match ip sport 22 0xffff flowid 1:2",
			"protocol ipv6 prio 6 u32 match ip6 dport 22 0xffff flowid 1:2"}},
		{"u32 with hash tables", []string{"protocol ip prio 7 handle 2: u32 divisor 16",
			"protocol ip prio 7 u32 ht 2:5: match ip dst 10.0.0.5 flowid 1:2"}},
		{"flower, and chains", []string{"protocol ip prio 10 flower ip_proto udp dst_port 53 classid 1:2",
			"protocol ip prio 11 flower dst_ip 10.0.0.0/8 action goto chain 7",
			"protocol ip prio 12 chain 7 flower ip_proto tcp action pass"}},
		{"police", []string{
			"protocol ip prio 8 u32 match ip dport 9 0xffff police rate 1mbit burst 10k drop flowid 1:2",
			"protocol ip prio 13 flower ip_proto udp action police rate 5mbit burst 10k conform-exceed drop/pipe " +
				"action pass"}},
		{"mirred", []string{"protocol ip prio 14 flower src_ip 192.0.2.1 action mirred egress redirect dev lo"}},
		{"skbedit and gact", []string{
			"protocol ip prio 15 flower src_ip 192.0.2.2 action skbedit priority 1:2 pipe action drop"}},
		{"basic", []string{"protocol ip prio 20 basic match 'cmp(u8 at 9 layer 1 eq 17)' classid 1:2",
			"protocol ip prio 20 basic match 'u32(u32 0x0a000000 0xff000000 at 12)' classid 1:1"}},
		{"fw", []string{"protocol ip prio 21 handle 6 fw classid 1:2"}},
		{"bpf", []string{
			"protocol ip prio 22 bpf bytecode '4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0,' flowid 1:2"}},
		{"matchall", []string{"protocol all prio 30 matchall classid 1:1"}},
	}
}

// withFilters makes a queue that has them.
func withFilters(filters ...string) string {
	script := "tc qdisc replace dev $dev root handle 1: htb default 1 && tc class add dev $dev parent 1: classid 1:1 " +
		"htb rate 90mbit && tc class add dev $dev parent 1: classid 1:2 htb rate 10mbit"
	for _, f := range filters {
		script += " &&\ntc filter add dev $dev parent 1: " + f
	}
	return script
}

func (f filter) run(s *subject) {
	s.sh(withFilters(f.at...))
	before := s.look()
	s.sh("weir up --yes --runtime " + goal + " && " + inForce(goalRate) + " && weir down")
	s.same(asBefore, s.look(), before, "taken down")
	s.sh("weir up --runtime --timeout 1h " + goal + " && " + inForce(goalRate) + " && weir recover")
	s.same(asBefore, s.look(), before, "recovered")
}

// filtered has a queue with filters of each kind that comes back, and some with what does not.
func filtered(s *subject) {
	var all []string
	for _, f := range filters() {
		all = append(all, f.at...)
	}
	s.sh(withFilters(all...))
	before := s.look()
	s.sh("weir up --yes --runtime " + goal + " && " + inForce(goalRate) + " && weir down")
	s.same(asBefore, s.look(), before, "taken down")
	s.sh("weir up --runtime " + s.within(10) + goal +
		"; until_ '! tc qdisc show dev $dev | grep -q cake'; until_ '! systemctl list-units --all --no-legend " +
		"\"weir-revert*\" | grep -q .'; until_ 'weir status | grep \"^Put back\"'")
	s.same(asBefore, s.look(), before, "nobody confirmed")
	said := s.sh("$killat weir up --runtime --timeout 1h " + goal + " 2>&1 && weir recover")
	s.same(asBefore, s.look(), before, "recovered")
	match := regexp.MustCompile(`killat: (\d+) steps`).FindStringSubmatch(said)
	if match == nil {
		s.Fatalf("killat did not count:\n%s", said)
	}
	steps, _ := strconv.Atoi(match[1])
	for _, n := range []int{steps / 2, steps} {
		s.try(fmt.Sprintf("$killat -at %d weir up --runtime --timeout 1h %s 2>&1", n, goal))
		s.sh("weir recover")
		s.same(asBefore, s.look(), before, fmt.Sprintf("killed before step %d of %d", n, steps))
	}

	for _, queue := range []struct{ name, script string }{
		{"red", "tc qdisc replace dev $dev root handle 1: red limit 1M avpkt 1500 min 100K max 300K"},
		{"a flow filter", withFilters("protocol ip prio 3 handle 1 flow hash keys src,dst divisor 16 baseclass 1:1")},
		{"a shared action", "tc actions add action drop index 500 && " +
			withFilters("protocol ip prio 3 matchall action gact index 500")},
	} {
		s.sh("tc qdisc del dev $dev root 2>/dev/null; " + queue.script)
		before := s.look()
		s.sh(refused("weir plan " + goal))
		s.sh(refused("weir up --runtime --yes "+goal) + " && grep '^  try: if it need not come back: tc ' /run/err")
		s.same(asBefore, s.look(), before, queue.name+", refused")
		// The line that it names takes away what is in the way.
		s.holds(asPlanned, queue.name+", taken away",
			`eval "$(sed -n 's/^  try: if it need not come back: \(tc .*\), and then again$/\1/p' /run/err)" && `+
				"weir up --runtime --yes "+goal+" && "+inForce(goalRate))
		s.sh("weir down")
	}
}

func reconfigured(s *subject) {
	s.sh("weir up " + goal + " && weir confirm")
	again := map[Manager][]string{
		Networkd:       {"networkctl reload", "networkctl reconfigure $dev", "systemctl restart systemd-networkd"},
		NetworkManager: {"nmcli connection reload", "nmcli connection up uplink", "systemctl restart NetworkManager"},
		Ifupdown:       {"ifdown $dev; ifup $dev", "systemctl restart networking"},
	}[s.man]
	for _, command := range again {
		s.sh(command)
		s.settled()
		s.holds(asPlanned, command, "sleep 2; weir status && "+inForce(goalRate))
	}
}

// putBack waits until nobody has confirmed, and it is so.
const putBack = "until_ '! tc qdisc show dev $dev | grep -q cake'\n"

func readOnlyState(s *subject) {
	s.sh("mkdir -p /var/lib/weir && mount -t tmpfs none /var/lib/weir")
	before := s.look()
	s.sh("weir up " + s.within(10) + goal + " && mount -o remount,ro /var/lib/weir && nsenter -t $(systemctl show " +
		"-P MainPID 'weir-revert-*') -m mount -o remount,ro /var/lib/weir; true")
	s.sh(putBack)
	s.same(asBefore, s.look(), before, "read-only")
	s.sh("mount -o remount,rw /var/lib/weir; until_ 'weir recover >/dev/null; weir status | grep -q \"^Put back\"'")
	s.same(asBefore, s.look(), before, "read-only, and then not")
}

func replaced(s *subject) {
	before := s.look()
	s.sh("cp -p /usr/bin/weir /run/weir.kept; weir up " + s.within(10) + goal +
		"; rm /usr/bin/weir; cp /bin/false /usr/bin/weir")
	s.sh(putBack + "cp -p /run/weir.kept /usr/bin/weir.new && mv /usr/bin/weir.new /usr/bin/weir; until_ 'weir " +
		"status | grep -q \"^Put back\"'")
	s.same(asBefore, s.look(), before, "replaced")
}

func contained(s *subject) {
	before := s.look()
	// systemd does not answer whom it cannot see, and a process of our own would end with the namespace.
	s.sh(refused("unshare --pid --fork --mount-proc weir up --timeout 10s " + goal))
	s.same(asBefore, s.look(), before, "in a PID namespace")
}

// stoppedWith stops what weir up ran in, with all of its processes. A scope is what logind makes of a session, and
// stops when that ends and KillUserProcesses= says so.
func stoppedWith(s *subject) {
	const left = "sleep 7777" // by whoever ran weir up: it ends with what is stopped, or nothing was shown
	for _, c := range []struct{ what, unit, run string }{
		{"a service", "ran.service", "systemd-run --quiet --unit=ran.service"},
		{"a session's scope", "ran.scope", "systemd-run --quiet --scope --unit=ran.scope --slice=user-0.slice setsid"},
	} {
		before := s.look()
		s.sh("rm -f /run/ran; " + c.run + " bash -c 'setsid " + left + " & weir up " + s.within(whileLooking) + goal +
			" >/run/said 2>&1; echo $? >/run/ran; exec sleep 7000' >/run/started 2>&1 &\n" +
			"until_ '[ -s /run/ran ] || grep . /run/started'; cat /run/started /run/said; grep '^0$' /run/ran && " +
			inForce(goalRate) + " && pgrep -x -f '" + left + "' && systemctl stop " + c.unit + " && ! pgrep -x -f '" +
			left + "' && systemctl list-units --no-legend 'weir-revert*' | grep running")
		s.sh(putBack + "until_ '! systemctl list-units --all --no-legend \"weir-revert*\" | grep -q .'; until_ 'weir " +
			"status | grep -q \"^Put back\"'")
		s.same(asBefore, s.look(), before, c.what+" that was stopped")
	}
}

// loggedOut is a user's login by ssh where logind kills what a login leaves behind (logind.conf(5), KillUserProcesses).
func loggedOut(s *subject) {
	const left = "sleep 7777" // by the login: it ends with it, or nothing was shown
	s.sh(`mkdir -p /root/.ssh /run/systemd/logind.conf.d && ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
		printf '[Login]\nKillUserProcesses=yes\n' >/run/systemd/logind.conf.d/kill.conf
		systemctl restart systemd-logind && systemctl start ssh`)
	s.someone()
	before := s.look()
	s.sh("ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null someone@127.0.0.1 'setsid " + left +
		" </dev/null >/dev/null 2>&1 & echo secret | sudo -S -p \"\" weir up " + s.within(whileLooking) + goal +
		"' && " + inForce(goalRate) + " && until_ '! pgrep -x -f \"" + left + "\"' && " + inForce(goalRate) +
		" && systemctl list-units --no-legend 'weir-revert*' | grep running")
	s.sh(putBack + "until_ '! systemctl list-units --all --no-legend \"weir-revert*\" | grep -q .'; until_ 'weir " +
		"status | grep -q \"^Put back\"'")
	s.same(asBefore, s.look(), before, "a login that was killed")
}

// someone is a user with root's key, whom sudo asks for a password, in a shell that is Debian's plainest.
func (s *subject) someone() {
	s.sh(`useradd -m -s /bin/dash -G sudo someone && echo someone:secret | chpasswd
		install -d -o someone -m 700 /home/someone/.ssh
		install -o someone -m 600 /root/.ssh/id_ed25519.pub /home/someone/.ssh/authorized_keys`)
}

// elsewhere is a namespace that a container engine or ip-netns(8) keeps: what waits there can be started again.
func elsewhere(s *subject) {
	s.sh("ip netns add other && ip -n other link add wan0 type veth peer name wan1 && ip -n other link set wan0 up && " +
		"ip -n other link set wan1 up")
	before := s.look()
	look := "ip netns exec other sh -c 'tc qdisc show; sysctl net.ipv4.tcp_notsent_lowat'"
	found := s.sh(look)
	s.sh("ip netns exec other weir up --runtime --dev wan0 " + s.within(whileLooking) + goal +
		" && ip netns exec other tc qdisc show dev wan0 | grep -q cake && " +
		"kill -KILL $(systemctl show -P MainPID 'weir-revert-*')")
	s.sh("until_ '! ip netns exec other tc qdisc show dev wan0 | grep -q cake'; until_ '! systemctl list-units --all " +
		"--no-legend \"weir-revert*\" | grep -q .'")
	if now := s.sh(look); now != found {
		s.fails("there was\n%s\nand is\n%s", found, now)
	}
	s.same(asBefore, s.look(), before, "killed in another namespace")
	s.sh("ip netns del other")
}

// controlReboots has a congestion control in BPF kept over a reboot, and taken away from all network namespaces.
func clientsReboot(s *subject) {
	const shaped = "weir status && weir clients | grep -c ' bpf_shaper rate ' | grep -qx 2"
	found := s.look()
	s.sh("weir up " + clientGoal + " && weir confirm")
	s.persists()
	s.holds(asPlanned, "a rate for each client", shaped)
	s.reboot()
	s.holds(asPlanned, "after the reboot", shaped)
	s.sh("tc qdisc replace dev $dev root pfifo limit 7")
	s.holds(asPlanned, "another queue below it", "! weir status && weir up --yes && "+shaped)
	s.sh(s.down)
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.holds(asBefore, "no program is left", "! weir clients && ! dmesg | grep -E "+
		"'WARNING|BUG|Oops'")
}

func controlReboots(s *subject) {
	const chosen = `[ "$(sysctl -n net.ipv4.tcp_congestion_control)" = bpf_bbr ]`
	found := s.look()
	s.sh("weir up " + goal + " --cc bpf_bbr && weir confirm")
	s.persists()
	s.holds(asPlanned, "a network namespace that is new", inForce(goalRate)+" && "+chosen+` && ip netns add other &&
		[ "$(ip netns exec other sysctl -n net.ipv4.tcp_congestion_control)" = bpf_bbr ] && ip netns del other`)
	s.reboot()
	s.holds(asPlanned, "after the reboot", inForce(goalRate)+" && "+chosen+` && weir status &&
		[ -z "$(systemctl --failed --no-legend)" ]`)
	s.sh("ip netns add other")
	s.sh(s.down + ` && [ "$(ip netns exec other sysctl -n net.ipv4.tcp_congestion_control)" = cubic ] &&
		ip netns del other`)
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.holds(asBefore, "its name is gone", "! grep -q bpf_bbr /proc/sys/net/ipv4/tcp_available_congestion_control && "+
		"! dmesg | grep -E 'WARNING|BUG|Oops'")
}

// controlUpgraded has another version of weir's congestion control come while connections have the first, and carry on.
func controlUpgraded(s *subject) {
	const open = `systemd-run --quiet --unit=open bash -c 'exec 3<>/dev/tcp/127.0.0.1/2222 && read -r banner <&3 &&
		until [ -e /run/go ]; do sleep 0.5; done && echo SSH-2.0-test >&3 && head -c 100 <&3 >/run/answer; sleep 999' &&
		until_ "ss -Htin state established sport = :2222 | grep -q bpf_bbr"` + "\n"
	before := s.look()
	s.sh("systemctl start ssh && /usr/sbin/sshd -p 2222 -o LoginGraceTime=0 -o PidFile=/run/sshd-open.pid")
	s.sh("weir up " + goal + " --cc bpf_bbr && weir confirm && " + open)
	s.sh("cp " + otherWeir + " /usr/bin/weir.new && mv /usr/bin/weir.new /usr/bin/weir")
	s.holds(asPlanned, "the program is another", inForce(goalRate)+
		" && weir status | grep '^2 connections with bpf_bbr, 2 of them with another version'")
	s.sh("weir up " + goal + " --cc bpf_bbr && weir confirm")
	s.holds(asPlanned, "another version, beside open connections", inForce(goalRate)+` && touch /run/go &&
		until_ '[ -s /run/answer ]' && exec 4<>/dev/tcp/127.0.0.1/2222 && read -r banner <&4 &&
		weir status | grep '^4 connections with bpf_bbr, 2 of them with another version'`)
	s.sh("weir down && systemctl is-active --quiet open && ss -Htin state established sport = :2222 | grep bpf_bbr")
	s.same(asBefore, s.look(), before, "taken down beside open connections")
	s.sh("systemctl stop open && kill $(cat /run/sshd-open.pid)")
	s.holds(asBefore, "its name is gone", "! grep -q bpf_bbr /proc/sys/net/ipv4/tcp_available_congestion_control && "+
		"! dmesg | grep -E 'WARNING|BUG|Oops'")
}

// l4sReboots needs a kernel that takes a BPF qdisc.
func l4sReboots(s *subject) {
	found := s.look()
	s.sh("weir up " + goal + " --prefer l4s && weir confirm")
	s.persists()
	s.reboot()
	s.holds(asPlanned, "after the reboot", "weir status && tc qdisc show dev $dev | grep -q dualpi2")
	s.sh("weir up " + s.within(10) + earlier)
	s.sh("until_ 'tc qdisc show dev $dev | grep -q dualpi2'; until_ 'weir status | grep -q \"^Put back\"'")
	s.sh("weir down")
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
}

// overwritten has programs of others' at the hook, before the marker's and after it.
func overwritten(s *subject) {
	s.sh("systemctl start ssh")
	port, err := s.m.Forwarded()
	s.must(err)
	// answers is whether what the machine sends arrives.
	answers := func(what string) {
		s.Helper()
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		s.must(err)
		defer c.Close()
		s.must(c.SetDeadline(time.Now().Add(2 * time.Minute)))
		banner := make([]byte, 4)
		if _, err := io.ReadFull(c, banner); err != nil || string(banner) != "SSH-" {
			s.fails("%s: ssh does not answer: %q, %v", what, banner, err)
			return
		}
		s.ended(asPlanned)
	}
	const theirs = "/usr/lib/weir-test/foreign"
	attach := func(word int) string {
		return fmt.Sprintf("systemd-run --quiet --collect --unit=foreign --service-type=notify %s -word %d $dev && "+
			"[ $(%s -count $dev) = 2 ]\n", theirs, word, theirs)
	}
	found := s.look()
	s.sh("weir up " + goal + " --prefer l4s && weir confirm")
	answers("alone")
	for word := range 5 { // of skb->cb
		s.sh(attach(word))
		answers(fmt.Sprintf("cb[%d] is written", word))
		if word < 4 { // where the note is
			s.sh("weir dualpi2 show -s | tee /dev/stderr | grep -E '(unmarked|overwritten) [1-9]'")
		}
		s.sh("systemctl stop foreign && [ $(" + theirs + " -count $dev) = 0 ]")
	}
	s.sh(attach(1) + "weir status && weir down && [ $(" + theirs + " -count $dev) = 2 ]")
	s.same(asBefore, s.look(), found, "taken down beside theirs")
	s.sh("weir up --prefer l4s " + s.within(whileLooking) + goal + " && tc qdisc show dev $dev | grep dualpi2")
	answers("brought up beside theirs")
	s.sh("until_ '! tc qdisc show dev $dev | grep -q dualpi2'; until_ 'weir status | grep -q \"^Put back\"'; " +
		"[ $(" + theirs + " -count $dev) = 2 ]")
	s.same(asBefore, s.look(), found, "nobody confirmed it beside theirs")
	s.sh("systemctl stop foreign")
}

func twoUplinks(s *subject) {
	s.sh("ip link add lan0 type veth peer name lan1 && ip link set lan0 up && ip link set lan1 up")
	before := s.look()
	s.sh("weir up " + goal + " && weir confirm")
	one := s.look()
	s.sh("weir up --dev lan0 " + s.within(whileLooking) + earlier + " && weir status")
	s.sh("until_ '! tc qdisc show dev lan0 | grep -q cake'; until_ 'weir status | grep -q \"^Put back\"'")
	s.same(asBefore, s.look(), one, "nobody confirmed the second")
	s.sh("weir up --dev lan0 " + earlier + " && weir confirm && weir status && grep -q '^\\[lan0\\]' /etc/weir.toml")
	s.holds(asPlanned, "both", inForce(goalRate)+" && tc qdisc show dev lan0 | grep -q "+earlierRate)
	s.sh("! weir down && weir down --dev lan0")
	s.holds(asPlanned, "one down", inForce(goalRate)+" && ! tc qdisc show dev lan0 | grep -q cake")
	s.sh("weir up --yes " + goal + " --ingress 40mbit && weir up --yes --dev lan0 " + earlier + " --ingress 20mbit")
	s.holds(asPlanned, "what arrives at both", inForce(goalRate)+" && tc qdisc show dev ifb-weir | grep -q 34Mbit && "+
		"tc qdisc show dev ifb-weir2 | grep -q 17Mbit")
	s.sh("weir down --dev lan0")
	s.holds(asPlanned, "and at one", inForce(goalRate)+" && tc qdisc show dev ifb-weir | grep -q 34Mbit && "+
		"! ip link show ifb-weir2 2>/dev/null")
	s.sh("weir down")
	s.same(asBefore, s.look(), before, "both down")
}

func purged(s *subject) {
	if s.try("[ -e "+packageThere+" ]").Status != 0 {
		s.Skipf("skipped, not passed: %s: dist/ has no package (make dist)", s.Name())
	}
	// What of Weir's is where, and what dpkg knows of it; the tests' own things are not the package's.
	look := func() string {
		return s.look() + s.sh("find / -xdev -path '*weir*' -not -path '*weir-test*' -print0 | xargs -0 -r ls -ld; "+
			"dpkg -l weir 2>/dev/null | grep ' weir '; true")
	}
	s.sh("rm /usr/bin/weir")
	plain, before := s.look(), look()
	install := "dpkg --install " + packageThere
	s.sh(install + " && hash -r && weir up " + goal + " && weir confirm")
	s.holds(asPlanned, "upgraded while in force", install+" && "+inForce(goalRate))
	s.sh("dpkg --remove weir")
	s.same(asBefore, s.look(), plain, "removed while in force")
	s.sh("dpkg --purge weir")
	s.same(asBefore, look(), before, "purged after it was removed")

	s.sh(install + " && weir up " + goal + " && weir confirm && dpkg --purge weir")
	s.same(asBefore, look(), before, "purged while in force")
}

// Where what some faults need is laid: the Debian package, if there is one, and a weir with another version of its
// congestion control.
const (
	packageThere = "/usr/lib/weir-test/weir.deb"
	otherWeir    = "/usr/lib/weir-test/weir-other"
)
