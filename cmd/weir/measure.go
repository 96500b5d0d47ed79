// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/meter/far"
	"weir/internal/text"
	"weir/internal/units"
)

// measureOptions are those of weir measure.
type measureOptions struct {
	live           time.Duration
	inside         bool
	json, markdown bool
	token, pin, cc string
	tokenFile      string
	time           time.Duration
	conns, fetches int
	both, plain    bool
	compare        string
	csv, flent     string
	html           string
}

func newMeasureCommand() *cobra.Command {
	o := measureOptions{time: 25 * time.Second}
	cmd := &cobra.Command{
		Use:   "measure [TARGET]",
		Short: "How fast the real link is, and who waits meanwhile",
		Long: `Measures how long packets wait on the real link while it is busy.

  weir measure HOST[:PORT]       the way to a weir serve; that prints the line
  weir measure USER@HOST         the way to a host that has ssh, nothing else
  weir measure ssh://ALIAS       the same, by a name of your ssh's configuration
  weir measure https://HOST      the responsiveness (RPM) of the way to a server
  weir measure https://HOST/FILE downloads of any large file, also by http://
  weir measure iperf3://HOST     the way to an iperf3 server
  weir measure --live 30s        this host's own connections; nothing is sent

To a weir serve, it probes all the time: on the idle link, during downloads, and
during uploads. Downloads come here, uploads go there. The first 2 s of a load
do not count. Behind each figure stands how far off it may be. Both hosts'
kernels say whether the link was full. Before all that, it looks for 1.5 s at
what the path does to packets: ECN, DSCP, and which length passes.

On Linux it asks the first router on the way for an echo, five times a second,
where net.ipv4.ping_group_range lets it. So it can tell whether packets wait on
the first hop, such as Wi-Fi, or beyond.

By ssh, the probe is a key and its echo. The load goes through ssh, whose cipher
and windows can be what limits it. The other host needs cat; with ss,
its kernel's RTTs are known, too.

RPM are round trips a minute on a busy link, by version 09 of
draft-ietf-ippm-responsiveness, with an interval of 1 s. A weir serve is such a
server, too.

A file's server and an iperf3 server answer no probe, so the round trip is that
of a TCP handshake with them. With --fetches 5 it loads nothing, but downloads
the file five times, each over a connection of its own, and says how long that
takes.

With --live it sends nothing. It watches this host's own TCP connections for
that long, and sums them up by client network (/24 of IPv4, /48 of IPv6). RTTs
are the kernel's smoothed ones. Their floor is the kernel's minimum of the last
five minutes. A queue that has stood for longer is part of the floor.

Ctrl-C ends it early and prints what there is. It needs no root.

Exit status: 0 measured, 1 not, or a load carried no data, 2 wrong usage.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return cli.Usage("weir measure HOST", "one target at a time, and not also %q", args[1])
			case len(args) == 0 && o.live == 0:
				return cli.Usage("weir measure HOST, or weir measure --live 30s", "nothing to measure is named")
			case len(args) == 1 && o.live != 0:
				return cli.Usage("weir measure --live 30s", "--live is of this host, and takes no target")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			// Ctrl-C ends the measurement, not the command.
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if o.live != 0 {
				if err := refuseUnknownOption(cmd, "weir measure --live", "live", "inside", "json"); err != nil {
					return err
				}
				return measureLive(ctx, cmd, o)
			}
			return measureTarget(ctx, cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.Var((*timeOption)(&o.live), "live", "watch this host's own connections for this `time`: 30s")
	f.BoolVar(&o.inside, "inside", false, "with --live: also connections that never leave this host")
	f.StringVar(&o.token, "token", "", "`word` that weir serve wants")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` that has that word; or WEIR_TOKEN has it")
	f.StringVar(&o.pin, "pin", "", "`fingerprint` of its certificate: sha256:…")
	f.Var((*timeOption)(&o.time), "time", "`time` of all phases together, 5s to 300s")
	f.IntVar(&o.conns, "conns", 4, "`number` of bulk connections each way, 1 to 16")
	f.IntVar(&o.fetches, "fetches", 0, "download a file this `number` of times, one after the other: 5")
	f.StringVar(&o.cc, "cc", "", "congestion control `name` of the bulk senders (default: each host's own)")
	f.BoolVar(&o.both, "both", false, "also load both directions at once")
	f.BoolVar(&o.plain, "plain", false, "load a weir serve without TLS, where its cipher is slower than the link")
	f.StringVar(&o.compare, "compare", "", "`file` that --json wrote before: print both side by side")
	f.BoolVar(&o.markdown, "markdown", false, "print a table in Markdown")
	f.StringVar(&o.csv, "csv", "", "also write all samples to this `file`")
	f.StringVar(&o.flent, "flent", "", "also write this `file` for flent: name.flent.gz")
	f.StringVar(&o.html, "html", "", "also write a page with pictures to this `file`")
	f.BoolVar(&o.json, "json", false, "print JSON (docs/measuring.md explains it)")
	cli.TakesFile(cmd, "token-file", "compare", "csv", "flent", "html")
	return cmd
}

// errEarly is that nothing was measured since somebody ended it.
var errEarly = errors.New("interrupted before anything was measured")

// optionsOf are the options that a target of this kind knows, and what such a target is called. Of https it is not
// known yet if there is a file: what a responsiveness server does not know is refused later.
func optionsOf(target string) (of string, known []string) {
	known = []string{"time", "conns", "compare", "markdown", "csv", "flent", "html", "json"}
	if isWeb(target) {
		return "a web server", append(known, "pin", "both", "cc", "token", "token-file", "fetches")
	}
	known = append(known, "both")
	if _, ssh := sshName(target); ssh {
		return "a measurement over ssh", known
	}
	known = append(known, "cc")
	if strings.HasPrefix(target, iperfScheme) {
		return "an iperf3 server", known
	}
	return "a measurement of another host", append(known, "token", "token-file", "pin", "plain")
}

// refuseUnknownOption refuses an option that was given and would do nothing.
func refuseUnknownOption(cmd *cobra.Command, of string, known ...string) error {
	var names []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(known, f.Name) {
			names = append(names, "--"+f.Name)
		}
	})
	if names == nil {
		return nil
	}
	for i := range known {
		known[i] = "--" + known[i]
	}
	slices.Sort(known)
	last := len(known) - 1
	return cli.Usage(strings.Join(known[:last], ", ")+" or "+known[last], "%s does nothing for %s", names[0], of)
}

// timeOption is an option that is a time, as tc writes it.
type timeOption time.Duration

func (o *timeOption) Set(s string) error {
	d, err := units.ParseDuration(s)
	*o = timeOption(d)
	return err
}
func (o *timeOption) String() string {
	if o == nil || *o == 0 {
		return ""
	}
	return units.Duration(*o).String()
}
func (o *timeOption) Type() string { return "time" }

func (o measureOptions) check() error {
	const least, most = 5 * time.Second, 300 * time.Second
	switch {
	case o.time < least || o.time > most:
		return cli.Usage("--time 25s", "--time %v is out of range (5s to 300s)", o.time)
	case o.conns < 1 || o.conns > 16:
		return cli.Usage("--conns 4", "--conns %d is out of range (1 to 16)", o.conns)
	case o.fetches < 0 || o.fetches > 100:
		return cli.Usage("--fetches 5", "--fetches %d is out of range (1 to 100)", o.fetches)
	case o.json && o.markdown:
		return cli.Usage("--json or --markdown", "--json and --markdown exclude each other")
	case o.json && o.compare != "":
		return cli.Usage("--json or --compare", "--json and --compare exclude each other: JSON is of one measurement")
	}
	if o.pin != "" {
		if _, err := meter.ParseFingerprint(o.pin); err != nil {
			return cli.Usage("the line that weir serve prints", "--pin %v", err)
		}
	}
	for _, path := range []string{o.csv, o.flent, o.html} {
		if path == "" {
			continue
		}
		if err := cli.Writable(path); err != nil { // now: who has waited for a result should not lose it
			return hint.Wrap(err, "a file in a folder that is there and can be written")
		}
	}
	return nil
}

// measureTarget measures the way to another host.
func measureTarget(ctx context.Context, cmd *cobra.Command, target string, o measureOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if scheme, _, is := strings.Cut(target, "://"); is && !slices.Contains(schemes(), scheme) {
		return cli.Usage("weir measure HOST, or "+strings.Join(schemes(), "://, ")+"://",
			"%s: weir measure does not know %s", target, scheme)
	}
	of, known := optionsOf(target)
	if o.fetches > 0 && isWeb(target) {
		of, known = "a file that is downloaded", []string{"fetches", "pin", "compare", "markdown", "json"}
	}
	if strings.HasPrefix(target, "http://") { // without TLS there is no certificate
		known = slices.DeleteFunc(known, func(name string) bool { return name == "pin" })
	}
	if err := refuseUnknownOption(cmd, of, known...); err != nil {
		return err
	}
	before, earlier, err := o.before()
	if err != nil {
		return err
	}
	line := cli.NewProgress(cmd.ErrOrStderr())
	options := meter.Options{Time: o.time, Conns: o.conns, CC: o.cc, Both: o.both, Plain: o.plain,
		Progress: func(p meter.Progress) { line.Say(p.Elapsed, func() string { return progressLine(p) }) }}
	var file *meter.File
	if isWeb(target) {
		if err := meter.CheckURL(target); err != nil {
			return cli.Usage("weir measure https://HOST", "%v", err)
		}
		if file, err = o.file(ctx, target); err != nil && ctx.Err() != nil {
			return errEarly
		} else if err != nil {
			return err
		}
		switch {
		case o.fetches > 0 && file == nil:
			return cli.Usage("weir measure --fetches 5 https://HOST/FILE", "--fetches takes a file, and %s has none",
				target)
		case file == nil:
			return measureRPM(ctx, cmd, target, o)
		case o.fetches > 0:
			return measureFetches(ctx, cmd, file, earlier, o)
		}
	}
	rec, err := o.record(ctx, target, file, options)
	line.Clear()
	switch {
	case rec == nil && ctx.Err() != nil:
		return errEarly
	case rec == nil:
		return err
	}
	rec.Local, _ = os.Hostname()
	result := meter.Summarize(rec)
	if ctx.Err() != nil && !slices.ContainsFunc(result.Phases, func(p meter.Phase) bool { return p.RTT.N > 0 }) {
		return errEarly
	}
	if err := o.show(cmd.OutOrStdout(), result, before); err != nil {
		return err
	}
	if failed := o.write(result, before); err == nil {
		err = failed
	}
	return cmp.Or(err, errUnreached(ctx, result.Silent()))
}

// errUnreached is an error where a load carried nothing, or no probe was answered, unless somebody ended it early.
func errUnreached(ctx context.Context, load string) error {
	if load == "" || ctx.Err() != nil {
		return nil
	}
	return hint.Wrap(fmt.Errorf("the %s could not be measured", load), "again, once the other side answers")
}

// file looks for a large file at an address; nil: a responsiveness server is there.
func (o measureOptions) file(ctx context.Context, target string) (*meter.File, error) {
	if u, err := url.Parse(target); err == nil && u.Scheme == "https" && strings.Trim(u.Path, "/") == "" {
		return nil, nil
	}
	file, err := meter.FindFile(ctx, target, o.fingerprint())
	if err == nil && file != nil && (o.both || o.cc != "" || o.token+o.tokenFile != "") {
		err = cli.Usage("weir measure "+target,
			"a file is downloaded only: --both, --cc and --token are of a weir serve")
	}
	return file, err
}

// fingerprint is what --pin says, which check has read before.
func (o measureOptions) fingerprint() string {
	pin := ""
	if o.pin != "" {
		pin, _ = meter.ParseFingerprint(o.pin)
	}
	return pin
}

// record finds out what the target is.
func (o measureOptions) record(ctx context.Context, target string, file *meter.File, options meter.Options) (
	*meter.Recording, error) {
	if file != nil {
		return meter.MeasureFile(ctx, file, options)
	}
	if name, ok := strings.CutPrefix(target, iperfScheme); ok {
		at, err := completeAddress(name, iperfScheme, meter.IperfPort)
		if err != nil {
			return nil, err
		}
		return meter.MeasureIperf(ctx, at, options)
	}
	if name, ok := sshName(target); ok {
		if err := far.Check(name); err != nil {
			return nil, cli.Usage("weir measure user@host", "%v", err)
		}
		return far.Measure(ctx, far.Host{Name: name, Interactive: term.IsTerminal(int(os.Stdin.Fd()))}, options)
	}
	at, err := completeAddress(target, "", meter.DefaultPort)
	if err != nil {
		return nil, err
	}
	token, err := findToken(o.token, o.tokenFile)
	if err != nil {
		return nil, err
	}
	return meter.Measure(ctx, meter.Target{Addr: at, Token: token, Pin: o.fingerprint()}, options)
}

const (
	iperfScheme = "iperf3://"
	webScheme   = "https://"
)

func schemes() []string { return []string{"http", "https", "iperf3", "ssh"} }

// isWeb reports whether a target is something on a web server.
func isWeb(target string) bool {
	return strings.HasPrefix(target, webScheme) || strings.HasPrefix(target, "http://")
}

// sshName is the name that ssh is to be given: of user@host, or of ssh://alias. What has a port, ssh knows as a URI.
func sshName(target string) (string, bool) {
	if name, ok := strings.CutPrefix(target, "ssh://"); ok {
		if strings.Contains(name, ":") {
			return target, true
		}
		return name, true
	}
	return target, strings.Contains(target, "@")
}

// completeAddress completes that of a server: 192.0.2.1, [2001:db8::1], host:4748. A scheme is what stood before it.
func completeAddress(target, scheme, port string) (string, error) {
	of := "a weir serve"
	if scheme == iperfScheme {
		of = "an iperf3 server"
	}
	none := cli.Usage(scheme+"HOST:PORT", "%q is no address of %s", target, of)
	named, _, file := strings.Cut(target, "/")
	if file && scheme == "" && named != "" && !strings.ContainsAny(target, "@ \t\r\n") {
		return "", cli.Usage("http://"+target, "%q is no address of %s, but may be a file on a web server", target, of)
	}
	if target == "" || strings.ContainsAny(target, "/@ \t\r\n") {
		return "", none
	}
	if strings.Count(target, ":") > 1 && !strings.HasPrefix(target, "[") {
		target = "[" + target + "]"
	}
	host, own, err := net.SplitHostPort(target)
	if err != nil {
		if host, own, err = net.SplitHostPort(target + ":" + port); err != nil {
			return "", none
		}
	}
	if host == "" { // to a dialer it is this one
		return "", none
	}
	if n, err := strconv.ParseUint(own, 10, 16); err != nil || n == 0 {
		return "", cli.Usage(scheme+"HOST:"+port, "port %q is out of range (1 to 65535)", own)
	}
	return net.JoinHostPort(host, own), nil
}

func progressLine(p meter.Progress) string {
	load := ""
	if p.Goodput > 0 {
		load = fmt.Sprintf(" · %s Mbit/s", figureText(p.Goodput))
	}
	took := fmt.Sprintf("%v of %v", p.Elapsed.Round(time.Second), p.All)
	if p.Elapsed > p.All+time.Second {
		took = fmt.Sprintf("%v, where %v was planned", p.Elapsed.Round(time.Second), p.All)
	}
	return fmt.Sprintf("%s · %s%s · round trip %s ms", p.Phase, took, load, figureText(p.RTT))
}

// before reads what to compare with: a result, or downloads.
func (o measureOptions) before() (result *meter.Result, fetches *meter.Fetches, err error) {
	if o.compare == "" {
		return nil, nil, nil
	}
	b, err := os.ReadFile(o.compare)
	if err != nil {
		return nil, nil, hint.Wrap(fmt.Errorf("%s: %w", o.compare, errors.Unwrap(err)), "a file of weir measure --json")
	}
	if o.fetches > 0 {
		if fetches, err = meter.ReadFetches(b); err != nil {
			return nil, nil, hint.Wrap(fmt.Errorf("%s has no downloads: %w", o.compare, err),
				"a file of weir measure --fetches 5 --json")
		}
		return nil, fetches, nil
	}
	r, err := meter.ReadResult(b)
	if err == nil && len(r.Phases) == 0 { // such as downloads with --fetches
		err = errors.New("no load was measured")
	}
	if err != nil {
		return nil, nil, hint.Wrap(fmt.Errorf("%s is no result: %w", o.compare, err), "a file of weir measure --json")
	}
	return &r, nil, nil
}

// write writes the files that were asked for.
func (o measureOptions) write(r meter.Result, before *meter.Result) error {
	rec := func(form func(io.Writer, *meter.Recording) error) func(io.Writer) error {
		return func(w io.Writer) error { return form(w, r.Recording) }
	}
	page := func(w io.Writer) error {
		if before == nil {
			return writeMeasuredPage(w, []namedResult{{Name: cmp.Or(r.Remote, r.Target), Result: r}})
		}
		return writeMeasuredPage(w, []namedResult{{Name: "before", Result: *before}, {Name: "after", Result: r}})
	}
	for path, form := range map[string]func(io.Writer) error{o.csv: rec(meter.CSV), o.flent: rec(meter.Flent),
		o.html: page} {
		if path == "" {
			continue
		}
		var b bytes.Buffer
		if err := form(&b); err != nil {
			return err
		}
		if err := cli.WriteFile(path, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// show prints a result, or two.
func (o measureOptions) show(w io.Writer, r meter.Result, before *meter.Result) error {
	switch {
	case o.json:
		return cli.PrintJSON(w, r)
	case before != nil:
		printComparison(w, *before, r, o.markdown)
	case o.markdown:
		printMarkdown(w, r)
	default:
		printResult(w, r)
	}
	for _, n := range r.Notes {
		printWrapped(w, "", text.OneLine(n))
	}
	return nil
}
