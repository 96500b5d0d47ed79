// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"weir/internal/host"
	"weir/internal/text"
)

// checkIdleFiles finds files with settings or queues that nothing reads or runs.
func checkIdleFiles(p *patient) (found []Finding) {
	if !p.inFirstNamespace() {
		return nil
	}
	var files []string
	lines := map[string][]host.Writer{}
	idle := slices.Clone(p.deep.Idle)
	for _, w := range p.deep.Writers {
		if by := w.OverriddenBy(p.link); by != "" {
			w.Idle = fmt.Sprintf("networkd reads %s before it, and heeds one file for %s", by, p.link.Name)
			w.Before = nil
			idle = append(idle, w)
		}
	}
	for _, w := range idle {
		if !p.wouldHaveEffect(w) {
			continue
		}
		name := w.File
		if w.By == host.SysctlLine { // of which others have an effect
			name = w.Where()
		}
		if lines[name] == nil {
			files = append(files, name)
		}
		lines[name] = append(lines[name], w)
	}
	for _, file := range files {
		found = append(found, hasNoEffect(file, lines[file]))
	}
	return found
}

// notOfPart is what no name has that run-parts(8) runs.
var notOfPart = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// hasNoEffect is about a file and its lines.
func hasNoEffect(file string, lines []host.Writer) Finding {
	var sets []string
	for _, w := range lines {
		if w.Sysctl != "" {
			sets = append(sets, text.Short(w.Sysctl)+" to "+w.Value)
		} else {
			sets = append(sets, w.Queue()+" on "+w.Device())
		}
	}
	f := Finding{
		Code: "file-without-effect", Severity: Notable,
		Plain:  "What somebody wrote into " + file + " has no effect.",
		Title:  file + " has no effect.",
		Seen:   fmt.Sprintf("It sets %s; %s.", strings.Join(sets, ", "), lines[0].Idle),
		Why:    "No boot sets what it says.",
		Remark: "if it is wanted",
	}
	switch dir, base := path.Split(file); {
	case lines[0].By == host.SysctlLine:
		f.Remark = "write:  " + lines[0].Sysctl + " = " + lines[0].Value
	case lines[0].Idle == host.UnreadFolder:
		f.Try = "mv " + text.Shell(file) + " /etc/sysctl.d/"
	case lines[0].By == host.SysctlDir:
		f.Try = "mv " + text.Shell(file) + " " + text.Shell(file+".conf")
	case lines[0].Idle == host.NotExecutable:
		f.Remark = "chmod +x " + text.Shell(file) + ", if it is wanted"
	case lines[0].Idle != host.NameOfNoPart:
		f.Remark = "write it where it is read, if it is wanted"
	default:
		name := strings.Trim(notOfPart.ReplaceAllString(base, "-"), "-")
		f.Try = "mv " + text.Shell(file) + " " + text.Shell(dir+name)
	}
	return f
}

// wouldHaveEffect reports whether a line that has no effect would have one: no other sets the same.
func (p *patient) wouldHaveEffect(w host.Writer) bool {
	if w.Sysctl == "" {
		return w.MayMatch(p.link) && !slices.ContainsFunc(p.deep.Writers, func(other host.Writer) bool {
			return other.Qdisc == w.Qdisc && other.Rate == w.Rate && other.MayMatch(p.link)
		})
	}
	_, here := p.Sysctls[w.Sysctl]
	boot, set := p.deep.AtBoot(w.Sysctl)
	return here && !(set && p.sameToKernel(w.Sysctl, boot.Value, w.Value))
}
