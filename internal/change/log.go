// SPDX-License-Identifier: Apache-2.0

package change

import (
	"fmt"
	"log/syslog"
	"os"

	"golang.org/x/sys/unix"

	"weir/internal/plan"
	"weir/internal/text"
	"weir/internal/units"
)

// report tells the system's log what a run did, so that it can be read later: journalctl -t weir. It takes no answer.
func (s Store) report(command string, out Outcome, err error) {
	if s.log == nil {
		return
	}
	if err != nil {
		s.log(command + ": " + err.Error())
	}
	for _, c := range out.Done {
		if c.Kind == plan.File {
			s.log(fmt.Sprintf("%s: %s: %s", command, c.Name, c.Verb()))
		} else {
			s.log(fmt.Sprintf("%s: %s: %s, was %s: %s", command, c.Target, c.New, c.Old, c.Reason))
		}
	}
	for _, f := range out.Failed {
		s.log(fmt.Sprintf("%s: %s: not in force: %s", command, f.Target, f.Error))
	}
	for _, f := range out.Left {
		s.log(fmt.Sprintf("%s: %s: left to whoever changed it: %s", command, f.Target, f.Error))
	}
	if len(out.Done)+len(out.Failed)+len(out.Left) == 0 {
		return
	}
	for _, n := range out.Notes {
		s.log(fmt.Sprintf("%s: %s: %s", command, n.Subject, n.Text))
	}
	if out.RevertsIn > 0 {
		s.log(fmt.Sprintf("%s: %s: put back in %s unless it is confirmed", command, out.Goal.Flags(),
			units.Duration(out.RevertsIn)))
	}
}

// toJournal tells whether what this process prints goes to the journal (systemd.exec(5), of JOURNAL_STREAM, which
// others inherit).
func toJournal() bool {
	var stat unix.Stat_t
	if err := unix.Fstat(int(os.Stderr.Fd()), &stat); err != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// syslogged writes to syslog as weir. Of a service of systemd's the log has the output already.
func syslogged(line string) {
	if toJournal() {
		return
	}
	w, err := syslog.New(syslog.LOG_NOTICE|syslog.LOG_DAEMON, "weir")
	if err != nil {
		return
	}
	defer w.Close()
	_, _ = w.Write([]byte(text.Plain(line)))
}
