// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Who applies sysctl files at boot.
const (
	SystemdSysctl = "systemd-sysctl"
	procps        = "sysctl --system" // procps's; sysvinit runs it
)

// CommandLine is the File of a Setting that the kernel takes from its own command line (sysctl.NAME=VALUE,
// kernel-parameters.txt).
const CommandLine = "kernel command line"

// Setting is one line of a sysctl file that is about a setting that plans use, or a word of the kernel's command line.
//
// The kernel sets what its command line says right before it starts init. So every line of a file that is read at boot
// comes later and wins.
//
// Both loaders sort the files of all directories by name; of those with the same name only the one in the first
// directory counts. An explicit key wins over a pattern, whatever the order; else the later line wins. sysctl --system
// then reads /etc/sysctl.conf. systemd-sysctl reads it only where a link in a directory points to it: in Debian 12, and
// not in 13. Where it does not, a script or a unit may run sysctl -p, which comes later.
type Setting struct {
	Sysctl string `json:"sysctl"`
	Value  string `json:"value"` // as written, its fields separated by one space
	File   string `json:"file"`
	// under which the file is sorted among the others; none where it is read before or after them all
	Name    string `json:"name,omitempty"`
	Line    int    `json:"line"`              // 0 on the kernel's command line
	Pattern string `json:"pattern,omitempty"` // the key, if it is one that matches several
	Keeps   bool   `json:"keeps,omitempty"`   // "-key" without a value: no pattern sets it
	Masked  string `json:"masked,omitempty"`  // the file of the same name because of which this one is not read
	Unread  bool   `json:"unread,omitempty"`  // not among the files that are read at boot
	Wins    bool   `json:"wins,omitempty"`    // this line's value is what the boot sets
	Manual  bool   `json:"manual,omitempty"`  // and this one's what sysctl --system sets
}

// Where says where a setting is made, as compilers do: "FILE:LINE".
func (s Setting) Where() string { return location(s.File, s.Line) }

func location(file string, line int) string {
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

// AtBoot is the line that decides what a setting is after the next boot.
func (d *Deep) AtBoot(name string) (Setting, bool) {
	i := slices.IndexFunc(d.Settings, func(s Setting) bool { return s.Wins && s.Sysctl == name })
	if i < 0 {
		return Setting{}, false
	}
	return d.Settings[i], true
}

// AppliedAgain reports whether TuneD applies a setting again after its own (plugin_sysctl.py): what the administrator's
// folders have. Some of its versions do so with what is below /usr, too.
func (s Setting) AppliedAgain() bool {
	return slices.Contains([]string{"/etc/sysctl.d", "/run/sysctl.d"}, path.Dir(s.File)) || s.File == "/"+sysctlConf
}

// sysctlDirs, the first first.
func sysctlDirs() []string {
	return []string{"etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"}
}

const sysctlConf = "etc/sysctl.conf"

func (t *tree) loader() string {
	for _, name := range []string{"usr/lib/systemd/systemd-sysctl", "lib/systemd/systemd-sysctl",
		"run/current-system/systemd/lib/systemd/systemd-sysctl"} { // NixOS's
		if _, ok := t.resolve(name); ok {
			return SystemdSysctl
		}
	}
	for _, name := range []string{"usr/sbin/sysctl", "sbin/sysctl"} {
		if _, ok := t.resolve(name); ok {
			return procps
		}
	}
	return ""
}

// loaderFile is a file that a loader reads at boot, or would but for the one of its name that masks it.
type loaderFile struct{ name, path, masked string }

// loaderFiles are all of them, in the order in which they are read.
func (t *tree) loaderFiles() (files []loaderFile) {
	first := map[string]string{}
	for _, dir := range sysctlDirs() {
		for _, name := range t.list(dir, ".conf") {
			f := loaderFile{name: name, path: path.Join(dir, name), masked: first[name]}
			if f.masked == "" {
				first[name] = "/" + f.path
			}
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, func(a, b loaderFile) int { return strings.Compare(a.name, b.name) })
	return files
}

// settings are the lines of all files. With last, something has sysctl(8) read /etc/sysctl.conf after the loader.
func (t *tree) settings(loader string, last bool) []Setting {
	files, all := t.loaderFiles(), t.commandLine()
	var boot, manual winners
	for _, f := range files {
		target, _ := t.resolve(f.path)
		lines := parseSysctls(t.read(f.path))
		// A line is where it can be edited.
		shown := f.path
		if target == sysctlConf {
			shown = sysctlConf
		}
		for _, s := range lines.settingsIn("/" + shown) {
			s.Masked, s.Name = f.masked, f.name
			all = append(all, s)
			if f.masked == "" {
				boot.add(s, len(all)-1)
				manual.add(s, len(all)-1)
			}
		}
	}
	var conf []int // the lines of /etc/sysctl.conf
	lines := parseSysctls(t.read(sysctlConf))
	for _, s := range lines.settingsIn("/" + sysctlConf) {
		s.Unread = loader == SystemdSysctl && !last
		// Where a link has had it read already these are the same lines once more.
		at := slices.IndexFunc(all, func(o Setting) bool {
			return o.File == s.File && o.Line == s.Line && o.Sysctl == s.Sysctl && o.Masked == ""
		})
		if at < 0 {
			all = append(all, s)
			at = len(all) - 1
		}
		conf = append(conf, at)
		manual.add(s, at)
	}
	if loader == SystemdSysctl {
		for _, s := range t.credential() {
			all = append(all, s)
			boot.add(s, len(all)-1)
		}
	}
	if loader != SystemdSysctl || last {
		for _, i := range conf {
			boot.add(all[i], i)
		}
	}
	set := map[string]bool{}
	if loader != "" {
		for _, at := range boot.at() {
			all[at].Wins = true
			set[all[at].Sysctl] = true
		}
	}
	for i, s := range slices.Backward(all) {
		if s.File == CommandLine && !set[s.Sysctl] {
			all[i].Wins = true
			set[s.Sysctl] = true
		}
	}
	for _, at := range manual.at() {
		all[at].Manual = true
	}
	return all
}

// credential returns the lines that systemd-sysctl(8) is handed by its manager, after all files.
func (t *tree) credential() []Setting {
	for _, dir := range []string{"run/credentials/@system", "etc/credstore", "run/credstore", "usr/lib/credstore"} {
		name := path.Join(dir, "sysctl.extra")
		if _, ok := t.resolve(name); ok {
			lines := parseSysctls(t.read(name))
			return lines.settingsIn("/" + name)
		}
	}
	return nil
}

// commandLine returns what the kernel was told to set before init. That is of the first network namespace, and so no
// setting of another one's.
func (t *tree) commandLine() []Setting {
	if _, ok := t.resolve("proc/sys/net/core/default_qdisc"); !ok {
		return nil
	}
	var lines sysctlLines
	for _, word := range commandWords(string(t.read("proc/cmdline"))) {
		name, ok := strings.CutPrefix(word, "sysctl")
		key, value, assigned := strings.Cut(name, "=")
		if !ok || !assigned || value == "" || !strings.HasPrefix(key, ".") && !strings.HasPrefix(key, "/") ||
			!utf8.ValidString(word) {
			continue
		}
		// Here a dot always separates.
		lines = append(lines,
			sysctlLine{key: strings.ReplaceAll(key[1:], ".", "/"), value: joinFields(value)})
	}
	return slices.DeleteFunc(lines.settingsIn(CommandLine), func(s Setting) bool { return s.Pattern != "" })
}

// commandWords splits a kernel's command line as the kernel does: at spaces that are in no double quotes, which it then
// takes off, and no further than "--".
func commandWords(text string) (words []string) {
	quoted, start := false, 0
	for i, c := range []byte(text + " ") {
		switch {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\n') || i == len(text):
			switch word := text[start:i]; word {
			case "--":
				return words
			case "":
			default:
				words = append(words, strings.ReplaceAll(word, `"`, ""))
			}
			start = i + 1
		}
	}
	return words
}

// winners finds out, setting by setting, which line is in force in the end.
type winners struct {
	explicit, pattern map[string]int // by sysctl; -1: the last line says to keep what is there
}

func (w *winners) add(s Setting, at int) {
	if w.explicit == nil {
		w.explicit, w.pattern = map[string]int{}, map[string]int{}
	}
	switch {
	case s.Pattern != "":
		w.pattern[s.Sysctl] = at
	case s.Keeps:
		w.explicit[s.Sysctl] = -1
	default:
		w.explicit[s.Sysctl] = at
	}
}

func (w *winners) at() (at []int) {
	for _, i := range w.explicit {
		if i >= 0 {
			at = append(at, i)
		}
	}
	for name, i := range w.pattern {
		if _, ok := w.explicit[name]; !ok {
			at = append(at, i)
		}
	}
	return at
}

// sysctlLine is an assignment as sysctl.d(5) has it.
type sysctlLine struct {
	key   string // with slashes between its parts, as the file in /proc/sys has
	value string
	line  int
	keeps bool // "-key" without a value
}

type sysctlLines []sysctlLine

// settingsIn returns the settings among lines that plans use.
func (lines sysctlLines) settingsIn(file string) (found []Setting) {
	for _, l := range lines {
		pattern, several := strings.ReplaceAll(l.key, "[!", "[^"), strings.ContainsAny(l.key, "*?[")
		for _, name := range sysctls {
			s := Setting{Sysctl: name, Value: l.value, File: file, Line: l.line, Keeps: l.keeps}
			switch key := strings.ReplaceAll(name, ".", "/"); {
			case !several && l.key == key:
				found = append(found, s)
			case several && !l.keeps:
				if ok, _ := path.Match(pattern, key); ok {
					s.Pattern = l.key
					found = append(found, s)
				}
			}
		}
	}
	return found
}

// parseSysctls reads the lines of a file that could be about a setting under net: others are nobody's business here.
func parseSysctls(text []byte) (lines sysctlLines) {
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		s := strings.Trim(string(raw), asciiSpace) // a no-break space is no space to the loaders and the kernel
		if s == "" || s[0] == '#' || s[0] == ';' || !utf8.ValidString(s) {
			continue
		}
		key, value, assigned := strings.Cut(s, "=")
		key, minus := strings.CutPrefix(key, "-")
		if !assigned && !minus {
			continue // not an assignment: the loaders complain and go on
		}
		key = normalKey(strings.Trim(key, asciiSpace))
		if !strings.HasPrefix(key, "net/") && !strings.ContainsAny(key, "*?[") {
			continue
		}
		lines = append(lines, sysctlLine{key: key, value: joinFields(value), line: number, keeps: !assigned})
	}
	return lines
}

const asciiSpace = " \t\n\v\f\r"

// joinFields puts one space between the fields of a value.
func joinFields(value string) string {
	isSpace := func(r rune) bool { return strings.ContainsRune(asciiSpace, r) }
	return strings.Join(strings.FieldsFunc(value, isSpace), " ")
}

// normalKey writes a key with slashes: of "." and "/" the first one to appear separates, and the other stands for a dot
// in a name.
func normalKey(key string) string {
	if i := strings.IndexAny(key, "./"); i < 0 || key[i] == '/' {
		return key
	}
	swap := func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}
	return strings.Map(swap, key)
}
