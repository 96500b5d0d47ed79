// SPDX-License-Identifier: Apache-2.0

//go:build !man

package cli

import "github.com/spf13/cobra"

// buildOnly are the commands that packaging needs and nobody else: none in the program that is shipped. See man.go.
func buildOnly() []*cobra.Command { return nil }
