// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os/exec"
	"strings"

	"weir/internal/lab/scenario"
	"weir/internal/qdisc"
)

// apply configures the server as the candidate says. Weir itself runs as it would on a real machine: the program that
// is shipped, as a process of its own. apply returns what it said.
func apply(t *topology, job scenario.Job) ([]string, error) {
	c := job.Candidate
	if c.Qdisc != "" {
		if err := t.server.qdisc(scenario.Uplink, scenario.Rated(c.Qdisc, job.Scenario.Provider.Rate)); err != nil {
			return nil, err
		}
	}
	if c.Ingress != "" {
		arriving, err := qdisc.ParseArriving(scenario.Rated(c.Ingress, job.Scenario.Provider.Inward()))
		if err != nil {
			return nil, err
		}
		uplink, err := t.server.index(scenario.Uplink)
		if err != nil {
			return nil, err
		}
		if err := t.server.in(func() error { return qdisc.SetIngress(uplink, arriving) }); err != nil {
			return nil, err
		}
	}
	if c.Tunnel != "" {
		if err := t.server.qdisc(t.tunnel, scenario.Rated(c.Tunnel, job.Scenario.Provider.Rate)); err != nil {
			return nil, err
		}
	}
	if err := t.server.sysctl(c.Sysctl); err != nil {
		return nil, err
	}
	if job.Scenario.Server.Relay && !job.Scenario.OneCard() {
		// The connections end at the origin: what a recipe says of TCP is for it, too. (The rest exists in the first
		// namespace only.) Behind the uplink it is somebody else's.
		if err := t.origin.sysctl(tcpSysctls(c.Sysctl)); err != nil {
			return nil, err
		}
	}
	if c.Weir == nil {
		return nil, nil
	}
	up := append([]string{"up", "--yes", "--dev", scenario.Uplink}, c.Weir.Args(job.Scenario.Provider)...)
	said, err := weir(up)
	if err != nil {
		return nil, err
	}
	// Applied well means that the plan made from the new facts is empty, which is what status looks at.
	status, err := weir([]string{"status"})
	return append(said, status...), err
}

func tcpSysctls(sysctls map[string]string) map[string]string {
	tcp := map[string]string{}
	for key, value := range sysctls {
		if strings.HasPrefix(key, "net.ipv4.tcp_") {
			tcp[key] = value
		}
	}
	return tcp
}

func weir(args []string) ([]string, error) {
	command := "weir " + strings.Join(args, " ")
	out, err := exec.Command(scenario.InGuest(scenario.WeirProgram), args...).CombinedOutput()
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %s", command, err, strings.Join(lines, " / "))
	}
	return append([]string{"$ " + command}, lines...), nil
}
