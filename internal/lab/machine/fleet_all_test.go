// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFleet: Ansible brings three machines to a goal, each over its own sshd. The kernel of web2 has no cake: it
// refuses one. That of web3 has no htb either.
func TestFleet(t *testing.T) {
	if !everything {
		t.Skipf("skipped here: %s runs in make test-machines", t.Name())
	}
	for _, tool := range []string{"ansible-playbook", "ansible-galaxy", "ssh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped, not passed: %v (scripts/need test)", err)
		}
	}
	dir := t.TempDir()
	image, err := Build(t.Context(), "trixie", Plain)
	if errors.Is(err, ErrNoTools) {
		t.Skipf("skipped, not passed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := fleet{T: t, dir: dir, files: map[string]string{"/usr/bin/weir": program(t, dir, "weir/cmd/weir")}}
	f.here("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/key")
	for i, without := range [][]string{nil, {"cake"}, {"cake", "htb", "fq"}} {
		m := f.joins(image, fmt.Sprintf("web%d", i+1), without)
		defer m.m.Close()
		f.hosts = append(f.hosts, m)
	}
	for i, refusal := range []string{"", "cake", "cake"} {
		// The kernel's own answer: with tc, which knows nothing of Weir.
		said := f.hosts[i].try("tc qdisc add dev lo root cake; s=$?; tc qdisc del dev lo root; exit $s")
		if unknown := strings.Contains(said.Out, "Specified qdisc kind is unknown"); unknown != (refusal != "") {
			t.Fatalf("web%d: asked for cake, it said %d: %s", i+1, said.Status, said.Out)
		}
	}
	web1, web2, web3 := f.hosts[0], f.hosts[1], f.hosts[2]
	before := web3.look()
	table, log, status := f.rollOut()
	t.Logf("\n%s", table)
	release := regexp.MustCompile(`(\||kernel) \d+\.\d+\.\d+\S* (\||has)`) // of the day's Debian
	masked := func(s string) string {                                      // and in whatever lines
		return strings.Join(strings.Fields(release.ReplaceAllString(s, "$1 some $2")), " ")
	}
	doc, err := os.ReadFile("../../../results/fleet.md")
	if err != nil || !strings.Contains(masked(string(doc)), masked(table)) {
		t.Errorf("results/fleet.md has not the table of TestFleet: %v\n%s", err, table)
	}
	if status != 2 {
		t.Errorf("the roll-out halted, and its status is %d\n%s", status, log)
	}
	for _, said := range []string{
		`fatal: \[web3\]: FAILED! => .*"Linux \S+ cannot be brought to the goal"`,
		`"Halted by web3\. The table is in `,
	} {
		if n := len(regexp.MustCompile(said).FindAllString(log, -1)); n != 1 {
			t.Errorf("%s: said %d times in\n%s", said, n, log)
		}
	}
	web1.sh(inForce(goalRate) + " && ! weir status --json | grep '\"unconfirmed\": true'")
	web2.sh("weir status && weir clients | grep ' bpf_shaper rate ' && tc qdisc show dev $dev | " +
		"grep '^qdisc fq ' && ! weir status --json | grep '\"unconfirmed\": true'")
	if now := web3.look(); now != before {
		t.Errorf("web3 was refused, and is not as it was:\n%s", difference(before, now))
	}
	// What a person is told there, in one line and the way out.
	for command, line := range map[string]string{
		"weir plan --rate 50mbit":      `^weir: .*kernel .* has neither cake nor htb`,
		"weir up --yes --rate 50mbit":  `^weir: .*kernel .* has neither cake nor htb`,
		"weir up --yes --qdisc 'cake'": `^weir: .*kernel .* has no cake`,
	} {
		web3.sh(refused(command) + " && grep '" + line + "' /run/err && grep '^  try: ' /run/err")
	}
}

// fleet is what Ansible needs to reach machines.
type fleet struct {
	*testing.T
	dir       string
	files     map[string]string
	hosts     []*subject
	inventory strings.Builder
	known     strings.Builder
}

func (f *fleet) here(name string, args ...string) {
	f.Helper()
	if out, err := exec.CommandContext(f.Context(), name, args...).CombinedOutput(); err != nil {
		f.Fatalf("%s: %v: %s", name, err, out)
	}
}

// joins starts a machine with an sshd, whose kernel is without some modules.
func (f *fleet) joins(image Image, name string, without []string) *subject {
	f.Helper()
	m, err := image.Start(f.Context(), Options{Manager: Networkd, Files: f.files})
	if err != nil {
		f.Fatal(err)
	}
	s := &subject{T: f.T, ctx: f.Context(), m: m, suite: image.Suite, man: Networkd}
	public, err := os.ReadFile(f.dir + "/key.pub")
	s.must(err)
	s.settled()
	for _, module := range without {
		s.sh("rm /lib/modules/$(uname -r)/kernel/net/sched/sch_" + module + ".ko*; rmmod sch_" + module +
			" 2>/dev/null; depmod")
	}
	key := s.sh("mkdir -p /root/.ssh && chmod 700 /root/.ssh && cat >/root/.ssh/authorized_keys <<'END'\n" +
		string(public) + "END\nhostname " + name + "; systemctl start ssh\n" +
		"cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub")
	port, err := m.Forwarded()
	s.must(err)
	fmt.Fprintf(&f.known, "[127.0.0.1]:%s %s", port, key)
	fmt.Fprintf(&f.inventory, "%s ansible_host=127.0.0.1 ansible_port=%s\n", name, port)
	return s
}

// rollOut is what the collection's playbook did, in its own table.
func (f *fleet) rollOut() (table, log string, status int) {
	f.Helper()
	known, inventory, galaxy := f.dir+"/known", f.dir+"/inventory", f.dir+"/collections"
	fmt.Fprintf(&f.inventory, `[all:vars]
ansible_user=root
ansible_python_interpreter=/usr/bin/python3
ansible_ssh_private_key_file=%s/key
ansible_ssh_common_args='-F none -o UserKnownHostsFile=%s -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes'
`, f.dir, known)
	for path, text := range map[string]string{known: f.known.String(), inventory: f.inventory.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Setenv("HOME", f.dir)
	f.Setenv("LC_ALL", "C.UTF-8")
	f.here("ansible-galaxy", "collection", "build", "--output-path", f.dir, "../../../ansible")
	built, err := filepath.Glob(f.dir + "/weir-net-*.tar.gz")
	if err != nil || len(built) != 1 {
		f.Fatal(built, err)
	}
	f.here("ansible-galaxy", "collection", "install", "--offline", "-p", galaxy, built[0])
	vars := `{"weir_goal": {"rate": "50mbit", "rtt": "48.3ms"}, "weir_rollout_dir": "` + f.dir + `/rollout"}`
	play := exec.CommandContext(f.Context(), "ansible-playbook", "-i", inventory, "-e", vars, "weir.net.rollout")
	play.Env = append(os.Environ(), "ANSIBLE_COLLECTIONS_PATHS="+galaxy, "ANSIBLE_NOCOLOR=1", "ANSIBLE_PIPELINING=1",
		"ANSIBLE_TIMEOUT=120", "ANSIBLE_LOCALHOST_WARNING=False")
	out, err := play.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		f.Fatal(err)
	}
	text, err := os.ReadFile(f.dir + "/rollout/rollout.md")
	if err != nil {
		f.Fatalf("%v\n%s", err, out)
	}
	return string(text), string(out), play.ProcessState.ExitCode()
}
