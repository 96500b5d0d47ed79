// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/bench"
	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/host"
	"weir/internal/text"
)

// runBench measures what one CAKE carries, and says what to do with it.
func runBench(cmd *cobra.Command, asJSON bool) error {
	facts, err := host.Read()
	if err != nil {
		return err
	}
	if facts.Qdiscs["cake"] == host.No {
		return &hint.Error{What: "kernel " + facts.Kernel + " has no CAKE to measure",
			Try: host.AllModules(facts.Kernel)}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	shown, begin := cli.NewProgress(cmd.ErrOrStderr()), time.Now()
	report, err := bench.Run(ctx, []string{"doctor", "--bench-inside"}, func(done, of int) {
		shown.Say(time.Since(begin), func() string { return fmt.Sprintf("queue %d of %d", done, of) })
	})
	shown.Clear()
	switch {
	case errors.Is(err, bench.ErrLacks):
		return hint.Wrap(err, "sudo weir doctor --bench")
	case errors.Is(err, context.DeadlineExceeded):
		return hint.Wrap(errors.New("it was not over within a minute: this host has too much else to do"),
			"again, when it has less")
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return err
	case asJSON:
		return cli.PrintJSON(cmd.OutOrStdout(), report)
	}
	return printBench(cmd.OutOrStdout(), report)
}

func inBench(w io.Writer) error { return bench.Inside(w) }

func printBench(w io.Writer, r bench.Report) error {
	fmt.Fprintf(w, "linux %s, %s, TCP in packets of 1514 bytes, both ends on this host\n\n", r.Kernel,
		text.Counted(r.CPUs, "CPU"))
	for _, x := range r.Results {
		if x.Lacks != "" {
			fmt.Fprintf(w, "%s%s\n", padRight(x.Name, 30), x.Lacks)
			continue
		}
		fmt.Fprintf(w, "%s%8.2f million packets/s %9.1f Gbit/s\n", padRight(x.Name, 30), x.Packets/1e6,
			float64(x.Rate)/1e9)
	}
	fmt.Fprintln(w)
	if r.OneCake == 0 {
		return &hint.Error{What: "CAKE was not measured", Try: "weir doctor --bench again, as root"}
	}
	printWrapped(w, "", fmt.Sprintf("One CAKE carries %s here. A network card's own work is not in that, so a plan "+
		"uses four fifths of it.", r.OneCake))
	printWrapped(w, "What to do:  ", fmt.Sprintf("weir plan --rate 10gbit --one-cake %s, for a link above 2 Gbit/s",
		r.OneCake))
	return nil
}
