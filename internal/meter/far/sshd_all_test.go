// SPDX-License-Identifier: Apache-2.0

//go:build all && linux

package far

// In make test-all: a real sshd is run.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/meter"
)

// The real ssh to Debian's sshd, in a network and with users of its own. The work is in TestSshdInside.
func TestSshd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: a namespace needs root")
	}
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen", "ip", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped, not passed: this needs %s (scripts/need test)", program)
		}
	}
	c := exec.Command(os.Args[0], "-test.run=^TestSshdInside$", "-test.v")
	c.Env = append(os.Environ(), "WEIR_TEST_SSHD="+t.TempDir())
	c.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
}

// shells are users of this sshd, by their login shell. All may do what they want, in this namespace.
func shells(dir string) map[string]string {
	shells := map[string]string{"dash": "/bin/dash", "bash": "/bin/bash", "banner": dir + "/banner",
		"noss": "/bin/dash"}
	if path, err := exec.LookPath("busybox"); err == nil {
		shells["busybox"] = dir + "/busybox"
		os.WriteFile(dir+"/busybox", fmt.Appendf(nil, "#!/bin/sh\nexec %s sh \"$@\"\n", path), 0o755)
	}
	return shells
}

// startSshd gives the sshd, and an ssh that reaches it by the names of its users.
func startSshd(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, []byte(text), mode))
		return path
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("none", "/run", "tmpfs", 0, ""))
	check(os.Mkdir("/run/sshd", 0o755))
	run("ip", "link", "set", "lo", "up")
	write("banner", "#!/bin/sh\necho Welcome; printf 'no end of line: '\nexec /bin/dash \"$@\"\n", 0o755)
	check(os.Mkdir(dir+"/bin", 0o755))
	for _, name := range []string{"sh", "cat", "sleep", "dd", "head"} {
		path, err := exec.LookPath(name)
		check(err)
		check(os.Symlink(path, dir+"/bin/"+name))
	}
	users := "root:*:0:0::/root:/bin/sh\nsshd:*:100:65534::/run/sshd:/usr/sbin/nologin\n"
	names := ""
	for user, shell := range shells(dir) {
		users += user + ":*:0:0::" + dir + ":" + shell + "\n"
		names += user + " "
	}
	check(unix.Mount(write("passwd", users, 0o644), "/etc/passwd", "", unix.MS_BIND, ""))
	for _, key := range []string{"host", "user"} {
		run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key))
	}
	config := write("sshd_config", fmt.Sprintf("ListenAddress 127.0.0.1:22\nHostKey %s/host\nAuthorizedKeysFile "+
		"%s/user.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxStartups 100\n"+
		"Match User noss\n SetEnv PATH=%s/bin\n", dir, dir, dir), 0o600)
	sshd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", config)
	log, err := os.Create(filepath.Join(dir, "log"))
	check(err)
	sshd.Stderr = log
	check(sshd.Start())
	t.Cleanup(func() { sshd.Process.Kill(); sshd.Wait() })
	for range 100 {
		c, err := net.Dial("tcp", "127.0.0.1:22")
		if err == nil {
			c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	ssh := write("ssh_config", fmt.Sprintf("Host jump\n User dash\n HostName 127.0.0.1\n ProxyJump bash\n"+
		"Host %s\n HostName 127.0.0.1\nHost dash\n User dash\nHost bash\n User bash\nHost banner\n User banner\n"+
		"Host noss\n User noss\nHost busybox\n User busybox\nHost *\n IdentityFile %s/user\n IdentitiesOnly yes\n"+
		" ConnectTimeout 60\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"+
		" LogLevel ERROR\n", names, dir), 0o600)
	return sshd, write("ssh", "#!/bin/sh\nexec ssh -F "+ssh+" -o ConnectTimeout=60 \"$@\"\n", 0o755)
}

// TestSshdInside is no test of its own; TestSshd runs it.
func TestSshdInside(t *testing.T) {
	dir := os.Getenv("WEIR_TEST_SSHD")
	if dir == "" {
		t.Skip("skipped here: TestSshd runs it")
	}
	sshd, ssh := startSshd(t, dir)
	limit := func(rate string) ([]byte, error) {
		return exec.Command("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", rate, "burst", "70kb",
			"latency", "300ms").CombinedOutput()
	}
	// Without a limit, ciphers take all CPUs, and on a busy machine nothing else gets to answer in time.
	if out, err := limit("50mbit"); err != nil {
		t.Logf("tc: %s", out)
	}
	names := []string{"jump", "banner", "noss"} // the first is of dash, by way of bash
	if _, there := shells(dir)["busybox"]; there {
		names = append(names, "busybox")
	} else {
		t.Log("skipped, not passed: a login shell of busybox")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			want, known := name != "noss", false // what the kernel there knows
			// On a busy machine ss may start too late for all of a short load.
			for took := 4 * time.Second; took <= 16*time.Second && (took == 4*time.Second || known != want); took *= 2 {
				r := measured(t, Host{Name: name, Program: ssh}, took)
				known = false
				for _, s := range r.Find(meter.Download).Senders {
					known = known || s.Kernel
				}
				if known != want {
					t.Logf("in %v: %q", took, r.Notes)
				}
			}
			if known != want {
				t.Errorf("the kernel there is known: %v, want %v", known, want)
			}
		})
	}
	t.Run("asked at a terminal", func(t *testing.T) {
		for says, want := range map[string]string{"it's": "got it", "else": "exit status 3"} {
			out, err := Host{Name: "dash", Program: ssh}.RunAsked(t.Context(), "sh -c 'stty -echo </dev/tty; "+
				`printf "a password: " >/dev/tty; read p </dev/tty; `+
				`[ "$p" != else ] && [ ${#p} = 4 ] && echo got it || exit 3'`,
				Answer{Asks: "assword: ", Says: says})
			var failed *Failed
			if errors.As(err, &failed) {
				out += fmt.Sprintf("exit status %d", failed.Status)
			}
			if !strings.Contains(out, want) || strings.Contains(out, says) {
				t.Errorf("%q: %q, %v", says, out, err)
			}
		}
	})
	t.Run("filled", func(t *testing.T) { testPeer(t, Host{Name: "dash", Program: ssh}) })
	t.Run("filled by a jump", func(t *testing.T) {
		if _, err := Open(t.Context(), Host{Name: "jump", Program: ssh}); err == nil ||
			!strings.Contains(err.Error(), "through another host (proxyjump)") {
			t.Error(err)
		}
	})
	t.Run("1 Mbit/s", func(t *testing.T) {
		if out, err := limit("1mbit"); err != nil {
			t.Skipf("skipped, not passed: %s", out)
		}
		defer limit("50mbit")
		// Its bucket holds 0.56 Mbit, which pass at once.
		r := measured(t, Host{Name: "dash", Program: ssh}, 8*time.Second)
		if g := r.Find(meter.Download).Goodput[meter.Download].Value; g > 2 {
			t.Errorf("a link of 1 Mbit/s carries %.2f", g)
		}
	})
	t.Run("it dies", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		died := false
		rec, err := Measure(ctx, Host{Name: "dash", Program: ssh}, meter.Options{Time: 30 * time.Second, Conns: 2,
			Progress: func(p meter.Progress) {
				if p.Phase == meter.Download && !died {
					died = true
					killBelow(sshd.Process.Pid)
				}
			}})
		if !died || err == nil || !strings.Contains(err.Error(), "ended in the middle") || rec == nil ||
			ctx.Err() != nil {
			t.Fatalf("killed: %v; %v", died, err)
		}
		if r := meter.Summarize(rec); r.Find(meter.Idle) == nil || r.Find(meter.Upload) != nil {
			t.Errorf("%d phases", len(r.Phases))
		}
	})
}

// measured is what is found. A machine that is busy may carry nothing in so short a time, so it has more the next time.
func measured(t *testing.T, h Host, d time.Duration) meter.Result {
	t.Helper()
	said := ""
	for _, times := range []time.Duration{1, 3, 6} {
		ctx, cancel := context.WithTimeout(context.Background(), times*d+3*time.Minute)
		rec, err := Measure(ctx, h, meter.Options{Time: times * d, Conns: 2})
		late := ctx.Err()
		cancel()
		if late != nil {
			t.Fatal("it does not end")
		}
		if said = fmt.Sprint(err); err != nil {
			continue
		}
		r := meter.Summarize(rec)
		down, up := r.Find(meter.Download), r.Find(meter.Upload)
		if down != nil && up != nil && down.Goodput[meter.Download].Value > 0 && up.Goodput[meter.Upload].Value > 0 {
			return r
		}
		said = fmt.Sprintf("%q", r.Notes)
	}
	t.Fatal(said)
	return meter.Result{}
}

// killBelow kills the processes that a process has started, and theirs.
func killBelow(parent int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			killBelow(pid)
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}
