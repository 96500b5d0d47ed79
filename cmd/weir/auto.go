// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/follow"
	"weir/internal/follow/live"
	"weir/internal/host"
	"weir/internal/plan"
	"weir/internal/units"
)

// How long plan and up listen to the host's own traffic for a rate that nobody knows.
const (
	listen     = 8 * time.Second  // if nothing waits
	listenLong = time.Minute      // at most, while it is being measured
	pause      = 2 * time.Second  // that a queue may be empty meanwhile
	steady     = 2 * time.Second  // that one client gets what it gets
	chance     = 15 * time.Second // that what clients get may look alike, or ragged, by chance
)

// withMeasuredRate fills in the rate that is found from live traffic, where the goal leaves it open. The hearing is nil
// if nobody listened. With loads it may load kernel modules to listen; quiet prints nothing.
func withMeasuredRate(cmd *cobra.Command, o common, goal plan.Goal, patience time.Duration,
	quiet, loads bool) (plan.Goal, *hearing, error) {
	if !goal.Unknown() || goal.Check() != nil {
		return goal, nil, nil // what is wrong with it is said with all the rest
	}
	store := o.store()
	if status, err := store.Status(); err == nil {
		for _, up := range status.Goals {
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
	var h hearing
	if why := host.Unasked(); why != "" && !loads {
		err = errors.New(why)
	} else {
		h, err = awaitRate(interrupted, u, patience, cli.NewProgress(cmd.ErrOrStderr()))
	}
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
		printText(cmd.OutOrStdout(), "rate", h.Says+h.next())
		fmt.Fprintln(cmd.OutOrStdout())
	}
	return goal, &h, nil
}

// awaitRate listens until the rate is known, or nothing more is to be expected: nothing waits for as long as patience
// says.
func awaitRate(interrupted context.Context, u change.Unmeasured, patience time.Duration, line *cli.Progress) (h hearing,
	err error) {
	ctx, end := context.WithTimeout(interrupted, max(listenLong, patience))
	defer end()
	defer line.Clear()
	began := time.Now()
	impatient := time.AfterFunc(patience, end)
	rate, err := live.Find(ctx, u, func(w live.Wait) {
		line.Say(time.Since(began), func() string { return "looking for the rate: " + w.Text })
		switch {
		case w.Lone != 0:
			if !h.Alone {
				impatient.Reset(max(steady, min(patience, listen)-time.Since(began)))
			}
			h = hearing{Rate: roundDown(w.Lone), Alone: true, Says: w.Text}
			return
		case w.Reason == follow.Measured, w.Reason == follow.Scattered, w.Reason == follow.Alone && !h.Alone:
			impatient.Stop()
		case !h.Alone && (w.Reason == follow.Apart || w.Reason == follow.Ragged):
			impatient.Reset(max(chance, patience-time.Since(began)))
		case h.Alone:
			impatient.Reset(max(pause, min(patience, listen)-time.Since(began)))
		default:
			impatient.Reset(max(pause, patience-time.Since(began)))
		}
		if !h.Alone { // else that is what there is, until another client has come for long enough
			h.Says = w.Text
		}
	})
	switch {
	case err == nil:
		return hearing{Rate: units.Rounded(float64(rate))}, nil
	case ctx.Err() != nil:
		return h, nil
	}
	return hearing{}, err
}

// next is what to do about a rate that one client alone has shown; "" otherwise.
func (h hearing) next() string {
	if !h.Alone {
		return ""
	}
	return ". If that client's own line has more, it is the rate of this host's link: --rate " + h.Rate.String() +
		". If not, look again while clients in two networks download: weir plan --rate auto --listen 5m"
}

// roundDown is a rate with three digits, rounded down: a shaper that is too fast leaves the queue where it was.
func roundDown(rate units.Rate) units.Rate {
	digits := math.Pow(10, math.Max(0, math.Floor(math.Log10(float64(rate)))-2))
	return units.Rate(math.Floor(float64(rate)/digits) * digits)
}
