// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/change"
	"weir/internal/follow/presence"
	"weir/internal/plan"
	"weir/internal/units"
)

// Behind the word goal the sentence does not say it again.
func TestGoalWords(t *testing.T) {
	for want, s := range map[string]change.Status{
		"in force.":                                {Up: true, InForce: true},
		"in force, but the queue is elsewhere.":    {Up: true, InForce: true, Elsewhere: "at the provider"},
		"Weir has changed nothing on this server.": {},
	} {
		if got := goalWords(s, nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each state has a sentence of its own, and a command that fits it.
func TestHomeText(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct {
		status change.Status
		err    error
		next   string
	}{
		{change.Status{}, nil, "weir doctor"},
		{change.Status{}, errors.New("permission denied"), "sudo weir status"},
		{change.Status{Up: true, InForce: true}, nil, "weir status"},
		{change.Status{Up: true, InForce: true, Elsewhere: "at the provider"}, nil, "weir doctor"},
		{change.Status{Up: true, InForce: true, Followed: []presence.Queue{{Rate: 63e6, Running: true}}}, nil,
			"weir watch"},
		{change.Status{Up: true, InForce: true, Followed: []presence.Queue{{Rate: 63e6, Running: true,
			Doing: presence.Doing{Waits: "its connections cannot be seen"}}}}, nil, "weir status"},
		{change.Status{Up: true, InForce: true, Followed: []presence.Queue{{Running: true}}}, nil,
			"weir status"},
		{change.Status{Up: true, InForce: true, Followed: []presence.Queue{{Rate: 63e6,
			Start: "systemctl start weir-follow", Ask: "systemctl status weir-follow"}}}, nil,
			"systemctl status weir-follow"},
		{change.Status{Up: true, InForce: true, Followed: []presence.Queue{{Rate: 64e6, Start: "weir follow"}}}, nil,
			"sudo weir follow"},
		{change.Status{Up: true, Drift: []plan.Change{{}, {}}}, nil, "weir status"},
		{change.Status{Up: true, Why: "no such device"}, nil, "weir status"},
		{change.Status{CutDown: true, Why: "weir down was cut short; to end it: weir recover"}, nil,
			"sudo weir recover"},
		{change.Status{Why: "it was taken down, but for what somebody else had changed"}, nil, "weir status"},
		{change.Status{Up: true, InForce: true, Unconfirmed: true, RevertsIn: units.Duration(time.Second)}, nil,
			"sudo weir confirm"},
		{change.Status{Up: true, InForce: true, Unconfirmed: true}, nil, "sudo weir recover"},
		{change.Status{Up: true, Unconfirmed: true, PutBack: true}, nil, "sudo weir recover"},
	} {
		says, next := homeText(c.status, c.err)
		if seen[says] || !strings.HasSuffix(says, ".") || len(next) == 0 || next[0].command != c.next {
			t.Errorf("%+v: %q, then %v", c.status, says, next)
		}
		seen[says] = true
	}
	var b bytes.Buffer
	printHome(&b, change.Open(t.TempDir()))
	if want := "Weir has changed nothing on this server.\n\n  weir doctor "; !strings.HasPrefix(b.String(), want) ||
		!strings.Contains(b.String(), "weir --help") {
		t.Errorf("%s", b.String())
	}
}
