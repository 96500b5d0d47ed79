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

	"weir/internal/follow"
	"weir/internal/follow/live"
	"weir/internal/plan"
)

// How long plan and up listen to the host's own traffic for a rate that nobody knows: while it is being measured, and
// else.
const (
	listenLong = time.Minute
	listen     = 8 * time.Second
)

// heard is a goal with the rate that this host's own traffic tells, where the goal leaves that open and it does.
func heard(cmd *cobra.Command, o common, goal plan.Goal, quiet bool) (plan.Goal, error) {
	if !goal.Unknown() || goal.Check() != nil {
		return goal, nil // what is wrong with it is said with all the rest
	}
	store := o.store()
	if status, err := store.Status(); err == nil {
		for _, up := range status.Goals() {
			if status.Up && (goal.Dev == "" || goal.Dev == up.Dev) && up.Follow == plan.Auto {
				return goal, nil // found already, or weir follow is at it
			}
		}
	}
	u, can, err := store.Unmeasured(goal)
	if err != nil || !can {
		return goal, nil
	}
	interrupted, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, end := context.WithTimeout(interrupted, listenLong)
	defer end()
	line, began, last := newProgress(cmd.ErrOrStderr()), time.Now(), ""
	impatient := time.AfterFunc(listen, end)
	rate, err := live.Find(ctx, u, func(why string) {
		if last = why; strings.HasPrefix(why, string(follow.Measured)) {
			impatient.Stop()
		}
		line.say(time.Since(began), func() string { return "looking for the rate: " + why })
	})
	line.clear()
	switch {
	case interrupted.Err() != nil:
		return goal, errors.New("ended before anything was changed")
	case err == nil:
		goal.Rate = exactly(float64(rate))
		last = "the link carries " + goal.Rate.String() + ", as this host's own traffic tells"
	case ctx.Err() != nil:
		last = "not known yet: " + last
	default:
		last = "not known yet: " + err.Error()
	}
	if !quiet {
		printText(cmd.OutOrStdout(), "rate", last)
		fmt.Fprintln(cmd.OutOrStdout())
	}
	return goal, nil
}
