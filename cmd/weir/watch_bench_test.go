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
	"slices"
	"strconv"
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
	namespace := manyConnections(b, 10_000)
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

// What the exporter takes of a core with connections, few and many, and a scrape each 15 s; the median scrape; and how
// many series it tells.
func BenchmarkExporter(b *testing.B) {
	for _, connections := range []int{100, 10_000, 100_000} {
		b.Run(strconv.Itoa(connections), func(b *testing.B) { scrapeEvery15s(b, connections) })
	}
}

func scrapeEvery15s(b *testing.B, connections int) {
	namespace := manyConnections(b, connections)
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
	scrape := func() (series int) {
		answer, err := client.Get("http://192.0.2.2:4749/metrics")
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || !bytes.Contains(text, []byte(`weir_read_success{part="connections"} 1`)) {
			b.Fatalf("%v\n%s", err, text)
		}
		return bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte("\n#"))
	}
	scrape() // it starts with a look at everything
	began, before := time.Now(), cpuOf(b, cmd.Process.Pid)
	for b.Loop() {
		time.Sleep(15 * time.Second)
		scrape()
	}
	cpu := cpuOf(b, cmd.Process.Pid) - before
	b.ReportMetric(100*cpu.Seconds()/time.Since(began).Seconds(), "%-of-a-core")
	var each []time.Duration // most of which have no reading of connections beside them
	for range 100 {
		was := cpuOf(b, cmd.Process.Pid)
		b.ReportMetric(float64(scrape()), "series")
		each = append(each, cpuOf(b, cmd.Process.Pid)-was)
	}
	slices.Sort(each)
	b.ReportMetric(float64(each[len(each)/2].Microseconds())/1000, "cpu-ms/scrape")
}

// manyConnections gives a namespace with connections to another. Over all of them something is sent 10,000 times a
// second: over each of 10,000 once.
func manyConnections(b *testing.B, connections int) (namespace int) {
	if os.Geteuid() != 0 {
		b.Skip("skipped, not passed: a network namespace needs root")
	}
	namespace, err := newNamespace()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(namespace) })
	far, err := otherEnd(namespace)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(far)
	const each = 10_000 // of a pair of programs, of which each may open so many files, or hardly more
	for i := 0; i*each < connections; i++ {
		port, n := strconv.Itoa(700+i), strconv.Itoa(min(each, connections-i*each))
		pause := strconv.Itoa(max(1, connections/each))
		for _, cmd := range []*exec.Cmd{program(b, far, "far", port), program(b, namespace, "near", port, n, pause)} {
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				cmd.Wait()
				b.Skip("skipped, not passed: ", said.String()) // a limit of this machine's
			}
		}
	}
	return namespace
}

// otherEnd is a namespace of its own, to which the other end of the first one's uplink moves.
func otherEnd(namespace int) (far int, err error) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread has left the process's namespace
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if far, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return err
			}
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
			if err := unix.Setns(far, unix.CLONE_NEWNET); err != nil {
				return err
			}
			addr, _ := netlink.ParseAddr("192.0.2.1/24")
			if err := netlink.AddrAdd(linkOf("far0"), addr); err != nil {
				return err
			}
			return netlink.LinkSetUp(linkOf("far0"))
		}()
	}()
	return far, <-done
}

// inNamespace is a run of weir there.
func inNamespace(b *testing.B, namespace int, args ...string) *exec.Cmd {
	return program(b, namespace, "weir", args...)
}

// program is a run of one of programs there.
func program(b *testing.B, namespace int, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(programLink(b, name), args...)
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

// acceptAll accepts connections at a port of far0, and keeps them until it is killed.
func acceptAll(port int) {
	enter()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	check(unix.Bind(listener, farAddr(port)))
	check(unix.Listen(listener, 1024))
	fmt.Println("listening")
	for {
		_, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		check(err)
	}
}

// connectAll opens connections to a port of far0, and sends something over each, with a pause between the rounds, until
// it is killed.
func connectAll(port, connections int, pause time.Duration) {
	enter()
	fds := make([]int, connections)
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		check(err)
		check(unix.Connect(fd, farAddr(port)))
		fds[i] = fd
	}
	fmt.Println("connected")
	for ; ; time.Sleep(pause) {
		for _, fd := range fds {
			unix.Write(fd, []byte("x"))
		}
	}
}

func farAddr(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{192, 0, 2, 1}}
}
