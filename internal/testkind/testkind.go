// SPDX-License-Identifier: Apache-2.0

// Package testkind says what a test runs on, for the sum by kind at the end of make test (package testrun). It also has
// the test run again when that has changed: go test's cache knows the files of this module, and no kernel.
//
// It is for tests alone, and may do nothing else to them.
package testkind

import (
	"os"
	"testing"
)

// Key is the attribute's name (testing.T.Attr). A test without one is a unit test.
const Key = "kind"

// Outside is in the environment of go test: a hash of what is outside of the module and decides how tests go, such as
// kernels and other programs. Reading it makes it part of what go test's cache depends on.
const Outside = "WEIR_OUTSIDE"

// Lab is for tests in the lab's kernel, in virtual time.
func Lab(t *testing.T) { say(t, "lab kernel") }

// Stock is for those in Debian's own kernels, emulated.
func Stock(t *testing.T) { say(t, "stock kernel") }

// Machine is for those in whole Debians, emulated.
func Machine(t *testing.T) { say(t, "machine") }

// Program is for those that run other people's programs.
func Program(t *testing.T) { say(t, "other programs") }

func say(t *testing.T, kind string) {
	t.Attr(Key, kind)
	_ = os.Getenv(Outside)
}
