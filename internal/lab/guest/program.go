// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weir/internal/lab/measure"
	"weir/internal/lab/scenario"
	"weir/internal/text"
)

const (
	outputs = "/run/programs" // where what they print goes: to files, so that nobody has to read along
	// of its output, in bytes, what is kept at most: its end
	maxOutput = 1 << 20
)

// started is a program that runs, or has run.
type started struct {
	spec    scenario.Program
	command []string
	output  string
	pid     int  // 0: not yet
	ended   bool // by itself
	status  unix.WaitStatus
}

// startPrograms arranges what runs beside the traffic.
func (d *driver) startPrograms() error {
	if err := os.MkdirAll(outputs, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll("/tmp", 0o777); err != nil {
		return err
	}
	for i, spec := range d.job.Scenario.Programs(d.job.Candidate) {
		host, client := d.server, d.clients[0].Addr
		if spec.Client != "" {
			k := slices.IndexFunc(d.job.Scenario.Client, func(c scenario.Client) bool { return c.Name == spec.Client })
			host, client = d.hosts[k], d.clients[k].Addr
		}
		p := &started{spec: spec, output: filepath.Join(outputs, strconv.Itoa(i)),
			command: spec.Command(d.source[0].Addr.String(), client.String())}
		d.programs = append(d.programs, p)
		d.At(d.begin+time.Duration(spec.Start), func() {
			if err := p.run(host); err != nil {
				d.Fail(fmt.Errorf("program %q: %w", spec.Name, err))
			}
		})
	}
	return nil
}

func (p *started) run(host space) error {
	output, err := os.Create(p.output)
	if err != nil {
		return err
	}
	defer output.Close()
	return host.in(func() error {
		c := exec.Command(scenario.InGuest(p.command[0]), p.command[1:]...)
		c.Args[0] = p.command[0]
		c.Stdout, c.Stderr = output, output
		c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LC_ALL=C", "GODEBUG=asyncpreemptoff=1"}
		if err := c.Start(); err != nil {
			return err
		}
		p.pid = c.Process.Pid
		return nil
	})
}

// look takes the status of a program that has ended.
func (p *started) look() {
	if p.pid == 0 || p.ended {
		return
	}
	pid, err := unix.Wait4(p.pid, &p.status, unix.WNOHANG, nil)
	p.ended = err == nil && pid == p.pid
}

// interrupt asks what still runs to end, as ^C does.
func (d *driver) interrupt() {
	for _, p := range d.programs {
		if p.look(); p.pid != 0 && !p.ended {
			_ = unix.Kill(p.pid, unix.SIGINT)
		}
	}
}

// printed is what the programs have printed. Who has not ended does so now.
func (d *driver) printed() ([]measure.Program, error) {
	var all []measure.Program
	for _, p := range d.programs {
		r := measure.Program{Program: p.spec.Name, Client: p.spec.Client, Command: p.command, Exit: -1}
		if p.pid != 0 && !p.ended {
			_ = unix.Kill(p.pid, unix.SIGKILL)
			if _, err := unix.Wait4(p.pid, &p.status, 0, nil); err != nil {
				return nil, fmt.Errorf("program %q: %w", p.spec.Name, err)
			}
		}
		if p.ended {
			r.Exit = status(p.status)
		}
		body, err := os.ReadFile(p.output)
		if err != nil {
			return nil, fmt.Errorf("program %q: %w", p.spec.Name, err)
		}
		body = body[max(0, len(body)-maxOutput):]
		for line := range strings.Lines(string(body)) {
			r.Output = append(r.Output, text.Plain(strings.TrimRight(line, "\n")))
		}
		if p.spec.Find != "" {
			r.Found = found(p.spec.Find, string(body))
		}
		all = append(all, r)
	}
	return all, nil
}

// status is how a program ended, as a shell says it.
func status(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// found is the number that an expression finds last.
func found(expression, output string) *float64 {
	matches := regexp.MustCompile(expression).FindAllStringSubmatch(output, -1)
	if len(matches) == 0 {
		return nil
	}
	v, err := strconv.ParseFloat(matches[len(matches)-1][1], 64)
	if err != nil {
		return nil
	}
	return &v
}
