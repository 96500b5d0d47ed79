// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/internal/cli/clitest"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"weir-lab": main}) }

// The command line as a person meets it, with no kernel in the cache.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"refused": clitest.Refused("weir-lab")}})
}

func TestHostileArguments(t *testing.T) { clitest.HostileArguments(t, newRootCommand) }

func TestFullOutput(t *testing.T) { clitest.FullOutput(t, newRootCommand) }
