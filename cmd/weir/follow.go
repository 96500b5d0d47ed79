// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/cli"
	"weir/internal/follow/live"
	"weir/internal/hint"
	"weir/internal/units"
)

func newFollowCommand() *cobra.Command {
	var options common
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "Keep the shaper just below a rate that moves",
		Long: `Finds out which rate the link has now, and gives the shaper a little less. It is
for goals in force that say between which rates, or that nobody knows it:

  sudo weir up --rate 20mbit..100mbit
  sudo weir up --rate 50mbit --follow auto
  sudo weir up --rate auto
  sudo weir up --rate 50mbit --ingress 50mbit --follow auto

weir confirm starts it as a service, weir-follow, at every boot, too. weir down
ends that.

It sends nothing. It reads the RTTs of this host's own TCP connections, of those
that it forwards, and the counters of the queue. When packets begin to wait
beyond this host, it lowers the rate until that queue is gone. When the shaper
is full, it tries a little more every few seconds. A change is made in place: no
packet is lost.

Where the provider drops what is too much, nothing waits. Then it goes by what
two connections or more lose beyond this host.

A rate that nobody knows is found while clients of two networks or more fill the
link, for 10 s in all. It is then brought up as weir up does it, with the timer,
and confirmed if connections still move after 10 s.

RTTs of forwarded connections are told by a BPF program, which lets each packet
go as it is, and ends with this process. On a host that does not forward there
is none.

Where sending less does not help, packets wait elsewhere, and the rate is put
back. Without connections, or with little to send, the rate stays as it is.

Of incoming traffic and on a relay it learns how much of the link can be used
without filling it. The link may become slower, and faster again. It begins with
the share that weir up gives. A relay may have tunnels of the kernel's, such as
WireGuard, but neither proxies nor tunnels of programs.

On SIGTERM the rate that was found stays. If it is less than half of the goal's
own rate, that one is set instead. Of incoming traffic and on a relay no more
than the share that weir up gives is left. Killed at any instant, it leaves what
it set last, and that is between the goal's rates.

It takes less than 1 % of a core. results/follow.md has what was measured.

Exit status: 0 ended, 1 nothing to follow or failed, 2 wrong usage.`,
		Example: `  weir follow
  weir follow --json
  weir status`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(1) // it looks at one thing at a time, and more threads only wake each other
			debug.SetGCPercent(50)
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return runFollow(ctx, options.store(), &followLog{out: cmd.OutOrStdout(), json: options.json})
		},
	}
	options.add(cmd)
	cmd.Flags().Lookup("json").Usage = "print a line of JSON for each change (docs/follow.md explains it)"
	return cmd
}

// runFollow follows until it is told to end, or what it does cannot be told any more.
func runFollow(ctx context.Context, store change.Store, log *followLog) error {
	status, err := store.Status()
	if err != nil {
		return err
	}
	if len(status.Followed) == 0 {
		return &hint.Error{What: "no goal in force says between which rates to follow",
			Try: "weir up --rate 20mbit..100mbit, or --rate auto"}
	}
	following, err := store.Follow()
	if err != nil {
		return err
	}
	defer following.Close()
	ctx, log.end = context.WithCancel(ctx)
	defer log.end()
	if err := live.Run(ctx, store, log.add, following.Tell); err != nil {
		return err
	}
	return log.failed
}

// followLog prints what is done, from several goroutines. It ends all when that fails.
type followLog struct {
	out    io.Writer
	json   bool
	one    sync.Mutex
	last   map[string]*quiet // by device
	failed error
	end    func()
}

func (l *followLog) add(e live.Event) {
	l.one.Lock()
	defer l.one.Unlock()
	var err error
	switch {
	case l.json:
		err = json.NewEncoder(l.out).Encode(e)
	case e.Dev == "":
		_, err = fmt.Fprintln(l.out, e.Why)
	case e.Rate == 0:
		_, err = fmt.Fprintf(l.out, "%s: %s\n", e.Dev, e.Why)
	case l.last[e.Dev].tells(e):
		_, err = fmt.Fprintf(l.out, "%s: %s: %s\n", e.Dev, e.Rate, e.Why)
		if l.last == nil {
			l.last = map[string]*quiet{}
		}
		l.last[e.Dev] = &quiet{e.At, e.Rate}
	}
	if err != nil {
		l.failed = err
		l.end()
	}
}

// quiet is what was told of a device last. A log gets one line in ten seconds at most, and none for a small step.
type quiet struct {
	at   time.Time
	rate units.Rate
}

func (q *quiet) tells(e live.Event) bool {
	const apart, step = 10 * time.Second, 0.03
	return q == nil || !e.Moves ||
		e.At.Sub(q.at) >= apart && e.Why != "" && math.Abs(float64(e.Rate)/float64(q.rate)-1) >= step
}
