// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"weir/internal/calibrate"
	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/meter/far"
	"weir/internal/plan"
	"weir/internal/qdisc"
	"weir/internal/text"
	"weir/internal/units"
)

// calibrateOptions are those of weir calibrate.
type calibrateOptions struct {
	peers        []string
	tokens, pins []string // of those peers that are a weir serve, in their order
	tokenFiles   []string // instead of tokens
	cc           string
	noFraming    bool
	json         bool
}

func newCalibrateCommand() *cobra.Command {
	var o calibrateOptions
	cmd := &cobra.Command{
		Use:   "calibrate PEER...",
		Short: "Find the rate that the provider enforces",
		Long: `Finds what the provider enforces on the way from this host to a peer. That is
the rate, the bytes that it counts of each packet, and the queue in front of it.

  weir calibrate HOST[:PORT]     a weir serve; that prints --token and --pin
  weir calibrate USER@HOST       a host that has ssh, nothing else
  weir calibrate ssh://ALIAS     the same, by a name of your ssh's configuration
  weir calibrate iperf3://HOST   an iperf3 server
  weir calibrate https://HOST    a responsiveness server

Several peers are filled at once, for a link that no one of them can take. The
first is asked how long packets wait; so let it be the nearest. --token and
--pin are then given once for each weir serve, in the same order.

It takes about 15 s, and the link is full meanwhile. It fills the link with
large packets, then with small ones. It sends less, to see what the path loses
by itself. At last it sends 99.75 % of the result for 2 s: nothing may wait.
A weir serve counts datagrams, too. Where UDP and TCP disagree, neither counts.

The link is filled with BBR where this kernel has it. Without BBR, a policer and
a path that loses packets are not filled, and the rate may be higher than found.

Behind each figure stands how far off it may be. What others behind the same
limiter use cannot be told from a lower rate: run it again at another time.

It needs no root, and changes nothing on this host. Ctrl-C ends it.

Exit status: 0 found and verified, 1 not, 2 wrong usage.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > maxPeers {
				return cli.Usage("weir calibrate HOST", "1 to %d peers are needed, not %d", maxPeers, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.peers = args
			return calibratePeer(cmd, o)
		},
	}
	f := cmd.Flags()
	o.addPeer(f)
	f.StringVar(&o.cc, "cc", "", "congestion control `name` that fills the link (default: bbr, where it is)")
	f.BoolVar(&o.noFraming, "no-framing", false, "do not look for the framing; 4 s less")
	f.BoolVar(&o.json, "json", false, "print JSON (docs/measuring.md explains it)")
	return cmd
}

// addPeer adds what it takes to be let in.
func (o *calibrateOptions) addPeer(f *pflag.FlagSet) {
	f.StringArrayVar(&o.tokens, "token", nil, "`word` that weir serve wants")
	f.StringArrayVar(&o.tokenFiles, "token-file", nil, "`file` that has that word; or WEIR_TOKEN has it")
	f.StringArrayVar(&o.pins, "pin", nil, "`fingerprint` of its certificate: sha256:…")
}

// maxPeers is as many as there may be connections.
const maxPeers = 8

func calibratePeer(cmd *cobra.Command, o calibrateOptions) error {
	found, err := o.run(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if o.json {
		return cmp.Or(cli.PrintJSON(w, found), o.verified(found))
	}
	printCalibrated(w, *found)
	if found.Verified.Calm {
		fmt.Fprintln(w)
		printText(w, "What to do:", "sudo weir up "+calibrated(plan.Goal{}, found.Result).Flags())
	}
	return o.verified(found)
}

// goal is a goal with what was found, if that is verified.
func (o calibrateOptions) goal(cmd *cobra.Command, goal plan.Goal, quiet bool) (plan.Goal, error) {
	found, err := o.run(cmd.ErrOrStderr())
	if err != nil {
		return goal, err
	}
	if !quiet {
		printCalibrated(cmd.OutOrStdout(), *found)
		fmt.Fprintln(cmd.OutOrStdout())
	}
	return calibrated(goal, found.Result), o.verified(found)
}

// verified is an error where the result is not to be relied on.
func (o calibrateOptions) verified(found *meter.Calibrated) error {
	if found.Verified.Calm {
		return nil
	}
	return hint.Wrap(errors.New("the result is not verified, and nothing was changed"),
		"weir calibrate "+strings.Join(o.peers, " ")+" when the link is idle")
}

// run calibrates the way to the peers.
func (o calibrateOptions) run(stderr io.Writer) (*meter.Calibrated, error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	options, note := o.measured()
	line := cli.NewProgress(stderr)
	defer line.Clear()
	if err := meter.TryCC(options.CC); err != nil {
		return nil, err
	}
	began := time.Now()
	options.Phase = func(p calibrate.Phase) { line.Say(time.Since(began), func() string { return string(p) }) }
	peers, err := o.open(ctx, options.CC)
	defer func() {
		for _, p := range peers {
			if p.Close != nil {
				p.Close()
			}
		}
	}()
	var found *meter.Calibrated
	if err == nil {
		var done func()
		if options.Device, done, err = deviceTo(peers); err == nil {
			defer done()
			found, err = meter.Calibrate(ctx, peers, options)
		}
	}
	if ctx.Err() != nil {
		return nil, hint.Wrap(errors.New("ended before anything was found"), "weir calibrate "+
			strings.Join(o.peers, " "))
	}
	switch {
	case errors.Is(err, calibrate.ErrSilent):
		return nil, hint.Wrap(err, "another peer: a firewall may keep the probes out")
	case errors.Is(err, calibrate.ErrBusy):
		return nil, hint.Wrap(err, "weir calibrate "+strings.Join(o.peers, " ")+" when this host has less to do")
	case errors.Is(err, calibrate.ErrStalled):
		return nil, hint.Wrap(err, "another peer, or this one when its host has less to do")
	}
	if err != nil {
		return nil, err
	}
	found.Local, _ = os.Hostname()
	if note != "" {
		found.Notes = append(found.Notes, note)
	}
	return found, nil
}

// measured says how to calibrate, and what is to be said of that.
func (o calibrateOptions) measured() (options meter.CalibrateOptions, note string) {
	options = meter.CalibrateOptions{CC: o.cc, Options: calibrate.Options{NoFraming: o.noFraming}}
	if o.cc != "" {
		return options, ""
	}
	if options.CC = "bbr"; !slices.Contains(meter.CCs(), "bbr") {
		options.CC = ""
		note = "BBR cannot be chosen here, so this host's own congestion control has filled the link. It fills " +
			"no policer and no path that loses packets: the rate may be higher. With root, sysctl " +
			"net.ipv4.tcp_allowed_congestion_control=\"... bbr\" lets it be chosen."
	}
	return options, note
}

// open opens the peers, each by what its name says that it is.
func (o calibrateOptions) open(ctx context.Context, cc string) (all []*meter.Peer, err error) {
	secure := func(name string) bool {
		_, isSSH := sshName(name)
		return !isSSH && !strings.HasPrefix(name, iperfScheme)
	}
	served := 0
	for _, name := range o.peers {
		if secure(name) {
			served++
		}
	}
	tokens, err := o.findTokens(served)
	if err != nil {
		return nil, err
	}
	if len(tokens) > served || len(o.pins) > served {
		return nil, cli.Usage("one --token and one --pin for each weir serve, in the same order",
			"there are more of --token or --pin than peers that want one")
	}
	served = 0
	for _, name := range o.peers {
		token, pin := "", ""
		if secure(name) {
			token, pin = argumentFor(tokens, served), argumentFor(o.pins, served)
			served++
		}
		p, err := openPeer(ctx, name, cc, token, pin)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

func argumentFor(all []string, n int) string {
	if n < len(all) {
		return all[n]
	}
	return ""
}

// findTokens are those of the peers that want one, in their order. The environment's is of one peer alone: no other is
// told.
func (o calibrateOptions) findTokens(served int) (tokens []string, err error) {
	switch {
	case len(o.tokens) > 0 && len(o.tokenFiles) > 0:
		return nil, cli.Usage("--token or --token-file", "--token and --token-file exclude each other")
	case len(o.tokens) > 0:
		for _, word := range o.tokens {
			if err := checkToken("--token", word); err != nil {
				return nil, err
			}
		}
		return o.tokens, nil
	case len(o.tokenFiles) == 0 && served == 1:
		word, err := findToken("", "")
		if word == "" {
			return nil, err
		}
		return []string{word}, err
	}
	for _, file := range o.tokenFiles {
		word, err := readToken(file)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, word)
	}
	return tokens, nil
}

func openPeer(ctx context.Context, name, cc, token, pin string) (*meter.Peer, error) {
	if pin != "" {
		var err error
		if pin, err = meter.ParseFingerprint(pin); err != nil {
			return nil, cli.Usage("the line that weir serve prints", "--pin %v", err)
		}
	}
	if at, ok := strings.CutPrefix(name, iperfScheme); ok {
		at, err := completeAddress(at, iperfScheme, meter.IperfPort)
		if err != nil {
			return nil, err
		}
		return meter.OpenIperf(ctx, at, cc, calibrate.Sizes())
	}
	if strings.HasPrefix(name, webScheme) {
		if err := meter.CheckURL(name); err != nil {
			return nil, cli.Usage("weir calibrate https://HOST", "%v", err)
		}
		return meter.OpenResponsive(ctx, name, pin)
	}
	if host, ok := sshName(name); ok {
		if err := far.Check(host); err != nil {
			return nil, cli.Usage("weir calibrate user@host", "%v", err)
		}
		return far.Open(ctx, far.Host{Name: host, Interactive: term.IsTerminal(int(os.Stdin.Fd()))})
	}
	at, err := completeAddress(name, "", meter.DefaultPort)
	if err != nil {
		return nil, err
	}
	return meter.OpenServed(ctx, meter.Target{Addr: at, Token: token, Pin: pin})
}

// deviceTo reads the counters of the device by which packets to the peers leave; nil where it has none. A shaper there
// is an error: its rate would be found, and not the provider's. So are two devices.
func deviceTo(peers []*meter.Peer) (read func() (meter.Counters, bool), done func(), err error) {
	none := func() {}
	index := 0
	for _, p := range peers {
		host, _, _ := net.SplitHostPort(p.Addr)
		to, err := net.ResolveIPAddr("ip", host)
		if err != nil {
			return nil, none, nil
		}
		routes, err := netlink.RouteGet(to.IP)
		if err != nil || len(routes) == 0 {
			return nil, none, nil
		}
		if index != 0 && index != routes[0].LinkIndex {
			return nil, none, hint.Wrap(fmt.Errorf("%s is reached by another device than %s", p.Name, peers[0].Name),
				"peers behind one device: its link is what is calibrated")
		}
		index = routes[0].LinkIndex
	}
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, none, nil
	}
	if err := refuseShaped(conn, index); err != nil {
		conn.Close()
		return nil, none, err
	}
	read = func() (meter.Counters, bool) {
		s, ok, err := conn.RootStats(index)
		return meter.Counters{Bytes: s.Bytes, Packets: uint64(s.Packets), Drops: uint64(s.Drops)}, ok && err == nil
	}
	return read, func() { conn.Close() }, nil
}

// refuseShaped is an error where a device enforces a rate itself.
func refuseShaped(conn *qdisc.Conn, index int) error {
	tree, err := conn.Tree(index)
	stack, ok := tree.Stack()
	link, errLink := netlink.LinkByIndex(index)
	if err != nil || errLink != nil || !ok || !stack.Shapes() {
		return nil
	}
	return hint.Wrap(fmt.Errorf("%s enforces a rate itself (%s), so that rate would be found",
		text.OneLine(link.Attrs().Name), stack), "weir down, and weir calibrate then")
}

// printCalibrated prints what was found.
func printCalibrated(w io.Writer, c meter.Calibrated) {
	row := func(label, format string, args ...any) { printText(w, label, fmt.Sprintf(format, args...)) }
	row("Enforced by", "%s", map[calibrate.Kind]string{calibrate.FIFO: "a queue for all (FIFO)",
		calibrate.Policer:     "dropping what comes too fast (a policer)",
		calibrate.FairQueue:   "a queue that keeps flows apart (an AQM)",
		calibrate.Unsaturated: "nothing that was seen: the test did not fill the link"}[c.Kind])
	row("Rate", "%s %v ± %.2g %%", prefix(c.Rate), units.Rounded(c.Rate.Value), 100*(c.Rate.High/c.Rate.Value-1))
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
		row("The queue holds", "%s %s ms", prefix(c.Depth), figureText(1e3*c.Depth.Value))
	}
	row("Round trip", "%s ms with no queue", figureText(1e3*c.Base.Value))
	row("Loss of the path", "%.2f %% ± %.2f", 100*c.Loss.Value, 100*(c.Loss.High-c.Loss.Value))
	if c.Verified.Calm {
		row("Verified", "99.75 %% of it: the median packet waited %s ms longer",
			figureText(math.Max(0, 1e3*c.Verified.Added)))
	}
	for _, n := range c.Notes {
		printWrapped(w, "", n)
	}
}

func prefix(v calibrate.Value) string {
	if v.Sort == calibrate.Within {
		return ""
	}
	return string(v.Sort)
}

// calibrated is a goal with what was found.
func calibrated(goal plan.Goal, r calibrate.Result) plan.Goal {
	goal.Rate = units.Rounded(r.Rate.Value)
	if r.Overhead.Sort == calibrate.Unknown {
		return goal
	}
	goal.Overhead = qdisc.AsHanded()
	goal.Overhead.Raw, goal.Overhead.Overhead = false, int32(r.Overhead.Value)
	if r.ATM {
		goal.Overhead.ATM, goal.Overhead.Overhead = "atm", int32(r.Overhead.High)
	}
	return goal
}
