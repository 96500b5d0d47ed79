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
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

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

// Check reports whether a name can be given to ssh.
func Check(name string) error {
	rest, uri := strings.CutPrefix(name, "ssh://")
	user, host, both := strings.Cut(rest, "@")
	switch {
	case rest == "" || strings.HasPrefix(rest, "-") || strings.ContainsAny(rest, " \t\r\n\x00"),
		strings.Contains(rest, "://"), both && (user == "" || host == "" || strings.HasPrefix(host, "-")):
		return fmt.Errorf("%q is no name of a host", name)
	case !uri && strings.Count(rest, ":") == 1:
		return fmt.Errorf("%q is no name of a host: a port is written ssh://%s", name, rest)
	}
	return nil
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
// is there if it has ss.
func Measure(ctx context.Context, h Host, o meter.Options) (*meter.Recording, error) {
	if err := Check(h.Name); err != nil {
		return nil, err
	}
	to, _ := h.resolve(ctx) // through another host, the way is not known here
	e, err := h.startEcho(ctx)
	if err != nil {
		return nil, err
	}
	rec := &meter.Recording{Target: h.Name, Time: e.began.UTC().Truncate(time.Millisecond), Probe: "ssh",
		Interval: float64(interval) / float64(time.Millisecond), Remote: meter.Hello{Version: 1, Name: h.Name}}
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	going, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	go func() { defer close(done); e.run(probing); end() }()
	hop := meter.AskHop(probing, to.addr, e.began)
	r := &run{Host: h, o: o, rec: rec, echo: e, kernel: h.startKernel(ctx),
		carried: map[string][]carried{}}
	if r.kernel == nil {
		rec.Notes = append(rec.Notes, "The other host has no ss, so its kernel's RTTs are not known.")
	} else {
		defer r.kernel.end()
	}
	err = r.phases(going)
	if going.Err() != nil && ctx.Err() == nil { // the rest would say that this host is slow
		err = &hint.Error{What: fmt.Sprintf("the connection to %s ended in the middle: %s", h.Name,
			cmp.Or(e.stderr.line(), "ssh does not say why")), Try: "again"}
	}
	stop()
	<-done
	rec.Samples, rec.Hop = e.samples, hop()
	for _, s := range rec.Spans {
		rec.Notes = append(rec.Notes, limitsOf(s.Name, r.carried[s.Name], idleOf(rec.Samples, rec.Spans),
			runtime.NumCPU())...)
	}
	rec.Notes = append(rec.Notes, "Bulk data went through ssh. Its cipher, its windows and both CPUs limit it too, so "+
		"the link may carry more.")
	return rec, err
}

// run is a measurement under way.
type run struct {
	Host
	o    meter.Options
	rec  *meter.Recording
	echo *echo
	// what the far kernel says; nil where it does not
	kernel  *kernel
	carried map[string][]carried // by phase
}

func (r *run) phases(ctx context.Context) error {
	names, idle, load := r.o.Phases()
	for _, name := range names {
		length := load
		var flows []*bulk
		if name == meter.Idle {
			length = idle
		} else {
			var err error
			if flows, err = r.open(ctx, name); err != nil && ctx.Err() != nil {
				break // it failed because somebody ended it
			}
			if err != nil {
				return err
			}
		}
		if ctx.Err() == nil {
			r.span(ctx, name, length, flows)
		}
		for _, b := range flows {
			b.stop()
		}
		pause(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// span lets a phase last.
func (r *run) span(ctx context.Context, name string, d time.Duration, flows []*bulk) {
	s := meter.Span{Name: name, From: r.echo.now()}
	var lately meter.Lately
	lately.Goodput(time.Now(), 0)
	if len(flows) > 0 {
		r.kernel.begin()
	}
	began := time.Now()
	for _, b := range flows {
		b.cpu = cpuOf(b.cmd.Process.Pid)
	}
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, min(time.Until(end), 200*time.Millisecond))
		sum := int64(0)
		for _, b := range flows {
			sum += b.rec.Bytes()
		}
		if r.o.Progress != nil {
			r.o.Progress(meter.Progress{Phase: name, Elapsed: time.Since(r.echo.began), All: r.o.Time,
				RTT: r.echo.newest(), Goodput: lately.Goodput(time.Now(), sum)})
		}
	}
	s.To = r.echo.now()
	for _, b := range flows {
		why := ""
		select {
		case <-b.done:
			why = cmp.Or(b.stderr.line(), "the connection ended")
		default:
		}
		f, cpu := b.rec.Stop(""), time.Duration(0)
		f.Shift(s.From - b.rec.Began().Sub(r.echo.began).Seconds())
		if now := cpuOf(b.cmd.Process.Pid); now > 0 {
			cpu = now - b.cpu
		}
		r.carried[name] = append(r.carried[name], carriedBy(f, cpu, time.Since(began)))
		if f.Direction == meter.Download {
			s.Local = append(s.Local, f)
			far := r.kernel.flow(b.port)
			far.Error = why
			s.Far = append(s.Far, far)
			continue
		}
		// Only this end knows how much has left; the last that did has not arrived.
		s.Far = append(s.Far, f)
		s.Local = append(s.Local, meter.Flow{Direction: f.Direction, Error: why})
	}
	r.rec.Spans = append(r.rec.Spans, s)
}

// bulk is a connection that carries data in one direction.
type bulk struct {
	*session
	rec  *meter.Recorder
	done chan struct{} // closed when nothing more passes
	cpu  time.Duration // that its process had before the load
}

const block = 64 << 10

// open starts the loads of a phase. One ssh is one TCP connection.
func (r *run) open(ctx context.Context, phase string) (all []*bulk, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	room := make(chan struct{}, maxAtOnce)
	for _, direction := range []string{meter.Download, meter.Upload} {
		if phase != direction && phase != meter.Both {
			continue
		}
		for range r.o.Conns {
			group.Go(func() {
				room <- struct{}{}
				b, e := r.load(ctx, direction)
				<-room
				mu.Lock()
				defer mu.Unlock()
				if e != nil {
					err = e
					return
				}
				all = append(all, b)
			})
		}
	}
	group.Wait()
	if err != nil {
		for _, b := range all {
			b.rec.Stop("")
			b.stop()
		}
		return nil, err
	}
	return all, nil
}

func (r *run) load(ctx context.Context, direction string) (*bulk, error) {
	command := "cat >/dev/null"
	if direction == meter.Download {
		command = "cat /dev/zero" // it ends when nobody reads it any more
	}
	s, err := r.start(ctx, command)
	if err != nil {
		return nil, err
	}
	b := &bulk{session: s, rec: meter.Record(nil, direction, false), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		buffer := make([]byte, block)
		for {
			var n int
			var err error
			if direction == meter.Download {
				n, err = s.stdout.Read(buffer)
			} else {
				n, err = s.stdin.Write(buffer)
			}
			b.rec.Add(n)
			if err != nil {
				return
			}
		}
	}()
	return b, nil
}

func (b *bulk) stop() { b.end() }

// interval is the time between two keystrokes.
const interval = 20 * time.Millisecond

// echo types keys into a cat over a connection of its own.
type echo struct {
	*session
	mu      sync.Mutex
	began   time.Time
	samples []meter.Sample
	sent    []time.Time
	last    float64
}

func (h Host) startEcho(ctx context.Context) (*echo, error) {
	s, err := h.start(ctx, "cat")
	if err != nil {
		return nil, err
	}
	return &echo{session: s, began: time.Now()}, nil
}

func (e *echo) now() float64 { return time.Since(e.began).Seconds() }

func (e *echo) newest() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// maxOpen is how many keys may be without an echo: beyond, nothing is typed, so that little waits in ssh itself.
const maxOpen = 500

func (e *echo) run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); e.receive() }()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	answered := func() int {
		n := len(e.samples)
		for n > 0 && e.samples[n-1].RTT < 0 {
			n--
		}
		return n
	}
	for ctx.Err() == nil {
		e.mu.Lock()
		open := len(e.sent) - answered()
		if open < maxOpen {
			e.sent = append(e.sent, time.Now())
			e.samples = append(e.samples, meter.Sample{At: e.now(), RTT: -1, Lost: meter.LostUnknown})
		}
		n := len(e.sent) - 1
		e.mu.Unlock()
		if open < maxOpen {
			if _, err := fmt.Fprintf(e.stdin, "%d\n", n); err != nil {
				break
			}
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		case <-done:
		}
		break
	}
	time.Sleep(interval)
	e.end()
	<-done
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
			e.note(string(bytes.TrimRight(line, "\r")), at)
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

func (e *echo) note(line string, at time.Time) {
	n, err := strconv.Atoi(line)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil || n < 0 || n >= len(e.sent) || e.samples[n].RTT >= 0 {
		return
	}
	e.samples[n].RTT = float64(at.Sub(e.sent[n])) / float64(time.Millisecond)
	e.samples[n].Lost = ""
	e.last = e.samples[n].RTT
}
