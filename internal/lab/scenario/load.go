// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// FileError says where in a scenario file something is wrong, and what to write instead.
type FileError struct {
	File string
	Line int // 0: the file as a whole
	What string
	Try  string // may be empty
}

func (e *FileError) Error() string {
	what := e.What
	if r := []rune(what); len(r) > longest {
		what = string(r[:longest]) + "…"
	}
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, what)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, what)
}

// longest is how many characters an error says of what is wrong: a key or a name of the file's may have any number.
const longest = 500

// Hint is the likely fix, or empty.
func (e *FileError) Hint() string { return e.Try }

// source is one file of a chain of inheritance.
type source struct {
	path string
	text []byte
}

// maxInherit is deeper than anybody needs: a longer chain is a loop.
const maxInherit = 8

// maxFile is far above any scenario; a device or a log given by mistake ends here.
const maxFile = 1 << 20

// Load reads a scenario file and all that it inherits, and checks that it can be run. What was left out stays empty:
// each of its Points has the defaults. An error is a *FileError.
func Load(path string) (Scenario, error) {
	chain, err := readChain(path)
	if err != nil {
		return Scenario{}, err
	}
	var s Scenario
	for _, f := range chain {
		if err := s.overlay(f); err != nil {
			return s, err
		}
	}
	if p := s.checkAll(); p != nil {
		return s, chain.locate(p)
	}
	return s, nil
}

// File is a scenario file as it is.
type File struct {
	Name string
	Text []byte
}

// Files are a scenario's file and all that it inherits, the oldest ancestor first.
func Files(path string) ([]File, error) {
	chain, err := readChain(path)
	var files []File
	for _, f := range chain {
		files = append(files, File{Name: f.path, Text: f.text})
	}
	return files, err
}

type sources []source

// readChain returns the oldest ancestor first.
func readChain(path string) (sources, error) {
	var chain sources
	for depth := 0; ; depth++ {
		text, bad := readFile(path)
		if bad != nil && len(chain) > 0 { // the mistake is in the file that names this one
			try := cmp.Or(bad.Try, "the path of a scenario, from the folder of this one")
			return nil, chain[:1].locate(errAt(try, []string{"inherit"}, "inherits %s: %s", path, bad.What))
		}
		if bad != nil {
			return nil, bad
		}
		chain = append(sources{{path, text}}, chain...)
		var head struct {
			Inherit string `toml:"inherit"`
		}
		if err := toml.Unmarshal(text, &head); err != nil {
			return nil, positioned(path, err)
		}
		if head.Inherit == "" {
			return chain, nil
		}
		if depth == maxInherit {
			return nil, chain.locate(
				&problem{where: []string{"inherit"}, what: "inherits itself, or more than 8 levels deep"})
		}
		if !filepath.IsAbs(head.Inherit) {
			head.Inherit = filepath.Join(filepath.Dir(path), head.Inherit)
		}
		path = head.Inherit
	}
}

// readFile returns the text of one file.
func readFile(path string) ([]byte, *FileError) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		return nil, &FileError{path, 0, "is not a scenario file", "a scenario is a TOML file; see scenarios/"}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		reason := err
		if inner := errors.Unwrap(err); inner != nil {
			reason = inner
		}
		return nil, &FileError{path, 0, reason.Error(), ""}
	}
	if strings.HasPrefix(string(text), "\ufeff") {
		return nil, &FileError{path, 1, "begins with a byte order mark", "the file as UTF-8 without one (without BOM)"}
	}
	return text, nil
}

// overlay puts a file on top of what it inherits: tables key by key; clients, flows, probes, programs and candidates
// by name, where an entry with the name of an inherited one replaces it; sweeps and claims are the file's own.
func (s *Scenario) overlay(f source) error {
	parent := *s
	s.Client, s.Flow, s.Probe, s.Program, s.Candidate = nil, nil, nil, nil, nil
	s.Claim, s.Sweep = nil, nil
	var said map[string]any
	if err := toml.Unmarshal(f.text, &said); err != nil {
		return positioned(f.path, err)
	}
	// What the decoder would say without a line.
	if p := cmp.Or(findHidden(said), findUnitless(said, reflect.TypeFor[Scenario]())); p != nil {
		return sources{f}.locate(p)
	}
	d := toml.NewDecoder(strings.NewReader(string(f.text)))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return positioned(f.path, err)
	}
	if p := findZero(said); p != nil {
		return sources{f}.locate(p)
	}
	s.Client = merge(parent.Client, s.Client, func(c Client) string { return c.Name })
	s.Flow = merge(parent.Flow, s.Flow, func(f Flow) string { return f.Name })
	s.Probe = merge(parent.Probe, s.Probe, func(p Probe) string { return p.Name })
	s.Program = merge(parent.Program, s.Program, func(p Program) string { return p.Name })
	s.Candidate = merge(parent.Candidate, s.Candidate, func(c candidate) string { return c.Name })
	return nil
}

func merge[T any](inherited, own []T, name func(T) string) []T {
	var all []T
	replaced := map[string]bool{}
	for _, old := range inherited {
		entry := old
		for _, mine := range own {
			if name(mine) == name(old) {
				entry = mine
				replaced[name(mine)] = true
			}
		}
		all = append(all, entry)
	}
	for _, mine := range own {
		if !replaced[name(mine)] {
			all = append(all, mine)
		}
	}
	return all
}

// positioned turns the TOML library's errors into one line with its place.
func positioned(path string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := &strict.Errors[0]
		line, _ := first.Position()
		return &FileError{path, line, fmt.Sprintf("unknown key %q", strings.Join(first.Key(), ".")),
			"docs/scenarios.md lists every key"}
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, _ := bad.Position()
		what := strings.TrimPrefix(bad.Error(), "toml: ")
		try := ""
		if m := mistyped.FindStringSubmatch(what); m != nil {
			var wanted string
			wanted, try = expectedType(m[2])
			what = fmt.Sprintf("the value is of type %s, and has to be %s", m[1], wanted)
		}
		if key := strings.Join(bad.Key(), "."); key != "" && !strings.Contains(what, key) {
			what = key + ": " + what
		}
		return &FileError{path, line, oneLine(what), try}
	}
	return &FileError{path, 0, oneLine(strings.TrimPrefix(err.Error(), "toml: ")), ""}
}

// mistyped is how the TOML library says that a value is of another type than its key, which it names in Go's words.
var mistyped = regexp.MustCompile(`cannot decode TOML (.+) into .* type (.+)$`)

// expectedType is what a file has for a Go type, and how that is written.
func expectedType(goType string) (what, try string) {
	switch {
	case goType == "int":
		return "a whole number", "digits alone, without quotes: 4"
	case goType == "float64":
		return "a number", "digits, without quotes: 1.5"
	case goType == "bool":
		return "true or false", "true or false, without quotes"
	case goType == "[]string" || goType == "[]interface {}":
		return "a list", `brackets around it: ["1"]`
	case strings.HasPrefix(goType, "[]"):
		return "tables", "a table for each, with [[ ]] around its name"
	case strings.HasPrefix(goType, "units.") || goType == "scenario.Buffer":
		return "a quantity", quantities
	case strings.HasPrefix(goType, "map[") || strings.HasPrefix(goType, "scenario.") && goType != "scenario.ECN":
		return "a table", `{ key = "value" }, or a table of its own`
	}
	return "a string", `quotes around it: "1"`
}

// quantities is how they are written.
const quantities = `a quantity is a string with its unit, as in "50mbit" and "10ms"`

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// problem is what is wrong with a scenario that reads well: where is a section, then perhaps the name of an entry, then
// perhaps a key.
type problem struct {
	where []string
	what  string
	try   string
}

var header = regexp.MustCompile(`^\s*\[\[?\s*([a-z0-9_."-]+)\s*\]\]?`)

// locate finds the line of a problem, in the youngest file that has it: the section's entry that carries the name, and
// in it the key.
func (chain sources) locate(p *problem) error {
	section, rest := p.where[0], p.where[1:]
	for i := len(chain) - 1; i >= 0; i-- {
		line, best := 0, 0
		current, start, named := "", 0, len(rest) == 0
		for n, text := range strings.Split(string(chain[i].text), "\n") {
			line = n + 1
			if m := header.FindStringSubmatch(text); m != nil {
				current = strings.Trim(m[1], `"`)
				if len(rest) == 1 && current == section+"."+rest[0] && best == 0 { // of a section without names
					best = line
				}
				if named && len(rest) > 1 && current == section+"."+rest[1] { // the key is a table
					best = line
				}
				start, named = line, len(rest) == 0
				if current == section && named && best == 0 {
					best = line
				}
				continue
			}
			key, value, isKey := strings.Cut(text, "=")
			key = strings.TrimSpace(key)
			switch {
			case !isKey:
			case current == "" && key == section:
				best = line
			case current != section:
			case len(rest) > 0 && !named && (strings.Contains(value, `"`+rest[0]+`"`) || key == rest[0]):
				named = true
				best = start
				if key == rest[0] {
					best = line
				}
			case named && len(rest) > 1 && key == rest[1]:
				best = line
			}
		}
		if best > 0 {
			return &FileError{chain[i].path, best, p.what, p.try}
		}
	}
	return &FileError{chain[len(chain)-1].path, 0, p.what, p.try}
}
