// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import "fmt"

// openRCFaults are those of a host without systemd, whose services OpenRC starts. It has Weir's scripts where the
// .apk puts them.
func openRCFaults() []fault {
	one := []Manager{Ifupdown}
	list := []fault{
		{name: "nobody confirms", run: withoutSystemd},
		{name: "confirmed, then a reboot; the service is stopped, and started", run: openRCReboots},
		{name: "a reboot while not confirmed", run: openRCUnconfirmed},
		{name: "a power cut while not confirmed", run: openRCPowerCut},
		{name: "a rate is followed, and the follower killed", run: openRCFollows},
		{name: "by the program alone, which writes the scripts", run: openRCAlone},
	}
	for i := range list {
		list[i].name, list[i].on, list[i].kind = "OpenRC: "+list[i].name, one, OpenRC
	}
	return list
}

// The timer is a process in a session of its own. Within a second it notices by itself that it has nothing to do.
const (
	timerRuns  = "pgrep -f -- '--unconfirmed.*--detached'"
	timerEnded = "until_ '! pgrep -f -- \"--unconfirmed.*--detached\" >/dev/null'\n"
)

func withoutSystemd(s *subject) {
	before := s.look()
	s.sh("weir up " + s.within(whileLooking) + goal + "; " + inForce(goalRate) + " && " + timerRuns)
	s.sh(putBack + timerEnded + "until_ 'weir status | grep \"^Put back\"'")
	s.same(asBefore, s.look(), before, "nobody confirmed")

	s.sh("weir up " + earlier + " && weir confirm\n" + timerEnded)
	before = s.look()
	s.sh("weir up " + s.within(10) + goal)
	s.sh("until_ 'tc qdisc show dev $dev | grep -q " + earlierRate + "'\n" + timerEnded + "weir status")
	s.same(asBefore, s.look(), before, "nobody confirmed the second goal")
}

func openRCReboots(s *subject) {
	found := s.look()
	s.sh("weir up --yes " + goal + " && [ $(readlink /etc/runlevels/default/weir) = /etc/init.d/weir ]")
	s.openRCReboot()
	s.holds(asPlanned, "after the reboot", inForce(goalRate)+" && rc-service weir status && "+
		"rc-status default | grep -E 'weir +\\[ +started'")
	s.sh("rc-service weir stop")
	s.holds(asPlanned, "the service is stopped, which changes nothing", inForce(goalRate)+
		" && ! rc-service weir status")
	s.sh("tc qdisc del dev $dev root && rc-service weir start")
	s.holds(asPlanned, "the service is started", inForce(goalRate)+" && rc-service weir status")
	s.sh("weir down && ! [ -e /etc/runlevels/default/weir ]")
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.openRCReboot()
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "a reboot later")
}

// openRCReboot ends with nothing that failed at the boot.
func (s *subject) openRCReboot() {
	s.Helper()
	s.must(s.m.Reboot(s.ctx))
	s.settled()
	s.sh("! rc-status --crashed | grep . && ! rc-status --all | grep -E 'weir.*(crashed|stopped)'")
}

func openRCUnconfirmed(s *subject) {
	found := s.look()
	s.sh("weir up --timeout 1h " + goal)
	s.openRCReboot()
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "not confirmed")

	s.must(s.m.Reset(s.ctx, Booted))
	s.sh("weir up " + earlier + " && weir confirm")
	s.sh("weir up --timeout 1h " + goal)
	s.openRCReboot()
	s.holds(asBefore, "the goal confirmed earlier", inForce(earlierRate))
}

func openRCPowerCut(s *subject) {
	found := s.look()
	s.sh("weir up --timeout 1h " + goal)
	s.must(s.m.PowerCut(s.ctx))
	s.settled()
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "the power was cut")
}

func openRCFollows(s *subject) {
	const at = "until_ 'weir status | grep -q \"^Followed:  %s \"' && weir status"
	found := s.look()
	s.sh("weir up --rtt 48.3ms --rate 20mbit..100mbit && weir confirm")
	s.holds(asPlanned, "followed once confirmed", fmt.Sprintf(at, "19.95mbit")+" && rc-service weir-follow status")
	s.sh("rc-service weir-follow stop; tc qdisc change dev $dev root cake bandwidth 33mbit")
	s.holds(asPlanned, "another rate, and nobody follows", "weir status | grep 'does not run: the rate stays 33mbit'"+
		" && weir status | grep 'To start it: *rc-service weir-follow start$'")
	s.sh("rc-service weir-follow start")
	s.holds(asPlanned, "followed from there", fmt.Sprintf(at, "33mbit"))
	s.sh("pkill -KILL -x -f '[^ ]*weir follow'")
	s.holds(asPlanned, "killed", "weir status && tc qdisc show dev $dev | grep 'bandwidth 33Mbit'")
	s.holds(asPlanned, "started again", fmt.Sprintf(at, "33mbit"))
	s.openRCReboot()
	s.holds(asPlanned, "after the reboot", fmt.Sprintf(at, "19.95mbit"))
	s.sh("weir down")
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.holds(asBefore, "the follower has ended", "until_ '! pgrep -x -f \"[^ ]*weir follow\"'")
}

func openRCAlone(s *subject) {
	const followed = "until_ 'weir status | grep -q \"^Followed:  19.95mbit \"'"
	s.sh("mv /usr/bin/weir /usr/local/bin/weir; rm /etc/init.d/weir /etc/init.d/weir-follow; hash -r")
	found := s.look()
	s.sh("weir up --rtt 48.3ms --rate 20mbit..100mbit && weir confirm && grep /usr/local/bin/weir /etc/init.d/weir")
	s.openRCReboot()
	s.holds(asPlanned, "after the reboot", followed+" && weir status && rc-service weir status && "+
		"rc-service weir-follow status")
	const down = "weir down; until_ '! pgrep -x -f \"[^ ]*weir follow\"'"
	s.sh(down)
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down after the reboot")
	s.sh("weir up --rtt 48.3ms --rate 20mbit..100mbit && weir confirm")
	s.holds(asPlanned, "brought up anew", followed+"; rc-service weir-follow status")
	s.sh(down)
	s.same(asBefore, acrossBoots(s.look()), acrossBoots(found), "taken down anew")
}
