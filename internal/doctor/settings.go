// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// checkOverriddenSettings finds lines that somebody has written and another file undoes.
func checkOverriddenSettings(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.Sysctls)) {
		wins, ok := p.deep.AtBoot(name)
		losers := p.losers(wins)
		if !ok || len(losers) == 0 || p.Takes(name, wins.Value, p.Sysctls[name].Value).Refused != "" {
			continue
		}
		among := "at boot"
		if _, stays := p.otherSetters(name); len(stays) > 0 {
			among = "among what the boot reads"
		}
		found = append(found, Finding{
			Code: "setting-set-twice", Severity: Notable,
			Plain: "Files on this server disagree about a setting: " + text.Short(name) + ".",
			Title: text.Short(name) + " is set by several, to different values.",
			Seen: fmt.Sprintf("%s: %s wins %s; against it %s. Now: %s.", wins.Where(), wins.Value, among,
				strings.Join(losers, "; "), p.Sysctls[name].Value),
			Why:    p.winnerText(name),
			Remark: "remove all lines but one",
		})
	}
	return found
}

// winnerText says which of several lines of a setting is in force in the end.
func (p *patient) winnerText(sysctl string) string {
	yields, stays := p.otherSetters(sysctl)
	wins, _ := p.deep.AtBoot(sysctl)
	late := slices.ContainsFunc(stays, func(w host.Writer) bool { return w.Yields })
	switch {
	case len(yields) > 0 && len(stays) == 0:
		return "TuneD applies the files of sysctl.d again after its own (reapply_sysctl), so these win."
	case len(stays) == 0:
		return "The line that is read last wins."
	case late && wins.File == host.CommandLine && len(stays) == 1:
		return "TuneD starts after that, so its value wins."
	case !late && !slices.ContainsFunc(stays, func(w host.Writer) bool { return w.By != "tuned" }):
		return "TuneD starts after that, and does not apply the files again (reapply_sysctl), so its value wins."
	}
	return "Which one is in force depends on who came last."
}

// otherSetters are who sets a setting besides the files of sysctl.d: those who let these win, and those who do not.
func (p *patient) otherSetters(sysctl string) (yields, stays []host.Writer) {
	wins, ok := p.deep.AtBoot(sysctl)
	repeats := !ok || wins.AppliedAgain()
	for _, w := range p.deep.Writers {
		switch {
		case w.Sysctl != sysctl:
		case w.Yields && repeats:
			yields = append(yields, w)
		default:
			stays = append(stays, w)
		}
	}
	return yields, stays
}

// losers are the lines that set what another line wins, to another value.
func (p *patient) losers(wins host.Setting) (losers []string) {
	for _, s := range p.deep.Settings {
		// What packages ship below /usr is there to be overridden, and so is a pattern.
		own := !strings.HasPrefix(s.File, "/usr/") && s.Pattern == "" && !s.Keeps
		if s.Sysctl == wins.Sysctl && own && !s.Wins && !s.Unread && s.Masked == "" && s.File != wins.File &&
			!p.sameToKernel(s.Sysctl, s.Value, wins.Value) {
			losers = append(losers, s.Where()+": "+s.Value)
		}
	}
	for _, w := range p.deep.Writers {
		if w.Sysctl == wins.Sysctl && !p.sameToKernel(w.Sysctl, w.Value, wins.Value) {
			losers = append(losers, w.By+", "+w.Where()+": "+w.Value)
		}
	}
	return losers
}

// sameToKernel reports whether the kernel makes the same of two values.
func (p *patient) sameToKernel(sysctl, a, b string) bool {
	now := p.Sysctls[sysctl].Value
	return p.Takes(sysctl, a, now) == p.Takes(sysctl, b, now)
}

// checkChangedSettings finds values that are not what the next boot will set.
func checkChangedSettings(p *patient) (found []Finding) {
	// A file that could not be read may say what no other does.
	hidden := slices.ContainsFunc(p.deep.Unknown, func(u host.Unread) bool {
		return strings.Contains(u.File, "/sysctl")
	})
	ours := slices.ContainsFunc(p.deep.Writers, func(w host.Writer) bool { return w.By == "weir" })
	if !p.inFirstNamespace() || p.deep.Loader == "" || ours || hidden {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.Sysctls)) {
		now := p.Sysctls[name].Value
		written := slices.ContainsFunc(p.deep.Writers, func(w host.Writer) bool {
			return w.Sysctl == name && !(w.Yields && !p.Leaves(name, w.Value, now))
		})
		// What came from a file that the boot does not read has been said already.
		unread := slices.ContainsFunc(p.deep.Settings, func(s host.Setting) bool {
			return s.Sysctl == name && s.Unread && p.Leaves(name, s.Value, now)
		}) || slices.ContainsFunc(p.deep.Idle, func(w host.Writer) bool {
			return w.Sysctl == name && p.Leaves(name, w.Value, now)
		})
		if written || unread {
			continue
		}
		wins, ok := p.deep.AtBoot(name)
		switch {
		case ok && p.Takes(name, wins.Value, now).Refused == "" && !p.Leaves(name, wins.Value, now):
			found = append(found, settingChanged(wins, now))
		case !ok && p.surelySet(name, now):
			found = append(found, p.settingInNoFile(name, now))
		}
	}
	return found
}

// settingInNoFile is about a value that only a command can have set.
func (p *patient) settingInNoFile(sysctl, now string) Finding {
	f := Finding{
		Code: "setting-in-no-file", Severity: Notable,
		Plain: "The next reboot undoes a setting: " + text.Short(sysctl) + " is in no file.",
		Title: fmt.Sprintf("%s is %s, and no file says so.", text.Short(sysctl), now),
		Seen:  "Read from " + host.SysctlPath(sysctl) + ".",
		Why:   "The next boot brings the kernel's own value back, unless something that was not read sets it.",
		Try:   "weir plan", Remark: "says whether it is worth keeping",
	}
	i := slices.IndexFunc(p.deep.Writers, func(w host.Writer) bool { return w.Sysctl == host.SomeSetting })
	if i >= 0 {
		where := p.deep.Writers[i].Where()
		f.Plain = "The next reboot may undo a setting: " + text.Short(sysctl) + " is in no file that was understood."
		f.Seen += " " + where + " runs sysctl with what was not understood."
		f.Why = "The next boot brings the kernel's own value back, unless " + where + " sets it."
	}
	return f
}

// settingChanged is about a value that is not the one which a line sets at boot.
func settingChanged(wins host.Setting, now string) Finding {
	name := text.Short(wins.Sysctl)
	f := Finding{
		Code: "setting-changed-since-boot", Severity: Notable,
		Plain: "The next reboot changes a setting: " + name + ".",
		Title: name + " has changed since the boot.",
		Seen:  fmt.Sprintf("It is %s; %s says %s.", now, wins.Where(), wins.Value),
		Why:   "The next boot brings the file's value back.",
		Try:   "sysctl -p " + wins.File, Remark: "or change the file",
	}
	if wins.File == host.CommandLine {
		f.Why = "The next boot brings that value back."
		f.Try, f.Remark = "", "a line in /etc/sysctl.d, which comes later, for the value that shall stay"
	}
	return f
}
