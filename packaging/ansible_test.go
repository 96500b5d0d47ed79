// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func needsAnsible(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped, not passed: %v (scripts/need test)", err)
		}
	}
}

// The collection is built, installed from what was built, and its modules are asked there.
func TestAnsibleModules(t *testing.T) {
	needsAnsible(t, "ansible-galaxy")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	output(t, "ansible-galaxy", "collection", "build", "--output-path", dir, "../ansible")
	output(t, "ansible-galaxy", "collection", "install", "--offline", "-p", dir, dir+"/weir-net-1.0.0.tar.gz")
	installed := filepath.Join(dir, "ansible_collections/weir/net")
	unit := exec.Command("/usr/bin/python3", "-m", "unittest", "test_modules") // Debian's, which has Debian's Ansible
	unit.Dir = filepath.Join(installed, "tests/unit")
	unit.Env = append(os.Environ(), "PYTHONPATH="+dir, "ANSIBLE_LOCAL_TEMP="+dir)
	if out, err := unit.CombinedOutput(); err != nil || !regexp.MustCompile(`Ran \d\d tests`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
	modules, err := filepath.Glob(installed + "/plugins/modules/*.py")
	if err != nil || len(modules) != 7 {
		t.Fatalf("modules: %v, %v", modules, err)
	}
	t.Setenv("ANSIBLE_COLLECTIONS_PATHS", dir)
	for _, m := range modules {
		name := strings.TrimSuffix(filepath.Base(m), ".py")
		doc := output(t, "ansible-doc", "weir.net."+name)
		for _, section := range []string{"OPTIONS", "EXAMPLES:", "RETURN VALUES:"} {
			if !strings.Contains(doc, section) {
				t.Errorf("%s has no %s", name, section)
			}
		}
	}
}

func TestAnsibleLint(t *testing.T) {
	needsAnsible(t, "ansible-lint", "ansible-galaxy")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	// It looks for the modules among what is installed, and leaves a cache beside what it reads.
	output(t, "ansible-galaxy", "collection", "build", "--output-path", dir, "../ansible")
	output(t, "ansible-galaxy", "collection", "install", "--offline", "-p", dir+"/.ansible/collections",
		dir+"/weir-net-1.0.0.tar.gz")
	output(t, "cp", "-r", "../ansible", dir+"/net")
	lint := exec.Command("ansible-lint", "--offline", "--nocolor", "-p", "--profile", "production")
	lint.Dir = dir + "/net"
	out, err := lint.CombinedOutput()
	passed := regexp.MustCompile(`Passed with production profile: 0 failure\(s\), 0 warning\(s\) on (\d+) files`)
	if m := passed.FindSubmatch(out); err != nil || m == nil || len(m[1]) < 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// A roll-out to six sshd. Whoever fails or cannot be reached halts it: the batch is put back, the rest untouched.
func TestAnsibleRollout(t *testing.T) {
	needsAnsible(t, "ansible-playbook", "/usr/sbin/sshd", "ssh", "unshare", "ip")
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: sshd in a namespace of its own needs root")
	}
	for name, want := range map[string]struct{ states, exits string }{
		"all":   {"in force|in force|in force", "0\n0\n"},
		"fails": {"kept|kept|put back|put back|put back|untouched", "2\n"},
		"gone":  {"kept|kept|put back|failed, left to the timer|put back|untouched", "2\n"},
		"down":  {"kept|unreachable, unchanged|untouched|untouched|untouched|untouched", "4\n"},
		"worse": {"put back|untouched|untouched|untouched|untouched|untouched", "2\n"},
		"old":   {"kept|failed, unchanged|untouched|untouched|untouched|untouched", "2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			table, err := exec.Command("../ansible/tests/rollout", name, dir).CombinedOutput()
			log, _ := os.ReadFile(dir + "/log")
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, table, log)
			}
			if exits, _ := os.ReadFile(dir + "/status"); string(exits) != want.exits {
				t.Errorf("exit statuses %q, want %q\n%s", exits, want.exits, log)
			}
			checkStates(t, dir, strings.Split(want.states, "|"))
			switch name {
			case "all":
				checkSecondRun(t, dir)
			case "fails":
				if doc, err := os.ReadFile("../docs/fleet.md"); err != nil || !strings.Contains(string(doc), string(table)) {
					t.Errorf("docs/fleet.md has not the table of ansible/tests/rollout fails: %v\n%s", err, table)
				}
			}
		})
	}
}

// checkStates compares what the table says with what was asked of the hosts.
func checkStates(t *testing.T, dir string, states []string) {
	t.Helper()
	b, err := os.ReadFile(dir + "/rollout/rollout.json")
	var table struct {
		Hosts []struct{ Hostname, State string }
	}
	if err == nil {
		err = json.Unmarshal(b, &table)
	}
	if err != nil || len(table.Hosts) != len(states) {
		t.Fatalf("%v: %s", err, b)
	}
	for i, h := range table.Hosts {
		if h.State != states[i] {
			t.Errorf("%s is %q, want %q", h.Hostname, h.State, states[i])
		}
		b, _ := os.ReadFile(filepath.Join(dir, "hosts", h.Hostname, "calls"))
		calls := string(b)
		up, confirm := strings.Contains(calls, "up --json"), strings.Contains(calls, "confirm --json")
		recovered := strings.Contains(calls, "recover --json")
		right := map[string]bool{
			"untouched":                 calls == "",
			"unreachable, unchanged":    calls == "",
			"failed, unchanged":         calls != "" && !up && !confirm,
			"failed, left to the timer": up && !confirm && !recovered,
			"put back":                  up && !confirm && recovered,
			"kept":                      up && confirm && !recovered,
			"in force":                  up && confirm && !recovered,
		}
		if !right[h.State] {
			t.Errorf("%s is %q, and its weir was asked:\n%s", h.Hostname, h.State, calls)
		}
	}
}

// checkSecondRun sees that the second run has changed nothing, and says so.
func checkSecondRun(t *testing.T, dir string) {
	t.Helper()
	log, err := os.ReadFile(dir + "/log2")
	recap := regexp.MustCompile(`(?m)^web\d +: ok=\d+ +changed=(\d+)`).FindAllSubmatch(log, -1)
	if err != nil || len(recap) != 3 {
		t.Fatalf("%v\n%s", err, log)
	}
	for _, m := range recap {
		if string(m[1]) != "0" {
			t.Errorf("something has changed: %s", m[0])
		}
	}
	first, _ := os.ReadFile(dir + "/first.md")
	if strings.Count(string(first), "| kept |") != 3 {
		t.Errorf("not all were kept at first:\n%s", first)
	}
	for _, name := range []string{"web1", "web3"} {
		calls, _ := os.ReadFile(filepath.Join(dir, "hosts", name, "calls"))
		if n := strings.Count(string(calls), "up --json"); n != 1 {
			t.Errorf("%s was brought up %d times", name, n)
		}
	}
}
