// SPDX-License-Identifier: Apache-2.0

package host

import (
	"regexp"
	"strings"
)

const endWords = `(?:(?:pre-|post-|if)?down|force-stop|stop(?:ped)?|release|expire|fail|off|disable|clear|remove)`

var (
	// Lines that run when something ends, by who reads them: systemd.service(5), interfaces(5), wg-quick(8),
	// openvpn(8), netctl.profile(5), modprobe.d(5).
	endLine = map[string]*regexp.Regexp{
		"systemd unit": regexp.MustCompile(`^ExecStop(?:Post)?\s*=`),
		"ifupdown":     regexp.MustCompile(`^(?:pre-|post-)?down\s`),
		"wg-quick":     regexp.MustCompile(`^(?i:P(?:re|ost)Down)\s*=`),
		"OpenVPN":      regexp.MustCompile(`^(?:down|route-pre-down|client-disconnect)\s`),
		"netctl":       regexp.MustCompile(`^ExecDown(?:Pre|Post)=`),
		"modprobe":     regexp.MustCompile(`^remove\s`),
	}
	// A branch of a script, a function, and a condition for that.
	caseLabel   = regexp.MustCompile(`^\(?\s*((?:[\w*"'.:-]+\s*\|\s*)*[\w*"'.:-]+)\s*\)\s*(.*)$`)
	endLabel    = regexp.MustCompile(`(?i)^["']?` + endWords + `["']?(?:\s*\|\s*["']?` + endWords + `["']?)*$`)
	endFunction = regexp.MustCompile(`^(?:function\s+)?(?:do_)?stop(?:_pre|_post)?\s*(?:\(\s*\))?\s*\{(.*)$`)
	endIf       = regexp.MustCompile(`(?i)^(?:el)?if\s+(?:\[|test\b).*[\s"}]==?\s*["']?` + endWords +
		`["']?(?:\s*\]|\s*;|$)`)
)

// ending follows through the lines of a file which run only when something ends. These set nothing that lasts.
type ending struct {
	line  *regexp.Regexp // that runs then
	until *regexp.Regexp // the line with which a part of a script ends that does; nil outside of one
}

var (
	branchEnds   = regexp.MustCompile(`;;|^esac\b`)
	functionEnds = regexp.MustCompile(`(?:^|;\s*)\}`)
	ifEnds       = regexp.MustCompile(`^(?:else|elif|fi)\b|;\s*(?:else|fi)\b`)
)

// runs reports whether a line runs at another time than the end.
func (e *ending) runs(l string) bool {
	if e.line != nil && e.line.MatchString(l) {
		return false
	}
	inside := e.until != nil
	if !inside {
		body := l
		if m := caseLabel.FindStringSubmatch(l); m != nil && endLabel.MatchString(m[1]) {
			e.until, body = branchEnds, m[2]
		} else if m := endFunction.FindStringSubmatch(l); m != nil {
			e.until, body = functionEnds, m[1]
		} else if endIf.MatchString(l) {
			e.until = ifEnds
			_, body, _ = strings.Cut(l, "then")
		} else {
			return true
		}
		l = body
	}
	if e.until.MatchString(l) {
		if otherBranch := e.until == ifEnds && inside && endIf.MatchString(l); !otherBranch {
			e.until = nil
		}
	}
	return false
}

var (
	// What comes before a command, also where a file has its own word for when it runs.
	leading = regexp.MustCompile(`^(?:(?:(?:pre-|post-)?up\s|P(?:re|ost)Up\s*=|then\s|do\s|else\s|if\s|elif\s|` +
		`while\s|until\s|!\s|[({]\s*|sudo\s|[\w*"'|.-]+\)\s+)\s*)*`)
	// Commands that only write, compare or look for their words.
	sayer   = regexp.MustCompile(`^(?:echo|printf|logger|test|\[\[?|:|cat|tee|grep|egrep|sed|awk)(?:\s|$)`)
	asShell = regexp.MustCompile(`\|\s*(?:sudo\s+)?(?:(?:ba|da|k|z)?sh|at|batch|xargs|tc|sysctl)\b`)
	hereDoc = regexp.MustCompile(`(?:^|[^<])<<-?\s*["'\\]?(\w+)["']?`)
	// What a here-document is to be run by.
	hereRun = regexp.MustCompile(`(?:^|[\s/|])(?:(?:ba|da|k|z)?sh|at|batch|sysctl|python[\d.]*|perl)(?:\s|$)`)
)

// running is what of a line is run, and not only written, compared or looked for. Where a text goes on behind the
// line, open is the quote that ends it.
func running(l string) (commands string, open byte) {
	var kept []string
	for _, part := range parts(l) {
		start := leading.FindString(part.text)
		switch {
		case !sayer.MatchString(part.text[len(start):]):
		case strings.Contains(part.bare, "/proc/sys/") && procWrite.MatchString(part.text):
		case asShell.MatchString(part.bare):
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
	open       byte // the quote that is not closed; 0: none
}

// parts splits a line where a shell does: at semicolons, and at && and ||, outside of quotes. A comment is left out.
func parts(l string) (all []pipeline) {
	var quote byte
	bare, start := make([]byte, 0, len(l)), 0
	end := func(i int) {
		all = append(all, pipeline{strings.TrimSpace(l[start:i]), strings.TrimSpace(string(bare)), quote})
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
			end(i)
			return all
		case two == "&&" || two == "||" || c == ';':
			end(i)
			if c != ';' {
				i++
			}
			start = i + 1
			continue
		}
		bare = append(bare, c)
	}
	end(len(l))
	return all
}
