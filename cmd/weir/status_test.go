// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"weir/internal/change"
	"weir/internal/units"
)

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
