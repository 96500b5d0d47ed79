// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"weir/internal/change"
	"weir/internal/doctor"
	"weir/internal/text"
)

// common are the options of every command here.
type common struct {
	state string
	json  bool
}

func (c *common) add(cmd *cobra.Command) {
	stateDir(cmd, &c.state, change.Dir, "`directory` of the journal")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
}

func (c *common) store() change.Store { return openStore(c.state) }

// openStore opens a store whose status says, too, where connections wait.
func openStore(dir string) change.Store {
	s := change.Open(dir)
	s.Elsewhere, s.Filtered = doctor.Elsewhere, doctor.Filtered
	return s
}

// sameJournal is a command for the same journal, as a shell reads it.
func (c *common) sameJournal(command string) string {
	if c.state == change.Dir {
		return command
	}
	return command + " --state " + text.Shell(c.state)
}
