// SPDX-License-Identifier: Apache-2.0

// Package trial has a machine that is reached by ssh, on which this program is tried: copied to a folder of its own,
// run as root, and taken away again.
//
// It may not decide anything, and runs nothing that the other machine names: what that says is checked against what can
// be said, and else refused.
package trial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/hint"
	"weir/internal/meter/far"
	"weir/internal/text"
)

// Machine is another machine.
type Machine struct {
	far.Host
	Arch string // amd64 or arm64
	root []string
	dir  string // where the copy is; "" before
	// Left are folders of earlier trials that were cut short, which Copy has taken away.
	Left []string

	// Password is what sudo or doas is told, where it wants one.
	Password string
	said     atomic.Int64 // files of what was said, where it goes into files
}

// Architectures are those that there is a program for, by the names that uname has for them.
func architectures() map[string]string {
	return map[string]string{"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
}

// Open looks at a machine. It changes nothing there.
func Open(ctx context.Context, h far.Host) (*Machine, error) {
	out, err := h.Run(ctx, `sh -c 'uname -sm; id -u; for t in sudo doas; do `+
		`command -v $t >/dev/null 2>&1 || continue; why=$($t -n sh -c : 2>&1) && { echo $t yes; continue; }; `+
		`case $why in doas:*enabled*|doas:*permitted*) echo $t never;; *) echo $t no;; esac; done; true'`, nil)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 2 {
		return nil, &hint.Error{What: h.Name + " does not say what it is", Try: "ssh " + h.Name + " uname -sm"}
	}
	m := &Machine{Host: h}
	system, machine, _ := strings.Cut(lines[0], " ")
	if m.Arch = architectures()[machine]; system != "Linux" || m.Arch == "" {
		return nil, &hint.Error{What: fmt.Sprintf("%s is %.40q: weir runs on Linux, on x86_64 and aarch64", h.Name,
			lines[0]), Try: "another host"}
	}
	switch rest := lines[2:]; {
	case lines[1] == "0":
	case slices.Contains(rest, "sudo yes"):
		m.root = []string{"sudo", "-n"}
	case slices.Contains(rest, "doas yes"):
		m.root = []string{"doas", "-n"}
	case slices.Contains(rest, "sudo no"):
		m.root = []string{"sudo", "-S", "-p", "''"}
	case slices.Contains(rest, "doas no"):
		m.root = []string{"doas"}
	case slices.Contains(rest, "doas never"):
		return nil, &hint.Error{What: h.Name + ": the user is not root, and doas permits it nothing",
			Try: "permit it in /etc/doas.conf there, or weir try " + asRoot(h.Name)}
	default:
		return nil, &hint.Error{What: h.Name + ": the user is not root, and has neither sudo nor doas",
			Try: "weir try " + asRoot(h.Name)}
	}
	return m, nil
}

// asRoot is a host's name with root as the user.
func asRoot(name string) string {
	rest, uri := strings.CutPrefix(name, "ssh://")
	root := "root@" + rest[strings.LastIndex(rest, "@")+1:]
	if uri {
		root = "ssh://" + root
	}
	return root
}

// WantsPassword reports whether what makes the user root there asks for one.
func (m *Machine) WantsPassword() bool { return m.By() != "" && !slices.Contains(m.root, "-n") }

// By is what makes the user root there: sudo, doas, or "" where it is root.
func (m *Machine) By() string {
	if len(m.root) == 0 {
		return ""
	}
	return m.root[0]
}

var folder = regexp.MustCompile(`^/[A-Za-z0-9._/-]+/weir-try\.[A-Za-z0-9]+$`)

// Folder is where the copy is; "" where there is none.
func (m *Machine) Folder() string { return m.dir }

// Copy brings a program there, and makes sure that what arrived is what was sent, and can be run. What trials of this
// user have left that were cut short an hour ago or more it takes away: a younger one may go on.
func (m *Machine) Copy(ctx context.Context, program []byte) error {
	out, err := m.Run(ctx, `sh -c 'umask 077; for base in "${TMPDIR:-/tmp}" /var/tmp "$HOME"; do `+
		`find "$base" -maxdepth 1 -type d -name "weir-try.????????" -user "$(id -u)" -mmin +60 -print `+
		`-exec rm -rf {} + 2>/dev/null; `+
		`d=$(mktemp -d "$base/weir-try.XXXXXXXX" 2>/dev/null) || continue; `+
		`printf "#!/bin/sh\nexit 0\n" >"$d/weir"; chmod 700 "$d/weir"; `+
		`"$d/weir" 2>/dev/null && { echo "$d"; exit 0; }; rm -rf "$d"; done; exit 1'`, nil)
	if err != nil {
		return fmt.Errorf("%s has no folder that a program can be run from: %w", m.Name, err)
	}
	folders := strings.Split(strings.TrimSpace(out), "\n")
	for _, dir := range folders {
		if !folder.MatchString(dir) {
			return fmt.Errorf("%s names a folder %.80q, which is none of ours", m.Name, dir)
		}
	}
	last := len(folders) - 1
	m.dir, m.Left = folders[last], folders[:last]
	out, err = m.Run(ctx, fmt.Sprintf("sh -c 'cat >%s/weir && { sha256sum || shasum -a 256; } <%s/weir'", m.dir, m.dir),
		bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("the program could not be copied to %s: %w", m.Name, err)
	}
	sum := sha256.Sum256(program)
	if got, _, _ := strings.Cut(out, " "); got != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("what arrived at %s is not what was sent", m.Name)
	}
	return nil
}

// Allowed runs nothing as root: it fails where the password is wrong.
func (m *Machine) Allowed(ctx context.Context) error {
	const patience = 30 * time.Second // it may ask something else, which nobody here answers
	inTime, stop := context.WithTimeout(ctx, m.Patience()+patience)
	defer stop()
	_, err := m.asRoot(inTime, "sh", "-c", ":")
	var said *far.Failed
	switch {
	case errors.As(err, &said) && m.WantsPassword():
		return &hint.Error{What: fmt.Sprintf("%s on %s lets nobody in with that password: %v", m.By(), m.Name, said),
			Try: "again, or weir try " + asRoot(m.Name)}
	case inTime.Err() != nil && ctx.Err() == nil:
		return &hint.Error{What: fmt.Sprintf("%s on %s does not end: it may ask for more than a password", m.By(),
			m.Name), Try: "weir try " + asRoot(m.Name)}
	}
	return err
}

// Weir runs the copy there, as root.
func (m *Machine) Weir(ctx context.Context, args ...string) (string, error) {
	return m.asRoot(ctx, append([]string{m.dir + "/weir"}, args...)...)
}

// Installed is where Install puts the program.
const Installed = "/usr/local/bin/weir"

// Install puts the copy where it stays, and brings a goal up from there.
func (m *Machine) Install(ctx context.Context, goal []string) error {
	if _, err := m.asRoot(ctx, "install", "-m", "755", m.dir+"/weir", Installed); err != nil {
		return err
	}
	_, err := m.asRoot(ctx, append([]string{Installed, "up", "--yes"}, goal...)...)
	return err
}

// Remove takes the copy away.
func (m *Machine) Remove(ctx context.Context) error {
	if m.dir == "" {
		return nil
	}
	_, err := m.Run(ctx, "rm -rf "+m.dir, nil)
	if err == nil {
		m.dir = ""
	}
	return err
}

func (m *Machine) asRoot(ctx context.Context, words ...string) (string, error) {
	command := strings.Join(m.root, " ")
	for _, w := range words {
		command += " " + text.Shell(w)
	}
	switch {
	case m.WantsPassword() && m.By() == "doas":
		return m.atTerminal(ctx, command)
	case m.WantsPassword():
		return m.Run(ctx, command, strings.NewReader(m.Password+"\n"))
	}
	return m.Run(ctx, strings.TrimSpace(command), nil)
}

// atTerminal runs a command that asks for the password at a terminal alone, as doas does. What the command says goes
// into files there, so that it is not mixed, and its terminal shows nothing but the question. Before there is a folder
// for them only the exit status is of use.
func (m *Machine) atTerminal(ctx context.Context, command string) (string, error) {
	a := far.Answer{Asks: "assword: ", Says: m.Password}
	if m.dir == "" {
		return m.RunAsked(ctx, command, a)
	}
	at := fmt.Sprintf("%s/said.%d", m.dir, m.said.Add(1))
	_, err := m.RunAsked(ctx, "sh -c "+text.Shell(command+" </dev/null >"+at+".out 2>"+at+".err"), a)
	var ended *far.Failed
	if err != nil && (!errors.As(err, &ended) || ended.Status == far.SSHFailed) {
		return "", err
	}
	status := 0
	if ended != nil {
		status = ended.Status
	}
	return m.Run(ctx, fmt.Sprintf("sh -c 'cat %[1]s.out; cat %[1]s.err >&2; rm -f %[1]s.*; exit %d'", at, status), nil)
}
