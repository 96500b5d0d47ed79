// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/meter/irtt"
	"weir/internal/meter/server"
	"weir/internal/text"
	"weir/internal/units"
)

// serveOptions are those of weir serve.
type serveOptions struct {
	listen, udp, token, state, cert, key string
	tokenFile                            string
	domain, acme                         string
	noToken                              bool
	tests                                int
	duration                             time.Duration
	rate                                 units.Rate
	bytes                                units.Size
}

func newServeCommand() *cobra.Command {
	limits := server.DefaultLimits()
	o := serveOptions{duration: limits.Duration}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server that weir measure and other programs connect to",
		Long: `Answers those who measure the way to this host. It needs no root.

It prints the line to run on the other side, and the address of a page that
measures in a browser. Both have a token, which keeps others out; the line has
the fingerprint of this host's certificate, too. Both are made at the first
start and kept. On a loopback address there is no token.

With --domain the certificate is of Let's Encrypt, or of the authority that
--acme names, and its terms are accepted by that. The port is 443 then, which
must be open to the Internet. It is kept and renewed.

One TLS port speaks to weir measure, networkQuality and other RPM clients, ndt7,
LibreSpeed and Cloudflare's client. One UDP port speaks to irtt, with a key that
is printed. docs/measuring.md has a command for each.

A token has 16 characters or more. It need not be among the arguments, which
others on this host can read: --token-file, or WEIR_TOKEN in the environment.

One client tests at a time; others are told when to come back. UDP replies never
exceed the request, except the first to a client that has the token or is local
(17 bytes).

Exit status: 0 ended by Ctrl-C, 1 failed, 2 wrong usage.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A client that hangs up is no reason to end, and Ctrl-C is no failure.
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if o.domain != "" && !cmd.Flags().Changed("listen") {
				o.listen = ":443" // where an authority asks
			}
			return serve(ctx, cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", ":"+meter.DefaultPort, "`address` and port of TLS; without an address, all")
	f.StringVar(&o.udp, "udp", "", "`address` and port of UDP (default: that of --listen); irtt's own is :2112")
	f.StringVar(&o.token, "token", "", "`word` that clients must show (default: one that is kept)")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` that has that word")
	f.BoolVar(&o.noToken, "no-token", false, "let in everybody; then irtt is for this host alone")
	stateDir(cmd, &o.state, "", "`directory` of what is kept (default: ~/.local/state/weir)")
	f.StringVar(&o.cert, "cert", "", "`file` of another certificate (PEM), with --key")
	f.StringVar(&o.key, "key", "", "`file` of its key (PEM)")
	f.StringVar(&o.domain, "domain", "", "get a certificate for this `name` of this host (ACME)")
	f.StringVar(&o.acme, "acme", "", "`URL` of another authority's directory, with --domain")
	f.IntVar(&o.tests, "tests", limits.Tests, "`number` of clients that test at once")
	f.Var((*timeOption)(&o.duration), "duration", "longest `time` of a test")
	f.Var((*rateOption)(&o.rate), "rate", "highest `rate` of all loads together, each way (default: none)")
	f.Var((*sizeOption)(&o.bytes), "bytes", "most `bytes` of a test (default: 20 GB)")
	cli.TakesFile(cmd, "token-file")
	cmd.MarkFlagFilename("cert", "pem")
	cmd.MarkFlagFilename("key", "pem")
	return cmd
}

type rateOption units.Rate

func (o *rateOption) Set(s string) (err error) {
	r, err := units.ParseRate(s)
	*o = rateOption(r)
	return err
}
func (o *rateOption) String() string {
	if o == nil || *o == 0 {
		return ""
	}
	return units.Rate(*o).String()
}
func (o *rateOption) Type() string { return "rate" }

type sizeOption units.Size

func (o *sizeOption) Set(s string) (err error) {
	n, err := units.ParseSize(s)
	*o = sizeOption(n)
	return err
}
func (o *sizeOption) String() string {
	if o == nil || *o == 0 {
		return ""
	}
	return units.Size(*o).String()
}
func (o *sizeOption) Type() string { return "size" }

func (o serveOptions) check() error {
	switch {
	case o.tests < 1 || o.tests > 64:
		return cli.Usage("--tests 1", "--tests %d is out of range (1 to 64)", o.tests)
	case o.duration < time.Second || o.duration > time.Hour:
		return cli.Usage("--duration 60s", "--duration %v is out of range (1s to 3600s)", o.duration)
	case o.noToken && o.token+o.tokenFile != "":
		return cli.Usage("--token or --no-token", "a token and --no-token exclude each other")
	case (o.cert == "") != (o.key == ""):
		return cli.Usage("--cert FILE --key FILE", "a certificate and its key go together")
	case o.domain != "" && o.cert != "":
		return cli.Usage("--domain or --cert", "--domain and --cert exclude each other")
	case o.acme != "" && o.domain == "":
		return cli.Usage("--domain NAME --acme URL", "--acme is of --domain")
	case o.domain != "" && (!strings.Contains(o.domain, ".") || strings.ContainsAny(o.domain, ":/@ \t\r\n*") ||
		net.ParseIP(o.domain) != nil):
		return cli.Usage("--domain speed.example.org", "--domain %q is no name of a host", o.domain)
	}
	if err := checkListen("--listen", o.listen, "tcp", ":"+meter.DefaultPort); err != nil || o.udp == "" {
		return err
	}
	return checkListen("--udp", o.udp, "udp", ":2112")
}

// checkListen refuses what is no address and port of this kind.
func checkListen(option, address, network, example string) error {
	_, port, err := net.SplitHostPort(address)
	if n, number := strconv.Atoi(port); err == nil && number == nil && n > math.MaxUint16 {
		return cli.Usage(option+" "+example, "%s: port %s is out of range (1 to 65535)", option, port)
	}
	if err == nil {
		_, err = net.LookupPort(network, port)
	}
	if err != nil || port == "" { // which would be any that is free
		return cli.Usage(option+" "+example, "%s %q is no address with a port", option, address)
	}
	return nil
}

func serve(ctx context.Context, w io.Writer, o serveOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	token := ""
	if !o.noToken {
		var err error
		if token, err = findToken(o.token, o.tokenFile); err == nil {
			err = checkLength(token)
		}
		if err != nil {
			return err
		}
	}
	dir, err := o.directory()
	if err != nil {
		return err
	}
	kept, err := o.keep(dir)
	if err != nil {
		return err
	}
	tcp, udp, err := o.sockets()
	if err != nil {
		return err
	}
	defer tcp.Close()
	defer udp.Close()
	limits := server.DefaultLimits()
	limits.Tests, limits.Duration, limits.Rate = o.tests, o.duration, o.rate
	if o.bytes > 0 {
		limits.Bytes = int64(o.bytes)
	}
	limits.Conns = max(limits.Conns, o.tests*limits.PerHost)
	switch {
	case o.noToken:
		kept.Token = ""
	case token != "":
		kept.Token = token
	case isLocal(tcp.Addr()) && isLocal(udp.LocalAddr()):
		kept.Token = ""
	}
	name, _ := os.Hostname()
	log := newServeLog(w)
	c := server.Config{Limits: limits, Token: kept.Token, Certificate: kept.Certificate, Name: name,
		Version: version, Kernel: release(), Event: log.event}
	if o.domain != "" {
		c.Domain = server.NewDomain(o.domain, filepath.Join(dir, "acme"), o.acme)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(server.MemoryLimit)
	}
	s := server.New(c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, tcp, udp) }()
	if c.Domain != nil { // the authority asks this server
		log.say(func() {
			fmt.Fprintf(w, "Asking for a certificate for %s. It takes five minutes at most.\n", o.domain)
		})
		if err := c.Domain.Obtain(ctx); err != nil {
			cancel()
			<-served
			return err
		}
	}
	if ctx.Err() == nil {
		log.say(func() { o.announce(w, tcp.Addr(), udp.LocalAddr(), kept) })
	}
	if log.terminal {
		go log.follow(ctx, s)
	}
	return <-served
}

// serveLog is a line for each test that begins or ends, and on a terminal a last line for those that run.
type serveLog struct {
	w        io.Writer
	cursor   io.Writer // beneath w, which would show as text what moves a cursor
	terminal bool
	mu       sync.Mutex
	before   map[string]int64 // bytes of each test at the look before
}

func newServeLog(w io.Writer) *serveLog {
	return &serveLog{w: w, cursor: cli.Beneath(w), terminal: cli.IsTerminal(w)}
}

func (l *serveLog) event(says string) {
	l.say(func() { fmt.Fprintf(l.w, "%s  %s\n", time.Now().Format(time.TimeOnly), text.OneLine(says)) })
}

// say writes lines in the place of the last line, while nobody else writes.
func (l *serveLog) say(write func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	write()
}

func (l *serveLog) clear() {
	if l.terminal {
		fmt.Fprint(l.cursor, "\r\x1b[K")
	}
}

// follow looks at the tests that run, once a second.
func (l *serveLog) follow(ctx context.Context, s *server.Server) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.show(s.Running(), now.Sub(last).Seconds())
			last = now
		}
	}
}

// show writes the last line; seconds have gone since the look before.
func (l *serveLog) show(tests []server.Test, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(tests) == 0 && len(l.before) == 0 {
		return
	}
	l.clear()
	now := map[string]int64{}
	var words []string
	for _, t := range tests {
		now[t.Client] = t.Bytes
		rate := 8 * float64(t.Bytes-l.before[t.Client]) / max(seconds, 1e-3) / 1e6
		words = append(words, fmt.Sprintf("%s  %.0f s · %s Mbit/s", t.Client, t.Seconds, figureText(rate)))
	}
	l.before = now
	fmt.Fprint(l.w, cli.OneRow(l.w, text.OneLine(strings.Join(words, "   "))))
}

// directory is where things are kept.
func (o serveOptions) directory() (string, error) {
	dir := o.state
	if dir == "" {
		dir = os.Getenv("STATE_DIRECTORY")
	}
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local/state")), "weir")
	}
	if dir == "" {
		return "", hint.Wrap(errors.New("no directory to keep a certificate in"), "--state DIRECTORY")
	}
	return dir, nil
}

// keep finds the certificate and the token.
func (o serveOptions) keep(dir string) (server.Kept, error) {
	kept, err := server.Keep(dir)
	if problem := (*hint.Error)(nil); errors.As(err, &problem) {
		return kept, err
	}
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = fmt.Errorf("%s: %w", path.Path, path.Err)
		}
		return kept, hint.Wrap(err, "weir serve --state DIRECTORY, of one that can be written")
	}
	if o.cert != "" {
		given, err := server.Load(o.cert, o.key)
		given.Token = kept.Token
		if err != nil {
			err = hint.Wrap(err, "--cert FILE --key FILE, both in PEM")
		}
		return given, err
	}
	return kept, nil
}

// sockets are systemd's, if it has handed some over, or new ones.
func (o serveOptions) sockets() (net.Listener, net.PacketConn, error) {
	const first = 3 // sd_listen_fds(3)
	if pid, _ := strconv.Atoi(os.Getenv("LISTEN_PID")); pid == os.Getpid() && os.Getenv("LISTEN_FDS") == "2" {
		tcp, err := net.FileListener(os.NewFile(first, "tcp"))
		if err != nil {
			return nil, nil, fmt.Errorf("the first socket is no TCP listener: %w", err)
		}
		udp, err := net.FilePacketConn(os.NewFile(first+1, "udp"))
		if err != nil {
			return nil, nil, fmt.Errorf("the second socket is not of UDP: %w", err)
		}
		return tcp, udp, nil
	}
	tcp, err := net.Listen("tcp", o.listen)
	if err != nil {
		if other := o.errForeignAddress("--listen", o.listen, err); other != nil {
			return nil, nil, other
		}
		try := "weir serve --listen :4748"
		if o.domain != "" {
			try = "as root, or where no web server has port 443"
		}
		return nil, nil, hint.Wrap(err, try)
	}
	at := o.udp
	if at == "" { // the same, whichever port that became
		at = tcp.Addr().String()
		if host, _, _ := net.SplitHostPort(o.listen); host == "" {
			_, port, _ := net.SplitHostPort(at)
			at = ":" + port
		}
	}
	udp, err := net.ListenPacket("udp", at)
	if err != nil {
		tcp.Close()
		if other := o.errForeignAddress("--udp", o.udp, err); other != nil {
			return nil, nil, other
		}
		return nil, nil, hint.Wrap(err, "weir serve --udp :4748")
	}
	return tcp, udp, nil
}

// errForeignAddress is the error of an address that is another host's; nil if that is not what is wrong.
func (o serveOptions) errForeignAddress(option, at string, err error) error {
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil
	}
	host, port, _ := net.SplitHostPort(at)
	return hint.Wrap(fmt.Errorf("%s %s: %s is no address of this host", option, at, host),
		otherAddress(option, port, addresses()))
}

// otherAddress is where to listen instead, of the addresses that there are.
func otherAddress(option, port string, has []string) string {
	try := option + " :" + port + ", which is all of its addresses"
	if len(has) > 0 {
		try += ": " + strings.Join(has, ", ")
	}
	return try
}

// addresses are those of this host by which others can reach it.
func addresses() (all []string) {
	has, _ := net.InterfaceAddrs()
	for _, a := range has {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			all = append(all, ip.IP.String())
		}
	}
	return all
}

func isLocal(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UDPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

// announce says what to run on the other side.
func (o serveOptions) announce(w io.Writer, tcp, udp net.Addr, kept server.Kept) {
	host, port, _ := net.SplitHostPort(tcp.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = outwardAddress()
	}
	if o.domain != "" {
		host = o.domain
	}
	_, udpPort, _ := net.SplitHostPort(udp.String())
	at := host
	if strings.Contains(at, ":") {
		at = "[" + at + "]"
	}
	if port != meter.DefaultPort {
		at = net.JoinHostPort(host, port)
	}
	fmt.Fprintf(w, "Listening at TCP port %s and UDP port %s. On the other side:\n\n", port, udpPort)
	fmt.Fprintf(w, "  weir measure %s", at)
	if kept.Token != "" {
		fmt.Fprintf(w, " --token %s", kept.Token)
	}
	if o.domain == "" { // else anybody's system knows who vouches for it
		fmt.Fprintf(w, " --pin %s", kept.Fingerprint)
	}
	fmt.Fprint(w, "\n\n")
	path := "/"
	if kept.Token != "" {
		path = "/t/" + kept.Token + "/"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	fmt.Fprintf(w, "Or in a browser there:\n\n  https://%s:%s%s\n\n", host, port, path)
	if kept.Token != "" {
		fmt.Fprintf(w, "The key of irtt:  --hmac=0x%x\n\n", irtt.Key(kept.Token))
	}
	if host == noAddress {
		fmt.Fprint(w, "HOST stands for an address of this host: it has none by which others could reach it now.\n\n")
	}
	if o.cert == "" && o.domain == "" {
		fmt.Fprint(w, "The browser does not know the certificate, and asks before it goes on.\n\n")
	}
}

// outwardAddress is the address from which this host reaches others. Nothing is sent.
func outwardAddress() string {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // for examples (RFC 5737, RFC 3849)
		c, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		c.Close()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok && a.IP.IsGlobalUnicast() {
			return a.IP.String()
		}
	}
	return firstAddress(addresses())
}

// noAddress stands for an address that this host does not know of itself.
const noAddress = "HOST"

// firstAddress is the address to name where no route leads out: the first there is.
func firstAddress(has []string) string {
	if len(has) == 0 {
		return noAddress
	}
	return has[0]
}
