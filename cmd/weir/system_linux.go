// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/change"
	"weir/internal/host"
)

// firstCommands are those that a newcomer meets first.
const firstCommands = `  weir doctor                    what holds this server back
  weir plan --rate 50mbit        what would change, and why
  sudo weir up --rate 50mbit     change it; undone after 60 s unless confirmed
  sudo weir confirm              keep it, also over a reboot
  sudo weir down                 put back exactly what was there`

// commands are all, in the order of help.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newDoctorCommand(),
		newPlanCommand(),
		newUpCommand(),
		newConfirmCommand(),
		newDownCommand(),
		newRecoverCommand(),
		newStatusCommand(),
		newFollowCommand(),
		newWatchCommand(),
		newExporterCommand(),
		newMeasureCommand(),
		newCalibrateCommand(),
		newTryCommand(),
		newServeCommand(),
		newDualPI2Command(),
		newCCCommand(),
		newClientsCommand(),
		newLabMovedCommand(),
	}
}

// setUmask lets everybody read what is written, whatever the shell that it is started from says.
func setUmask() { unix.Umask(0o022) }

func readHost() (host.Facts, error) { return host.Read() }

// printBare says, to somebody who typed weir alone, how this server is.
func printBare(w io.Writer, _ func() error) error {
	printHome(w, openStore(change.Dir))
	return nil
}

// release is that of this one.
func release() string {
	var uts unix.Utsname
	unix.Uname(&uts)
	return unix.ByteSliceToString(uts.Release[:])
}
