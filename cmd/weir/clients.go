// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/bpf"
	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/shaper"
	"weir/internal/text"
	"weir/internal/units"
)

func newClientsCommand() *cobra.Command {
	var dev string
	var span time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "What each client of a bpf_shaper gets",
		Long: `Looks at each bpf_shaper for a second, and prints a row for each client that
sent or lost something meanwhile, the fastest first.

  sent      Mbit/s, on the wire
  share     of what all clients have sent
  at most   Mbit/s that it may have (weir up --client); - is what is left
  weight    of its share, beside clients of weight 1
  waits     ms that a packet of it would wait, if it came now
  drops     packets dropped in that second, and marks, those marked (ECN)

A client is an address, and of IPv6 the first bits of one. What has no IP header
is one more client. Of a device ifb-weir the clients are those that send.

It changes nothing, and needs root. Exit status: 0 shown, 1 not, 2 wrong usage.`,
		Example: `  sudo weir clients
  sudo weir clients --dev wg0 --for 10s
  sudo weir clients --json | jq '.devices[].clients[:3]'`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if span < time.Millisecond || span > time.Hour {
				return cli.Usage("weir clients --for 10s", "%v is no time to look: 1ms to 1h", span)
			}
			shapers, err := shapedDevices(dev)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			if err := lookTwice(ctx, shapers, span); err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if asJSON {
				return cli.PrintJSON(w, struct {
					Version int             `json:"version"`
					Devices []*shapedDevice `json:"devices"`
				}{1, shapers})
			}
			for _, d := range shapers {
				d.print(w)
			}
			return nil
		},
	}
	device(cmd, &dev, "`device` (default: all that have a bpf_shaper)")
	cmd.Flags().DurationVar(&span, "for", time.Second, "how long to look: a `time` like 10s")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shapedDevice is one that has a bpf_shaper, and what its clients did while it was looked at.
type shapedDevice struct {
	Dev     string              `json:"dev"`
	Rate    units.Rate          `json:"rate"` // bit/s that the clients share
	Seconds float64             `json:"seconds"`
	Clients []shaper.ClientRate `json:"clients"`

	index int
}

// shapedDevices are those that there are; only one where that is named.
func shapedDevices(dev string) (all []*shapedDevice, err error) {
	facts, err := readHost()
	if err != nil {
		return nil, err
	}
	if _, there := facts.Link(dev); dev != "" && !there {
		return nil, plan.NoDevice(dev, facts)
	}
	for _, l := range facts.Links {
		root, _ := l.Tree.Root()
		if root.Kind == qdisc.BPFShaping && (dev == "" || dev == l.Name) {
			all = append(all, &shapedDevice{Dev: l.Name, Rate: qdisc.Rate(root.Spec), index: l.Index})
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case os.Geteuid() != 0:
		return nil, &hint.Error{What: "which device has a bpf_shaper only root can see (CAP_SYS_ADMIN)",
			Try: "sudo weir clients"}
	case dev != "":
		return nil, &hint.Error{What: dev + " has no bpf_shaper", Try: "weir clients, for all devices; weir status"}
	}
	return nil, &hint.Error{What: "no device has a bpf_shaper",
		Try: "sudo weir up --rate 1gbit --client-default 50mbit"}
}

// lookTwice reads what the clients do for so long, or until it is told to end.
func lookTwice(ctx context.Context, all []*shapedDevice, span time.Duration) error {
	begin, before := time.Now(), make([][]shaper.ClientStats, len(all))
	for i, d := range all {
		var err error
		if before[i], err = shaper.ReadClients(d.index); err != nil {
			return unreadableClients(err)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(span):
	}
	for i, d := range all {
		after, err := shaper.ReadClients(d.index)
		if err != nil {
			return unreadableClients(err)
		}
		took := time.Since(begin)
		d.Seconds, d.Clients = took.Seconds(), shaper.Rates(before[i], after, took)
	}
	return nil
}

func unreadableClients(err error) error {
	if errors.Is(err, bpf.ErrNotSupported) || errors.Is(err, fs.ErrPermission) {
		return &hint.Error{What: "what a bpf_shaper knows of its clients only root can read (CAP_SYS_ADMIN)",
			Try: "sudo weir clients"}
	}
	return err
}

func (d *shapedDevice) print(w io.Writer) {
	fmt.Fprintf(w, "%s  bpf_shaper rate %s, %s in %.3g s\n", d.Dev, d.Rate, text.Counted(len(d.Clients), "client"),
		d.Seconds)
	if len(d.Clients) == 0 {
		return
	}
	width := len("client")
	for _, c := range d.Clients {
		width = max(width, len(c.Client))
	}
	const row = "%-*s %9s %7s %9s %7v %9s %7v %7v\n"
	fmt.Fprintf(w, row, width, "client", "sent", "share", "at most", "weight", "waits", "drops", "marks")
	for _, c := range d.Clients {
		limit := "-"
		if c.Limit != 0 {
			limit = meter.Figure(float64(c.Limit) / 1e6)
		}
		fmt.Fprintf(w, row, width, c.Client, meter.Figure(float64(c.Rate)/1e6), fmt.Sprintf("%.1f %%",
			100*float64(c.Share)), limit, c.Weight, meter.Figure(float64(c.Wait)/1e6), c.Drops, c.Marks)
	}
	fmt.Fprintln(w, "sent, at most: Mbit/s; waits: ms; drops, marks: packets.  weir clients --help explains them")
}
