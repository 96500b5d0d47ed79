// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import "golang.org/x/sys/unix"

// mayWrite tells why this process may not write to a file, or make one in a folder.
func mayWrite(path string, folder bool) error {
	mode := uint32(unix.W_OK)
	if folder {
		mode |= unix.X_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}
