// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"weir/internal/host"
	"weir/internal/text"
)

// Summary is the whole in two sentences, for a person who does not know queues.
type Summary struct {
	Told   bool   `json:"told"` // else too little was seen, and Try is how to see more
	Says   string `json:"says"`
	Try    string `json:"try,omitempty"`    // a command
	Remark string `json:"remark,omitempty"` // on that command; without one, what to do by hand
	Code   Code   `json:"code,omitempty"`   // of the finding that it is about
}

// Summarize takes of the findings the one that a person should know first. What is harmful goes before the bottleneck,
// and that, even where nothing is wrong with it, before what is only worth knowing.
func Summarize(facts host.Facts) Summary {
	p, found := examine(facts), Diagnose(facts)
	b := p.bottleneck()
	notable := len(slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return f.Severity == Fine }))
	binding := slices.IndexFunc(found, func(f Finding) bool {
		return f.Severity != Fine && slices.Contains(b.Limit.codes(), f.Code)
	})
	shapeless := slices.IndexFunc(found, func(f Finding) bool { return f.Code == cannotShape })
	switch {
	case found[0].Severity == Harmful:
		return summaryOf(found[0])
	case binding >= 0:
		return summaryOf(found[binding])
	case p.deep.Sockets.Busy > 0 && b.Limit != limitUnknown && notable > 0:
		return p.bottleneckSummary(b, found)
	case shapeless >= 0 && b.Lacks != "": // whatever binds, no rate can be enforced here
		return summaryOf(found[shapeless])
	case b.Lacks != "" && notable > 0:
		return Summary{Try: b.Try, Remark: b.Remark, Says: fmt.Sprintf("Nothing harmful was seen so far, but %s. "+
			"Worth knowing: %s, below.", b.Lacks, text.Counted(notable, "thing"))}
	case b.Lacks != "":
		return Summary{Try: b.Try, Remark: b.Remark, Says: "Nothing wrong was seen so far, but " + b.Lacks + "."}
	case notable > 0:
		return summaryOf(found[0])
	}
	s := Summary{Told: true, Says: "Nothing wrong was seen: " + p.reasonFine(b.Limit) + ".", Remark: "nothing",
		Code: found[0].Code}
	if b.Limit == limitUnknown && found[0].Try != "" {
		s.Try, s.Remark = found[0].Try, found[0].Remark
	}
	return s
}

func summaryOf(f Finding) Summary {
	return Summary{Told: true, Says: f.Plain, Try: f.Try, Remark: f.Remark, Code: f.Code}
}

// bottleneckSummary is about a bottleneck that is as somebody wants it, and about the first of what else is worth
// knowing. What a busy CPU calls for is left out: it is not the bottleneck.
func (p *patient) bottleneckSummary(b Bottleneck, found []Finding) Summary {
	s := Summary{Told: true, Says: "Downloads are held back by " + b.Says, Remark: "nothing"}
	besides := slices.IndexFunc(found, func(f Finding) bool {
		return f.Severity != Fine && !slices.Contains(limitCPU.codes(), f.Code)
	})
	switch {
	case besides >= 0:
		f := found[besides]
		s.Says += " " + f.Plain
		s.Try, s.Remark, s.Code = f.Try, f.Remark, f.Code
	case b.Limit == LimitShaper:
		s.Remark = fmt.Sprintf("nothing, if that rate is meant; tc -s qdisc show dev %s shows what enforces it",
			p.holder.Name)
	}
	return s
}

// reasonFine says why nothing is wrong, though something is always a limit.
func (p *patient) reasonFine(l Limit) string {
	switch l {
	case LimitProgram:
		if p.programsReadSlowly() {
			return "the programs here do not read as fast as data comes in"
		}
		return "the programs here do not always have something to send"
	case LimitShaper:
		return "what waits does so in this server's own queue"
	case limitDevice:
		return "this server uses its whole line"
	case LimitPath:
		return "packets are lost on the way, and BBR does not slow down for it"
	case limitNone:
		return "this server does not hold back what comes in"
	}
	if s := p.deep.Sockets; s.Lossy > 0 || s.Queueing > 0 {
		return p.symptoms()
	}
	return fmt.Sprintf("%s, and none waits in a queue", text.Counted(p.deep.Sockets.Busy, "busy connection"))
}
