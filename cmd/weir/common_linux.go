// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/change"
)

// common are the options of every command here.
type common struct {
	state string
	json  bool
}

func (c *common) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.state, "state", change.Dir, "`directory` of the journal")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	cmd.MarkFlagDirname("state")
}

func (c *common) store() change.Store { return change.Open(c.state) }

// same is a command for the same journal, as a shell reads it.
func (c *common) same(command string) string {
	if c.state == change.Dir {
		return command
	}
	if strings.Trim(c.state, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,") == "" {
		return command + " --state " + c.state
	}
	return command + " --state '" + strings.ReplaceAll(c.state, "'", `'\''`) + "'"
}
