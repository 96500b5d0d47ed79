// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/host"
	"weir/internal/meter/live"
	"weir/internal/text"
)

// measureLive watches this host's own connections.
func measureLive(ctx context.Context, cmd *cobra.Command, o measureOptions) error {
	const least, most, step = time.Second, time.Hour, 250 * time.Millisecond
	if o.live < least || o.live > most {
		return cli.Usage("weir measure --live 30s", "--live %v is out of range (1s to 3600s)", o.live)
	}
	open := host.OpenConnections
	if o.inside {
		open = host.OpenAllConnections
	}
	connections, err := open()
	if err != nil {
		return err
	}
	line := cli.NewProgress(cmd.ErrOrStderr())
	var watch live.Watch
	tick := time.NewTicker(step)
	defer tick.Stop()
	for begin := time.Now(); ; {
		seen, err := connections.Read()
		if err != nil {
			line.Clear()
			return err
		}
		watch.Add(time.Now(), seen)
		if time.Since(begin) >= o.live || ctx.Err() != nil {
			break
		}
		elapsed := time.Since(begin)
		line.Say(elapsed, func() string {
			return fmt.Sprintf("%s · %v of %v", text.Counted(len(seen), "connection"), elapsed.Round(time.Second),
				o.live)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	line.Clear()
	result := watch.Result()
	if o.json {
		return cli.PrintJSON(cmd.OutOrStdout(), result)
	}
	printLive(cmd.OutOrStdout(), result)
	return nil
}

func printLive(w io.Writer, r live.Result) {
	printWrapped(w, "", r.Says)
	if r.All.RTT.N == 0 {
		return
	}
	const most = 20
	fmt.Fprintf(w, "\n%-22s %5s %25s %7s %6s %13s  %s\n", "", "", "RTT", "", "sent", "", "")
	fmt.Fprintf(w, "%-22s %5s %7s %5s %5s %5s %7s %6s %6s %6s  %s\n", "network", "conns", "floor", "p50", "p90", "p99",
		"jitter", "again", "out", "in", "limited by · cc")
	fmt.Fprintf(w, "%-22s %5s %7s %5s %5s %5s %7s %6s %13s\n", "", "", "ms", "ms", "ms", "ms", "ms", "%", "Mbit/s")
	for _, n := range r.Networks[:min(len(r.Networks), most)] {
		printNetwork(w, n)
	}
	if more := len(r.Networks) - most; more > 0 {
		fmt.Fprintf(w, "%d more (--json has them)\n", more)
	}
	if len(r.Networks) > 1 {
		all := r.All
		all.Network = "all"
		printNetwork(w, all)
	}
	fmt.Fprintln(w)
	printWrapped(w, "", fmt.Sprintf("%d looks in %.0f s. RTTs are smoothed by the kernel, so short peaks are higher.",
		r.Looks, r.Seconds))
}

func printNetwork(w io.Writer, n live.Network) {
	times := fmt.Sprintf("%7s %5s %5s %5s %7s", "-", "-", "-", "-", "-")
	if n.RTT.N > 0 {
		times = fmt.Sprintf("%7s %5s %5s %5s %7s", figureText(n.Floor), figureText(n.RTT.P50), figureText(n.RTT.P90),
			figureText(n.RTT.P99), figureText(n.Jitter))
	}
	who := string(n.Limit())
	if who == "" {
		who = "nothing sent"
	}
	fmt.Fprintf(w, "%-22s %5d %s %6.2f %6s %6s  %s · %s\n", n.Network, n.Connections, times, 100*n.Retransmitted,
		figureText(n.Out), figureText(n.In), who, strings.Join(slices.Sorted(maps.Keys(n.CC)), ", "))
}
