// SPDX-License-Identifier: Apache-2.0

// Package doctor says what holds a host back: the findings, the bottleneck, and the whole in two sentences.
//
// All of it is a pure function of a host's facts. It reads no host, no file and no clock, and it changes nothing. What
// would help is the business of package plan: a finding only names the command to ask.
//
// A check is a file with a function of its name, and a row in checks. docs/findings.md has each code that a check may
// find.
package doctor

import (
	"cmp"
	"slices"

	"weir/internal/host"
)

// Severity is how much a finding matters.
type Severity string

const (
	Harmful Severity = "harmful" // or without the effect that somebody wanted
	Notable Severity = "note"    // worth knowing
	Fine    Severity = "fine"
)

// Mark is the severity as a person sees it.
func (s Severity) Mark() string {
	switch s {
	case Harmful:
		return "✗"
	case Notable:
		return "!"
	}
	return "✓"
}

func (s Severity) order() int { return slices.Index([]Severity{Harmful, Notable, Fine}, s) }

// Code is the name of a kind of finding, in kebab-case. It stays the same from version to version: programs match on
// it.
type Code string

// Finding is something about a host that matters for its latency or its throughput.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Plain    string   `json:"plain,omitempty"` // to a person who does not know queues; not where all is fine
	Title    string   `json:"title"`
	Seen     string   `json:"seen"`              // values, and where they were read
	Why      string   `json:"why,omitempty"`     // it matters
	Try      string   `json:"try,omitempty"`     // the command that would change it
	Remark   string   `json:"remark,omitempty"`  // on that command; without one, what to do by hand
	Evidence evidence `json:"evidence,omitzero"` // that it matters
}

// evidence is where to see that something is so: one of these, or none.
type evidence struct {
	Scenario string `json:"scenario,omitempty"` // a file, which weir-lab run repeats
	Doc      string `json:"doc,omitempty"`      // who else says so
}

// check is one thing to look for. Of what it finds the codes are in docs/findings.md.
type check func(*patient) []Finding

// checks are all that a diagnosis looks for; among findings of one severity this is their order. What a person feels
// comes first.
func checks() []check {
	return []check{
		checkUplink, checkHostLimits, checkDeviceQueues, checkFirewallRules, checkTallies, checkInterrupts,
		checkKernelFaults, checkQueue, checkIncoming, checkAQMWithoutRate, checkPathLoss, checkInterval, checkEnds,
		checkCPUAndDevice, checkTCPMemory, checkRelay, checkTunnelBuffer, checkMissing, checkRefusedSettings,
		checkUnreadFile, checkNotSentLowat, checkMPTCP, checkBuffers, checkOtherUplinks, checkDefaultQdisc,
		checkRoutes, checkPacing, checkFairness, checkRelayFairness, checkBackground, checkECN,
		checkOverriddenSettings, checkChangedSettings, checkIdleFiles, checkQueueWriters, checkDepartureTimes,
		checkUdevNames, checkContainers, checkTunnels, checkSYNCookies, checkCongestionControl, checkKernel,
	}
}

// Diagnose finds what holds a host back, worst first. Facts without their Deep part give what can be said without it.
// What is not wrong is never called so: a host as its distribution made it has nothing but fine things.
func Diagnose(facts host.Facts) (found []Finding) {
	p := examine(facts)
	for _, c := range checks() {
		found = append(found, c(p)...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Severity.order(), b.Severity.order()) })
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Severity != Fine }) {
		found = slices.Insert(found, 0, p.nothingWrong())
	}
	return found
}

// nothingWrong is what to say where nothing is wrong.
func (p *patient) nothingWrong() Finding {
	if !p.deep.Sockets.Read {
		return Finding{
			Code: "nothing-seen", Severity: Fine,
			Title: "Nothing wrong is to be seen.",
			Seen:  "Where packets wait only live connections tell, and those are not known.",
		}
	}
	f := Finding{Code: "nothing-wrong", Severity: Fine, Title: "Nothing to do.",
		Seen: "Nothing that was looked at is wrong."}
	if unseen := unseenStages(FindStages(p.Facts)); unseen != "" {
		f.Seen += " Not seen, or not as a whole: " + unseen + "."
	}
	if p.deep.Listened == 0 {
		f.Try, f.Remark = "weir doctor --listen 10s", "sees more, while traffic runs"
	}
	return f
}
