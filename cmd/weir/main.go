// SPDX-License-Identifier: Apache-2.0

// Weir gives a Linux server low latency under load at full throughput, and shows that it did.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"weir/internal/lab/guest"
)

func main() {
	if guest.Wanted() {
		guest.Main()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// version is set by the linker.
var version = "unknown"

// Exit status: what was asked for is done and true, it is not so, or no machine could have done it.
const (
	exitTrue  = 0
	exitNotSo = 1
	exitUsage = 2
)

// run is the program: its arguments in, its exit status out.
func run(args []string, stdout, stderr io.Writer) int {
	unix.Umask(0o022) // what is written is for everybody to read, whatever the shell that it is started from says
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitTrue
	}
	if errors.Is(err, errNotSo) {
		return exitNotSo
	}
	// One line says what is wrong and one what to try, whatever was wrong.
	fmt.Fprintf(stderr, "weir: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		fmt.Fprintf(stderr, "  try: %s\n", hinted.Hint())
	}
	if isUsage(err) {
		return exitUsage
	}
	return exitNotSo
}

// errNotSo ends a command that has already said what is not so.
var errNotSo = errors.New("not so")
