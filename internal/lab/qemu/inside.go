// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What host and guest have agreed on.
const (
	marker       = "WEIR_QEMU" // in process 1's environment: it is a guest of this package
	exact        = "WEIR_SEED" // likewise: its time is virtual, and this its seed
	begun        = "WEIR_BEGUN"
	jobFile      = "/job.json"
	moduleFolder = "/modules/"
	replyLine    = "/dev/ttyS1"
	begunLine    = "weir-qemu: process 1 has begun" // on the console
)

// Inside reports whether this process is process 1 of a Boot.
func Inside() bool { return os.Getpid() == 1 && os.Getenv(marker) != "" }

// Begin is the first thing that process 1 does: it loads the kernel's modules, mounts what every program expects, and
// gives the job.
//
// It starts the program anew: what packages have read of /proc and /sys before there was any, they would remember.
func Begin() (job []byte, err error) {
	if os.Getenv(begun) != "" {
		return os.ReadFile(jobFile)
	}
	fmt.Println(begunLine)
	if os.Getenv(exact) != "" {
		if err := neverIdle(); err != nil {
			return nil, err
		}
	}
	if err := mount(); err != nil {
		return nil, err
	}
	return nil, unix.Exec("/init", os.Args, append(os.Environ(), begun+"=1"))
}

// mount readies the kernel: its modules, and the file systems that it makes itself.
func mount() error {
	if err := loadModules(); err != nil {
		return err
	}
	for _, m := range []struct{ source, target, kind string }{
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"devtmpfs", "/dev", "devtmpfs"},
		{"tmpfs", "/run", "tmpfs"},
		{"tmpfs", "/tmp", "tmpfs"},
		{"bpffs", "/sys/fs/bpf", "bpf"},
		{"tracefs", "/sys/kernel/tracing", "tracefs"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

func loadModules() error {
	order, err := os.ReadFile(moduleFolder + "order")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		path := moduleFolder + name + ".ko"
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.FinitModule(int(f.Fd()), "", 0), f.Close()); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		_ = os.Remove(path) // it is memory
	}
	return nil
}

// End hands back the reply and powers off. It does not return.
func End(reply []byte) {
	if err := Send(reply); err != nil {
		fmt.Println("reply:", err)
	}
	PowerOff()
}

// PowerOff ends the guest without a reply. It does not return.
func PowerOff() {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic("still here")
}

// Send hands back the reply, once.
func Send(reply []byte) error {
	line, err := os.OpenFile(replyLine, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	fd := int(line.Fd())
	raw, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	raw.Oflag &^= unix.OPOST // a byte is a byte
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, raw); err != nil {
		return err
	}
	_, err = line.Write(frame(reply))
	return errors.Join(err, unix.IoctlSetInt(fd, unix.TCSBRK, 1), line.Close()) // TCSBRK 1: wait until all of it is out
}

// frame tells a reply that is whole from one that is not.
func frame(reply []byte) []byte {
	return append([]byte(fmt.Sprintf("%d\n", len(reply))), reply...)
}

func unframe(text []byte) ([]byte, error) {
	head, body, _ := bytes.Cut(text, []byte("\n"))
	var length int
	if _, err := fmt.Sscanf(string(head), "%d", &length); err != nil {
		return nil, errors.New("the guest ended without a result")
	}
	if length != len(body) {
		return nil, fmt.Errorf("the guest's result is cut off at %d of %d bytes", len(body), length)
	}
	return body, nil
}
