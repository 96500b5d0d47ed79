// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import "golang.org/x/sys/unix"

// mayWrite returns why this process may not write to a file.
func mayWrite(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS)
}

// mayMakeIn returns why this process may not make a file in a folder.
func mayMakeIn(folder string) error {
	return unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}
