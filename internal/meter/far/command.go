// SPDX-License-Identifier: Apache-2.0

package far

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"weir/internal/hint"
)

// Failed is a command that ended badly there.
type Failed struct {
	Status int    // its exit status; 255 where ssh itself failed
	Said   string // the last that it wrote to its standard error
}

func (f *Failed) Error() string {
	if f.Said == "" {
		return fmt.Sprintf("exit status %d", f.Status)
	}
	return f.Said
}

// during starts a command that ends with the context, or when it is cancelled.
func (h Host) during(ctx context.Context, command string) (*session, func(), error) {
	if err := Check(h.Name); err != nil {
		return nil, nil, err
	}
	s, err := h.start(ctx, command)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, s.cancel)
	return s, func() { stop(); s.end() }, nil
}

// Run runs a command there, gives it an input, and returns what it prints, of which there may be 4 MiB. The error of a
// command that fails is a *Failed.
func (h Host) Run(ctx context.Context, command string, in io.Reader) (string, error) {
	const most = 4 << 20
	s, cancel, err := h.during(ctx, command)
	if err != nil {
		return "", err
	}
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if in != nil {
			_, _ = io.Copy(s.stdin, in) // a command that does not read all of it says why by itself
		}
		s.stdin.Close()
	}()
	out, err := io.ReadAll(io.LimitReader(s.stdout, most))
	if len(out) == most {
		return "", h.endless()
	}
	<-sent
	ended := s.cmd.Wait()
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return string(out), ctx.Err()
	case errors.As(ended, &status):
		return string(out), &Failed{Status: status.ExitCode(), Said: s.stderr.said()}
	case ended != nil:
		return string(out), ended
	}
	return string(out), err
}

// endless is of a host that prints more than any answer takes. Nobody waits for it.
func (h Host) endless() error {
	return &hint.Error{What: h.Name + " prints without end", Try: "ssh " + h.Name}
}

// SSHFailed is ssh's exit status where it is not the command's (ssh(1)).
const SSHFailed = 255

// Answer is what a program that wants a terminal is told when it asks.
type Answer struct {
	Asks string // the end of its question
	Says string // without the line's end
}

// RunAsked runs a command that has a terminal there, and answers the first time that it asks. What it wrote to either
// output is given, with a terminal's line ends.
func (h Host) RunAsked(ctx context.Context, command string, a Answer) (string, error) {
	const most = 64 << 10
	h.terminal = true
	s, cancel, err := h.during(ctx, command)
	if err != nil {
		return "", err
	}
	defer cancel()
	var out []byte
	asked := false
	for b := make([]byte, 4096); len(out) < most; {
		n, err := s.stdout.Read(b)
		out = append(out, b[:n]...)
		// Before it asks, the terminal would show the answer, and throw it away (readpassphrase(3)).
		if !asked && bytes.HasSuffix(out, []byte(a.Asks)) {
			asked = true
			io.WriteString(s.stdin, a.Says+"\n")
		}
		if err != nil {
			break
		}
	}
	if len(out) >= most {
		return "", h.endless()
	}
	ended := s.cmd.Wait()
	var status *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return string(out), ctx.Err()
	case errors.As(ended, &status):
		there := tail{b: out}
		said := cmp.Or(there.said(), s.stderr.said())
		if status.ExitCode() == SSHFailed {
			said = cmp.Or(s.stderr.said(), said)
		}
		return string(out), &Failed{Status: status.ExitCode(), Said: said}
	}
	return string(out), ended
}

// said is the last line, and what it goes on from: an error and what to try.
func (t *tail) said() string {
	last := t.line()
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	if n := len(lines); n > 1 && strings.HasPrefix(last, "try: ") {
		return strings.TrimPrefix(strings.TrimSpace(lines[n-2]), "weir: ") + " (" + last + ")"
	}
	return strings.TrimPrefix(last, "weir: ")
}
