// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"weir/internal/cli"
	"weir/internal/host"
)

// firstCommands are those that a newcomer meets first.
const firstCommands = `This is the half of it that measures and tries servers from another computer.

  weir measure root@vps          what traffic does to everything else there
  weir try root@vps              measure, change, measure again, and ask`

// commands are those of a computer from which servers are measured and tried. It is not changed itself.
func commands() []*cobra.Command {
	return []*cobra.Command{newMeasureCommand(), newTryCommand(), newServeCommand()}
}

func setUmask() {}

// readHost has no devices to offer: those of --dev are another host's.
func readHost() (host.Facts, error) { return host.Facts{}, errNotHere }

func printBare(_ io.Writer, help func() error) error { return help() }

// release is what there is to say of the kernel.
func release() string { return runtime.GOOS }

var errNotHere = errors.New("this is for Linux: " + runtime.GOOS + " does not tell")

func measureLive(context.Context, *cobra.Command, measureOptions) error {
	return cli.Usage("weir measure --live 30s there", "--live is for Linux: %s does not tell what it takes",
		runtime.GOOS)
}
