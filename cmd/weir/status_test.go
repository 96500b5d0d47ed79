// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"weir/internal/change"
	"weir/internal/kernel"
	"weir/internal/plan"
	"weir/internal/units"
)

// What the goal wants and this host cannot have is said before the last line, and in it.
func TestPrintLack(t *testing.T) {
	lowat := plan.Note{Subject: "net.ipv4.tcp_notsent_lowat", Text: "cannot be written here", Kind: plan.Lack}
	same := func(command string) string { return command }
	for want, out := range map[string]change.Outcome{
		"Nothing to change: the goal is in force.\n": {Notes: []plan.Note{{Subject: "x", Text: "an aside"}}},
		"tcp_notsent_lowat       cannot be written here\nNothing to change: the goal is in force, but for " +
			"tcp_notsent_lowat, which cannot be set here.\n": {Notes: []plan.Note{lowat}},
		"tcp_notsent_lowat       cannot be written here\n" +
			"tcp_ecn                 2 → 1                                 \n" +
			"1 change made and verified. To undo:  weir down\n": {Notes: []plan.Note{lowat}, Done: []plan.Change{{
			Target: kernel.Target{Kind: kernel.Sysctl, Name: "net.ipv4.tcp_ecn"}, Old: kernel.Setting("2"),
			New: kernel.Setting("1")}}},
	} {
		var b bytes.Buffer
		printUp(&b, out, false, same)
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What was put back is not said to be overdue, only because the journal does not say so yet.
func TestPrintPending(t *testing.T) {
	for name, c := range map[string]struct {
		status change.Status
		want   string
	}{
		"it waits": {change.Status{Unconfirmed: true, RevertsIn: units.Duration(time.Minute)}, "reverts in"},
		"overdue":  {change.Status{Unconfirmed: true}, "not put back in time"},
		"put back": {change.Status{Unconfirmed: true, PutBack: true},
			"All is put back; the journal does not say so yet"},
		"confirmed": {change.Status{}, ""},
	} {
		var b bytes.Buffer
		printPending(&b, c.status, func(command string) string { return command })
		if got := b.String(); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
