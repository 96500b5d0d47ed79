// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/units"
)

// measureOptions are those of weir measure.
type measureOptions struct {
	live   time.Duration
	inside bool
	json   bool
}

func newMeasureCommand() *cobra.Command {
	var o measureOptions
	cmd := &cobra.Command{
		Use:   "measure --live TIME",
		Short: "How long packets wait, and for whom, on the real link",
		Long: `Measures how long packets wait on the real link.

With --live it sends nothing. It watches this host's own TCP connections for
that long, and sums them up by client network (/24 of IPv4, /48 of IPv6). RTTs
are the kernel's smoothed ones. Their floor is the kernel's minimum of the last
five minutes. A queue that has stood for longer is part of the floor.

Ctrl-C ends it early and prints what there is. It needs no root.

Exit status: 0 measured, 1 not, 2 wrong usage.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Ctrl-C ends the measurement, not the command.
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			if o.live == 0 {
				return usage("weir measure --live 30s", "nothing to measure is named")
			}
			return measureLive(ctx, cmd, o)
		},
	}
	cmd.Flags().Var((*timeOption)(&o.live), "live", "watch this host's own connections for this `time`: 30s")
	cmd.Flags().BoolVar(&o.inside, "inside", false, "with --live: also connections that never leave this host")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON (docs/measure.md explains it)")
	return cmd
}

// timeOption is an option that is a time, as tc writes it.
type timeOption time.Duration

func (o *timeOption) Set(s string) error {
	d, err := units.ParseDuration(s)
	*o = timeOption(d)
	return err
}
func (o *timeOption) String() string {
	if o == nil || *o == 0 {
		return ""
	}
	return units.Duration(*o).String()
}
func (o *timeOption) Type() string { return "time" }
