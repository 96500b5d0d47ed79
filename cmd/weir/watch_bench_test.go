// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weir/internal/host"
)

// What weir watch takes of a core on a host with 10,000 connections to another, over each of which something is sent
// each second; and what it has taken when the fifth line comes.
func BenchmarkWatch10000(b *testing.B) {
	const first, lines = 5, 60
	namespace := manyConnections(b)
	for b.Loop() {
		cmd := inNamespace(b, namespace, "watch", "--json", "--state="+b.TempDir())
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		text := bufio.NewReader(out)
		read := func(lines int) {
			for range lines {
				if _, err := text.ReadBytes('\n'); err != nil {
					b.Fatal(err)
				}
			}
		}
		read(first)
		began, before := time.Now(), cpuOf(b, cmd.Process.Pid)
		read(lines)
		took, cpu := time.Since(began), cpuOf(b, cmd.Process.Pid)
		cmd.Process.Kill()
		cmd.Wait()
		b.ReportMetric(100*(cpu-before).Seconds()/took.Seconds(), "%-of-a-core")
		b.ReportMetric(float64(before.Microseconds())/1000, "cpu-ms-first-5-s")
	}
}

// What the exporter takes of a core with the same connections and a scrape each 15 s, and the dearest scrape.
func BenchmarkExporter10000(b *testing.B) {
	namespace := manyConnections(b)
	cmd := inNamespace(b, namespace, "exporter", "--listen=192.0.2.2:4749", "--state="+b.TempDir())
	said, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, network, address string) (
		net.Conn, error) {
		runtime.LockOSThread() // and never unlocked
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		return net.Dial(network, address)
	}}}
	scrape := func() {
		answer, err := client.Get("http://192.0.2.2:4749/metrics")
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || !bytes.Contains(text, []byte(`weir_read_success{part="connections"} 1`)) {
			b.Fatalf("%v\n%s", err, text)
		}
	}
	scrape() // it starts with a look at everything
	began, before, dearest := time.Now(), cpuOf(b, cmd.Process.Pid), time.Duration(0)
	for b.Loop() {
		time.Sleep(15 * time.Second)
		was := cpuOf(b, cmd.Process.Pid)
		scrape()
		dearest = max(dearest, cpuOf(b, cmd.Process.Pid)-was)
	}
	cpu := cpuOf(b, cmd.Process.Pid) - before
	b.ReportMetric(100*cpu.Seconds()/time.Since(began).Seconds(), "%-of-a-core")
	b.ReportMetric(float64(dearest.Microseconds())/1000, "cpu-ms-dearest")
}

// manyConnections gives a namespace with 10,000 connections to another, over each of which something is sent each
// second.
func manyConnections(b *testing.B) (namespace int) {
	if os.Geteuid() != 0 {
		b.Skip("skipped, not passed: a network namespace needs root")
	}
	namespace, err := newNamespace()
	if err != nil {
		b.Fatal(err)
	}
	fds, err := connectAcross(b, namespace, 10_000)
	stop, stopped := make(chan bool), make(chan bool)
	b.Cleanup(func() {
		close(stop)
		<-stopped
		for _, fd := range append(fds, namespace) {
			unix.Close(fd)
		}
	})
	go func() {
		defer close(stopped)
		for {
			for _, fd := range fds {
				unix.Write(fd, []byte("x"))
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	if err != nil {
		b.Skip("skipped, not passed: ", err) // a limit of this machine's
	}
	return namespace
}

// inNamespace is a run of weir there.
func inNamespace(b *testing.B, namespace int, args ...string) *exec.Cmd {
	cmd := exec.Command(programLink(b, "weir"), args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_NETNS=/proc/%d/fd/%d", os.Getpid(), namespace))
	return cmd
}

// cpuOf is the CPU time that a process has taken (its clock: clock_getcpuclockid(3)).
func cpuOf(b *testing.B, pid int) time.Duration {
	const process = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|process), &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// connectAcross opens connections from the namespace's uplink to a program in a namespace of its own, to which the
// device's other end moves. It gives the near ends.
func connectAcross(b *testing.B, namespace, connections int) (fds []int, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread has left the process's namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			far, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(far)
			if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
				return err
			}
			ports := host.SysctlPath("net.ipv4.ip_local_port_range")
			if err := os.WriteFile(ports, []byte("1024 65535"), 0); err != nil {
				return err
			}
			if err := netlink.LinkSetNsFd(linkOf("far0"), far); err != nil {
				return err
			}
			if err := accept(b, far); err != nil {
				return err
			}
			for range connections {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				fds = append(fds, fd)
				if err := unix.Connect(fd, farAddr()); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	err = <-done
	return fds, err
}

func farAddr() *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: 700, Addr: [4]byte{192, 0, 2, 1}}
}

// accept starts the program that is at the other end, and waits until it listens.
func accept(b *testing.B, namespace int) error {
	cmd := exec.Command(programLink(b, "far"))
	cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_NETNS=/proc/%d/fd/%d", os.Getpid(), namespace))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// programLink is a name for this binary under which it is one of programs.
func programLink(tb testing.TB, name string) string {
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	link := filepath.Join(tb.TempDir(), name)
	if err := os.Symlink(self, link); err != nil {
		tb.Fatal(err)
	}
	return link
}

// acceptAll accepts connections at far0, and keeps them until it is killed.
func acceptAll() {
	enter()
	check(netlink.LinkSetUp(linkOf("far0")))
	addr, _ := netlink.ParseAddr("192.0.2.1/24")
	check(netlink.AddrAdd(linkOf("far0"), addr))
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	check(unix.Bind(listener, farAddr()))
	check(unix.Listen(listener, 1024))
	fmt.Println("listening")
	for {
		_, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		check(err)
	}
}
