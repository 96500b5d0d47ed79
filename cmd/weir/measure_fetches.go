// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/meter"
	"weir/internal/text"
)

// measureFetches downloads a file, so often. earlier is what to compare with; nil: nothing.
func measureFetches(ctx context.Context, cmd *cobra.Command, file *meter.File, earlier *meter.Fetches,
	o measureOptions) error {
	line := cli.NewProgress(cmd.ErrOrStderr())
	found, err := meter.FetchFile(ctx, file, o.fetches, func(done int, elapsed time.Duration) {
		line.Say(elapsed, func() string { return downloadLine(done, o.fetches, elapsed) })
	})
	line.Clear()
	if len(found.Fetches) == 0 && ctx.Err() != nil {
		return errEarly
	}
	if len(found.Fetches) == 0 || err != nil && ctx.Err() == nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case o.json:
		return cli.PrintJSON(w, found)
	case earlier != nil:
		if !o.markdown {
			printBeforeAfter(w, earlier.Says, found.Says)
		}
		printRows(w, found.Target, meter.CompareFetches(earlier, found), o.markdown)
	default:
		printFetches(w, found, o.markdown)
	}
	return nil
}

func downloadLine(done, all int, elapsed time.Duration) string {
	return fmt.Sprintf("download %d of %d · %v", done+1, all, elapsed.Round(time.Second))
}

// printFetches prints what they took, and what this host's kernel saw of losses.
func printFetches(w io.Writer, f *meter.Fetches, markdown bool) {
	rows := meter.CompareFetches(f, f)
	if markdown {
		printMeasured(w, f.Target, rows)
		return
	}
	printWrapped(w, "", f.Says)
	fmt.Fprintf(w, "\n%-28s %24s %24s\n", text.OneLine(f.Target), "median", "from – to")
	for _, r := range rows {
		fmt.Fprintf(w, "%-28s %24s %24s\n", r.Figure, figureText(r.After.Value),
			figureText(r.After.Low)+" – "+figureText(r.After.High))
	}
	fmt.Fprintln(w)
	known := func(x meter.Fetch) bool { return x.Early != nil }
	if !slices.ContainsFunc(f.Fetches, known) {
		printWrapped(w, "", "What was lost on the way this host's kernel does not say.")
		return
	}
	var early uint64
	for _, x := range f.Fetches {
		if known(x) {
			early += uint64(*x.Early)
		}
	}
	printWrapped(w, "", text.Counted(int(early), "packet")+
		" arrived out of order: an earlier one was lost or overtaken.")
}
