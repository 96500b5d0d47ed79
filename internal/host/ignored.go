// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/internal/text"
)

// SysctlLine is who reads a file of settings, of which the loaders pass over a line.
const SysctlLine = "a line of sysctl.d"

const byteOrderMark = "\ufeff"

// ignored are lines of the administrator's files of settings that are about a setting, and that the loaders pass over
// with a word in the log, or take for another setting that is not there. All of a folder that nothing reads is so, too.
func (t *tree) ignored() (found []Writer) {
	files := []string{sysctlConf}
	for _, dir := range []string{"etc/sysctl.d", "usr/local/lib/sysctl.d"} {
		for _, name := range t.list(dir, ".conf") {
			if file := path.Join(dir, name); !t.leadsTo(file, sysctlConf) {
				files = append(files, file)
			}
		}
	}
	for _, file := range files {
		number := 0
		for raw := range bytes.Lines(t.read(file)) {
			number++
			l := strings.Trim(string(raw), asciiSpace)
			if l == "" || l[0] == '#' || l[0] == ';' || !utf8.ValidString(l) {
				continue
			}
			if w := t.ignoredLine(l); w.Idle != "" {
				w.By, w.File, w.Line, w.Text = SysctlLine, "/"+file, number, truncate(l)
				found = append(found, w)
			}
		}
	}
	for _, name := range t.list("etc/sysctl.conf.d", "") {
		if !asideName.MatchString(name) {
			found = append(found, t.assignments(SysctlDir, path.Join("etc/sysctl.conf.d", name), UnreadFolder)...)
		}
	}
	return found
}

// leadsTo reports whether a file is a link to another.
func (t *tree) leadsTo(file, other string) bool {
	to, ok := t.resolve(file)
	return ok && to == other
}

// ignoredLine is what a line was to set, and in Idle why it does not; an empty one if it does, or is about something
// else.
func (t *tree) ignoredLine(l string) (w Writer) {
	bare, marked := strings.CutPrefix(l, byteOrderMark)
	key, value, assigned := strings.Cut(bare, "=")
	key = strings.Trim(strings.TrimPrefix(key, "-"), asciiSpace)
	words := strings.FieldsFunc(key, func(r rune) bool { return strings.ContainsRune(asciiSpace, r) })
	switch span := sysctlKey.FindStringIndex(bare); {
	case sysctlCommand.MatchString(key) && span != nil:
		w.Sysctl = bare[span[0]:span[1]]
		w.Value, _ = assignedValue(bare, span[0], span[1])
		w.Idle = "it is a command, and of such a file only KEY = VALUE is read"
	case !assigned && len(words) > 1 && bare[0] != '-':
		w.Sysctl, w.Value = words[0], strings.Join(words[1:], " ")
		w.Idle = "there is no = between the key and the value"
	case assigned && len(words) == 1:
		w.Sysctl, w.Value = words[0], joinFields(value)
		if marked {
			w.Idle = "an invisible byte-order mark is before the key"
		}
	}
	w.Sysctl = strings.ReplaceAll(normalKey(w.Sysctl), "/", ".")
	if w.Idle == "" && w.Sysctl != "" && !slices.Contains(sysctls, w.Sysctl) {
		if meant := t.mistyped(w.Sysctl); meant != "" {
			return Writer{Sysctl: meant, Value: w.Value, Idle: "there is no setting of the name " + w.Sysctl}
		}
	}
	if w.Value == "" || !slices.Contains(sysctls, w.Sysctl) {
		return Writer{}
	}
	return w
}

// mistyped is the setting that was meant by a key that this kernel does not have; "" if that cannot be told.
func (t *tree) mistyped(key string) string {
	exists := func(name string) bool {
		_, err := fs.Stat(t.root, SysctlPath(name)[1:])
		return err == nil
	}
	meant := text.Nearest(key, sysctls)
	if i := slices.IndexFunc(sysctls, func(s string) bool { return strings.HasSuffix(s, "."+key) }); i >= 0 {
		meant = sysctls[i]
	}
	if meant == "" || strings.ContainsAny(key, "*?[") || strings.HasPrefix(meant, key) || !exists(meant) ||
		fs.ValidPath(SysctlPath(key)[1:]) && exists(key) {
		return ""
	}
	return meant
}
