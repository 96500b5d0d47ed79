// SPDX-License-Identifier: Apache-2.0

//go:build all

package packaging

// In make test-all: Ansible is run.

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/internal/lab/uml"
	"weir/internal/testkind"
)

func needsAnsible(t *testing.T, tools ...string) {
	t.Helper()
	testkind.Program(t)
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
	unit.Dir = "../ansible/tests/unit"
	unit.Env = append(os.Environ(), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1", "ANSIBLE_LOCAL_TEMP="+dir)
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

// Those of ansible-test's checks of what was built that download nothing. results/fleet.md has the command for the
// others.
func TestAnsibleSanity(t *testing.T) {
	needsAnsible(t, "ansible-test", "ansible-galaxy")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	output(t, "ansible-galaxy", "collection", "build", "--output-path", dir, "../ansible")
	output(t, "ansible-galaxy", "collection", "install", "--offline", "-p", dir, dir+"/weir-net-1.0.0.tar.gz")
	version := output(t, "/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
	args := []string{"sanity", "--python", strings.TrimSpace(version)}
	for check := range strings.FieldsSeq(`action-plugin-docs changelog compile empty-init future-import-boilerplate
		line-endings metaclass-boilerplate no-assert no-basestring no-get-exception no-illegal-filenames
		no-main-display no-smart-quotes no-unicode-literals replace-urlopen shebang symlinks
		use-argspec-type-path use-compat-six`) {
		args = append(args, "--test", check)
	}
	sanity := exec.Command("ansible-test", args...)
	sanity.Dir = dir + "/ansible_collections/weir/net"
	out, err := sanity.CombinedOutput()
	if n := strings.Count(string(out), "Running sanity test"); err != nil || n < 19 {
		t.Errorf("%d checks: %v\n%s", n, err, out)
	}
}

// A package manager gets a package of its own kind, and no other; a second time changes nothing.
func TestAnsibleInstall(t *testing.T) {
	needsAnsible(t, "ansible-playbook", "ansible-galaxy")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	output(t, "ansible-galaxy", "collection", "build", "--output-path", dir, "../ansible")
	output(t, "ansible-galaxy", "collection", "install", "--offline", "-p", dir, dir+"/weir-net-1.0.0.tar.gz")
	t.Setenv("ANSIBLE_COLLECTIONS_PATHS", dir)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// It installs it into a file, and says what the real one says. The other managers are real in TestPackage.
	write("apk", `#!/bin/sh
[ "$1 $2" = "add --allow-untrusted" ] || exit 2
cmp -s "$3" "${0%/*}/has" || { cp "$3" "${0%/*}/has"; echo "(1/1) Installing weir (1.0-r0)"; }
echo "OK: 12 MiB in 30 packages"
`)
	write("play.yml", `
- hosts: localhost
  connection: local
  gather_facts: false
  roles: [weir.net.install]
`)
	sum := map[string]string{}
	for _, kind := range []string{"apk", "rpm"} {
		write("new."+kind, "a package, "+kind)
		sum[kind] = strings.Fields(output(t, "sha256sum", dir+"/new."+kind))[0]
	}
	install := func(manager, kind string) (string, error) {
		out, err := exec.Command("ansible-playbook", "-i", "localhost,", dir+"/play.yml",
			"-e", "ansible_python_interpreter=/usr/bin/python3", "-e", "install_manager="+manager,
			"-e", "install_cache="+dir, "-e", "install_package="+dir+"/new."+kind,
			"-e", "install_sha256="+sum[kind]).CombinedOutput()
		return string(out), err
	}
	for _, changed := range []string{"changed=2", "changed=0"} { // the copy and the package
		if out, err := install("apk", "apk"); err != nil || !strings.Contains(out, changed) {
			t.Errorf("want %s: %v\n%s", changed, err, out)
		}
	}
	if has, _ := os.ReadFile(dir + "/has"); string(has) != "a package, apk" {
		t.Errorf("it has installed %q", has)
	}
	for _, manager := range []string{"apt", "apk", "pacman"} {
		if out, err := install(manager, "rpm"); err == nil || !strings.Contains(out, "new.rpm is none for "+manager) {
			t.Errorf("%s took a .rpm: %v\n%s", manager, err, out)
		}
	}
}

// A roll-out to sshd that are many. Whoever fails or cannot be reached halts it: the batch is put back, the rest
// untouched.
func TestAnsibleRollout(t *testing.T) {
	needsAnsible(t, "ansible-playbook", "/usr/sbin/sshd", "ssh", "unshare", "ip")
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: sshd in a namespace of its own needs root")
	}
	for name, want := range map[string]struct{ states, exits string }{
		"all":    {"in force|in force|in force", "0\n0\n"},
		"fails":  {"kept|kept|put back|put back|put back|untouched", "2\n"},
		"gone":   {"kept|kept|put back|failed, left to the timer|put back|untouched", "2\n"},
		"down":   {"kept|unreachable, unchanged|untouched|untouched|untouched|untouched", "4\n"},
		"worse":  {"put back|untouched|untouched|untouched|untouched|untouched", "2\n"},
		"slower": {"kept|put back|untouched", "2\n"},
		"old":    {"kept|failed, unchanged|untouched|untouched|untouched|untouched", "2\n"},
		"check":  {"planned|planned|planned", "0\n"},
		// Batches of 1, 2, 10 and 7.
		"twenty": {times("kept|", 3) + times("put back|", 10) + times("untouched|", 7), "2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rows, table := rollOut(t, name, dir, want.exits)
			checkStates(t, dir, rows, strings.Split(strings.TrimSuffix(want.states, "|"), "|"))
			switch name {
			case "all":
				checkSecondRun(t, dir)
			case "check":
				checkDiff(t, dir)
			case "slower":
				const cells = "| 60.0 s | 100 s | 1.67 × | put back |"
				if !strings.Contains(table, cells) ||
					!strings.Contains(table, "| 60.0 s | 3.00 s | 0.050 × | kept |") {
					t.Errorf("the table has not %s:\n%s", cells, table)
				}
			case "fails":
				if doc, err := os.ReadFile("../results/fleet.md"); err != nil || !strings.Contains(string(doc), table) {
					t.Errorf("results/fleet.md has not the table of ansible/tests/rollout fails: %v\n%s", err, table)
				}
			}
		})
	}
}

// The timer of each batch is longer than it takes to measure its hosts, one after the other.
func TestAnsibleBatches(t *testing.T) {
	needsAnsible(t, "ansible-playbook")
	playbook, err := os.ReadFile("../ansible/playbooks/rollout.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, play, _ := strings.Cut(string(playbook), "- name: Bring each batch")
	play, _, found := strings.Cut(play, "  module_defaults:\n")
	if !found {
		t.Fatal("rollout.yml is made in another way")
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	play = "- name: Bring each batch" + play + `  tasks:
    - ansible.builtin.debug:
        msg: "a batch of {{ ansible_play_batch | length }} has {{ weir_timer }} s"
      run_once: true
`
	inventory := "[few]\nweb[1:20]\n[many]\nweb[21:300]\n"
	for name, text := range map[string]string{"play.yml": play, "inventory": inventory} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		time    int // s, that a measurement takes
		batches string
		args    []string
	}{
		{25, "1 30 77 77 77 38", nil},
		{60, "1 30 43 43 43 43 43 43 11", []string{"-e", "weir_time=60"}},
		{4000, strings.TrimSpace(times("1 ", 20)), []string{"-e", "weir_time=4000", "-e", "weir_hosts=few"}},
		{25, "1 2 10 7", []string{"-e", "weir_hosts=few"}},
		{25 + 30, "1 2 10 7", []string{"-e", "weir_hosts=few", "-e", "weir_fetch=http://a/b", "-e",
			"weir_fetch_time=30"}},
		{25, "1 2 10 7", []string{"--limit", "few"}},
	} {
		args := append([]string{"-i", dir + "/inventory", dir + "/play.yml"}, c.args...)
		out := output(t, "ansible-playbook", args...)
		var batches []string
		for _, m := range regexp.MustCompile(`a batch of (\d+) has (\d+) s`).FindAllStringSubmatch(out, -1) {
			hosts, _ := strconv.Atoi(m[1])
			timer, _ := strconv.Atoi(m[2])
			if takes := 120 + hosts*(c.time+20); timer < takes && hosts > 1 {
				t.Errorf("%v: %d hosts take %d s, and their timer %d s", c.args, hosts, takes, timer)
			}
			batches = append(batches, m[1])
		}
		if got := strings.Join(batches, " "); got != c.batches {
			t.Errorf("%v: batches of %s, want %s", c.args, got, c.batches)
		}
	}
}

func times(words string, n int) string { return strings.Repeat(words, n) }

// row is one of the table, as rollout.json has it.
type row struct {
	Hostname, Kernel, State, Lacks string
	Before, After, Factor          *float64
}

// rollOut runs a scenario, and gives its table, also as Markdown.
func rollOut(t *testing.T, name, dir, exits string) ([]row, string) {
	t.Helper()
	shown, err := exec.Command("../ansible/tests/rollout", name, dir).CombinedOutput()
	log, _ := os.ReadFile(dir + "/log")
	if err != nil {
		console, _ := os.ReadFile(dir + "/console")
		t.Fatalf("%v\n%s\n%s\n%s", err, shown, log, console)
	}
	if got, _ := os.ReadFile(dir + "/status"); string(got) != exits {
		t.Errorf("exit statuses %q, want %q\n%s", got, exits, log)
	}
	b, err := os.ReadFile(dir + "/rollout/rollout.json")
	var table struct{ Hosts []row }
	if err == nil {
		err = json.Unmarshal(b, &table)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return table.Hosts, string(shown)
}

// checkStates compares what the table says with what was asked of the hosts.
func checkStates(t *testing.T, dir string, rows []row, states []string) {
	t.Helper()
	if len(rows) != len(states) {
		t.Fatalf("%d rows, want %d", len(rows), len(states))
	}
	for i, h := range rows {
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
			"planned":                   strings.Contains(calls, "plan --json") && !up && !confirm && !recovered,
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
	// Journals are their host's root's alone, and here they are the operator's.
	if info, err := os.Stat(dir + "/rollout/web1"); err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of web1's journals is %v", info.Mode())
	}
	for _, name := range []string{"web1", "web3"} {
		calls, _ := os.ReadFile(filepath.Join(dir, "hosts", name, "calls"))
		if n := strings.Count(string(calls), "up --json"); n != 1 {
			t.Errorf("%s was brought up %d times", name, n)
		}
	}
}

// checkDiff sees that --check --diff has shown each setting of each host before and after, and measured nothing.
func checkDiff(t *testing.T, dir string) {
	t.Helper()
	log, err := os.ReadFile(dir + "/log")
	shown := `(?m)^-eth0 queue: pfifo_fast
-net.ipv4.tcp_notsent_lowat: 4294967295
\+eth0 queue: cake bandwidth 49.875mbit
\+net.ipv4.tcp_notsent_lowat: 131072

changed: \[web\d\]$`
	if n := len(regexp.MustCompile(shown).FindAll(log, -1)); err != nil || n != 3 {
		t.Errorf("%d hosts were shown, want 3: %v\n%s", n, err, log)
	}
	calls, _ := os.ReadFile(dir + "/hosts/web1/calls")
	if strings.Contains(string(calls), "measure") {
		t.Errorf("a measurement fills the link, and was asked for:\n%s", calls)
	}
}

// The real program, real kernels and sshd, in virtual time: one host loses its sshd by the change.
func TestAnsibleRolloutReal(t *testing.T) {
	needsAnsible(t, "ansible-playbook", "/usr/sbin/sshd", "ssh", "ip", "taskset")
	if _, err := uml.Find(); err != nil {
		t.Skipf("skipped, not passed: %v (make lab-kernel)", err)
	}
	dir := t.TempDir()
	output(t, "../scripts/go", "build", "-o", dir+"/weir", "../cmd/weir")
	t.Setenv("WEIR", dir+"/weir")
	rows, table := rollOut(t, "real", dir, "2\n")
	figure := regexp.MustCompile(`\| [\d.]+ (ms|×) `) // no two runs give the same
	masked := func(s string) string { return figure.ReplaceAllString(s, "| some $1 ") }
	doc, err := os.ReadFile("../results/fleet.md")
	if err != nil || !strings.Contains(masked(string(doc)), masked(table)) {
		t.Errorf("results/fleet.md has not the table of ansible/tests/rollout real: %v\n%s", err, table)
	}
	read := func(host, file string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "hosts", host, file))
		if err != nil || len(b) == 0 {
			t.Fatalf("%s: %v, %d bytes", file, err, len(b))
		}
		return string(b)
	}
	const kept = `"in_force": true`
	const cake, htb = "qdisc cake 1: root refcnt 2 bandwidth 49875Kbit ", "qdisc htb 1: root refcnt 2 "
	const lacks = `kernel \S+ has no cake, so it is htb with fq_codel: fair between connections, not clients"`
	states := []string{"kept", "kept", "put back", "failed, left to the timer", "untouched"}
	for i, h := range rows {
		if h.State != states[i] || (h.Kernel != "") != (i < 4) || (h.Before != nil) != (i < 4) ||
			(h.After != nil) != (i < 3) {
			t.Errorf("row %d is %+v", i, h)
		}
		if h.After != nil && (h.Factor == nil || *h.Factor > 0.1 || *h.Before < 10) {
			t.Errorf("the provider's queue was not avoided: %+v", h)
		}
		found, left, after := read(h.Hostname, "found"), read(h.Hostname, "left"), read(h.Hostname, "after")
		changed := []bool{true, true, false, true, false}[i]
		queue := []string{cake, htb, cake, cake, cake}[i]
		if strings.HasPrefix(left, queue) != changed || (left == found) == changed {
			t.Errorf("%s was left as\n%s\nafter\n%s", h.Hostname, left, found)
		}
		if want := map[bool]string{true: left, false: found}[i < 2]; after != want {
			t.Errorf("%s is in the end\n%s\nwant\n%s", h.Hostname, after, want)
		}
		if strings.Contains(read(h.Hostname, "after.json"), kept) != (i < 2) {
			t.Errorf("%s: %s", h.Hostname, read(h.Hostname, "after.json"))
		}
	}
	// Who has no CAKE gets what comes nearest, and that is said: in the log, and below the table.
	if left := read("web2", "left"); strings.Contains(left, "cake") || !strings.Contains(left, "qdisc fq_codel ") {
		t.Errorf("web2 has no CAKE, and was left as\n%s", left)
	}
	log, err := os.ReadFile(dir + "/log")
	said := regexp.MustCompile(`ok: \[(web\d)\] => \{\s+"msg": "`+lacks).FindAllSubmatch(log, -1)
	if err != nil || len(said) != 1 || string(said[0][1]) != "web2" {
		t.Errorf("%d hosts are said to lack something: %v\n%s", len(said), err, log)
	}
	for _, h := range rows {
		if (h.Lacks != "") != (h.Hostname == "web2") {
			t.Errorf("%s lacks %q", h.Hostname, h.Lacks)
		}
	}
	if left := read("web4", "left.json"); !strings.Contains(left, `"unconfirmed": true`) {
		t.Errorf("no timer runs for web4: %s", left)
	}
	if after := read("web4", "after.json"); !strings.Contains(after, `"reverted"`) {
		t.Errorf("web4 does not say that it was put back: %s", after)
	}
}
