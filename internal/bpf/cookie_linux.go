// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// NetnsCookie is the number of the calling thread's network namespace. The kernel gives none twice until it is started
// again. The inode of /proc/self/ns/net says less (SO_NETNS_COOKIE, Linux 5.14; include/uapi/asm-generic/socket.h).
func NetnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("SO_NETNS_COOKIE: %w", err)
	}
	return cookie, nil
}
