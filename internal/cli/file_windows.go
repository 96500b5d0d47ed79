// SPDX-License-Identifier: Apache-2.0

package cli

// mayWrite leaves it to the attempt: who may write what is no matter of a mode here.
func mayWrite(string) error { return nil }

// mayMakeIn leaves it to the attempt, too.
func mayMakeIn(string) error { return nil }
