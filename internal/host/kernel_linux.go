// SPDX-License-Identifier: Apache-2.0

package host

import (
	"runtime"

	"golang.org/x/sys/unix"

	"weir/internal/qdisc"
)

// probe tries kinds on the loopback device of a network namespace that lives only as long as this takes.
func probe(kinds []string) (map[string]bool, error) {
	type answer struct {
		has map[string]bool
		err error
	}
	done := make(chan answer)
	go func() {
		// Never unlocked: the thread has left the process's namespace, and ends with the goroutine.
		runtime.LockOSThread()
		a := answer{has: map[string]bool{}}
		if a.err = unix.Unshare(unix.CLONE_NEWNET); a.err == nil {
			var conn *qdisc.Conn
			if conn, a.err = qdisc.Dial(0); a.err == nil {
				for _, kind := range kinds {
					if has, err := conn.Probe(kind); err == nil {
						a.has[kind] = has
					}
				}
				conn.Close()
			}
		}
		done <- a
	}()
	a := <-done
	return a.has, a.err
}
