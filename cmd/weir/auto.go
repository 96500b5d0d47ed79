// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/follow"
	"weir/internal/follow/live"
	"weir/internal/plan"
	"weir/internal/units"
)

// How long plan and up listen to the host's own traffic for a rate that nobody knows: while it is being measured, and
// else.
const (
	listenLong = time.Minute
	listen     = 8 * time.Second
	pause      = 2 * time.Second // that a queue may be empty meanwhile
)

// hearing is what this host's own traffic tells of a rate that nobody knows.
type hearing struct {
	Rate  units.Rate `json:"rate,omitempty"`  // bit/s; 0: not known
	Alone bool       `json:"alone,omitempty"` // it is what one client gets, and that may be its own line's
	Says  string     `json:"says"`
}

// heard is a goal with the rate that this host's own traffic tells, where the goal leaves that open and it does; and
// what was heard, nil where nobody listened.
func heard(cmd *cobra.Command, o common, goal plan.Goal, quiet bool) (plan.Goal, *hearing, error) {
	if !goal.Unknown() || goal.Check() != nil {
		return goal, nil, nil // what is wrong with it is said with all the rest
	}
	store := o.store()
	if status, err := store.Status(); err == nil {
		for _, up := range status.Goals() {
			if status.Up && (goal.Dev == "" || goal.Dev == up.Dev) && up.Follow == plan.Auto {
				return goal, nil, nil // found already, or weir follow is at it
			}
		}
	}
	u, can, err := store.Unmeasured(goal)
	if err != nil || !can {
		return goal, nil, nil
	}
	interrupted, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	h, err := hear(interrupted, u, newProgress(cmd.ErrOrStderr()))
	switch {
	case interrupted.Err() != nil:
		return goal, nil, errors.New("ended before anything was changed")
	case err != nil:
		h.Says = "not known yet: " + err.Error()
	case h.Rate != 0 && !h.Alone:
		goal.Rate = h.Rate
		h.Says = "the link carries " + goal.Rate.String() + ", as this host's own traffic tells"
	default:
		h.Says = "not known yet: " + h.Says
	}
	if !quiet {
		printText(cmd.OutOrStdout(), "rate", h.Says)
		fmt.Fprintln(cmd.OutOrStdout())
	}
	return goal, &h, nil
}

// hear listens until the rate is known, or nothing more is to be expected.
func hear(interrupted context.Context, u change.Unmeasured, line *progress) (h hearing, err error) {
	ctx, end := context.WithTimeout(interrupted, listenLong)
	defer end()
	defer line.clear()
	began := time.Now()
	impatient := time.AfterFunc(listen, end)
	rate, err := live.Find(ctx, u, func(why string, lone units.Rate) {
		h.Says, h.Rate, h.Alone = why, 0, lone != 0
		if lone != 0 {
			h.Rate = exactly(float64(lone))
		}
		switch {
		case strings.HasPrefix(why, string(follow.Measured)), strings.HasPrefix(why, string(follow.Alone)) && !h.Alone:
			impatient.Stop()
		default:
			impatient.Reset(max(listen-time.Since(began), pause))
		}
		line.say(time.Since(began), func() string { return "looking for the rate: " + why })
	})
	switch {
	case err == nil:
		return hearing{Rate: exactly(float64(rate))}, nil
	case ctx.Err() != nil:
		return h, nil
	}
	return hearing{}, err
}
