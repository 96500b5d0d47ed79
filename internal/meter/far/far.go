// SPDX-License-Identifier: Apache-2.0

// Package far measures the way to a host on which nothing is installed. It uses the system's own ssh and what every
// POSIX host has: sh and cat. Nothing that the other host says is run, or taken for more than bytes and numbers.
package far

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"weir/internal/hint"
	"weir/internal/meter"
	"weir/internal/text"
)

// Host is the other end.
type Host struct {
	Name        string // as ssh takes it: user@host, or an alias
	Interactive bool   // somebody sits at a terminal, and can answer what ssh asks
	Program     string // "": ssh

	via      []string // further options of ssh
	terminal bool     // commands have a terminal there, and their standard error is not apart
}

// args are what ssh is started with, in front of a command. Nothing but a name may follow the options.
func (h Host) args(command string) []string {
	mode := "-T"
	if h.terminal {
		mode = "-tt"
	}
	args := []string{mode, "-o", "Compression=no", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5",
		"-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes",
		// Each load is to have a connection of its own. On Windows a shared one is an error.
		"-o", "ControlMaster=no", "-o", "ControlPath=none"}
	if !h.Interactive {
		args = append(args, "-o", "BatchMode=yes")
	}
	return append(append(args, h.via...), "--", h.Name, command)
}

func (h Host) program() string {
	if h.Program == "" {
		return "ssh"
	}
	return h.Program
}

// shellSpecial are characters that OpenSSH 9.6 and newer refuse in a name themselves: older ones put a name into the
// command line of a ProxyCommand or Match exec as it is, which a shell reads.
const shellSpecial = "'`\"$;&<>|(){}"

// Check returns an error for a name that cannot be given to ssh.
func Check(name string) error {
	rest, uri := strings.CutPrefix(name, "ssh://")
	user, host, both := strings.Cut(rest, "@")
	switch {
	case rest == "" || strings.HasPrefix(rest, "-") || strings.ContainsAny(rest, " \t\r\n\x00"),
		strings.Contains(rest, "://"), both && (user == "" || host == "" || strings.HasPrefix(host, "-")):
		return fmt.Errorf("%q is no name of a host", name)
	case strings.ContainsAny(rest, shellSpecial), strings.ContainsFunc(rest, unicode.IsControl),
		strings.Contains(host, `\`):
		return fmt.Errorf("%q is no name of a host: it has a character that a shell acts on", name)
	case outOfRange(cmp.Or(host, rest)):
		return fmt.Errorf("%q is no name of a host: its port is out of range (1 to 65535)", name)
	case !uri && strings.Count(rest, ":") == 1:
		return fmt.Errorf("%q is no name of a host: a port is written ssh://%s", name, rest)
	}
	return nil
}

// outOfRange reports whether a host has a number behind it that is no port.
func outOfRange(host string) bool {
	_, port, err := net.SplitHostPort(host)
	n, wrong := strconv.ParseUint(port, 10, 16)
	return err == nil && port != "" && strings.Trim(port, "0123456789") == "" && (wrong != nil || n == 0)
}

// session is an ssh that runs.
type session struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	stderr *tail
	cancel context.CancelFunc
	port   int // of this end, as the other sees it; 0 where it does not say
}

// tail keeps the last that ssh has said.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(len(t.b)-most, 0):]
	return len(b), nil
}

// line is the last line.
func (t *tail) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// ready is printed by every command before its own output, so that what a login shell prints first does no harm.
const ready = "weir-measure-ready"

// start runs a command there, and waits until it is ready.
func (h Host) start(asked context.Context, command string) (*session, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	command = "echo " + ready + " $SSH_CONNECTION; exec " + command
	s := &session{cmd: exec.CommandContext(ctx, h.program(), h.args(command)...), stderr: &tail{}, cancel: cancel}
	s.cmd.Stderr = s.stderr
	s.cmd.WaitDelay = time.Second
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err == nil {
		s.stdout, err = s.cmd.StdoutPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		cancel()
		if errors.Is(err, exec.ErrNotFound) {
			return nil, noSSH()
		}
		return nil, err
	}
	said := make(chan bool, 1)
	go func() { said <- s.awaitReady() }()
	select {
	case ok := <-said:
		if ok {
			return s, nil
		}
	case <-time.After(h.Patience()):
	case <-asked.Done():
		s.end()
		return nil, asked.Err()
	}
	s.end()
	why := s.stderr.line()
	if why == "" {
		why = "it does not answer, or its shell runs no command"
	}
	return nil, &hint.Error{What: fmt.Sprintf("%s cannot be reached by ssh: %s", h.Name, why),
		Try: "ssh " + h.Name + " true"}
}

// Patience is how long an ssh may take to begin.
func (h Host) Patience() time.Duration {
	if h.Interactive {
		return 2 * time.Minute // somebody types a password
	}
	return 20 * time.Second
}

func noSSH() error {
	release, _ := os.ReadFile("/etc/os-release")
	client := text.Package{Debian: "openssh-client", Fedora: "openssh-clients", SUSE: "openssh-clients",
		Alpine: "openssh-client", Arch: "openssh"}
	return &hint.Error{What: "there is no ssh here", Try: client.Install(string(release))}
}

// awaitReady skips a banner, of some length at most.
func (s *session) awaitReady() bool {
	const longest = 64 << 10
	var line []byte
	b := make([]byte, 1)
	for range longest {
		if _, err := io.ReadFull(s.stdout, b); err != nil {
			return false
		}
		if b[0] != '\n' {
			line = append(line, b[0])
			continue
		}
		if _, after, found := strings.Cut(string(line), ready); found {
			if at := strings.Fields(after); len(at) == 4 { // this address, this port, that address, that port
				s.port, _ = strconv.Atoi(at[1])
			}
			return true
		}
		line = line[:0]
	}
	return false
}

func (s *session) end() {
	s.cancel()
	s.stdin.Close()
	s.cmd.Wait()
}

// Measure measures as meter.Measure does. Goodput is what arrives here, or what leaves here; the far kernel's own view
// is there if it has ss. What else passes by the device here is not known: ssh holds a part of what has come.
func Measure(ctx context.Context, h Host, o meter.Options) (*meter.Recording, error) {
	if err := Check(h.Name); err != nil {
		return nil, err
	}
	to, _ := h.resolve(ctx) // through another host, the way is not known here
	keys, err := h.startEcho(ctx)
	if err != nil {
		return nil, err
	}
	rec := &meter.Recording{Target: h.Name, Remote: meter.Hello{Version: 1, Name: h.Name}}
	t := newTransport(h, o.Conns)
	if t.kernel = h.startKernel(ctx); t.kernel == nil {
		rec.Notes = append(rec.Notes, "The other host has no ss, so its kernel's RTTs are not known.")
	} else {
		defer t.kernel.end()
	}
	s := &meter.Session{Options: o, Transport: t, Prober: keys, Recording: rec, To: to.addr}
	err = s.Run(ctx)
	for _, s := range rec.Spans {
		rec.Notes = append(rec.Notes, limitsOf(s.Name, t.loadsCarried(s), idleOf(rec.Samples, rec.Spans),
			runtime.NumCPU())...)
	}
	rec.Notes = append(rec.Notes, "Bulk data went through ssh. Its cipher, its windows and both CPUs limit it too, so "+
		"the link may carry more.")
	return rec, err
}

// transport carries flows through ssh. One ssh is one TCP connection.
type transport struct {
	Host
	conns  int
	room   chan struct{}       // for those that log in
	kernel *kernel             // what the far kernel says; nil where it does not
	used   map[string][]cpuUse // by phase, of its flows in their order

	mu    sync.Mutex
	loads map[*meter.Bulk]*load // of the phase
	began time.Time             // when all of them had
}

// load is the ssh of a flow.
type load struct {
	*session
	cpu time.Duration // that its process had before the load
}

// cpuUse is the CPU time of an ssh in a load; no cpu: not known.
type cpuUse struct{ cpu, wall time.Duration }

func newTransport(h Host, conns int) *transport {
	return &transport{Host: h, conns: conns, room: make(chan struct{}, maxAtOnce), used: map[string][]cpuUse{},
		loads: map[*meter.Bulk]*load{}}
}

// Open starts an ssh for each flow.
func (t *transport) Open(ctx context.Context, phase string) ([]*meter.Bulk, error) {
	clear(t.loads)
	flows, err := meter.OpenFlows(ctx, phase, t.conns, t.start)
	t.kernel.begin()
	t.began = time.Now()
	for _, l := range t.loads {
		l.cpu = cpuOf(l.cmd.Process.Pid)
	}
	return flows, err
}

// exitError says why an ssh has ended. It is asked when that has had the time to say so.
type exitError struct{ *session }

func (e exitError) Error() string { return cmp.Or(e.stderr.line(), "the connection ended") }

const block = 64 << 10

func (t *transport) start(ctx context.Context, direction string) (*meter.Bulk, error) {
	command := "cat >/dev/null"
	if direction == meter.Download {
		command = "cat /dev/zero" // it ends when nobody reads it any more
	}
	t.room <- struct{}{}
	s, err := t.Host.start(ctx, command)
	<-t.room
	if err != nil {
		return nil, err
	}
	b := meter.NewBulk(direction, s.end)
	t.mu.Lock()
	t.loads[b] = &load{session: s}
	t.mu.Unlock()
	move := s.stdout.Read
	if direction == meter.Upload {
		move = s.stdin.Write
	}
	go b.Carry(func(block []byte) (int, error) {
		n, err := move(block)
		if err != nil {
			err = exitError{s}
		}
		return n, err
	}, make([]byte, block))
	return b, nil
}

// Close ends the flows. Of those that send from here, only this end knows how much has left; the last that did has not
// arrived.
func (t *transport) Close(_ context.Context, phase string, flows []*meter.Bulk) (local, far []meter.Flow, _ string) {
	for _, b := range flows {
		l, u, here := t.loads[b], cpuUse{}, b.Stop()
		if now := cpuOf(l.cmd.Process.Pid); now > 0 {
			u.cpu = now - l.cpu
		}
		u.wall = time.Since(t.began)
		t.used[phase] = append(t.used[phase], u)
		if here.Direction == meter.Download {
			local, far = append(local, here), append(far, t.kernel.flow(l.port))
		} else {
			local, far = append(local, meter.Flow{Direction: meter.Upload}), append(far, here)
		}
	}
	for _, b := range flows {
		b.Shut()
	}
	return local, far, ""
}

// loadsCarried is what each ssh has carried in a phase.
func (t *transport) loadsCarried(s meter.Span) (all []carriedLoad) {
	for i, u := range t.used[s.Name] {
		f := s.Local[i]
		if f.Direction == meter.Upload {
			f = s.Far[i]
		}
		all = append(all, carriedBy(f, u.cpu, u.wall))
	}
	return all
}

// interval is the time between two keystrokes.
const interval = 20 * time.Millisecond

// echo types keys into a cat over a connection of its own.
type echo struct {
	*session
	*meter.Probes
	host string
}

func (h Host) startEcho(ctx context.Context) (*meter.Prober, error) {
	s, err := h.start(ctx, "cat")
	if err != nil {
		return nil, err
	}
	e := &echo{s, meter.NewProbes(), h.Name}
	return &meter.Prober{Probes: e.Probes, By: "ssh", Interval: interval, Run: e.run}, nil
}

// maxOpen is how many keys may be without an echo: beyond, nothing is typed, so that little waits in ssh itself.
const maxOpen = 500

// run types until the context ends, and then waits a little for echoes that are under way.
func (e *echo) run(ctx context.Context) (err error) {
	done := make(chan struct{})
	go func() { defer close(done); e.receive() }()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for open := true; open && ctx.Err() == nil; {
		if e.Unanswered() < maxOpen {
			if _, err := fmt.Fprintf(e.stdin, "%d\n", e.Send()); err != nil {
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		case <-done:
			open = false
		}
	}
	if ctx.Err() == nil {
		err = &hint.Error{What: fmt.Sprintf("the connection to %s ended in the middle: %s", e.host,
			cmp.Or(e.stderr.line(), "ssh does not say why")), Try: "again"}
	}
	select {
	case <-time.After(meter.AnswerTime):
	case <-done:
	}
	e.end()
	<-done
	return err
}

// receive takes echoes: numbers, one a line. Anything else is nobody's.
func (e *echo) receive() {
	var rest []byte
	b := make([]byte, 4096)
	for {
		n, err := e.stdout.Read(b)
		at := time.Now()
		rest = append(rest, b[:n]...)
		for {
			line, after, whole := bytes.Cut(rest, []byte{'\n'})
			if !whole {
				break
			}
			rest = after
			if n, err := strconv.Atoi(string(bytes.TrimRight(line, "\r"))); err == nil {
				e.Answer(n, at)
			}
		}
		const longest = 64
		if len(rest) > longest {
			rest = nil
		}
		if err != nil {
			return
		}
	}
}
