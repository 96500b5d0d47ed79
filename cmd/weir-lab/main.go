// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Weir-lab boots Linux kernels in virtual time, and shows what configurations of a server do to real TCP. The weir that
// its guests run is the one that is shipped: the file beside this program.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/cli"
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

// run is the program: its arguments in, its exit status out.
func run(args []string, stdout, stderr io.Writer) int {
	unix.Umask(0o022) // everybody may read what is written, whatever the shell says
	return cli.Run(newRootCommand(), args, stdout, stderr)
}

func newRootCommand() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "weir-lab",
		Short: "Try configurations of a server on a real kernel, in virtual time",
		Long: `The lab boots a real Linux kernel in virtual time, and measures what
configurations of a server do to real TCP. It needs no privileges.

Exit status: 0 success, 1 a run failed or a claim was not measured,
2 wrong usage.`,
		Example: `  weir-lab run scenarios/narrow-link.toml`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}, version)
	root.AddCommand(newRunCommand(), newMergeCommand())
	return root
}
