// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/calibrate"
	"weir/internal/meter"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// calibrateOptions are those of weir calibrate.
type calibrateOptions struct {
	token, pin, cc string
	noFraming      bool
	json           bool
}

func newCalibrateCommand() *cobra.Command {
	var o calibrateOptions
	cmd := &cobra.Command{
		Use:   "calibrate PEER",
		Short: "Find the rate that the provider enforces",
		Long: `Finds what the provider enforces on the way from this host to a peer. That is
the rate, the bytes that it counts of each packet, and the queue in front of it.

  weir calibrate HOST[:PORT]     a weir serve; that prints --token and --pin

It takes about 15 s, and the link is full meanwhile. It fills the link with
large packets, then with small ones. It sends less, to see what the path loses
by itself. At last it sends 99.75 % of the result for 2 s: nothing may wait.

The link is filled with BBR where this kernel has it. Without BBR, a policer and
a path that loses packets are not filled, and the rate may be higher than found.

Behind each figure stands how far off it may be. What others behind the same
limiter use cannot be told from a lower rate: run it again at another time.

It needs no root, and changes nothing on this host. Ctrl-C ends it.

Exit status: 0 found and verified, 1 not, 2 wrong usage.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("weir calibrate HOST", "one peer is needed, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return calibratePeer(ctx, cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.token, "token", "", "`word` that weir serve wants")
	f.StringVar(&o.pin, "pin", "", "`fingerprint` of its certificate: sha256:…")
	f.StringVar(&o.cc, "cc", "", "congestion control `name` that fills the link (default: bbr, where it is)")
	f.BoolVar(&o.noFraming, "no-framing", false, "do not look for the framing; 4 s less")
	f.BoolVar(&o.json, "json", false, "print JSON (docs/calibrate.md explains it)")
	return cmd
}

func calibratePeer(ctx context.Context, cmd *cobra.Command, peer string, o calibrateOptions) error {
	at, err := address(peer, meter.DefaultPort, "a weir serve")
	if err != nil {
		return err
	}
	if o.pin != "" {
		if o.pin, err = meter.ParseFingerprint(o.pin); err != nil {
			return usage("the line that weir serve prints", "--pin %v", err)
		}
	}
	found, err := o.run(ctx, at, cmd.ErrOrStderr())
	if ctx.Err() != nil {
		return &hinted{errors.New("ended before anything was found"), "weir calibrate " + peer}
	}
	if err != nil {
		return err
	}
	if o.json {
		err = printJSON(cmd.OutOrStdout(), found)
	} else {
		printCalibrated(cmd.OutOrStdout(), *found)
	}
	if err == nil && !found.Verified.Calm {
		err = &hinted{errors.New("the result is not verified"), "weir calibrate " + peer + " when the link is idle"}
	}
	return err
}

// run calibrates the way to a weir serve.
func (o calibrateOptions) run(ctx context.Context, at string, stderr io.Writer) (*meter.Calibrated, error) {
	line := newProgress(stderr)
	defer line.clear()
	began := time.Now()
	options := meter.CalibrateOptions{CC: o.cc, Options: calibrate.Options{NoFraming: o.noFraming,
		Phase: func(p calibrate.Phase) { line.say(time.Since(began), func() string { return string(p) }) }}}
	note := ""
	if o.cc == "" {
		if options.CC = "bbr"; !slices.Contains(meter.CCs(), "bbr") {
			options.CC = ""
			note = "BBR cannot be chosen here, so this host's own congestion control has filled the link. It fills " +
				"no policer and no path that loses packets: the rate may be higher. With root, sysctl " +
				"net.ipv4.tcp_allowed_congestion_control=\"... bbr\" lets it be chosen."
		}
	}
	device, done := deviceTo(at)
	defer done()
	options.Device = device
	found, err := meter.Calibrate(ctx, meter.Target{Addr: at, Token: o.token, Pin: o.pin}, options)
	if err != nil {
		return nil, err
	}
	found.Local, _ = os.Hostname()
	if note != "" {
		found.Notes = append(found.Notes, note)
	}
	return found, nil
}

// deviceTo reads the counters of the device by which packets to an address leave; nil where it has none.
func deviceTo(at string) (read func() (meter.Counters, bool), done func()) {
	none := func() {}
	host, _, _ := net.SplitHostPort(at)
	to, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return nil, none
	}
	routes, err := netlink.RouteGet(to.IP)
	if err != nil || len(routes) == 0 {
		return nil, none
	}
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, none
	}
	index := routes[0].LinkIndex
	read = func() (meter.Counters, bool) {
		s, ok, err := conn.RootStats(index)
		return meter.Counters{Bytes: s.Bytes, Packets: uint64(s.Packets), Drops: uint64(s.Drops)}, ok && err == nil
	}
	return read, func() { conn.Close() }
}

// printCalibrated prints a result: what was found, and what to do with it.
func printCalibrated(w io.Writer, c meter.Calibrated) {
	row := func(label, format string, args ...any) { printText(w, label, fmt.Sprintf(format, args...)) }
	row("Enforced by", "%s", map[calibrate.Kind]string{calibrate.FIFO: "a queue for all (FIFO)",
		calibrate.Policer:     "dropping what comes too fast (a policer)",
		calibrate.FairQueue:   "a queue that keeps flows apart (an AQM)",
		calibrate.Unsaturated: "nothing that was seen: the test did not fill the link"}[c.Kind])
	row("Rate", "%s %v ± %.2g %%", prefix(c.Rate), exactly(c.Rate.Value), 100*(c.Rate.High/c.Rate.Value-1))
	switch {
	case c.Overhead.Sort == calibrate.Unknown:
		row("Counted of a packet", "not known")
	case c.ATM:
		row("Counted of a packet", "ATM cells of its IP part and %.0f to %.0f bytes", c.Overhead.Low, c.Overhead.High)
	default:
		row("Counted of a packet", "its IP part and %+.0f bytes (± %.1f)", c.Overhead.Value,
			(c.Overhead.High-c.Overhead.Low)/2)
	}
	if c.Credit.Value > 0 {
		row("Credit", "%s above the rate, at first", text.Bytes(c.Credit.Value))
	}
	if c.Depth.Sort != calibrate.Unknown {
		row("The queue holds", "%s %s ms", prefix(c.Depth), figure(1e3*c.Depth.Value))
	}
	row("Round trip", "%s ms with no queue", figure(1e3*c.Base.Value))
	row("Loss of the path", "%.2f %% ± %.2f", 100*c.Loss.Value, 100*(c.Loss.High-c.Loss.Value))
	if c.Verified.Calm {
		row("Verified", "99.75 %% of it: the median packet waited %s ms longer",
			figure(math.Max(0, 1e3*c.Verified.Added)))
		fmt.Fprintln(w)
		printText(w, "What to do:", "sudo weir up --rate "+exactly(c.Rate.Value)+framingFlag(c.Result))
	}
	for _, n := range c.Notes {
		printWrapped(w, "", n)
	}
}

func prefix(v calibrate.Value) string {
	if v.Sort == calibrate.Is {
		return ""
	}
	return string(v.Sort)
}

// exactly writes a rate in four digits or more, as tc does.
func exactly(rate float64) string {
	digits := math.Pow(10, math.Max(0, math.Floor(math.Log10(rate))-4))
	return units.Rate(math.Round(rate/digits) * digits).String()
}

// framingFlag is what weir up is to be told of the framing.
func framingFlag(r calibrate.Result) string {
	if r.Overhead.Sort == calibrate.Unknown {
		return ""
	}
	f := qdisc.AsHanded()
	f.Raw, f.Overhead = false, int32(r.Overhead.Value)
	if r.ATM {
		f.ATM, f.Overhead = "atm", int32(r.Overhead.High)
	}
	for _, name := range qdisc.Framings() {
		if known, err := qdisc.ParseFraming(name); err == nil && known == f {
			return " --overhead " + name
		}
	}
	return " --overhead '" + f.String() + "'"
}
