// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/units"
)

// scanner finds the lines that set something, also in the scripts that they call.
type scanner struct {
	*tree
	found   []Writer
	visited map[string]bool // scripts that have been read
	device  string          // that a line's variable for one means, where that is known
	boot    bool            // the lines run at boot, or may
	timer   bool            // only a timer starts the unit, and not at boot
	// files of settings that a command has sysctl(8) read; true: at boot
	loaded map[string]bool
	units  map[string][]byte // the texts of the administrator's units, by their names; nil: not read yet
}

const (
	tcVariable = `(?i:(?:\w+_)?tc(?:_?(?:bin|cmd|command|path|prog|exe|exec))?)`
	tcFound    = `(?:which|command\s+-v|type\s+-[pP])\s+tc`
)

var (
	section = regexp.MustCompile(`^\[(\w+)\]$`)
	// udev(7): NAME is what a preceding rule has given, KERNEL what the kernel calls the device at that moment.
	udevAdd  = regexp.MustCompile(`\bACTION\s*==\s*"add"`)
	udevName = regexp.MustCompile(`\b(?:NAME|KERNEL)\s*==\s*"([^"]+)"`)
	// What udev fills in the device's own name for.
	udevDeviceVariable = regexp.MustCompile(`^(?:%k|\$kernel|\$name|\$env\{INTERFACE\}|\$INTERFACE)$`)
	udevMAC            = regexp.MustCompile(`\bATTR\{address\}\s*==\s*"([^"]+)"`)

	// tc by its name, by a variable that is called after it or found it, or by any with "qdisc" behind it.
	tcCommand = regexp.MustCompile(`(?:^|[^\w.$-])(?:(?:tc|\$` + tcVariable + `|\$\{` + tcVariable +
		`(?::?-[^}]*)?\}|` +
		`\$\(` + tcFound + `\)|` + "`" + tcFound + "`" + `)["']?[\s,]+(.*)|\$\{?\w+\}?["']?\s+(qdisc\s.*))`)
	sysctlKey     = regexp.MustCompile(`net[./](?:core|ipv4|ipv6|mptcp)[./][a-z0-9_./]+`)
	sysctlCommand = regexp.MustCompile(`(?:^|[^\w.-])sysctl["']?[\s,]+(.*)`)
	// systemd-sysctl(8), whose arguments are files.
	systemdSysctl    = regexp.MustCompile(`(?:^|[^\w.-])systemd-sysctl["']?[\s,]+(.*)`)
	sysctlLoadOption = regexp.MustCompile(`^-\w*[pf](/\S+)?$`) // also the file behind it
	procWrite        = regexp.MustCompile(
		`(?:echo|printf(?:\s+["']?%[sdiu](?:\\n)?["']?)?)\s+(?:-\w+\s+)?["']?([^"'>|]+?)["']?\s*` +
			`(?:>[>|]?|\|\s*(?:(?:sudo|doas)\s+(?:-\S+\s+)*)?(?:/\S*/)?tee\s(?:\s*-\S+\s)*)\s*` +
			`/proc/sys/(net/[a-z0-9_/]+)`)
	// tee FILE <<< 1, cat > FILE <<< 1
	procHereString = regexp.MustCompile(`\b(?:tee\s|cat\s*>).*?/proc/sys/(net/[a-z0-9_/]+).*<<<\s*["']?([^"';&|]+)`)
	// tmpfiles.d(5): "w /PATH MODE USER GROUP AGE TEXT", of which each but the path may be "-".
	tmpfilesWrite = regexp.MustCompile(`^w[+!=~^-]*\s+/proc/sys/(net/[a-z0-9_/]+)(?:\s+\S+){4}\s+"?([^"]*)`)
	// A folder that a script goes to, and a file there that something is written to.
	procFolder     = regexp.MustCompile(`\bcd\s+["']?(/[\w./+-]*)|(?:>[>|]?\s*|\btee\s+)["']?([a-z][a-z0-9_/]*)`)
	quotedProcPath = regexp.MustCompile(`["'](/proc/sys/net/[a-z0-9_/]+)["']`)
	// What tc is told by a pipe, and how a command's output is put in its place.
	tcPipe       = regexp.MustCompile(`(?:echo|printf)\s+(?:-\w+\s+)?(?:"([^"]*)"|'([^']*)')\s*\|\s*\S*$`)
	substitution = regexp.MustCompile(`\$\([^()]*\)|` + "`[^`]*`")
	kindName     = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	scriptPath   = regexp.MustCompile(`(?:^|[\s"'=@!+:-])/([\w./+-]+)`)
	// What is handed to a shell or an interpreter is a script, however it begins.
	interpreterCall = regexp.MustCompile(`(?:^|[\s"'=@!+:;&|({/-])` +
		`(?:\.|source|sh|bash|dash|ash|ksh|zsh|python[\d.]*|perl)\s+(?:-\w+\s+)*["']?/([\w./+-]+)`)
	// A unit's program without its folder is looked for in some, and its scripts run in one (systemd.exec(5)).
	unitProgram  = regexp.MustCompile(`^Exec(?:Start|StartPre|StartPost|Reload)\s*=\s*[-@:+!|]*([\w.-]+)(?:\s|$)`)
	unitFolder   = regexp.MustCompile(`(?m)^\s*WorkingDirectory\s*=-?(/[\w./+-]*)\s*$`)
	relativePath = regexp.MustCompile(`\bcd\s+["']?(/[\w./+-]*)|(?:^|[\s"'=;&|(])\./([\w./+-]+)`)
	// Programs that are known to set queues, or to take them away (the first), and their devices: wondershaper, tcset
	// (of tcconfig) and FireQOS.
	shaperProgram = regexp.MustCompile(`(?:^|[\s"'=@!+:;&|({/-])(?:` +
		`(wondershaper\s+(?:clear|.*-[csv])\b)|wondershaper\s+(?:-[du]\s+\d+\s+)*-a\s+(\S+)|` +
		`wondershaper\s+([\w$][\w.$-]*)\s+\S*\d\S*\s+\S*\d|` +
		`wondershaper\s+-p\b|tcset\s+(\w\S*)\s+.*--|fireqos\s+start\b)`)
)

// fileScan is what is known of a file while its lines are scanned, one after the other.
type fileScan struct {
	*scanner
	by        string
	execution execution
	text      []byte
	dir       string         // where its lines have gone
	match     Writer         // the devices that NetworkManager's file is about
	forgotten map[string]int // by a unit's key, up to which line of the file its values are
	variables variables
	guards    guards
	stops     stopFilter

	// What ends what follows: the word of tc's commands, that of a text which is not run, and the quote of one.
	commandsEnd, textEnd string
	quote                byte
}

// scan finds the lines of a file that set something. Where they have no effect, idle says why.
func (s *scanner) scan(by, file string, text []byte, how execution, idle string) {
	defer func(device string) { s.device = device }(s.device)
	f := fileScan{scanner: s, by: by, execution: how, text: text,
		stops: stopFilter{stopLine: stopLines[by], script: how == execFile || how == execRunParts}}
	first, unit := len(s.found), text
	switch {
	case by == "systemd unit":
		if m := unitFolder.FindSubmatch(text); m != nil {
			f.dir = string(m[1])
		}
		if how == execLines {
			var skips bool
			if skips, f.forgotten, unit = s.unitContext(file, text); skips {
				return
			}
		}
	case by == "cloud-init" && how == execLines:
		f.text = joinYAMLLists(bootCommands(text))
		unit = f.text
	}
	f.variables = variablesOf(by, how, unit)
	for number, l := range logicalLines(f.text) {
		f.scanLine(Writer{By: by, File: "/" + file, Line: number, Text: truncate(l), Idle: idle, Timer: s.timer}, l)
	}
	for i := first; how == execNone && i < len(s.found); i++ {
		s.found[i].Dev, s.found[i].MAC = f.match.Dev, f.match.MAC
	}
}

// scanLine scans a line, where w says where it stands.
func (f *fileScan) scanLine(w Writer, l string) {
	if f.by == "cron" && f.execution == execLines {
		f.boot = strings.HasPrefix(l, "@reboot")
	}
	if m := stanza.FindStringSubmatch(l); f.by == "ifupdown" && f.execution == execLines && m != nil {
		f.device = m[1]
	}
	if f.device != "" {
		l = deviceVariable.ReplaceAllLiteralString(l, f.device)
	}
	if f.consumes(w, l) {
		return
	}
	whole := l
	l, runs := f.localPart(l)
	if !runs {
		return
	}
	key, value, _ := strings.Cut(l, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if w.Line < f.forgotten[key] || perInstanceCommand.MatchString(l) {
		return
	}
	f.noteSetting(w, l, key, value)
	if f.by != "cloud-init" && f.execution != execNone {
		var opened byte
		if l, opened, f.textEnd = f.executed(whole, l, f.text); f.quote == 0 {
			f.quote = opened
		}
	}
	f.commandsEnd = f.scanCommands(w, l)
	if f.execution != execNone && !f.noteShaper(w, l) {
		f.scanCalls(w, l, key)
	}
}

// consumes takes a line that is part of a text which an earlier one began, and reports whether it is. What it tells tc
// is noted.
func (f *fileScan) consumes(w Writer, l string) bool {
	switch {
	case f.commandsEnd != "":
		if l == f.commandsEnd {
			f.commandsEnd = ""
		} else {
			f.noteQueue(w, tcWords(f.variables.expand(l)))
		}
	case f.textEnd != "":
		if l == f.textEnd {
			f.textEnd = ""
		}
	case f.quote != 0:
		if strings.IndexByte(l, f.quote) >= 0 {
			f.quote = 0
		}
	default:
		return false
	}
	return true
}

// localPart leaves of a line what is run on this host, with the values of variables; false if all of it runs only when
// something ends.
func (f *fileScan) localPart(l string) (left string, runs bool) {
	hook := f.by == "dhclient" || f.by == "dhcpcd" || f.by == "hotplug"
	if f.execution == execFile || f.execution == execRunParts || hook {
		l = f.guards.expand(l)
		if dev := f.guards.blocks[0].values["IFACE"]; dev != "" && f.execution == execRunParts {
			f.device = dev // of the scripts that it calls, too
		}
	}
	if f.execution == execNone {
		return l, true
	}
	if l = f.stops.rest(quotedProcPath.ReplaceAllString(expandProcPaths(l, f.dir), "$1")); l == "" {
		return "", false
	}
	l, f.quote = localCommands(f.variables.expand(l))
	return l, true
}

// noteSetting notes what a line sets in the words of a program's own file.
func (f *fileScan) noteSetting(w Writer, l, key, value string) {
	switch {
	case f.by == "modules-load":
		if kind, ok := strings.CutPrefix(l, "sch_"); ok {
			w.Qdisc = kind
			f.found = append(f.found, w)
		}
	case f.by == "tmpfiles":
		if m := tmpfilesWrite.FindStringSubmatch(l); m != nil {
			f.noteSysctl(w, m[1], m[2])
		}
	case f.by == "NetworkManager" && f.execution == execNone && key == "qdisc.root":
		f.noteQueue(w, append(strings.Fields("qdisc add root"), tcWords(value)...))
	case f.by == "NetworkManager" && f.execution == execNone:
		f.match.noteMatch(key, value)
	}
}

// scanCalls scans the scripts that a line calls, by their paths or by their names alone.
func (f *fileScan) scanCalls(w Writer, l, key string) {
	f.dir = f.scanScripts(w, l, f.dir)
	if w.Idle != "" {
		return
	}
	if m := unitProgram.FindStringSubmatch(l); m != nil && f.by == "systemd unit" {
		f.scanInPath(w, m[1], "usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin")
	}
	if f.execution == execLines && f.by != "cron" && (f.by != "systemd unit" || !strings.HasPrefix(key, "Exec")) {
		return
	}
	for _, name := range programNames(l, f.by == "cron" && f.execution == execLines) {
		f.scanInPath(w, name, "usr/local/sbin", "usr/local/bin") // the administrator's own
	}
}

// expandProcPaths names the files of the kernel's settings in full that a line writes to by their names in a folder,
// which is dir until the line goes elsewhere.
func expandProcPaths(l, dir string) string {
	for from := 0; ; {
		m := procFolder.FindStringSubmatchIndex(l[from:])
		if m == nil {
			return l
		}
		end := from + m[1]
		if m[2] >= 0 {
			dir = path.Clean(l[from+m[2] : from+m[3]])
		} else if strings.HasPrefix(dir+"/", "/proc/sys/") {
			name := from + m[4]
			l = l[:name] + dir + "/" + l[name:]
			end += len(dir) + 1
		}
		from = end
	}
}

var (
	// interfaces(5): a device's part, and what names it in there, as in a template of systemd's (systemd.unit(5)).
	stanza         = regexp.MustCompile(`^iface\s+([\w.-]+)`)
	deviceVariable = regexp.MustCompile(`\$\{?IFACE\b\}?|%[iI]\b`)
	// Keys of a unit by which its commands run in another network namespace (systemd.exec(5)).
	namespaceKey = regexp.MustCompile(`(?m)^\s*(NetworkNamespacePath|PrivateNetwork)[ \t]*=[ \t]*(.*?)[ \t\r]*$`)
	trueValue    = regexp.MustCompile(`^(?:/.*|(?i:yes|y|true|t|on|1))$`)
	resetLine    = regexp.MustCompile(`^(Exec\w+)\s*=$`)
	// What cloud-init runs only once, or once for an instance.
	perInstanceCommand = regexp.MustCompile(`\bcloud-init-per["',\s]+(?:once|instance)\b`)
	yamlKey            = regexp.MustCompile(`^["']?(\w+)["']?\s*:`)
)

// unitContext looks at a unit as a whole, of which a file is a part: whether its commands run in another network
// namespace, or not at all, as another drop-in of that name takes its place, and by its key up to which line of the
// file values are forgotten, by an empty one that comes later (systemd.unit(5)). Whole are the texts of all its parts.
func (s *scanner) unitContext(file string, text []byte) (skips bool, forgotten map[string]int, whole []byte) {
	unit, dropIn := path.Base(file), !strings.HasSuffix(file, ".service")
	if dropIn {
		unit = strings.TrimSuffix(path.Base(path.Dir(file)), ".d")
	}
	template := instanceUnit.ReplaceAllString(unit, "@.service")
	if unit == template && s.device != "" {
		unit = strings.Replace(template, "@.", "@"+s.device+".", 1)
	}
	above := unitDirs()
	var dirs []string
	for _, name := range slices.Compact([]string{unit, template}) {
		for _, dir := range above {
			dirs = append(dirs, path.Join(dir, name+".d"))
		}
	}
	all := s.indexDirs(dirs, ".conf")
	var texts [][]byte
	here := 0 // the file's place among them; -1: another masks it
	if dropIn {
		for _, dir := range above {
			if text := s.read(path.Join(dir, template)); text != nil {
				texts = append(texts, text)
				break
			}
		}
		here = -1
	} else {
		texts = append(texts, text)
	}
	for _, name := range all.names {
		if all.path[name] == file {
			here = len(texts)
		}
		texts = append(texts, s.read(all.path[name]))
	}
	if here < 0 {
		return true, nil, nil
	}
	last := map[string]string{}
	forgotten = map[string]int{}
	for i, text := range texts {
		for _, m := range namespaceKey.FindAllSubmatch(text, -1) {
			last[string(m[1])] = string(m[2])
		}
		for number, l := range logicalLines(text) {
			if m := resetLine.FindStringSubmatch(l); m != nil && i > here {
				forgotten[m[1]] = math.MaxInt
			} else if m != nil && i == here {
				forgotten[m[1]] = number
			}
		}
	}
	skips = trueValue.MatchString(last["NetworkNamespacePath"]) || trueValue.MatchString(last["PrivateNetwork"])
	return skips, forgotten, bytes.Join(texts, []byte("\n"))
}

// bootCommands leaves of cloud-init's configuration what it runs at every boot: bootcmd. What it runs and writes
// besides, it does once for an instance.
func bootCommands(text []byte) (kept []byte) {
	boot := false
	for l := range bytes.Lines(text) {
		if m := yamlKey.FindSubmatch(l); m != nil {
			boot = string(m[1]) == "bootcmd"
		}
		if !boot {
			l = []byte("\n")
		}
		kept = append(kept, l...)
	}
	return kept
}

// yamlList are the words of a command that is a list of YAML's in lines of their own.
var yamlList = regexp.MustCompile(`(?m)^( *)- - .*\n(?: *- .*\n?)*`)

// joinYAMLLists continues the lines of such lists, so that each is one.
func joinYAMLLists(text []byte) []byte {
	return yamlList.ReplaceAllFunc(text, func(list []byte) []byte {
		var all []string
		depth := 0 // of the list's words
		for l := range strings.Lines(string(list)) {
			bare := strings.TrimLeft(l, " ")
			indent := len(l) - len(bare)
			if word, ok := strings.CutPrefix(bare, "- - "); ok {
				depth = indent + len("- ")
				all = append(all, "- "+word)
			} else if word, ok := strings.CutPrefix(bare, "- "); ok && indent == depth {
				last := len(all) - 1
				all[last] = strings.TrimRight(all[last], "\r\n") + "\\\n"
				all = append(all, word)
			} else {
				depth = -1
				all = append(all, l)
			}
		}
		return []byte(strings.Join(all, ""))
	})
}

// noteMatch notes what a file says of its devices: nm-settings-keyfile(5).
func (w *Writer) noteMatch(key, value string) {
	switch key {
	case "interface-name":
		w.Dev = strings.Join(strings.Fields(strings.NewReplacer(";", " ", ",", " ").Replace(value)), " ")
	case "mac-address":
		w.MAC = strings.Join(macList(value), " ")
	}
}

// executed is what of a line is run. Where a text goes on behind the line, a quote or a word ends it.
func (s *scanner) executed(whole, l string, file []byte) (commands string, quote byte, word string) {
	commands, quote = executedCommands(l)
	if quote != 0 && bytes.Count(file, []byte{quote})%2 != 0 {
		quote = 0 // an apostrophe
	}
	m := hereDoc.FindStringSubmatch(whole)
	if m == nil || hereDocRunner.MatchString(commands) || tcCommand.MatchString(commands) {
		return commands, quote, ""
	}
	for _, other := range logicalLines(file) {
		if other == m[1] {
			return commands, quote, m[1]
		}
	}
	return commands, quote, ""
}

const longestText = 120 // characters of a line that are shown

// truncate cuts a line's text off where it is too long to show.
func truncate(l string) string {
	if runes := []rune(l); len(runes) > longestText {
		return string(runes[:longestText]) + "…"
	}
	return l
}

// IsShortened reports whether Text is the beginning of a line alone.
func (w Writer) IsShortened() bool { return len([]rune(w.Text)) > longestText }

// logicalLines numbers the lines of a text that say something. One that a backslash continues is a single one.
func logicalLines(text []byte) func(yield func(int, string) bool) {
	const longest = 4096
	return func(yield func(int, string) bool) {
		number, first, whole := 0, 0, ""
		for raw := range bytes.Lines(text) {
			number++
			if len(raw) > longest || !utf8.Valid(raw) {
				whole = ""
				continue
			}
			l := strings.TrimSpace(string(raw))
			if whole == "" {
				first = number
			}
			if part, continues := strings.CutSuffix(l, "\\"); continues && len(whole) < longest {
				whole += part + " "
				continue
			}
			l = strings.TrimSpace(whole + l)
			whole = ""
			if l != "" && l[0] != '#' && l[0] != ';' && !yield(first, l) {
				return
			}
		}
	}
}

// scanCommands finds what the commands of a line set. Where the lines that follow are tc's, it returns the one that
// ends them.
func (s *scanner) scanCommands(w Writer, l string) (heredoc string) {
	for tail := l; ; {
		match := tcCommand.FindStringSubmatchIndex(tail)
		if match == nil {
			break
		}
		start := max(match[2], match[4]) // where its arguments begin
		before, args := tail[:match[0]+1], tail[start:]
		tail = args
		x := w
		if n := udevName.FindStringSubmatch(l); w.By == "udev" && n != nil {
			x.Dev = udevDevices(n[1])
			if udevAdd.MatchString(l) {
				x.Name = n[1]
			}
		}
		if n := udevMAC.FindStringSubmatch(l); w.By == "udev" && n != nil {
			x.MAC = strings.ToLower(n[1])
		}
		words, file, ok := tcOptions(tcWords(substitution.ReplaceAllString(args, "${…}")))
		pipe := tcPipe.FindStringSubmatch(before)
		switch {
		case ok && pipe != nil && (file == "-" || len(words) == 0 && file == ""):
			for command := range strings.SplitSeq(pipe[1]+pipe[2], `\n`) {
				s.noteQueue(x, tcWords(command))
			}
		case !ok:
		case file == "":
			s.noteQueue(x, words)
		default:
			if file, heredoc = batchInput(file, words); heredoc == "" && w.Idle == "" {
				s.scanBatch(x, file)
			}
		}
	}
	for _, key := range sysctlKey.FindAllStringIndex(l, -1) {
		if value, ok := assignedValue(l, key[0], key[1]); ok {
			s.noteSysctl(w, l[key[0]:key[1]], value)
		}
	}
	for _, m := range procWrite.FindAllStringSubmatch(l, -1) {
		s.noteSysctl(w, m[2], strings.TrimSuffix(m[1], `\n`))
	}
	for _, m := range procHereString.FindAllStringSubmatch(l, -1) {
		s.noteSysctl(w, m[1], m[2])
	}
	if m := systemdSysctl.FindStringSubmatch(l); m != nil && w.Idle == "" && !strings.Contains(l, "--cat-config") {
		for _, word := range tcWords(m[1]) {
			s.noteSysctlFile(w, word)
		}
	}
	for tail := l; w.Idle == ""; {
		m := sysctlCommand.FindStringSubmatch(tail)
		if m == nil {
			break
		}
		tail = m[1]
		words := tcWords(tail)
		files := sysctlFiles(words)
		for _, name := range files {
			s.noteSysctlFile(w, name)
		}
		text := strings.Join(words, " ")
		if len(files) == 0 && strings.Contains(text, "$") && !sysctlKey.MatchString(text) &&
			strings.Contains(text, "=") {
			w.Sysctl = SomeSetting
			s.found = append(s.found, w)
		}
	}
	return heredoc
}

// noteSysctl notes what sets a setting that plans use.
func (s *scanner) noteSysctl(w Writer, key, value string) {
	if name := strings.ReplaceAll(key, "/", "."); slices.Contains(sysctls, name) {
		w.Sysctl, w.Value = name, joinFields(value)
		s.found = append(s.found, w)
	}
}

// sysctlFiles are the files that the arguments of sysctl(8) have it read.
func sysctlFiles(args []string) (files []string) {
	reads := false
	for _, word := range args {
		file, named := strings.CutPrefix(word, "--load=")
		if m := sysctlLoadOption.FindStringSubmatch(word); m != nil {
			file, named, reads = m[1], m[1] != "", true
		}
		switch {
		case word == "--system":
			return []string{"/" + sysctlConf} // and those that the boot has read
		case named:
			files, reads = append(files, file), true
		case word == "--load":
			reads = true
		case reads && path.IsAbs(word):
			files = append(files, word)
		}
	}
	if named := slices.ContainsFunc(args, func(s string) bool { return s[0] != '-' || s == "-" }); reads && !named &&
		len(files) == 0 {
		return []string{"/" + sysctlConf}
	}
	return files
}

// noteSysctlFile notes a file of settings that a line has sysctl(8) read.
func (s *scanner) noteSysctlFile(w Writer, file string) {
	name := strings.TrimPrefix(path.Clean(file), "/")
	ofLoader := slices.Contains(sysctlDirs(), path.Dir(name)) && strings.HasSuffix(name, ".conf")
	if !path.IsAbs(file) {
		return
	}
	boot, known := s.loaded[name]
	s.loaded[name] = boot || s.boot
	if !known && name != sysctlConf && !ofLoader { // which are among the settings
		s.found = append(s.found, s.assignments(w.By, name, "")...)
	}
}

// udevDevices are the devices that udev calls so when a rule is run; "" if they may be any. The kernel's names for
// cards are there before those that they get in the end (systemd.net-naming-scheme(7)).
func udevDevices(name string) string {
	switch {
	case strings.HasPrefix(name, "eth"), strings.ContainsAny(name, "|!*") && !strings.HasPrefix(name, "wlan"):
		return ""
	case strings.HasPrefix(name, "wlan"):
		return strings.ReplaceAll(name, "|", " ") + " wl*"
	}
	return name
}

// noteQueue notes what the arguments of tc set.
func (s *scanner) noteQueue(w Writer, words []string) {
	q, ok := parseTC(words)
	if !ok {
		return
	}
	if w.By == "udev" && w.Dev != "" && udevDeviceVariable.MatchString(q.Dev) {
		q.Dev = w.Dev
	}
	if w.By == "wg-quick" { // wg-quick(8)
		q.Dev = strings.ReplaceAll(q.Dev, "%i", strings.TrimSuffix(path.Base(w.File), ".conf"))
	}
	w.Qdisc, w.Dev, w.Rate = q.Qdisc, q.Dev, q.Rate
	s.found = append(s.found, w)
}

// scanBatch reads a file of tc's commands.
func (s *scanner) scanBatch(w Writer, file string) {
	name := strings.TrimPrefix(path.Clean(file), "/")
	if !path.IsAbs(file) || !fs.ValidPath(name) || s.visited[name] {
		return
	}
	s.visited[name] = true
	for number, l := range logicalLines(s.read(name)) {
		w.File, w.Line, w.Text = "/"+name, number, truncate(l)
		s.noteQueue(w, tcWords(l))
	}
}

// batchInput is the file of tc's commands where -batch names the standard input, or the word that ends them where they
// follow in the script.
func batchInput(file string, words []string) (from, heredoc string) {
	if file != "-" && file != "/dev/stdin" {
		return file, ""
	}
	text := strings.Join(words, " ")
	if word, ok := strings.CutPrefix(text, "<<"); ok {
		word, _, _ = strings.Cut(strings.TrimLeft(word, "- "), " ")
		return "", strings.Trim(word, `"'\\`)
	}
	from, _, _ = strings.Cut(strings.TrimLeft(text, "< "), " ")
	return from, ""
}

// assignedValue is the value that a line gives to the key in l[from:to].
func assignedValue(l string, from, to int) (value string, ok bool) {
	quote := ""
	if from > 0 && strings.ContainsAny(l[from-1:from], `"'`) {
		quote = l[from-1 : from]
	}
	text := l[to:]
	if quote != "" && strings.HasPrefix(text, quote) {
		quote, text = "", text[1:] // only the key is in quotes
	}
	text, ok = strings.CutPrefix(strings.TrimLeft(strings.TrimPrefix(text, "}"), " \t"), "=")
	if !ok || strings.HasPrefix(text, "=") {
		return "", false // none, or a comparison
	}
	text = strings.TrimLeft(text, " \t")
	if quote == "" && text != "" && strings.ContainsAny(text[:1], `"'`) {
		quote, text = text[:1], text[1:]
	}
	if quote == "" {
		quote = " \t\"';&|,]>)`"
	}
	if end := strings.IndexAny(text, quote); end >= 0 {
		text = text[:end]
	}
	return text, text != "" && !strings.HasPrefix(text, "lib.mk")
}

// tcWords are the arguments of a command that begins a line, up to where a shell ends it, or its output goes elsewhere.
func tcWords(args string) (words []string) {
	if end := strings.IndexAny(args, ";&|)>`"); end >= 0 {
		args = args[:end]
	}
	for word := range strings.FieldsSeq(args) {
		if word[0] == '#' {
			break
		}
		if word = strings.Trim(word, `"'[],`); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// tcOptions returns what follows the options of tc(8) itself, and the file of commands that they name (-batch). It is
// not ok where they are about another network namespace.
func tcOptions(words []string) (rest []string, batch string, ok bool) {
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		option := strings.TrimLeft(words[0], "-")
		words = words[1:]
		switch {
		case isAbbreviation(option, "netns"):
			return nil, "", false
		case isAbbreviation(option, "batch") && len(words) > 0:
			batch, words = words[0], words[1:]
		}
	}
	return words, batch, true
}

// isAbbreviation reports whether tc takes a word for one of these: it is content with the beginning.
func isAbbreviation(word string, names ...string) bool {
	return word != "" && slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, word) })
}

// parseTC reads the arguments of tc(8) that set the queue at the root of a device.
func parseTC(words []string) (w Writer, ok bool) {
	next := func() (word string) {
		if len(words) > 0 {
			word, words = words[0], words[1:]
		}
		return word
	}
	word, verb := next(), next()
	if !isAbbreviation(word, "qdisc") || !isAbbreviation(verb, "add", "replace", "change") {
		return Writer{}, false
	}
	w.Qdisc = SomeQueue
	root := false
	for len(words) > 0 {
		switch word := next(); {
		case word == "root":
			root = true
		case word == "parent" && len(words) > 0 && words[0] == "root":
			// which tc takes for the same
		case word == "dev":
			w.Dev = next()
		case word == "handle", word == "ingress_block", word == "egress_block":
			next()
		case word == "parent", word == "ingress", word == "clsact":
			return Writer{}, false // what hangs below a root, or at the ingress, is no queue of its own
		case isAbbreviation(word, "estimator"):
			next() // how often it measures
			next() // and over which time
		case isAbbreviation(word, "stab"):
			for len(words) > 1 && slices.Contains([]string{"mtu", "mpu", "tsize", "overhead", "linklayer"}, words[0]) {
				words = words[2:]
			}
		default:
			if kindName.MatchString(word) {
				w.Qdisc = word
			}
			w.Rate = rateIn(words)
			words = nil
		}
	}
	return w, root
}

// rateIn is the rate among a discipline's options; 0 if there is none.
func rateIn(options []string) units.Rate {
	for i, option := range options {
		if i+1 < len(options) && (option == "bandwidth" || option == "rate") {
			if rate, err := units.ParseTCRate(options[i+1]); err == nil {
				return rate
			}
		}
	}
	return 0
}

// noteShaper notes a program that is known to set queues, whose own lines say less than its arguments.
func (s *scanner) noteShaper(w Writer, l string) bool {
	m := shaperProgram.FindStringSubmatch(l)
	if m == nil {
		return false
	}
	if m[1] == "" {
		w.Qdisc, w.Dev = SomeQueue, cmp.Or(m[2], m[3], m[4])
		s.found = append(s.found, w)
	}
	return true
}

// scanScripts looks into the scripts that a line names, if the line has an effect. Relative names are those of dir,
// where the lines before it have gone; it returns where this line goes.
func (s *scanner) scanScripts(w Writer, l, dir string) string {
	if w.Idle != "" {
		return dir
	}
	for _, m := range interpreterCall.FindAllStringSubmatch(l, -1) {
		s.scanScript(w, m[1], "")
	}
	for _, m := range scriptPath.FindAllStringSubmatch(l, -1) {
		s.scanScript(w, m[1], "#!")
	}
	for _, m := range relativePath.FindAllStringSubmatch(l, -1) {
		if m[1] != "" {
			dir = m[1]
		} else if dir != "" {
			s.scanScript(w, path.Join(dir, m[2])[1:], "")
		}
	}
	return dir
}

var (
	cronTimes      = regexp.MustCompile(`^(?:@\w+|(?:[\d*,/-]\S*\s+){2}(?:\S+\s+){2}\S+)\s+`)
	commandWrapper = regexp.MustCompile(`^(?:Exec(?:Start|StartPre|StartPost|Reload)\s*=\s*[-@:+!|]*|\w+=\S*\s+|` +
		`(?:/\S*/)?(?:env|nohup|exec|nice(?:\s+-n\s*-?\d+|\s+--?\d+)?|ionice(?:\s+-[cn]\s*\d)*|timeout\s+\d\S*)\s+)*`)
	bareName = regexp.MustCompile(`^[\w.-]+$`)
)

// programNames are the commands of a line that are named without a folder. One of cron's has times before it, and may
// have a user.
func programNames(l string, cron bool) (names []string) {
	start := 0
	if cron {
		start = len(cronTimes.FindString(l))
	}
	for i, part := range splitPipelines(l[start:]) {
		text := part.text[len(commandLead.FindString(part.text)):]
		words := strings.Fields(text[len(commandWrapper.FindString(text)):])
		for index, word := range words[:min(len(words), 2)] {
			if bareName.MatchString(word) && (index == 0 || cron && i == 0) {
				names = append(names, word)
			}
		}
	}
	return names
}

// scanInPath looks into a program that is named without its folder: in the first one that has it.
func (s *scanner) scanInPath(w Writer, name string, dirs ...string) {
	for _, dir := range dirs {
		if _, there := s.resolve(path.Join(dir, name)); there {
			s.scanScript(w, path.Join(dir, name), "#!")
			return
		}
	}
}

// scanScript scans a script that begins with magic.
func (s *scanner) scanScript(w Writer, name, magic string) {
	const maxFunctions = 64
	name = path.Clean(name)
	top, _, _ := strings.Cut(name, "/")
	ofKernel := top == "proc" || top == "sys" || top == "dev"
	key := strings.Join([]string{name, s.device, strconv.FormatBool(s.boot)}, " ")
	if len(s.visited) >= maxFunctions || s.visited[key] || ofKernel || !fs.ValidPath(name) {
		return
	}
	if text := s.readScript(name, magic); text != nil {
		s.visited[key] = true
		s.scan(w.By, name, text, execFile, "")
	}
}

// readScript gives the text of a script that begins so; nil if a file is none.
func (t *tree) readScript(name, magic string) []byte {
	resolved, ok := t.resolve(name)
	if !ok {
		return nil
	}
	file, err := t.root.Open(resolved)
	if err != nil {
		return nil
	}
	begins := make([]byte, 64)
	n, _ := file.Read(begins)
	file.Close()
	if !bytes.HasPrefix(begins[:n], []byte(magic)) || bytes.IndexByte(begins[:n], 0) >= 0 { // a program has a NUL
		return nil
	}
	return t.read(name)
}
