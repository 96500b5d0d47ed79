// SPDX-License-Identifier: Apache-2.0

// Package guest is the lab's inside: process 1 of a kernel that was booted for one run. It lays out the network,
// applies the candidate, makes the traffic, and hands back one document.
//
// It runs only there. It trusts its job, which the host has checked, and ends by powering the machine off, whatever
// happens.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"golang.org/x/sys/unix"

	"weir/internal/lab"
	"weir/internal/lab/qemu"
)

const (
	share      = "/host" // where the run's folder on the host is mounted
	maxFiles   = 65536   // open at a time
	reserveMiB = 256     // of guest memory that Go may use before it collects garbage
)

// Wanted tells whether this process is a lab's process 1, or one of the programs of a lab's relay.
func Wanted() bool {
	return os.Getenv(lab.Marker) != "" &&
		(os.Getpid() == 1 || slices.Contains([]string{tunnelProgram, proxyProgram}, os.Args[0]))
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
	engine := shared()
	if qemu.Inside() {
		engine = emulated()
	}
	job, err := engine.prepare()
	if err != nil {
		fmt.Println("weir-lab:", err)
		powerOff()
	}
	reply := lab.Reply{}
	func() {
		defer func() {
			if r := recover(); r != nil {
				fmt.Printf("%s\n", debug.Stack())
				reply = lab.Reply{Error: fmt.Sprintf("the guest panicked: %v", r)}
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
		err = engine.reply(text)
	}
	if err != nil {
		fmt.Println("weir-lab: reply:", err)
	}
	powerOff()
}

// engine is how the kernel that this is in was booted: how a job is had, with the file systems mounted that everybody
// expects, and how the reply is given.
type engine struct {
	prepare func() (job []byte, err error)
	reply   func(text []byte) error
}

func emulated() engine { return engine{qemu.Begin, qemu.Send} }

// shared is an engine that shares a folder with the host: user-mode Linux.
func shared() engine { return engine{prepare, write} }

func prepare() ([]byte, error) {
	mounts := []struct{ source, target, kind, data string }{
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"devtmpfs", "/dev", "devtmpfs", ""},
		{"tmpfs", "/run", "tmpfs", ""},
		{"none", share, "hostfs", "/"},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.data); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return os.ReadFile(share + "/" + lab.JobFile)
}

func work(text []byte) (*lab.Run, error) {
	var job lab.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	t, err := lay(job)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	said, err := apply(t, job)
	if err != nil {
		return nil, fmt.Errorf("candidate %q: %w", job.Candidate.Name, err)
	}
	run, err := drive(t, job)
	if err != nil {
		return nil, err
	}
	run.Weir = said
	return run, nil
}

// write goes to a file of another name first: the host takes a reply that is there to be whole.
func write(text []byte) error {
	f, err := os.Create(share + "/" + lab.ReplyFile + ".part")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(share+"/"+lab.ReplyFile+".part", share+"/"+lab.ReplyFile)
}

func powerOff() {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic("still here")
}
