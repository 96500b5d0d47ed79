// SPDX-License-Identifier: Apache-2.0

// Package guest is the lab's inside: process 1 of a kernel that was booted for one run. It lays out the network,
// applies the candidate, makes the traffic, and hands back one document.
//
// It runs only there. It trusts its job, which the host has checked, and ends by powering the machine off, whatever
// happens.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"weir/internal/bbr"
	"weir/internal/lab/boot"
	"weir/internal/lab/measure"
	"weir/internal/lab/qemu"
	"weir/internal/lab/scenario"
	"weir/internal/lab/uml"
)

const (
	maxFiles   = 65536 // open at a time
	reserveMiB = 256   // of guest memory that Go may use before it collects garbage
)

// Wanted reports whether this process is a lab's process 1, or one of the programs of a lab's relay.
func Wanted() bool {
	return os.Getenv(boot.Marker) != "" && (os.Getpid() == 1 ||
		slices.Contains([]string{tunnelProgram, proxyProgram}, os.Args[0]))
}

// Main does the job and powers off; or is that program. It does not return.
func Main() {
	if os.Getpid() != 1 {
		help(os.Args[0], os.Args[1:])
	}
	// Everything happens on one thread, and nothing may depend on what other threads do in virtual time.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(reserveMiB << 20)
	// Two a connection, and the default is 1024.
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: maxFiles, Max: maxFiles})
	booted := sharedEngine()
	if qemu.Inside() {
		booted = emulatedEngine()
	}
	job, err := booted.prepare()
	if err != nil {
		fmt.Println("weir-lab:", err)
		powerOff()
	}
	reply := scenario.Reply{}
	func() {
		defer func() {
			if r := recover(); r != nil {
				fmt.Printf("%s\n", debug.Stack())
				reply = scenario.Reply{Error: fmt.Sprintf("the guest panicked: %v", r)}
			}
		}()
		run, err := work(job)
		if err != nil {
			reply.Error = err.Error()
			return
		}
		reply.Result = run
	}()
	text, err := json.Marshal(reply)
	if err == nil {
		err = booted.reply(text)
	}
	if err != nil {
		fmt.Println("weir-lab: reply:", err)
	}
	powerOff()
}

// engineLink is how the kernel that this is in was booted: how a job is had, with the file systems mounted that
// everybody expects, and how the reply is given.
type engineLink struct {
	prepare func() (job []byte, err error)
	reply   func(text []byte) error
}

func emulatedEngine() engineLink { return engineLink{qemu.Begin, qemu.Send} }

// sharedEngine is an engine that shares a folder with the host: user-mode Linux.
func sharedEngine() engineLink { return engineLink{uml.Begin, uml.Send} }

func work(text []byte) (*measure.Run, error) {
	var job scenario.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	if err := wholeSecond(); err != nil {
		return nil, err
	}
	if job.UsesBBR() && qemu.Inside() {
		if err := bbr.Load(); err != nil {
			return nil, err
		}
	}
	t, err := layOut(job)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	said, err := apply(t, job)
	if err != nil {
		return nil, err
	}
	run, err := drive(t, job)
	if err != nil {
		return nil, err
	}
	run.Weir = said
	return run, nil
}

func powerOff() {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic("still here")
}

// wholeSecond waits for the next whole second of the guest's clock, and has the kernel draw a new key for its random
// numbers. What follows then depends neither on how long a program took until here nor on what it drew.
func wholeSecond() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	second := unix.Timespec{Sec: now.Sec + 1}
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &second, nil)
	}
	if err != nil {
		return err
	}
	random, err := os.Open("/dev/urandom")
	if err != nil {
		return err
	}
	defer random.Close()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), unix.RNDRESEEDCRNG, 0)
	if errno != 0 && errno != unix.ENODATA { // a stock kernel this young may have no key yet (drivers/char/random.c)
		return fmt.Errorf("RNDRESEEDCRNG: %w", errno)
	}
	return nil
}
