// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"log/syslog"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/text"
	"weir/internal/units"
)

// report tells the system's log what a run did, so that it can be read later: journalctl -t weir. It takes no answer,
// and does not keep others waiting: a log may hang. Where systemd has started it the log has what is printed already.
func (s Store) report(command string, out Outcome, err error) {
	lines := reported(command, out, err)
	if s.log == nil || len(lines) == 0 || !s.unprinted && toJournal() {
		return
	}
	s.later(func() { s.log(lines) })
}

func reported(command string, out Outcome, err error) (lines []string) {
	say := func(format string, args ...any) {
		lines = append(lines, command+": "+fmt.Sprintf(format, args...))
	}
	if err != nil {
		say("%v", err)
	}
	for _, c := range out.Done {
		if c.IsFile() {
			say("%s: %s", c.Name, c.Verb())
		} else {
			say("%s: %s, was %s: %s", c.Target, c.New, c.Old, c.Reason)
		}
	}
	for _, f := range out.Failed {
		say("%s: not in force: %s", f.Target, f.Error)
	}
	for _, f := range out.Left {
		say("%s: left to whoever changed it: %s", f.Target, f.Error)
	}
	if len(out.Done)+len(out.Failed)+len(out.Left) == 0 {
		return lines
	}
	for _, n := range out.Notes {
		say("%s: %s", n.Subject, n.Text)
	}
	if out.RevertsIn > 0 {
		say("%s: put back in %s unless it is confirmed", out.Goal.Flags(), units.Duration(out.RevertsIn))
	}
	return lines
}

// toJournal reports whether what this process prints goes to the journal, and by its own name: a script of a service's
// has it under the script's (systemd.exec(5), of JOURNAL_STREAM and SYSTEMD_EXEC_PID, which others inherit).
func toJournal() bool {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil ||
			os.Getenv("JOURNAL_STREAM") != fmt.Sprintf("%d:%d", stat.Dev, stat.Ino) {
			return false
		}
	}
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// logPatience is how long a log is waited for.
const logPatience = 2 * time.Second

// syslogged writes to syslog as weir.
func syslogged(lines []string) {
	runWithin(logPatience, func() {
		w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_DAEMON, "weir")
		if err != nil {
			return
		}
		defer w.Close()
		for _, line := range lines {
			_, _ = w.Write([]byte(text.Plain(line)))
		}
	})
}

// runWithin waits for what may hang, and not for longer. What hangs ends with the program.
func runWithin(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
