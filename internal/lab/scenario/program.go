// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"weir/internal/units"
)

// WeirProgram is what servers run. It is beside the lab's own, as is each program whose name has no path.
const WeirProgram = "weir"

// InGuest returns where a guest has a program.
func InGuest(run string) string {
	if !strings.Contains(run, "/") {
		return "/bin/" + run
	}
	return run
}

// Program is one that runs in the guest while traffic does. What it is, the host decides: results repeat for as long
// as its file and its libraries' are the same.
type Program struct {
	Name   string `toml:"name" json:"name"`
	Client string `toml:"client" json:"client,omitempty"` // where it runs; "": at the server
	// its path and arguments, in which {server} and {client} are addresses
	Run   []string       `toml:"run" json:"run"`
	Files []string       `toml:"files" json:"files,omitempty"` // of the host: what it needs beside its libraries
	Start units.Duration `toml:"start" json:"start,omitempty"` // since the beginning of the run
	// a regular expression with one group: the number that it finds last in what the program prints counts
	Find string `toml:"find" json:"find,omitempty"`
}

// Programs are all that a candidate's runs have, its own last.
func (s *Scenario) Programs(c candidate) []Program { return slices.Concat(s.Program, c.Program) }

// HostFiles are those of the host that the guest's programs are and need, their libraries aside.
func (j Job) HostFiles() []string {
	var all []string
	programs := j.Scenario.Programs(j.Candidate)
	if j.Candidate.Weir != nil || len(programs) > 0 { // a program may be a script that runs it
		all = append(all, WeirProgram)
	}
	for _, p := range programs {
		all = append(append(all, p.Run[0]), p.Files...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Command is what a program is run as, with the addresses filled in.
func (p Program) Command(server, client string) []string {
	filled := strings.NewReplacer("{server}", server, "{client}", client)
	command := slices.Clone(p.Run)
	for i := range command {
		command[i] = filled.Replace(command[i])
	}
	return command
}

// checkPrograms finds what is wrong with the programs of all candidates' runs, or of one candidate's.
func (s *Scenario) checkPrograms(programs []Program, taken map[string]bool, where ...string) *problem {
	for _, p := range programs {
		at := func(k string) []string {
			if len(where) > 0 {
				return where
			}
			return []string{"program", p.Name, k}
		}
		expression, err := regexp.Compile(p.Find)
		switch {
		case !nameOf.MatchString(p.Name):
			return errAt(`name = "…": letters, digits and simple punctuation, at most 40`, at(""),
				"a program has the name %q", p.Name)
		case taken[p.Name]:
			return errAt("", at(""), "two programs have the name %q", p.Name)
		case p.Client != "" && (len(where) > 0 || !s.hasClient(p.Client)):
			return errAt("clients: "+s.clientNames()+"; a candidate's programs run at the server", at("client"),
				"program %q: no client is called %q", p.Name, p.Client)
		case len(p.Run) == 0 || p.Run[0] == "" || strings.Contains(p.Run[0], "/") && !path.IsAbs(p.Run[0]):
			return errAt(`run = ["/usr/bin/iperf3", "-s"]`, at("run"), "program %q: run needs a path, or \"weir\"",
				p.Name)
		case slices.ContainsFunc(p.Files, func(f string) bool { return !path.IsAbs(f) }):
			return errAt(`files = ["/etc/services"]`, at("files"), "program %q: files are absolute paths", p.Name)
		case p.Start >= s.Warmup+s.Duration:
			return errAt("", at("start"), "program %q starts at %v, after the run's end", p.Name, p.Start)
		case err != nil:
			return errAt("", at("find"), "program %q: find: %v", p.Name, err)
		case p.Find != "" && expression.NumSubexp() != 1:
			return errAt("'([0-9.]+) Mbits'", at("find"), "program %q: find has %d groups, and one is the number",
				p.Name, expression.NumSubexp())
		}
		taken[p.Name] = true
	}
	return nil
}
