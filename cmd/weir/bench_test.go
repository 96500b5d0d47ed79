// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/host"
)

// What commands cost on a host with 10,000 TCP sockets: CPU time of the whole process, user and system.
func BenchmarkCommands10000(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("skipped, not passed: a network namespace needs root")
	}
	const sockets = 10_000
	namespace, err := newNamespace()
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(namespace)
	fds, err := connect(namespace, sockets/2)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		b.Skip("skipped, not passed: ", err) // a limit of this machine's
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	weir := filepath.Join(b.TempDir(), "weir")
	if err := os.Symlink(self, weir); err != nil {
		b.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(weir, args...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_NETNS=/proc/%d/fd/%d", os.Getpid(), namespace))
		return cmd
	}
	state := "--state=" + b.TempDir()
	if out, err := command("up", "--yes", state).CombinedOutput(); err != nil {
		b.Fatalf("up: %v\n%s", err, out)
	}
	if out, err := command("doctor").CombinedOutput(); err != nil ||
		strings.Contains(string(out), "live connections (") {
		b.Skipf("skipped, not passed: doctor does not see the connections here: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"doctor"}, {"plan", "--dev", "up0", state}, {"status", state},
		{"up", "--yes", "--qdisc", "htb rate 50mbit", state}} {
		b.Run(args[0], func(b *testing.B) {
			var cpu time.Duration
			for b.Loop() {
				if args[0] == "up" { // from what was there before
					if out, err := command("down", state).CombinedOutput(); err != nil {
						b.Fatalf("down: %v\n%s", err, out)
					}
				}
				cmd := command(args...)
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// connect opens connections over the namespace's loopback device, each of which is two sockets, and leaves them open.
func connect(namespace, connections int) (fds []int, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread has left the process's namespace
		done <- func() error {
			if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := os.WriteFile(host.SysctlPath("net.ipv4.ip_local_port_range"), []byte("1024 65535"),
				0); err != nil {
				return err
			}
			listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(listener)
			at := &unix.SockaddrInet4{Port: 700, Addr: [4]byte{127, 0, 0, 1}}
			if err := unix.Bind(listener, at); err != nil {
				return err
			}
			if err := unix.Listen(listener, 16); err != nil {
				return err
			}
			for range connections {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				fds = append(fds, fd)
				if err := unix.Connect(fd, at); err != nil {
					return err
				}
				if fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
					return err
				}
				fds = append(fds, fd)
			}
			return nil
		}()
	}()
	err = <-done
	return fds, err
}
