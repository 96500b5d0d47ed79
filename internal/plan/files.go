// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"weir/internal/bbr"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/kernel"
	"weir/internal/qdisc"
)

// keep adds the files that bring what is planned back after a reboot, in the order in which they are to be written:
// first what looks after the rest, so that no power cut leaves files that nobody would look at. It is the last step of
// every plan, and of one that changes nothing there is nothing to keep.
//
// None is for systemd-networkd, though it has words for a queue (systemd.network(5)): on a kernel without that queue it
// gives the link up, address and all, and of CAKE's intervals it sets one alone. It leaves a queue alone that it does
// not know.
//
// No file for modules-load.d(5) is among them. The kernel loads a queueing discipline or congestion control when it is
// asked for. A list may name a module that the next kernel does not have, and that boot is a failed one.
func keep(p *Plan, drafts []*draft) {
	lasting := slices.DeleteFunc(slices.Clone(drafts), func(d *draft) bool { return d.Goal.Runtime || d.Goal.Only })
	if !slices.ContainsFunc(lasting, func(d *draft) bool { return len(d.Changes) > 0 }) {
		return
	}
	// Which goal was asked for last makes no other file.
	slices.SortFunc(lasting, func(a, b *draft) int { return strings.Compare(a.Goal.Dev, b.Goal.Dev) })
	k := &keeper{Plan: p, facts: lasting[0].facts}
	switch {
	case k.facts.Files == nil && k.facts.Hidden:
		k.warn("reboot", "what is set ends with it: which network namespace process 1 is in cannot be read "+
			"(/proc/1/ns/net)")
		return
	case k.facts.Files == nil:
		k.warn("reboot", "what is set ends with it: this is a network namespace of its own, or a journal elsewhere "+
			"than in /var/lib/weir")
		return
	}
	starter, known := host.StarterOf(k.facts.Init)
	if !known {
		k.warn("reboot", "what is set ends with it: this host has neither systemd nor OpenRC. Let its start run:  "+
			"weir up --boot, with the goal in %s", host.GoalFile)
		return
	}
	planned := slices.Clone(p.Changes)
	program := k.starts(starter)
	if slices.ContainsFunc(lasting, func(d *draft) bool { return d.Goal.Follow != "" }) {
		follow := regular(followUnit(program, k.facts.Forwards()))
		if k.facts.Init == host.OpenRC {
			follow = script(followScript(program))
		}
		k.file(starter.Follow, follow, "follows the rate that moves: weir follow")
		k.file(starter.FollowLink, host.File{Kind: host.Symlink, Text: starter.Follow}, "starts that at every boot")
	}
	k.rules(lasting)
	var goals []Goal
	for _, d := range lasting {
		goals = append(goals, d.Goal)
	}
	if now := k.facts.Files[host.GoalFile]; !Says(now, goals...) {
		k.file(host.GoalFile, regular(goalFile(goals)), "the goal")
	}
	if text := sysctlFile(planned, lasting); text != "" {
		k.file(host.SysctlFile, regular(text), "these settings, from the start of a boot")
		k.Considered = append(k.Considered, Overruled(*p, k.facts)...)
	}
}

// keeper is a plan to which the files that keep it are added.
type keeper struct {
	*Plan
	facts host.Facts
}

// starts is for what brings the goal up at a boot. It returns which program that is.
func (k *keeper) starts(s host.Starter) (program string) {
	file := s.File
	if k.facts.Init == host.Systemd && k.facts.Files[host.PackageUnit].Kind == host.Regular {
		file, program = host.PackageUnit, packageProgram
	} else {
		program = k.facts.UnitProgram // whichever copy of this one that is
		if program == "" {
			program, k.NotPersistent = k.facts.Program.Path, cannotStart(k.facts.Program)
		}
		unit := regular(Unit(program))
		if k.facts.Init == host.OpenRC {
			unit = script(bootScript(program))
		}
		k.file(file, unit, "brings the goal up after a boot: weir up --boot")
	}
	k.file(s.Link, host.File{Kind: host.Symlink, Text: file}, "starts that at every boot")
	own := k.facts.Files[host.UnitFile]
	if k.facts.Init == host.Systemd &&
		(own == host.File{Kind: host.Symlink, Text: "/dev/null"} || own.Kind == host.Regular && own.Text == "") {
		k.NotPersistent = &hint.Error{What: "weir.service is masked, so no boot would bring the goal up",
			Try: "systemctl unmask weir.service"}
	}
	return program
}

// warn adds what a person has to know before.
func (k *keeper) warn(subject, text string, args ...any) {
	k.Considered = append(k.Considered, warning(subject, text, args...))
}

func (k *keeper) rules(drafts []*draft) {
	if !k.facts.Udev || k.facts.Init != host.Systemd { // udev would wait for a service of OpenRC's
		k.warn(host.UdevFile, "not written: it needs udev and systemd, so a device that comes later is not noticed")
		return
	}
	for _, d := range drafts {
		if !plainName.MatchString(d.link.Name) {
			k.NotPersistent = &hint.Error{What: fmt.Sprintf("%q cannot be written in a udev rule", d.link.Name),
				Try: "rename the device"}
			return
		}
	}
	k.file(host.UdevFile, regular(udevRules(drafts)), "and whenever the device appears, under its name or another")
}

// cannotStart is why a unit cannot start a program: nil if it can.
func cannotStart(p host.Program) *hint.Error {
	const try = "copy it to /usr/local/bin and run it from there"
	ephemeral := func(dir string) bool { return strings.HasPrefix(p.Path, dir+"/") }
	switch {
	case slices.ContainsFunc([]string{"/tmp", "/run", "/dev", "/proc"}, ephemeral):
		return &hint.Error{What: fmt.Sprintf(
			"this program is %s, which no reboot leaves there, and it has to bring the goal up after one", p.Path),
			Try: try}
	case !plainPath.MatchString(p.Path):
		return &hint.Error{What: fmt.Sprintf("the path of this program, %q, cannot be written in a unit", p.Path),
			Try: try}
	case !p.RootOnly:
		return &hint.Error{What: fmt.Sprintf(
			"root would run %s at every boot, and others than root can put another program there", p.Path), Try: try}
	}
	return nil
}

// What can stand in a unit's ExecStart and in a udev rule as it is. Neither expands any of it, or takes it for a
// pattern.
var (
	plainPath = regexp.MustCompile(`^/[\w./+@-]+$`)
	plainName = regexp.MustCompile(`^[\w.+@-]+$`)
)

func (k *keeper) file(name string, want host.File, reason string) {
	now := k.facts.Files[name]
	if now.Kind == host.Other {
		k.NotPersistent = &hint.Error{
			What: name + " is no file that could be put back, so the goal would not outlast a reboot",
			Try:  "move it away"}
		return
	}
	if now != want {
		k.Changes = append(k.Changes, Change{Target: kernel.Target{Kind: kernel.File, Name: name},
			Old: kernel.Content{File: now}, New: kernel.Content{File: want}, Reason: reason})
	}
}

func regular(text string) host.File { return host.File{Kind: host.Regular, Mode: 0o644, Text: text} }

func script(text string) host.File { return host.File{Kind: host.Regular, Mode: 0o755, Text: text} }

// By their first lines files are known for Weir's.
const (
	stateDir       = "/var/lib/weir" // of the journal
	packageProgram = "/usr/bin/weir" // of the unit that a package brings
	header         = host.FirstLine + "# To see whether it is in force: weir status. To undo it all: weir down.\n"
)

// Sandbox is what Weir's services may do, as lines of a unit (systemd.exec(5)): see all, and change the network, its
// settings, and the files that keep them; state is the directory of the journal. The kernel loads modules by itself.
func Sandbox(program, state string) []string { return sandbox(program, state, "", "") }

// sandbox adds capabilities and address families to what each service has.
func sandbox(program, state, capabilities, families string) []string {
	home, tmp := "yes", "yes"
	for _, path := range []string{program, state} {
		switch top := strings.SplitN(path+"//", "/", 3)[1]; {
		case top == "home", top == "root", strings.HasPrefix(path, "/run/user/"):
			home = "read-only"
		case top == "tmp", strings.HasPrefix(path, "/var/tmp/"):
			tmp = "no"
		}
	}
	return []string{
		// Besides the network's: BPF queues, files of whatever owner, and a look at the namespaces of process 1.
		"CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_ADMIN CAP_BPF CAP_SYS_PTRACE CAP_DAC_OVERRIDE CAP_CHOWN " +
			"CAP_FOWNER" + capabilities,
		"NoNewPrivileges=yes",
		"ProtectSystem=strict",
		"ReadWritePaths=-/etc -" + state,
		"RuntimeDirectory=weir", // which device is whose
		"RuntimeDirectoryPreserve=yes",
		"ProtectHome=" + home,
		"PrivateTmp=" + tmp,
		"PrivateMounts=yes",
		"ProtectProc=invisible",
		"PrivateDevices=yes",
		"ProtectClock=yes",
		"ProtectControlGroups=yes",
		"ProtectHostname=yes",
		"ProtectKernelLogs=yes",
		"LockPersonality=yes",
		"MemoryDenyWriteExecute=yes",
		"RestrictAddressFamilies=AF_UNIX AF_NETLINK" + families,
		"RestrictNamespaces=net",
		"RestrictRealtime=yes",
		"RestrictSUIDSGID=yes",
		"SystemCallArchitectures=native",
		"SystemCallFilter=@system-service bpf unshare setns",
		"SystemCallFilter=~@resources @debug",
		"SystemCallErrorNumber=EPERM",
		"IPAddressDeny=any",
		"KeyringMode=private",
		"UMask=0077",
	}
}

// Unit is the service that brings the goal up after a boot (systemd.service(5)). It keeps nothing waiting: what it sets
// can be set at any time.
func Unit(program string) string {
	return header + `
[Unit]
Description=Weir: the goal in /etc/weir.toml
# The network need not be there, but where it is being set up the device is known whole after that: its speed, its MTU, its queue.
After=systemd-sysctl.service network.target network-online.target networking.service systemd-networkd.service NetworkManager.service
RequiresMountsFor=` + stateDir + `
# Each device that appears may start it.
StartLimitIntervalSec=0
Documentation=man:weir(8)

[Service]
Type=oneshot
# Active for as long as the goal is kept. Whether it is in force now:  weir status
RemainAfterExit=yes
ExecStart=` + program + ` up --boot
SyslogIdentifier=weir
TimeoutStartSec=180
# It ends what it has begun, and is then started again.
TimeoutStopSec=15
StateDirectory=weir
` + strings.Join(Sandbox(program, stateDir), "\n") + `

[Install]
WantedBy=multi-user.target
`
}

// followUnit is the service that follows rates which move. On a host that forwards it may see packets, too: nothing
// else tells RTTs of connections that pass.
func followUnit(program string, forwards bool) string {
	lines := sandbox(program, stateDir, "", "")
	if forwards {
		lines = sandbox(program, stateDir, " CAP_NET_RAW", " AF_PACKET")
	}
	return header + `
[Unit]
Description=Weir: the shaper's rate follows the link
After=weir.service
StartLimitIntervalSec=0
Documentation=man:weir-follow(8)

[Service]
ExecStart=` + program + ` follow
SyslogIdentifier=weir-follow
Restart=always
RestartSec=10
StateDirectory=weir
` + strings.Join(lines, "\n") + `

[Install]
WantedBy=multi-user.target
`
}

// bootScript is the service of OpenRC that brings the goal up after a boot (openrc-run(8)).
func bootScript(program string) string {
	return host.ScriptLine + header + `
description="Weir: the goal in /etc/weir.toml"

depend() {
	use localmount net
	after sysctl
}

start() {
	ebegin "Bringing up weir's goal"
	` + program + ` up --boot >/dev/null # the log has it
	eend $?
}

# What is set stays. To undo it all:  weir down
stop() {
	return 0
}
`
}

// followScript is the service of OpenRC that follows rates which move (supervise-daemon-guide).
func followScript(program string) string {
	return host.ScriptLine + header + `
description="Weir: the shaper's rate follows the link"
supervisor="supervise-daemon"
command="` + program + `"
command_args="follow"
respawn_delay=10
respawn_max=0

depend() {
	after weir
}
`
}

// Packaged reports whether a file may be a package's: its program starts it, where packages have their scripts, too.
func Packaged(f host.File) bool {
	return f.Text == bootScript(packageProgram) || f.Text == followScript(packageProgram)
}

// udevRules start the unit when a device appears. KERNEL is its name as it appears or after it was renamed, NAME the
// one that it is about to get. The address finds it when it has got another. Tunnels come and go with their programs,
// and may have any name: they are known by their kind. The rules say nothing of those that are up now, or a boot before
// them would forget them.
func udevRules(drafts []*draft) string {
	const then = `ENV{.WEIR}="1"` + "\n"
	text := header + "\nSUBSYSTEM!=\"net\", GOTO=\"weir_end\"\nACTION==\"remove\", GOTO=\"weir_end\"\n"
	var carries []Kind
	for _, d := range drafts {
		l := d.link
		text += fmt.Sprintf("KERNEL==%q, %sNAME==%q, %s", l.Name, then, l.Name, then)
		if l.MAC != "" && l.Kind == "" { // what is on top of a card may have its address, too
			text += fmt.Sprintf("ATTR{address}==%q, %s", l.MAC, then)
		}
		carries = append(carries, d.Goal.Carries.list()...)
	}
	if slices.Contains(carries, WireGuard) {
		text += `ENV{DEVTYPE}=="wireguard", ` + then
	}
	if slices.Contains(carries, Tunnel) {
		text += `ATTR{tun_flags}=="?*", ` + then
	}
	// Again, for it may have been started before.
	return text + `ENV{.WEIR}=="1", RUN+="/usr/bin/systemctl --no-block restart weir.service"` +
		"\nLABEL=\"weir_end\"\n"
}

// sysctlFile is for those settings that a goal asks for which is kept.
func sysctlFile(changes []Change, kept []*draft) string {
	text := ""
	for _, c := range changes {
		asks := func(d *draft) bool { _, asks := d.wants[c.Name]; return asks }
		// Before weir up --boot has registered it a name is unknown, and systemd-sysctl would fail.
		if c.New == kernel.Value(kernel.Setting(bbr.Name)) {
			continue
		}
		if c.Kind == kernel.Sysctl && slices.ContainsFunc(kept, asks) {
			text += c.Name + " = " + c.New.String() + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return header + "\n" + text
}

// rivals names who else sets another queue on a device, or the same with another rate.
func rivals(dev string, want kernel.Queue, f host.Facts) (notes []Note) {
	link, known := f.Link(dev)
	if !known {
		link.Name = dev
	}
	for _, w := range f.Deep.Writers {
		if w.Qdisc == "" || w.By == "modules-load" || f.Qdiscs[w.Qdisc] == host.No || !w.MayMatch(link) {
			continue
		}
		rate := slices.ContainsFunc(want.Stack, func(s qdisc.Spec) bool { return qdisc.Rate(s) == w.Rate })
		if !want.Stack.Has(w.Qdisc) || w.Rate != 0 && !rate {
			notes = append(notes, warning(dev, "%s, %s, sets %s %s: remove that line, or it may take the place of %s",
				w.By, w.Where(), w.Queue(), w.When(), want))
		}
	}
	return notes
}

// Overruled names the lines that set at boot, after the file that keeps a plan, something else than the plan does.
func Overruled(p Plan, f host.Facts) (notes []Note) {
	if f.Deep == nil {
		return nil
	}
	for _, c := range p.Changes {
		if queue, ok := c.New.(kernel.Queue); ok && c.Kind == kernel.Root {
			notes = append(notes, rivals(c.Name, queue, f)...)
		}
		want, ok := c.New.(kernel.Setting)
		if !ok {
			continue
		}
		s, set := f.Deep.AtBoot(c.Name)
		later := s.Name > path.Base(host.SysctlFile) || s.Name == "" && s.File != host.CommandLine
		if !set || !later || f.Leaves(c.Name, s.Value, string(want)) {
			continue
		}
		says := fmt.Sprintf("%s says %s and is read later at boot", s.Where(), s.Value)
		if why := f.Takes(c.Name, s.Value, string(want)).Refused; why != "" {
			says = fmt.Sprintf("the kernel refuses %s in %s, which is read later at boot: %s", s.Value, s.Where(), why)
		}
		notes = append(notes, Note{Subject: c.Name, Text: fmt.Sprintf("%s; weir.service then sets %s", says, want)})
	}
	return notes
}
