// SPDX-License-Identifier: Apache-2.0

package far

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// cpuOf is the CPU time that a process of this host has had; 0: not known.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	const user, system = 11, 12    // fields behind the name, utime and stime (proc_pid_stat(5))
	const tick = time.Second / 100 // USER_HZ, which is 100 on the architectures that there is a program for
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	s, _ := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * tick
}
