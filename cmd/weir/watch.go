// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/watch"
)

func newWatchCommand() *cobra.Command {
	var options common
	var dev string
	var once bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "The uplink's queue, the bottleneck and the connections, live",
		Long: `Shows one screen that one can leave open while a test runs.

The first lines say what the uplink sends of its shaper's rate, how long packets
wait, and what was dropped and marked. Below them it says if the bottleneck is
here, and why. A bottleneck's queue never drains. One that drains has sent all
that wanted to leave, so the application limits, or another network.

Where weir follow chooses the rate, a line says what that is now, why it changed
last, or that nobody follows it.

The graph goes back ten minutes. A CAKE has a row for each tin, a DualPI2 one
for L and one for C. Connections are summed up by client network, as weir
measure --live does. At the foot are the timer of weir up, and the findings of
weir doctor that came and went.

Keys:

  q   quit
  p   pause, and go on
  s   sort networks by rate, added RTT, sent again, connections or name
  /   show only networks whose row contains a word

Watch changes nothing and needs no root, but it says what only root can see. It
takes about 1 % of a core. What costs more is looked at less often.

Where stdout is no terminal it prints the screen once, as with --once.

Exit status: 0 shown, 1 not, 2 wrong usage.`,
		Example: `  weir watch
  weir watch --dev eth1
  weir watch --once
  weir watch --json | jq .bottleneck.says`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once && options.json {
				return cli.Usage("weir watch --json", "--once and --json exclude each other")
			}
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			reader, err := watch.Open(dev, options.store())
			if err != nil {
				return err
			}
			defer reader.Close()
			view := watch.View{Words: func(s change.Status, err error) string {
				s.Followed = nil // which has lines of its own
				return goalWords(s, err)
			}}
			w := cmd.OutOrStdout()
			switch {
			case options.json:
				return watchJSON(ctx, w, reader)
			case once || !cli.IsTerminal(w) || !term.IsTerminal(int(os.Stdin.Fd())):
				if !once {
					fmt.Fprintln(cmd.ErrOrStderr(),
						"Not a terminal, so this is one look. A line a second:  weir watch --json")
				}
				return watchOnce(ctx, w, reader, view)
			}
			return watch.Show(ctx, reader, view, os.Stdin, cli.Beneath(w))
		},
	}
	options.add(cmd)
	device(cmd, &dev, "`device` of the uplink (default: the default route's)")
	cmd.Flags().BoolVar(&once, "once", false, "look for three seconds, print the screen, and end")
	cmd.Flags().Lookup("json").Usage = "print a line of JSON each second (docs/measuring.md explains it)"
	return cmd
}

// watchOnce looks until there is something to tell, and prints the screen.
func watchOnce(ctx context.Context, w io.Writer, r *watch.Reader, v watch.View) error {
	const enough = 3 // seconds that have ended; of the first nothing is known but what stood there
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var state watch.State
	seconds := 0
	err := r.Run(ctx, func(e watch.Event) {
		state.Add(e)
		if seconds++; seconds > enough {
			stop()
		}
	})
	if err != nil {
		return err
	}
	v.Width = cli.Width(w)
	printLines(w, v.Lines(state))
	return nil
}

// watchJSON prints a line each second, until it is told to end or nobody reads on.
func watchJSON(ctx context.Context, w io.Writer, r *watch.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	var state watch.State
	var failed error
	err := r.Run(ctx, func(event watch.Event) {
		state.Add(event)
		if failed = e.Encode(state.Line()); failed != nil {
			stop()
		}
	})
	if err == nil {
		err = failed
	}
	return err
}
