// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"weir/internal/lab/scenario"
	"weir/internal/measure"
	"weir/internal/meter"
	"weir/internal/meter/server"
)

// calibrate runs weir calibrate at the server, to a weir serve at the first client. Both are processes of this binary,
// as they would be on real hosts. What it says in JSON is the run's Weir.
func calibrate(t *topology, job scenario.Job) (*measure.Run, error) {
	const state, token = "/run/weir-serve", "lab"
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	kept, err := server.Keep(state)
	if err != nil {
		return nil, err
	}
	listen := net.JoinHostPort(t.clients[0].Addr.String(), meter.DefaultPort)
	quiet := append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "HOME=/")
	err = t.hosts[0].in(func() error {
		c := exec.Command("/init", "serve", "--listen", listen, "--token", token, "--state", state)
		c.Env = quiet
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		return c.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("weir serve: %w", err)
	}
	time.Sleep(time.Second) // until it listens; nothing is waited for that could be late
	args := []string{"calibrate", listen, "--token", token, "--pin",
		meter.Fingerprint(kept.Certificate.Certificate[0]), "--json"}
	var out, said bytes.Buffer
	c := exec.Command("/init", args...)
	c.Env, c.Stdout, c.Stderr = quiet, &out, &said
	err = c.Run()
	var status *exec.ExitError
	if errors.As(err, &status) && out.Len() > 0 { // found, and not verified
		err = nil
	}
	if err != nil { // a calibration that finds nothing is a result, too
		out.Reset()
		fmt.Fprintf(&out, "weir calibrate: %v: %s", err, strings.TrimSpace(said.String()))
	}
	return &measure.Run{Seed: job.Seed, Kernel: release(), Weir: []string{out.String()}}, nil
}
