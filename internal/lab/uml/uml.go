// SPDX-License-Identifier: Apache-2.0

// Package uml boots the lab kernel, user-mode Linux in virtual time, as an ordinary process: no root, no KVM, no
// network of the host.
//
// It knows nothing of scenarios: a job goes in and a reply comes out, both as bytes. Whatever ends a boot — a result, a
// panic, a hang, ^C — nothing of it is left behind, no process and no file.
package uml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
)

// Kernel is a lab kernel on disk.
type Kernel struct {
	Path    string
	Version string // of the source package
	Recipe  string // a hash of the configuration and of the changes to the source
}

// errNoKernel means that none has been built.
var errNoKernel = errors.New("there is no lab kernel")

// packaged is where the package weir-lab has its kernel.
const packaged = "/usr/lib/weir-lab"

// Find returns the kernel that internal/lab/uml/kernel/build has put into the user's cache, or else the one that came
// with the package. It returns errNoKernel if there is neither.
func Find() (Kernel, error) {
	folders := []string{packaged}
	if cache, err := os.UserCacheDir(); err == nil {
		folders = []string{filepath.Join(cache, "weir", "lab", "current"), packaged}
	}
	for _, dir := range folders {
		version, err := os.ReadFile(filepath.Join(dir, "version"))
		if err != nil {
			continue
		}
		recipe, err := os.ReadFile(filepath.Join(dir, "recipe"))
		if err != nil {
			continue
		}
		return Kernel{Path: filepath.Join(dir, "linux"), Version: strings.TrimSpace(string(version)),
			Recipe: strings.TrimSpace(string(recipe))}, nil
	}
	return Kernel{}, errNoKernel
}

// Boot is one run of the kernel.
type Boot struct {
	Kernel    Kernel
	Initrd    string // file
	Folder    string // of the host, seen by the guest as a whole file system; whatever the guest writes lands here
	Reply     string // name of the file in Folder that the guest must have written when it powers off
	Seed      uint64 // of all randomness in the guest
	CPU       int    // to pin to; -1: none
	MemoryMiB int
	Env       []string          // of process 1
	Limit     time.Duration     // of wall-clock time
	OnLine    func(line string) // each line of the console; may be nil
}

// epoch is the guest's time of day at boot: a fixed one, 2026-01-01 00:00 UTC, in ns.
const epoch = 1767225600 * int64(time.Second)

// Run boots, waits for the guest to power off, and cleans up after it. The guest's reply is a file in Folder.
func (b Boot) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Limit, fmt.Errorf("no result after %v of real time", b.Limit))
	defer cancel()
	scratch, err := os.MkdirTemp(filepath.Dir(b.Folder), "uml-") // for user-mode Linux's own files
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	command := exec.Command(b.Kernel.Path, append([]string{
		fmt.Sprintf("mem=%dM", b.MemoryMiB), "initrd=" + b.Initrd, "hostfs=" + b.Folder, "uml_dir=" + scratch,
		"time-travel=inf-cpu", fmt.Sprintf("time-travel-start=%d", epoch),
		"seccomp=on", "con0=fd:0,fd:1", "con=null", "ssl=null", "quiet", "norandmaps", "panic=-1",
		// The runtime's monitor would interrupt the guest's main thread every 10 ms of virtual time.
		"GODEBUG=asyncpreemptoff=1",
	}, b.Env...)...)
	command.Env = []string{fmt.Sprintf("WEIR_LAB_SEED=%d", b.Seed), "TMPDIR=" + memoryDir(scratch), "HOME=" + scratch,
		"PATH=/nonexistent"}
	// A group of its own, so that ^C reaches us alone and we end it; and no orphan if we are killed.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	console := &boot.Console{OnLine: b.OnLine}
	command.Stdout, command.Stderr = console, console
	command.WaitDelay = time.Second

	// Unpinned, user-mode Linux's processes chase each other over the cores and take several times as long.
	if err := boot.StartPinned(command, b.CPU); err != nil {
		return fmt.Errorf("%s: %w", b.Kernel.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		killGroup(command.Process.Pid)
		<-ended
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return &boot.Failure{What: cause.Error(), Console: console.Last()}
		}
		return ctx.Err()
	}
	killGroup(command.Process.Pid) // the guest's own processes are processes here
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the kernel has ended well, and some of these have held its console for longer
	}
	if what := console.Disaster(); what != "" {
		return &boot.Failure{What: what, Console: console.Last()}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	if err != nil {
		return &boot.Failure{What: "the kernel ended with " + exit.ProcessState.String(), Console: console.Last()}
	}
	if _, err := os.Stat(filepath.Join(b.Folder, b.Reply)); err != nil {
		return &boot.Failure{What: "the guest ended without a result", Console: console.Last()}
	}
	return nil
}

func killGroup(pgid int) { _ = syscall.Kill(-pgid, syscall.SIGKILL) }

// memoryDir is where user-mode Linux keeps the guest's memory, a file that it unlinks at once: a tmpfs if there is one.
func memoryDir(otherwise string) string {
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm"
	}
	return otherwise
}
