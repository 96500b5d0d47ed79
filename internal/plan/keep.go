// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"weir/internal/host"
)

// keep adds the files that bring what is planned back after a reboot, in the order in which they are to be written: first what looks after
// the rest, so that no power cut leaves files that nobody would look at. It is the last step of every plan, and of one that changes nothing
// there is nothing to keep.
//
// None is for systemd-networkd, though it has words for a queue (systemd.network(5)): on a kernel without that queue it gives the link up, address and
// all, and of CAKE's intervals it sets one alone. It leaves a queue that it was told nothing of as it is.
//
// No file for modules-load.d(5) is among them. The kernel loads a queueing discipline or congestion control when it is asked for, and a
// list that names a module which the next kernel does not have makes that boot a failed one.
func keep(d *draft) {
	switch {
	case len(d.Changes) == 0 || d.Goal.Runtime || d.Goal.Only:
		return
	case d.facts.Files == nil:
		d.note("reboot", "what is set ends with it: this is a network namespace of its own, or a journal elsewhere than in /var/lib/weir")
		return
	case d.facts.Init != host.Systemd:
		d.note("reboot", "what is set ends with it: this host has no systemd. Let its start run:  weir up --boot, with the goal in %s", host.GoalFile)
		return
	}
	planned := slices.Clone(d.Changes)
	unit := host.UnitFile
	if d.facts.Files[host.PackageUnit].Kind == host.Regular {
		unit = host.PackageUnit
	} else {
		program := d.facts.UnitProgram // whichever copy of this one that is
		if program == "" {
			program, d.Unkept = d.facts.Program.Path, cannotStart(d.facts.Program)
		}
		d.file(unit, regular(Unit(program)), "brings the goal up after a boot: weir up --boot")
	}
	d.file(host.UnitLink, host.File{Kind: host.Symlink, Text: unit}, "starts that at every boot")
	switch {
	case !d.facts.Udev:
		d.note(host.UdevFile, "not written: there is no udev here, so a device that comes later is not noticed")
	case !plainName.MatchString(d.link.Name):
		d.Unkept = &Refusal{What: fmt.Sprintf("%q cannot be written in a udev rule", d.link.Name), Try: "rename the device; or --runtime: what is set ends with a reboot"}
	default:
		d.file(host.UdevFile, regular(udevRules(d.link, d.Goal.Carries)),
			"and whenever the device appears, under its name or another")
	}
	if now := d.facts.Files[host.GoalFile]; !Says(now, d.Goal) {
		d.file(host.GoalFile, regular(goalFile(d.Goal)), "the goal")
	}
	if text := sysctlFile(planned); text != "" {
		d.file(host.SysctlFile, regular(text), "these settings, from the start of a boot")
		d.Considered = append(d.Considered, Overruled(d.Plan, d.facts)...)
	}
}

// cannotStart is why a unit cannot start a program: nil if it can.
func cannotStart(p host.Program) *Refusal {
	const try = "copy it to /usr/local/bin and run it from there; or --runtime: what is set ends with a reboot"
	ephemeral := func(dir string) bool { return strings.HasPrefix(p.Path, dir+"/") }
	switch {
	case slices.ContainsFunc([]string{"/tmp", "/run", "/dev", "/proc"}, ephemeral):
		return &Refusal{What: fmt.Sprintf("this program is %s, which no reboot leaves there, and it has to bring the goal up after one", p.Path), Try: try}
	case !plainPath.MatchString(p.Path):
		return &Refusal{What: fmt.Sprintf("the path of this program, %q, cannot be written in a unit", p.Path), Try: try}
	case !p.RootOnly:
		return &Refusal{What: fmt.Sprintf("root would run %s at every boot, and others than root can put another program there", p.Path), Try: try}
	}
	return nil
}

// What can stand in a unit's ExecStart and in a udev rule as it is, with nothing that either would expand or take for a pattern.
var (
	plainPath = regexp.MustCompile(`^/[\w./+@-]+$`)
	plainName = regexp.MustCompile(`^[\w.+@-]+$`)
)

func (d *draft) file(name string, want host.File, reason string) {
	now := d.facts.Files[name]
	if now.Kind == host.Other {
		d.note(name, "is there and is no file that could be put back: not written, and the goal may not outlast a reboot")
		return
	}
	if now != want {
		d.Changes = append(d.Changes, Change{Target: Target{File: name}, Old: now.String(), New: want.String(), Reason: reason})
	}
}

func regular(text string) host.File { return host.File{Kind: host.Regular, Mode: 0o644, Text: text} }

// By their first lines files are known for Weir's.
const (
	stateDir = "/var/lib/weir" // of the journal
	goalLine = "# The goal of weir. To change it edit it and run:  weir up\n"
	header   = host.FirstLine + "# To see whether it is in force: weir status. To undo it all: weir down.\n"
)

// Unit is the service that brings the goal up after a boot (systemd.service(5)). It keeps nothing waiting: what it sets can be set at any time.
func Unit(program string) string {
	return header + `
[Unit]
Description=Weir: the goal in /etc/weir.toml
# The network need not be there, but where it is being set up the device is known whole after that: its speed, its MTU, its queue.
After=systemd-sysctl.service network.target network-online.target networking.service systemd-networkd.service NetworkManager.service
RequiresMountsFor=` + stateDir + `
# Each device that appears may start it.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=` + program + ` up --boot
SyslogIdentifier=weir
TimeoutStartSec=180

[Install]
WantedBy=multi-user.target
`
}

// udevRules start the unit when the device appears. KERNEL is its name as it appears or after it was renamed, NAME
// the one that it is about to get, and the address finds it when it has got another. Tunnels come and go with their
// programs, and may have any name: they are known by their kind. The rules say nothing of those that are up now, or
// a boot before them would forget them.
func udevRules(l host.Link, carries Kinds) string {
	then := `TAG+="systemd", ENV{SYSTEMD_WANTS}+="weir.service"` + "\n"
	text := header + "\nSUBSYSTEM!=\"net\", GOTO=\"weir_end\"\nACTION==\"remove\", GOTO=\"weir_end\"\n"
	text += fmt.Sprintf("KERNEL==%q, %sNAME==%q, %s", l.Name, then, l.Name, then)
	if l.MAC != "" && l.Kind == "" { // what is on top of a card may have its address, too
		text += fmt.Sprintf("ATTR{address}==%q, %s", l.MAC, then)
	}
	if carries.Has(WireGuard) {
		text += `ENV{DEVTYPE}=="wireguard", ` + then
	}
	if carries.Has(Tunnel) {
		text += `ATTR{tun_flags}=="?*", ` + then
	}
	return text + "LABEL=\"weir_end\"\n"
}

func goalFile(g Goal) string {
	text, err := toml.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("plan: a goal that TOML cannot write: %v", err)) // it has none but strings, booleans and texts
	}
	return goalLine + "# To see whether it is in force:  weir status. To undo it all and remove this file:  weir down\n" + string(text)
}

// ParseGoal reads what goalFile writes, and what a person has made of it.
func ParseGoal(text string) (g Goal, err error) {
	text = strings.TrimPrefix(text, "\ufeff")
	d := toml.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	bad := func(line int, what string) error {
		return &Refusal{What: fmt.Sprintf("%s:%d: %s", host.GoalFile, line, what), Usage: true,
			Try: `as in: dev = "eth0" and rate = "50mbit", each on a line; weir up --help has all the names`}
	}
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch err := d.Decode(&g); {
	case errors.As(err, &strict):
		line, _ := strict.Errors[0].Position()
		return g, bad(line, fmt.Sprintf("unknown key %q", strings.Join(strict.Errors[0].Key(), ".")))
	case errors.As(err, &decode):
		line, _ := decode.Position()
		return g, bad(line, strings.TrimPrefix(decode.Error(), "toml: "))
	case err != nil:
		return g, bad(0, err.Error())
	}
	// A bare number is one to TOML, whatever its unit would have been.
	var raw map[string]any
	_ = toml.Unmarshal([]byte(text), &raw)
	for _, key := range []string{"rate", "ingress", "rtt", "loss"} {
		if v, there := raw[key]; there && reflect.TypeOf(v).Kind() != reflect.String {
			line := 1
			if at := regexp.MustCompile(`(?m)^\s*"?` + key + `"?\s*=`).FindStringIndex(text); at != nil {
				line += strings.Count(text[:at[1]], "\n")
			}
			return g, bad(line, fmt.Sprintf("%s = %v has no unit: write it with one, in quotes", key, v))
		}
	}
	var refusal *Refusal
	if err := g.Check(); errors.As(err, &refusal) {
		return g, &Refusal{What: host.GoalFile + ": " + refusal.What, Try: refusal.Try, Usage: true}
	}
	return g, nil
}

// Says tells whether a file is a goal's already, in whatever words. What it leaves to be found out is as it was found.
func Says(f host.File, g Goal) bool {
	if f.Kind != host.Regular {
		return false
	}
	written, err := ParseGoal(f.Text)
	if err != nil || written == (Goal{}) {
		return false
	}
	written.Dev, written.RTT, written.Runtime = cmp.Or(written.Dev, g.Dev), cmp.Or(written.RTT, g.RTT), g.Runtime
	if written.Role == "relay" {
		written.Carries = cmp.Or(written.Carries, g.Carries)
	}
	return written == g
}

// IsOurs tells whether a file is one of Weir's by what it says of itself.
func IsOurs(f host.File) bool {
	return f.Kind == host.Regular && (strings.HasPrefix(f.Text, host.FirstLine) || strings.HasPrefix(f.Text, goalLine))
}

func sysctlFile(changes []Change) string {
	text := ""
	for _, c := range changes {
		if c.Sysctl != "" {
			text += c.Sysctl + " = " + c.New + "\n"
		}
	}
	if text == "" {
		return ""
	}
	return header + "\n" + text
}

// Overruled names the lines that set at boot, after the file that keeps a plan, something else than the plan does.
func Overruled(p Plan, f host.Facts) (notes []Note) {
	if f.Deep == nil {
		return nil
	}
	for _, c := range p.Changes {
		if s, ok := f.Deep.AtBoot(c.Sysctl); ok && c.Sysctl != "" && !s.Sets(c.New) && s.Name > path.Base(host.SysctlFile) {
			notes = append(notes, Note{c.Sysctl, fmt.Sprintf("%s:%d says %s and is read later at boot; weir.service then sets %s again", s.File, s.Line, s.Value, c.New)})
		}
	}
	return notes
}
