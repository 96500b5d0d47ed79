// SPDX-License-Identifier: Apache-2.0

package host

import (
	"regexp"
	"strings"
)

const stopWords = `(?:(?:pre-|post-|if)?down|force-stop|stop(?:ped)?|release|expire|fail|off|disable|clear|remove)`

var (
	// Lines that run when something ends, by who reads them: systemd.service(5), interfaces(5), wg-quick(8),
	// openvpn(8), netctl.profile(5), modprobe.d(5), keepalived.conf(5), whose comments may begin with "!".
	stopLines = map[string]*regexp.Regexp{
		"systemd unit": regexp.MustCompile(`^ExecStop(?:Post)?\s*=`),
		"ifupdown":     regexp.MustCompile(`^(?:pre-|post-)?down\s`),
		"wg-quick":     regexp.MustCompile(`^(?i:P(?:re|ost)Down)\s*=`),
		"OpenVPN":      regexp.MustCompile(`^(?:down|route-pre-down|client-disconnect)\s`),
		"netctl":       regexp.MustCompile(`^ExecDown(?:Pre|Post)=`),
		"modprobe":     regexp.MustCompile(`^remove\s`),
		"keepalived":   regexp.MustCompile(`^(?:notify_stop\s|!)`),
	}
	// A branch of a script, a function, and a condition for that.
	caseLabel    = regexp.MustCompile(`^\(?\s*((?:[\w*"'.:-]+\s*\|\s*)*[\w*"'.:-]+)\s*\)\s*(.*)$`)
	stopLabel    = regexp.MustCompile(`(?i)^["']?` + stopWords + `["']?(?:\s*\|\s*["']?` + stopWords + `["']?)*$`)
	stopFunction = regexp.MustCompile(`^(?:function\s+)?(?:do_)?stop(?:_pre|_post)?\s*(?:\(\s*\))?\s*\{(.*)$`)
	stopIf       = regexp.MustCompile(`(?i)^(?:el)?if\s+(?:\[|test\b).*[\s"}]==?\s*["']?` + stopWords +
		`["']?(?:\s*\]|\s*;|$)`)
)

// stopFilter follows through the lines of a file which run only when something ends. These set nothing that lasts.
type stopFilter struct {
	stopLine *regexp.Regexp // that runs then
	blockEnd *regexp.Regexp // the part with which a part of a script ends that does; nil outside of one
	depth    int            // of the conditions in it
	// of a script of a shell's: what is around a line in it, and whether exit is behind it
	script    bool
	nesting   int
	openQuote byte // the quote that ends a text that goes on behind its line
	exited    bool
}

var (
	caseBranchEnd = regexp.MustCompile(`;;|^esac\b`)
	functionEnd   = regexp.MustCompile(`^\}`)
	ifBranchEnd   = regexp.MustCompile(`^(?:else|elif|fi)\b`)
	subshellEnd   = regexp.MustCompile(`\)$`)
	ifStart       = regexp.MustCompile(`^(?:(?:then|else|do|[{(])\s+)*if\b`)
	caseStart     = regexp.MustCompile(`^case\s.*\sin\s+`)
	// [ "$2" = down ], of which what follows && runs only then.
	stopTest = regexp.MustCompile(`(?i)^(?:\[|test\b).*[\s"}]==?\s*["']?` + stopWords + `["']?(?:\s*\]+)?$`)
)

var (
	blockStart = regexp.MustCompile(`(?:^|[|{(!)]\s*|\b(?:then|else|do)\s+)(?:if|case|for|while|until|select)\s|` +
		`(?:^|[\s)])\{\s|[({]$`)
	blockClose         = regexp.MustCompile(`^(?:(?:fi|esac|done)\b|[)}])`)
	exitCommand        = regexp.MustCompile(`^exit(?:\s+\d+)?$`)
	ifKeyword          = regexp.MustCompile(`^(?:el)?if\s+`)
	constantComparison = regexp.MustCompile(`^(?:\[\[?|test)\s+["']?([\w-]+)["']?\s+(==?|!=|-eq|-ne)\s+` +
		`["']?([\w-]+)["']?(?:\s*\]\]?)?$`)
)

// constantCondition reports whether a condition has the same answer each time, and which.
func constantCondition(text string) (answer, known bool) {
	text, not := strings.CutPrefix(text, "! ")
	text = strings.TrimSpace(text)
	switch m := constantComparison.FindStringSubmatch(text); {
	case text == "true" || text == ":":
		answer = true
	case text == "false":
	case m != nil:
		answer = (m[1] == m[3]) == (m[2] != "!=" && m[2] != "-ne")
	default:
		return false, false
	}
	return answer != not, true
}

// isNeverMet reports whether a condition is never met.
func isNeverMet(text string) bool {
	answer, known := constantCondition(text)
	return known && !answer
}

// advance follows a part of a script's line, and reports whether the script comes that far: not behind an exit that
// depends on nothing.
func (e *stopFilter) advance(p pipeline, depends bool) bool {
	switch {
	case !e.script:
	case e.exited:
		return false
	case e.openQuote != 0:
		if strings.IndexByte(p.text, e.openQuote) >= 0 {
			e.openQuote = 0
		}
	default:
		if blockClose.MatchString(p.bare) {
			e.nesting = max(0, e.nesting-1)
		}
		e.exited = e.nesting == 0 && !depends && p.after != "&" && exitCommand.MatchString(p.bare)
		e.nesting += len(blockStart.FindAllStringIndex(p.bare, -1))
		e.openQuote = p.open
	}
	return true
}

// rest gives what of a line runs at another time than the end; "" if nothing does.
func (e *stopFilter) rest(l string) (left string) {
	if e.stopLine != nil && e.stopLine.MatchString(l) {
		return ""
	}
	all := splitPipelines(l)
	var kept []string
	skipped := false // what && leads to
	for i, part := range all {
		before := pipeline{}
		if i > 0 {
			before = all[i-1]
		}
		if !e.advance(part, before.after == "&&" || before.after == "||") {
			break
		}
		text := strings.TrimPrefix(part.text, caseStart.FindString(part.text))
		if part.after == ";;" {
			text += ";;"
		}
		met, known := constantCondition(before.text)
		tested := before.after == "&&" && (skipped || e.blockEnd == nil && stopTest.MatchString(before.text)) ||
			known && (met && before.after == "||" || !met && before.after == "&&")
		skipped = false
		switch {
		case tested && strings.HasPrefix(text, "{"):
			e.blockEnd = functionEnd
		case tested && strings.HasPrefix(text, "("):
			if e.blockEnd = subshellEnd; subshellEnd.MatchString(text) {
				e.blockEnd = nil
			}
		case tested:
			skipped = true
		case e.keepsPart(text):
			kept = append(kept, part.text)
		}
	}
	if len(kept) == len(all) {
		return l
	}
	return strings.Join(kept, "; ")
}

// isStopCondition reports whether what follows a condition runs only when something ends, or never.
func isStopCondition(text string) bool {
	begin := ifKeyword.FindString(text)
	return stopIf.MatchString(text) || begin != "" && isNeverMet(text[len(begin):])
}

// keepsPart reports whether a part of a line runs at another time than the end.
func (e *stopFilter) keepsPart(text string) bool {
	inside := e.blockEnd != nil
	if !inside {
		if m := caseLabel.FindStringSubmatch(text); m != nil && stopLabel.MatchString(m[1]) {
			e.blockEnd, text = caseBranchEnd, m[2]
		} else if m := stopFunction.FindStringSubmatch(text); m != nil {
			e.blockEnd, text = functionEnd, strings.TrimSpace(m[1])
		} else if isStopCondition(text) {
			e.blockEnd, e.depth = ifBranchEnd, 0
			return false
		} else {
			return true
		}
	}
	switch {
	case e.blockEnd == ifBranchEnd && ifStart.MatchString(text):
		e.depth++
	case e.blockEnd == ifBranchEnd && e.depth > 0:
		if text == "fi" {
			e.depth--
		}
	case e.blockEnd.MatchString(text):
		if otherBranch := e.blockEnd == ifBranchEnd && inside && isStopCondition(text); !otherBranch {
			elseRuns := e.blockEnd == ifBranchEnd && strings.HasPrefix(text, "else")
			e.blockEnd = nil
			return elseRuns
		}
	}
	return false
}

var (
	// What comes before a command, also where a file has its own word for when it runs.
	commandLead = regexp.MustCompile(`^(?:(?:(?:pre-|post-)?up\s|P(?:re|ost)Up\s*=|then\s|do\s|else\s|if\s|elif\s|` +
		`while\s|until\s|!\s|[({]\s*|case\s.*\sin\s|sudo\s|[\w*"'|.-]+\)\s+)\s*)*`)
	// Commands that only write, compare or look for their words.
	outputCommand = regexp.MustCompile(`^(?:echo|printf|logger|test|\[\[?|:|cat|tee|grep|egrep|sed|awk)(?:\s|$)`)
	pipedToShell  = regexp.MustCompile(`\|\s*(?:sudo\s+)?(?:(?:ba|da|k|z)?sh|at|batch|xargs|tc|sysctl)\b`)
	hereDoc       = regexp.MustCompile(`(?:^|[^<])<<-?\s*["'\\]?(\w+)["']?`)
	// What a here-document is to be run by.
	hereDocRunner = regexp.MustCompile(`(?:^|[\s/|])(?:(?:ba|da|k|z)?sh|at|batch|sysctl|python[\d.]*|perl)(?:\s|$)`)
)

// executedCommands is what of a line is run, and not only written, compared or looked for. Where a text goes on behind
// the line, open is the quote that ends it.
func executedCommands(l string) (commands string, open byte) {
	var kept []string
	for _, part := range splitPipelines(l) {
		start := commandLead.FindString(part.text)
		switch {
		case !outputCommand.MatchString(part.text[len(start):]):
		case strings.Contains(part.bare, "/proc/sys/") &&
			(procWrite.MatchString(part.text) || procHereString.MatchString(part.text)):
		case pipedToShell.MatchString(part.bare):
		default:
			open = part.open
			_, piped, _ := strings.Cut(part.bare, "|")
			part.text = piped
		}
		kept = append(kept, part.text)
	}
	return strings.Join(kept, "; "), open
}

// pipeline is what a shell runs at once. Bare is its text with blanks for what is in quotes.
type pipeline struct {
	text, bare string
	open       byte   // the quote that is not closed; 0: none
	after      string // what ends it: ; ;; && || &, or "" at the end of the line
}

// splitPipelines splits a line where a shell does: at semicolons, &, && and ||, outside of quotes. A comment is left
// out.
func splitPipelines(l string) (all []pipeline) {
	var quote byte
	bare, start := make([]byte, 0, len(l)), 0
	end := func(i int, after string) {
		all = append(all, pipeline{strings.TrimSpace(l[start:i]), strings.TrimSpace(string(bare)), quote, after})
		bare = bare[:0]
	}
	for i := 0; i < len(l); i++ {
		c := l[i]
		two := l[i:min(i+2, len(l))]
		switch {
		case quote == 0 && (c == '"' || c == '\'') && (i == 0 || l[i-1] != '\\'):
			quote = c
		case quote == c && (c == '\'' || l[i-1] != '\\'):
			quote = 0
		case quote != 0:
			c = ' '
		case c == '#' && i > 0 && strings.ContainsAny(l[i-1:i], " \t;"):
			end(i, "")
			return all
		case two == "&&" || two == "||" || two == ";;":
			end(i, two)
			i++
			start = i + 1
			continue
		case c == ';', c == '&' && two != "&>" && (i == 0 || !strings.ContainsAny(l[i-1:i], "<>")):
			end(i, two[:1])
			start = i + 1
			continue
		}
		bare = append(bare, c)
	}
	if strings.TrimSpace(l[start:]) != "" || len(all) == 0 {
		end(len(l), "")
	}
	return all
}

const (
	wordGap     = `[\s,"']+` // between words, also those of a list
	optionWords = `(?:\s+-\S+)*`
)

// remoteCommand is the beginning of a command that runs another one in another network namespace, in a container, or on
// another host. The groups are the options of nsenter(1) and unshare(1), and what is behind "docker run".
var remoteCommand = regexp.MustCompile(`(?:^|[\s"'=@!+:;&|({/\[-])(?:` +
	`ip` + wordGap + `(?:-\w+` + wordGap + `)*net(?:ns?)?` + wordGap + `e(?:x(?:ec?)?)?` + wordGap + `|` +
	`\$\S+\s+netns\s+exec\s|` +
	`nsenter((?:\s+-(?:(?:[tSG]|-target|-setuid|-setgid)\s+\S+|\S+))*)|unshare(` + optionWords + `)|` +
	`(?:docker|podman|nerdctl)` + optionWords + `(?:\s+compose` + optionWords + `)?\s+(?:exec\s|run((?:\s+\S+)*))|` +
	`(?:lxc|incus|pct|crictl|vzctl)\s+exec\s|(?:kubectl|oc)\s+(?:\S+\s+)*?exec\s|lxc-attach\s|` +
	`machinectl` + optionWords + `\s+shell\s|systemd-nspawn\s|(?:ssh|autossh|mosh|dbclient)\s)`)

var (
	netnsOption  = regexp.MustCompile(`\s-(?:[na]|-net|-all)`)
	initTarget   = regexp.MustCompile(`\s-(?:t|-target)[\s=]*1(?:\s|$)`)
	newNetOption = regexp.MustCompile(`\s-(?:\w*n|-net)`)
	hostNetwork  = regexp.MustCompile(`\s--net(?:work)?[\s=]host\b`)
	wordList     = regexp.MustCompile(`^ip["',]`)
)

// localCommands leaves out of a line what runs elsewhere. Where the text of such a command goes on behind the line,
// open is the quote that ends it.
func localCommands(l string) (left string, open byte) {
	for from := 0; from < len(l); {
		m := remoteCommand.FindStringSubmatchIndex(l[from:])
		if m == nil {
			break
		}
		group := func(i int) (string, bool) {
			if m[2*i] < 0 {
				return "", false
			}
			return l[from+m[2*i] : from+m[2*i+1]], true
		}
		nsenter, enters := group(1)
		unshare, unshares := group(2)
		container, starts := group(3)
		if enters && (!netnsOption.MatchString(nsenter) || initTarget.MatchString(nsenter)) ||
			unshares && !newNetOption.MatchString(unshare) || starts && hostNetwork.MatchString(container) {
			from += m[1]
			continue
		}
		begin := from + m[0]
		if begin > 0 || strings.ContainsAny(l[:1], "\"'(;&|") {
			begin++ // what is before it stays
		}
		var end int
		if wordList.MatchString(l[begin:]) {
			end = len(l)
		} else {
			end, open = commandEnd(l, begin)
		}
		l = l[:begin] + l[end:]
		from = begin
	}
	return l, open
}

// commandEnd is where the command ends that begins at l[begin:], which may be in quotes itself. If it goes on behind
// the line, open is the quote that ends it.
func commandEnd(l string, begin int) (end int, open byte) {
	var around, quote byte
	for i := 0; i < len(l); i++ {
		c := l[i]
		inside := i >= begin
		switch {
		case c == '\\':
			i++
		case !inside && around == 0 && (c == '"' || c == '\''):
			around = c
		case !inside && c == around:
			around = 0
		case !inside:
		case quote == 0 && c == around && around != 0:
			return i, 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == c:
			quote = 0
		case quote == 0 && (c == ';' || c == '|' || c == ')' || c == '&' && l[i-1] != '>' && l[i-1] != '<'):
			return i, 0
		}
	}
	return len(l), quote
}

var (
	assignment = regexp.MustCompile(`^(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?` +
		`([A-Za-z_]\w*)\+?=(.*)$`)
	// A value that a file has for one, and the names that are given values in another way, or may be
	// from without.
	literalValue    = regexp.MustCompile("^(?:\"([^\"`\\\\]*)\"|'([^']*)'|([^\\s\"'`|&;<>()\\\\]*))$")
	otherExpansion  = regexp.MustCompile(`\$[^A-Za-z_{]|\$\{\w*[^\w}]`)
	otherAssignment = regexp.MustCompile(`\b(?:for|select|getopts\s+\S+)\s+([A-Za-z_]\w*)|` +
		`\bread\s+((?:-\w+\s+|\w+\s*)+)|(?:\[|test)\s+-[nz]\s+["']?\$\{?(\w+)`)
	sourceCommand = regexp.MustCompile(`(?m)(?:^|[;&|{]|\bthen|\bdo)\s*(?:\.|source)\s+\S`)
	variable      = regexp.MustCompile(`\$(?:([A-Za-z_]\w*)\b|\{([A-Za-z_]\w*)\})`)
	// systemd.exec(5)
	environment     = regexp.MustCompile(`^Environment\s*=(.*)$`)
	environmentWord = regexp.MustCompile(`"(\w+)=([^"]*)"|'(\w+)=([^']*)'|(\w+)=(\S*)`)
)

// variables are what the variables of a file stand for to which it gives one value, by their names.
type variables map[string]string

// variablesOf finds them in a script, a crontab or a unit. Where another file is read in, which may give another value,
// only those are told that are beginnings of commands, of several words.
func variablesOf(by string, how execution, text []byte) variables {
	values, doubts := variables{}, map[string]bool{}
	give := func(name, value string, ok bool) {
		before, known := values[name]
		doubts[name] = doubts[name] || !ok || known && before != value
		values[name] = value
	}
	reads := false
	unit := by == "systemd unit" && how == execLines
	if !unit && how != execFile && how != execRunParts && by != "cron" {
		return nil
	}
	for _, l := range logicalLines(text) {
		if unit {
			reads = reads || strings.HasPrefix(l, "EnvironmentFile")
			if m := environment.FindStringSubmatch(l); m != nil {
				for _, m := range environmentWord.FindAllStringSubmatch(m[1], -1) {
					give(m[1]+m[3]+m[5], m[2]+m[4]+m[6], true)
				}
			}
			continue
		}
		reads = reads || sourceCommand.MatchString(l)
		for _, m := range otherAssignment.FindAllStringSubmatch(l, -1) {
			for _, name := range strings.Fields(strings.Join(m[1:], " ")) {
				give(name, "", false)
			}
		}
		for _, part := range splitPipelines(l) {
			if m := assignment.FindStringSubmatch(part.text[len(commandLead.FindString(part.text)):]); m != nil {
				value := literalValue.FindStringSubmatch(m[2])
				ok := value != nil && !otherExpansion.MatchString(m[2]) && !strings.Contains(part.text, "+=")
				if value == nil {
					value = make([]string, 4)
				}
				give(m[1], value[1]+value[2]+value[3], ok)
			}
		}
	}
	for name, value := range values {
		if doubts[name] || reads && !strings.Contains(value, " ") {
			delete(values, name)
		}
	}
	return values
}

// expand puts their values in the place of variables, and leaves out where these are given.
func (v variables) expand(l string) string {
	const deepest = 4
	if len(v) == 0 || !strings.Contains(l, "$") && !strings.Contains(l, "=") {
		return l
	}
	all := splitPipelines(l)
	kept := all[:0:0]
	for _, part := range all {
		m := assignment.FindStringSubmatch(part.text[len(commandLead.FindString(part.text)):])
		if m != nil && strings.Contains(v[m[1]], " ") && literalValue.MatchString(m[2]) {
			continue
		}
		kept = append(kept, part)
	}
	if len(kept) < len(all) {
		l = joinParts(kept)
	}
	for range deepest {
		filled := variable.ReplaceAllStringFunc(l, func(written string) string {
			if value, known := v[strings.Trim(written, "${}")]; known {
				return value
			}
			return written
		})
		if filled == l {
			break
		}
		l = filled
	}
	return l
}

func joinParts(all []pipeline) string {
	var texts []string
	for _, part := range all {
		texts = append(texts, part.text)
	}
	return strings.Join(texts, "; ")
}
