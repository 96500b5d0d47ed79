// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"weir/internal/bbr"
	"weir/internal/bpf"
	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/text"
	"weir/internal/units"
)

func newCCCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cc",
		Short: "What bpf_bbr, Weir's congestion control, knows of each connection",
		Long: `The commands of bpf_bbr, Weir's own congestion control. weir up --cc bpf_bbr
sets it up, and weir down takes it away.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cli.Usage("weir cc show", "unknown command %q", "cc "+args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCCShowCommand())
	return cmd
}

func newCCShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Each connection that has bpf_bbr: its state, rate and bounds",
		Long: `Prints a row for each connection that has bpf_bbr, the fastest first. ss -ti
cannot: a congestion control in BPF does not tell it.

  state     STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP or PROBE_RTT, as in
            draft-ietf-ccwg-bbr
  rate      Mbit/s that it goes by
  max       Mbit/s, the most that came through in the last two cycles
  min RTT   ms of the path, and RTT, ms now: the difference is a queue
  cwnd      packets that it lets be in flight, and flight, those that are
  hi, lo    packets, what losses and marks have taught it: for good, and for now
  queue     packets of its own that it wants to have in the bottleneck's queue
  loss      share of packets that is lost however gently it sends

A row ends with "others fill the queue" where the delay does not obey. Then it
keeps its share, and no longer goes by the delay.

It shows this network namespace. Of a container:

  sudo nsenter -t PID -n weir cc show

Show changes nothing. It needs root, for it loads a BPF program as long as it
looks. Exit status: 0 shown, 1 not, 2 wrong usage.`,
		Example: `  sudo weir cc show
  sudo weir cc show --json | jq '.connections[] | select(.others_queue)'`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			connections, err := bbr.Connections()
			switch {
			case errors.Is(err, bpf.ErrNotSupported) && os.Geteuid() != 0:
				return &hint.Error{What: "show loads a BPF program, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
					Try: "sudo " + cmd.CommandPath()}
			case errors.Is(err, bpf.ErrNotSupported):
				return &hint.Error{What: err.Error(), Try: "ss -ti"}
			case err != nil:
				return err
			}
			slices.SortStableFunc(connections, func(a, b bbr.Connection) int {
				return cmp.Compare(rateOf(b), rateOf(a))
			})
			w := cmd.OutOrStdout()
			if asJSON {
				return cli.PrintJSON(w, struct {
					Version     string           `json:"version"`
					Connections []bbr.Connection `json:"connections"`
				}{bbr.Version(), append([]bbr.Connection{}, connections...)})
			}
			printConnections(w, connections)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func rateOf(c bbr.Connection) units.Rate {
	if c.Model == nil {
		return 0
	}
	return c.Rate
}

func printConnections(w io.Writer, connections []bbr.Connection) {
	if len(connections) == 0 {
		fmt.Fprintf(w, "No connection here has %s. New ones have it after:  sudo weir up --cc %s\n", bbr.Name, bbr.Name)
		return
	}
	width, unknown := len("peer"), 0
	for _, c := range connections {
		width = max(width, len(c.Remote.String()))
		if c.Model == nil {
			unknown++
		}
	}
	if unknown == len(connections) {
		fmt.Fprintf(w, "Only %s with another version of %s, which this weir cannot read.\n",
			text.Counted(unknown, "connection"), bbr.Name)
		return
	}
	mbit := func(r units.Rate) string { return meter.Figure(float64(r) / 1e6) }
	ms := func(d units.Duration) string { return meter.Figure(float64(d) / 1e6) }
	bound := func(packets uint32) string {
		if packets == 0 {
			return "-"
		}
		return fmt.Sprint(packets)
	}
	const row = "%-*s  %-9s %7s %7s %7s %7s %6v %6v %6s %6s %6s %7s%s\n"
	fmt.Fprintf(w, row, width, "peer", "state", "rate", "max", "min RTT", "RTT", "cwnd", "flight", "hi", "lo", "queue",
		"loss", "")
	for _, c := range connections {
		if c.Model == nil {
			continue
		}
		note := ""
		if c.OthersQueue {
			note = "  others fill the queue"
		}
		fmt.Fprintf(w, row, width, c.Remote, c.State, mbit(c.Rate), mbit(c.MaxRate), ms(c.MinRTT), ms(c.SRTT), c.Cwnd,
			c.InFlight, bound(c.LongBound), bound(c.ShortBound), meter.Figure(c.QueueAim),
			fmt.Sprintf("%.1f %%", 100*float64(c.Loss)), note)
	}
	fmt.Fprintln(w, "rate, max: Mbit/s; RTTs: ms; cwnd to queue: packets.  weir cc show --help explains them")
	if unknown > 0 {
		fmt.Fprintf(w, "Besides: %s with another version, which this weir cannot read.\n",
			text.Counted(unknown, "connection"))
	}
}
