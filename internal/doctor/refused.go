// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// checkRefusedSettings finds lines whose values the kernel does not take.
func checkRefusedSettings(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	const command = "The kernel refuses it: "
	for _, s := range p.deep.Settings {
		if (s.Wins || s.Manual) && s.Masked == "" {
			write := func(meant string) string { return "write:  " + s.Sysctl + " = " + meant }
			verdict := "The kernel refuses this line, at boot too: "
			switch {
			case s.File == host.CommandLine:
				verdict, write = "The kernel refuses it at every boot: ", func(meant string) string {
					return "write:  sysctl." + s.Sysctl + "=" + quoted(meant)
				}
			case s.Unread:
				verdict = "No boot reads that file, and when somebody loads it the kernel refuses this line: "
			}
			found = append(found, p.refuses(s.Sysctl, s.Value, s.Where(), verdict, write)...)
		}
	}
	for _, w := range p.deep.Writers {
		if w.Sysctl != "" && reachesKernel(w) {
			write := func(meant string) string { return rewrittenLine(w, meant) }
			found = append(found, p.refuses(w.Sysctl, w.Value, w.Where(), command, write)...)
		}
	}
	return found
}

var (
	plainValue = regexp.MustCompile(`^[\w"'][\w"'.,; -]*$`) // no expression, and nothing that a script fills in
	editsText  = regexp.MustCompile(`\b(?:sed|grep|awk|echo)\b`)
	writesProc = regexp.MustCompile(`/proc/sys/`)
)

// reachesKernel reports whether the kernel is handed the value that a line has, as it stands there.
func reachesKernel(w host.Writer) bool {
	switch {
	case w.By == "NixOS": // whose values are expressions
		return false
	case w.Text == "": // of a file of settings
		return !strings.ContainsAny(w.Value, "$%{`")
	}
	return plainValue.MatchString(w.Value) && (!editsText.MatchString(w.Text) || writesProc.MatchString(w.Text))
}

// quoted is a value as a word of the kernel's command line.
func quoted(value string) string {
	if strings.Contains(value, " ") {
		return `"` + value + `"`
	}
	return value
}

// rewrittenLine says how to write a line with another value: as it stands, where that is certain.
func rewrittenLine(w host.Writer, value string) string {
	oneWord := !strings.Contains(value, " ") || strings.Contains(w.Value, " ") // needs no quotes that are not there
	switch {
	case w.Text == "": // of a file of settings
		return "write:  " + w.Sysctl + " = " + value
	case strings.Count(w.Text, w.Value) == 1 && oneWord && !w.IsShortened():
		return "write:  " + strings.Replace(w.Text, w.Value, value, 1)
	}
	return "write " + value + " there"
}

// refuses tells of a value that the kernel does not take. Write says how another one is written in its place.
func (p *patient) refuses(sysctl, value, where, verdict string, write func(meant string) string) []Finding {
	now, known := p.Sysctls[sysctl]
	taken := p.Takes(sysctl, value, now.Value)
	if !known || taken.Refused == "" || p.missingName(sysctl, value) != "" {
		return nil
	}
	name := text.Short(sysctl)
	f := Finding{
		Code: "setting-refused", Severity: Harmful,
		Plain:  "A setting on this server does nothing: its value for " + name + " is not valid.",
		Title:  "The kernel refuses a value for " + name + ".",
		Seen:   fmt.Sprintf("%s says %s. It is %s.", where, value, now.Value),
		Why:    verdict + taken.Refused + ".",
		Remark: "write a value that the kernel takes",
	}
	if taken.Numbers > 0 {
		f.Plain = "A setting on this server does half of what it says: its value for " + name + " is not valid."
		f.Why += fmt.Sprintf(" It sets %s before that all the same.", text.Counted(taken.Numbers, "number"))
	}
	if meant := p.likelyValue(sysctl, value); meant != "" {
		f.Remark = write(meant)
	}
	if ignored := p.overwritten(sysctl); ignored != "" && taken.Numbers == 0 {
		f.Why += " And " + ignored + " is not used, as this line comes later."
	}
	return []Finding{f}
}

// overwritten is the last line that systemd-sysctl passes over for one that comes later; "" if there is none.
func (p *patient) overwritten(sysctl string) (where string) {
	if p.deep.Loader != host.SystemdSysctl {
		return ""
	}
	for _, s := range p.deep.Settings {
		lost := !s.Wins && !s.Manual && !s.Unread && s.Masked == "" && s.Pattern == "" && !s.Keeps
		if s.Sysctl == sysctl && lost && s.File != host.CommandLine {
			where = s.Where()
		}
	}
	return where
}

// likelyValue is what somebody who wrote a value most likely wanted, as the kernel takes it; "" if that cannot be told.
func (p *patient) likelyValue(sysctl, value string) string {
	now := p.Sysctls[sysctl].Value
	bare, _, _ := strings.Cut(value, "#")
	bare, _, _ = strings.Cut(bare, ";")
	bare = strings.TrimSpace(strings.NewReplacer(`"`, "", "'", "", "\u00a0", " ").Replace(bare))
	name := strings.ToLower(strings.ReplaceAll(bare, "-", "_"))
	for _, candidate := range []string{bare, strings.ReplaceAll(bare, ",", " "), withoutUnits(bare), name,
		host.ModulePrefix.ReplaceAllString(name, "")} {
		fields := strings.Fields(candidate)
		candidate = strings.Join(fields, " ")
		if len(fields) > 0 && len(fields) == len(strings.Fields(now)) && p.Takes(sysctl, candidate, now).Refused == "" {
			return candidate
		}
	}
	return ""
}

var amount = regexp.MustCompile(`^(\d{1,9})([KMGkmg])(?:i?[Bb])?$`)

// withoutUnits writes 16M as 16777216.
func withoutUnits(value string) string {
	fields := strings.Fields(value)
	for i, field := range fields {
		if m := amount.FindStringSubmatch(field); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64) // no more than nine digits
			shift := 10 * (1 + slices.Index([]string{"k", "m", "g"}, strings.ToLower(m[2])))
			fields[i] = strconv.FormatInt(n<<shift, 10)
		}
	}
	return strings.Join(fields, " ")
}
