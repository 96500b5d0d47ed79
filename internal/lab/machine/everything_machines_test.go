// SPDX-License-Identifier: Apache-2.0

//go:build machines

package machine

// everything: whether all faults on all systems are asked for (make test-machines, the tag machines), and not a few on
// one.
const everything = true
