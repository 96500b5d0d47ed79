// SPDX-License-Identifier: Apache-2.0

package far

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"weir/internal/meter"
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

// Run runs a command there, gives it an input, and returns what it prints, of which there may be 4 MiB. The error of a
// command that fails is a *Failed.
func (h Host) Run(ctx context.Context, command string, in io.Reader) (string, error) {
	const most = 4 << 20
	if err := Check(h.Name); err != nil {
		return "", err
	}
	s, err := h.start(ctx, command)
	if err != nil {
		return "", err
	}
	defer s.cancel()
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if in != nil {
			_, _ = io.Copy(s.stdin, in) // a command that does not read all of it says why by itself
		}
		s.stdin.Close()
	}()
	out, err := io.ReadAll(io.LimitReader(s.stdout, most))
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
	case len(out) == most:
		return "", &meter.Problem{What: h.Name + " prints without end", Try: "ssh " + h.Name}
	}
	return string(out), err
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

// Quote makes a word of a shell's of any text.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
