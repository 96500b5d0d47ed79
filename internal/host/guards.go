// SPDX-License-Identifier: Apache-2.0

package host

import (
	"regexp"
	"strings"
)

// guards follow a script, and know where in it a variable can have one value alone, since with any other the script
// does not get there: behind if [ "$IFACE" = wlan0 ], a label of case, &&, or an exit for all others.
type guards struct {
	blocks      []block // of which the first is the file
	inTest      bool    // between if and then
	alternative bool    // one of the tests there is enough
}

// block is a part of a script that ends with fi, esac or }.
type block struct {
	end      string
	values   map[string]string // of variables, by their names
	subject  string            // the variable of a case
	label    bool              // comes next in it
	function bool              // it is a function, or in one: what it is handed has the names 1, 2 …
	// that a variable must not have for the block to be run, and whether the script ends in it
	name, excluded string
	exits          bool
}

var (
	blockOpener = regexp.MustCompile(`^(?:(?:then|do|else)\b\s*|[{(]\s*)*`)
	equality    = regexp.MustCompile(`^(?:(?:el)?if\s+)?(?:\[\[?|test)\s+["']?\$\{?(\w+)\}?["']?\s+(==?|!=)\s+` +
		`["']?([\w.-]+)["']?(?:\s*\]\]?)?$`)
	caseHead     = regexp.MustCompile(`^case\s+(?:["']?\$\{?(\w+)\}?["']?|.*?)\s+in\b\s*`)
	functionHead = regexp.MustCompile(`^(?:function\s+[\w-]+\s*(?:\(\s*\))?|[\w-]+\s*\(\s*\))\s*\{\s*`)
	singleLabel  = regexp.MustCompile(`^["']?([\w.-]+\*?)["']?$`)
	blockCloser  = regexp.MustCompile(`^(?:fi\b|esac\b|\})`)
	ifHead       = regexp.MustCompile(`^(?:el)?if\s`)
	variableName = regexp.MustCompile(`\$(?:\w\b|[A-Za-z_]\w*\b|\{\w+\})`)
)

// top is the innermost block.
func (g *guards) top() *block {
	if len(g.blocks) == 0 {
		g.push("")
	}
	return &g.blocks[len(g.blocks)-1]
}

func (g *guards) push(end string) *block {
	nested := len(g.blocks) > 0 && g.top().function
	g.blocks = append(g.blocks, block{end: end, values: map[string]string{}, function: nested})
	return g.top()
}

// pop leaves a block. Where the script ends in it but for one value of a variable, what comes behind has that.
func (g *guards) pop(end string) {
	left := *g.top()
	if end == "" || left.end != end {
		return
	}
	g.blocks = g.blocks[:len(g.blocks)-1]
	if left.exits && left.excluded != "" {
		g.top().values[left.name] = left.excluded
	}
}

// forget drops what is known of variables that a part gives another value.
func (g *guards) forget(text string) {
	var names []string
	if m := assignment.FindStringSubmatch(text); m != nil {
		names = append(names, m[1])
	}
	for _, m := range otherAssignment.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Fields(strings.Join(m[1:], " "))...)
	}
	for _, b := range g.blocks {
		for name := range b.values {
			if strings.HasPrefix(text, "shift") && name[0] <= '9' {
				names = append(names, name)
			}
		}
		for _, name := range names {
			delete(b.values, name)
		}
	}
}

// expand puts in a line what variables can only be in the place of their names.
func (g *guards) expand(l string) string {
	all := splitPipelines(l)
	chain := map[string]string{} // what && has made sure of
	changed := false
	g.top()
	for i, p := range all {
		before, test := "", (*block)(nil)
		if i > 0 {
			before = all[i-1].after
		}
		if before != "&&" {
			clear(chain)
		}
		command := g.enterBlock(p.text, chain)
		filled := variableName.ReplaceAllStringFunc(command, func(written string) string {
			name := strings.Trim(written, "${}")
			if value, known := chain[name]; known {
				return value
			}
			for _, b := range g.blocks {
				if value, known := b.values[name]; known && (name[0] > '9' || b.function == g.top().function) {
					return value
				}
			}
			return written
		})
		changed = changed || filled != command
		all[i].text = p.text[:len(p.text)-len(command)] + filled
		g.forget(command)
		if strings.HasPrefix(command, "elif") {
			test = g.top()
			test.values, test.excluded = map[string]string{}, ""
		} else if ifHead.MatchString(command) {
			test = g.push("fi")
		}
		if test != nil {
			g.inTest, g.alternative = true, false
		}
		g.alternative = g.alternative || g.inTest && p.after == "||"
		m := equality.FindStringSubmatch(command)
		switch {
		case g.inTest && g.alternative:
			g.top().values, g.top().excluded = map[string]string{}, ""
		case m == nil && exitCommand.MatchString(command):
			g.top().exits = before != "&&" && before != "||"
			if paired := i > 0 && (i == 1 || all[i-2].after != "&&" && all[i-2].after != "||"); paired && !g.inTest {
				if m := equality.FindStringSubmatch(all[i-1].text); m != nil && (m[2] == "!=") == (before == "&&") &&
					(before == "&&" || before == "||") {
					g.top().values[m[1]] = m[3]
				}
			}
		case m == nil:
		case g.inTest && m[2] != "!=":
			g.top().values[m[1]] = m[3]
		case g.inTest && test != nil && p.after != "&&":
			test.name, test.excluded = m[1], m[3]
		case !g.inTest && m[2] != "!=" && p.after == "&&" && before != "||":
			chain[m[1]] = m[3]
		}
		if end := blockCloser.FindString(command); end != "" {
			g.pop(end)
		}
		if p.after == ";;" && g.top().end == "esac" {
			g.top().label, g.top().values = true, map[string]string{}
		}
	}
	if !changed {
		return l
	}
	var text strings.Builder
	for _, p := range all {
		text.WriteString(p.text + " " + p.after + " ")
	}
	return strings.TrimSpace(text.String())
}

// enterBlock leaves behind the words with which a part of a line begins, and notes where they lead.
func (g *guards) enterBlock(text string, chain map[string]string) (command string) {
	for command = text; ; {
		words := blockOpener.FindString(command)
		if g.top().label {
			words = ""
		}
		command = command[len(words):]
		if strings.Contains(words, "then") || strings.Contains(words, "do") {
			g.inTest = false
		}
		if strings.Contains(words, "else") {
			g.top().values, g.top().excluded = map[string]string{}, ""
		}
		if strings.Contains(words, "{") {
			b := g.push("}")
			for name, value := range chain {
				b.values[name] = value
			}
		}
		if m := caseLabel.FindStringSubmatch(command); m != nil && g.top().label {
			g.top().label = false
			if name := singleLabel.FindStringSubmatch(m[1]); name != nil && g.top().subject != "" {
				g.top().values[g.top().subject] = name[1]
			}
			command = m[2]
			continue
		}
		if name := functionHead.FindString(command); name != "" {
			g.push("}").function = true
			command = command[len(name):]
			continue
		}
		m := caseHead.FindStringSubmatch(command)
		if m == nil {
			return command
		}
		b := g.push("esac")
		b.subject, b.label = m[1], true
		command = command[len(m[0]):]
	}
}
