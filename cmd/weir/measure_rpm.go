// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/meter"
)

// measureRPM tests the responsiveness of the way to a server that others run.
func measureRPM(ctx context.Context, cmd *cobra.Command, target string, o measureOptions) error {
	if err := refuseUnknownOption(cmd, "a responsiveness server", "time", "pin", "json"); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	line := cli.NewProgress(cmd.ErrOrStderr())
	options := meter.Options{Time: o.time,
		Progress: func(p meter.Progress) { line.Say(p.Elapsed, func() string { return progressLine(p) }) }}
	r, err := meter.MeasureRPM(ctx, target, o.fingerprint(), options)
	line.Clear()
	if ctx.Err() != nil && (err != nil || !slices.ContainsFunc(r.Directions, hasProbes)) {
		return errEarly
	}
	if err != nil {
		return err
	}
	if err := showRPM(cmd.OutOrStdout(), r, o.json); err != nil {
		return err
	}
	return errUnreached(ctx, r.Silent())
}

func showRPM(w io.Writer, r *meter.RPMResult, json bool) error {
	if json {
		return cli.PrintJSON(w, r)
	}
	printWrapped(w, "", r.Says)
	fmt.Fprintf(w, "\n%-10s %10s %8s %8s %8s %6s %7s  %s\n", "", "goodput", "RPM", "new", "busy", "conns", "probes",
		"confidence")
	for _, d := range r.Directions {
		fmt.Fprintf(w, "%-10s %10s %8.0f %8.0f %8.0f ", d.Direction, figureText(d.Goodput), d.RPM, d.Foreign, d.Loaded)
		fmt.Fprintf(w, "%6d %7d  %s\n", d.Conns, d.Probes, d.Confidence)
	}
	fmt.Fprintln(w)
	printWrapped(w, "", "Goodput is in Mbit/s. New and busy are the two halves of RPM: new connections, and those "+
		"that carry load.")
	return nil
}

func hasProbes(d meter.RPMDirection) bool { return d.Probes > 0 }
