// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run starts this program once more, with arguments that lead to Inside, in a network namespace of its own. Without
// root it has a user namespace besides. Whatever ends this process ends that one, and with it goes the namespace. What
// is called after each result is given how many there are and will be.
func Run(ctx context.Context, args []string, each func(done, of int)) (Report, error) {
	report, err := start(ctx, 0, args, each)
	if errors.Is(err, unix.EPERM) {
		report, err = start(ctx, syscall.CLONE_NEWUSER, args, each)
	}
	for _, no := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL} {
		if errors.Is(err, no) {
			return report, errLacking("a network namespace needs root here")
		}
	}
	return report, err
}

func start(ctx context.Context, flags uintptr, args []string, each func(done, of int)) (r Report, err error) {
	const most = time.Minute // it takes some seconds, where nothing else has work to do
	// It is this thread's end that ends the other process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0], cmd.Env = os.Args[0], []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | flags, Pdeathsig: syscall.SIGKILL}
	if flags&syscall.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		r.Kernel, r.CPUs = l.Kernel, l.CPUs
		r.add(l.Result)
		each(len(r.Results), l.Of)
	}
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case err != nil && said.Len() > 0:
		return r, errLacking("%s", strings.TrimSpace(said.String()))
	}
	return r, err
}

// line is what the process inside says of each result.
type line struct {
	Kernel string
	CPUs   int
	Of     int
	Result Result
}
