// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"

	"weir/internal/change"
	"weir/internal/follow/presence"
	"weir/internal/text"
	"weir/internal/units"
)

// printHome says, to somebody who typed weir alone, how this server is and what to do next.
func printHome(w io.Writer, s change.Store) {
	state, next := homeText(s.Status())
	fmt.Fprintf(w, "%s\n\n", state)
	for _, c := range append(next, nextStep{"weir --help", "every command"}) {
		fmt.Fprintf(w, "  %-30s %s\n", c.command, c.does)
	}
}

// goalWords is the same sentence behind the word goal.
func goalWords(s change.Status, err error) string {
	state, _ := homeText(s, err)
	return strings.TrimPrefix(state, "The goal is ")
}

type nextStep struct{ command, does string }

// homeText is a server's state in a sentence, and the commands that come next.
func homeText(s change.Status, err error) (string, []nextStep) {
	up := nextStep{"sudo weir up", "bring it back into force"}
	down := nextStep{"sudo weir down", "put back what was there before"}
	switch {
	case err != nil:
		return "Weir's state on this server cannot be read: " + err.Error() + ".",
			[]nextStep{{"sudo weir status", "try again as root"}}
	case s.PutBack:
		return "All is put back; the journal does not say so yet.",
			[]nextStep{{"sudo weir recover", "write it, with room on its disk"},
				{"weir status", "how this server stands"}}
	case s.Unconfirmed && s.RevertsIn > 0:
		return "Changes are in force, and revert in " + seconds(s.RevertsIn) + ".",
			[]nextStep{{"sudo weir confirm", "keep them"}, {"sudo weir recover", "put them back at once"}}
	case s.Unconfirmed:
		return "Changes were neither confirmed nor put back.",
			[]nextStep{{"sudo weir recover", "put them back"}}
	case s.CutDown:
		return "A weir down was cut short.",
			[]nextStep{{"sudo weir recover", "end it"}, {"weir status", "how this server stands"}}
	case !s.Up && s.Why != "":
		return "Weir is not in force: " + s.Why + ".",
			[]nextStep{{"weir status", "how this server stands"}, {"weir doctor", "what holds this server back"}}
	case !s.Up:
		return "Weir has changed nothing on this server.",
			[]nextStep{{"weir doctor", "what holds this server back"},
				{"weir plan --rate 50mbit", "what would change, and why"}}
	case s.InForce && s.Elsewhere != "":
		return "The goal is in force, but the queue is elsewhere.",
			[]nextStep{{"weir doctor", "where the queue is"}, down}
	case s.InForce && len(s.Followed) > 0 && s.Followed[0].Rate == 0:
		return "The goal is in force, but the rate is not known yet" + whyText(s.Followed[0].Waits) + ".",
			[]nextStep{{"weir status", "what it waits for"},
				{"weir calibrate PEER", "find it with another host's help"}, down}
	case s.InForce && len(s.Followed) > 0 && !s.Followed[0].Running && s.Followed[0].Hidden == "":
		return "The goal is in force, but nobody follows the rate: it stays " + rateText(s.Followed[0]) + ".",
			append(followSteps(s.Followed[0]), down)
	case s.InForce && len(s.Followed) > 0 && s.Followed[0].Idle() != "":
		return "The goal is in force, but the rate is not followed" + whyText(s.Followed[0].Idle()) + ".",
			[]nextStep{{"weir status", "what is followed"}, down}
	case s.InForce && len(s.Followed) > 0 && s.Followed[0].Running:
		return "The goal is in force, and the rate is followed: " + rateText(s.Followed[0]) + " now.",
			[]nextStep{{"weir watch", "the queue, live"}, {"weir status", "what the goal is"}, down}
	case s.InForce:
		return "The goal is in force.", []nextStep{{"weir status", "what the goal is"}, down}
	case s.Why != "":
		return "The goal is not in force, and cannot be brought back as it is.",
			[]nextStep{{"weir status", "why"}, down}
	}
	what := "The goal is not in force"
	if len(s.Drift) > 0 {
		what += ": " + text.Counted(len(s.Drift), "change") + " to bring it back"
	}
	return what + ".", []nextStep{{"weir status", "what has drifted"}, up, down}
}

// rateText is that of a queue now.
func rateText(f presence.Queue) string { return units.Rounded(float64(f.Rate)).String() }

// followSteps is what to do where nobody follows: ask why the service does not run and start it, or follow from here.
func followSteps(f presence.Queue) []nextStep {
	steps := []nextStep{{"sudo " + f.Start, "follow it"}}
	if f.Ask != "" {
		steps = append([]nextStep{{f.Ask, "why"}}, steps...)
	}
	return steps
}

func whyText(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
