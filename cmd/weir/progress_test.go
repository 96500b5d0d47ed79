// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/cli"
	"weir/internal/meter"
	"weir/internal/meter/server"
)

// pseudoTerminal is one of so many columns: what its user sees, and what a program writes to.
func pseudoTerminal(t *testing.T, columns uint16) (seen, written *os.File) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	theirs, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("skipped, not passed: there are no pseudo-terminals: ", err)
	}
	t.Cleanup(func() { theirs.Close() })
	number, err := unix.IoctlGetInt(int(theirs.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(theirs.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return theirs, ours
}

// A line that rewrites itself must not reach the terminal's next row, which it could not take back.
func TestProgressFits(t *testing.T) {
	seen, written := pseudoTerminal(t, 30)
	cli.NewProgress(written).Say(3*time.Second, func() string { return "run 27 of 200000 · 27s of 55h33m20s virtual" })
	newServeLog(written).show([]server.Test{{Client: "2001:db8:1234:5678::/64", Seconds: 1, Bytes: 1e6}}, 1)
	const want = "\r\x1b[Krun 27 of 200000 · 27s of 55h…" + "\r\x1b[K2001:db8:1234:5678::/64  1 s …"
	written.Close()
	if got, _ := io.ReadAll(seen); string(got) != want { // it ends with EIO, when nobody can write any more
		t.Errorf("%q; want %q", got, want)
	}
}

// What is waited for returns what it found, and what takes no time shows nothing.
func TestUntil(t *testing.T) {
	var b strings.Builder
	failed := errors.New("failed")
	if n, err := cli.Until(&b, "waiting", func() (int, error) { return 3, failed }); n != 3 || err != failed ||
		b.String() != "" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

// More time than was planned is said as that.
func TestProgressLine(t *testing.T) {
	for took, want := range map[time.Duration]string{
		12 * time.Second: "download · 12s of 15s · round trip 3.00 ms",
		79 * time.Second: "download · 1m19s, where 15s was planned · round trip 3.00 ms",
	} {
		if got := progressLine(meter.Progress{Phase: "download", Elapsed: took, All: 15 * time.Second,
			RTT: 3}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
