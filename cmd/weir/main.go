// SPDX-License-Identifier: Apache-2.0

// Weir gives a Linux server low latency under load at full throughput, and shows that it did.
package main

import (
	"io"
	"os"

	"weir/internal/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// version is set by the linker.
var version = "unknown"

// run is the program: its arguments in, its exit status out.
func run(args []string, stdout, stderr io.Writer) int {
	setUmask()
	return cli.Run(newRootCommand(), args, stdout, stderr)
}
