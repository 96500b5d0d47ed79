// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/cli"
)

// newLabMovedCommand says where weir lab has gone, to those who knew it.
func newLabMovedCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "lab",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return cli.Usage(strings.TrimSpace("weir-lab "+strings.Join(args, " ")),
				"the lab is a program of its own, weir-lab, beside this one")
		},
	}
}
