// SPDX-License-Identifier: Apache-2.0

//go:build all

package machine

// In make test-all: whole Debians boot.

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testkind"

	"golang.org/x/sys/unix"
)

// A subject is a machine to which something is done, and what came of it.
type subject struct {
	*testing.T
	ctx    context.Context
	m      *Machine
	suite  string
	man    Manager
	counts *tally

	down  string // the command that takes the uplink's goal down
	from  string // the state that it starts from
	also  string // what is to hold besides: a script
	every int    // of the steps at which a command can be killed
}

// prelude gives scripts the words to look at a host with tools that are not Weir's. Left out is what the kernel
// changes by itself (such as classes that are flows, and numbers that it gave), and which modules are loaded: those
// stay, and do nothing. Of Weir's own folder the journal, a half of one that the next run overwrites, and its lock.
const prelude = `
killat=/usr/lib/weir-test/killat
dev=` + Uplink + `
look() {
	for i in {1..10}; do ip -o addr | grep -q tentative || break; sleep 0.5; done # of a device that has just come
	for d in /sys/class/net/*; do printf '%s show dev '${d##*/}'\n' qdisc class filter; done | tc -d -force -batch - |
		sed -E 's/^(qdisc cake) [1-9a-f][0-9a-f]*:/\1 N:/; s/direct_packets_stat [0-9]+ //; /^class (cake|fq_codel) /d
			s/index [0-9]+ ref/index N ref/'
	printf '%s\n' link address route rule | ip -o -batch - | sed -E 's/ state [A-Z]+ / /'
	grep -r . /proc/sys/net 2>/dev/null | grep -v -E 'fastopen_key|available_congestion_control|allowed_congestion_control|stat_refresh|nf_conntrack_count|/flush:|ns_last_pid' | sort
	find /etc /usr/local -xdev -printf '%y %m %u:%g %p %l\n' | sort -k4
	find /etc /usr/local -xdev -type f -print0 | sort -z | xargs -0 sha256sum
	ls -A /var/lib/weir 2>/dev/null | grep -v -E '^(journal.json(.new)?|lock)$'
	true
}
# Waits without a clock of its own: what does not come is the end of the script's own time.
until_() { until eval "$1"; do sleep 0.5; done; }
`

// try runs a script; the machine must answer.
func (s *subject) try(script string) Result {
	s.Helper()
	r, err := s.m.Run(s.ctx, prelude+script)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// sh runs a script that must succeed, and gives what it printed.
func (s *subject) sh(script string) string {
	s.Helper()
	r := s.try(script)
	if r.Status != 0 {
		s.Fatalf("status %d of: %s\n%s", r.Status, script, r.Out)
	}
	return r.Out
}

func (s *subject) look() string { s.Helper(); return s.sh("look") }

func (s *subject) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// settled waits until the manager says that it has configured the uplink.
func (s *subject) settled() {
	s.Helper()
	s.sh("for i in {1..60}; do if " + s.man.Shown() + "; then exit; fi; sleep 1; done; exit 1")
}

// booted waits until nothing is to be started any more of what udev has asked for.
func (s *subject) booted() {
	s.Helper()
	s.settled()
	s.sh(`until_ '[ -z "$(systemctl list-jobs --no-legend weir.service)" ]'`)
}

func (s *subject) reboot()   { s.Helper(); s.must(s.m.Reboot(s.ctx)); s.booted() }
func (s *subject) powerCut() { s.Helper(); s.must(s.m.PowerCut(s.ctx)); s.booted() }

// persists skips what is about reboots where the program's settings end with one.
func (s *subject) persists() {
	s.Helper()
	if r := s.try("[ -e /etc/systemd/system/weir.service ]"); r.Status != 0 {
		s.Skipf("skipped, not passed: %s: this weir keeps nothing over a reboot", s.Name())
	}
}

// outcome is how a host was after a fault.
type outcome int

const (
	asBefore  outcome = iota // as before the command that the fault hit
	asPlanned                // as that command would have made it
	recovered                // made so by one `weir recover`
	bad
	outcomes
)

// tally counts the outcomes of a fault on one system.
type tally [outcomes]int

func (c tally) String() string {
	return fmt.Sprintf("as before %d, as planned %d, by weir recover %d, bad %d", c[asBefore], c[asPlanned],
		c[recovered], c[bad])
}

// ended counts one.
func (s *subject) ended(o outcome) { s.counts[o]++ }

// fails counts a bad one, and says what was wrong.
func (s *subject) fails(format string, args ...any) {
	s.Helper()
	s.counts[bad]++
	s.Errorf(format, args...)
}

// explain prints what a machine has logged of weir since its boot, if the fault has failed.
func (s *subject) explain() {
	if !s.Failed() {
		return
	}
	const logs = "journalctl -b --no-pager -o short-monotonic -u 'weir*' | tail -n 60; " +
		"systemctl status --no-pager weir.service"
	if r, err := s.m.Run(s.ctx, logs); err == nil {
		s.Log(r.Out)
	}
}

// same counts an outcome if two looks are the same.
func (s *subject) same(o outcome, now, want, what string) {
	s.Helper()
	if now != want {
		s.fails("%s: not as it should be:\n%s", what, difference(want, now))
		return
	}
	s.ended(o)
}

// holds counts an outcome if a script succeeds.
func (s *subject) holds(o outcome, what, script string) {
	s.Helper()
	if s.also != "" {
		script = "( " + script + "\n) && " + s.also
	}
	if r := s.try(script); r.Status != 0 {
		s.fails("%s: status %d of: %s\n%s", what, r.Status, script, r.Out)
		return
	}
	s.ended(o)
}

// difference is the lines that only one of two texts has.
func difference(want, now string) string {
	a, b := slices.Collect(strings.Lines(want)), slices.Collect(strings.Lines(now))
	var d strings.Builder
	for _, l := range a {
		if !slices.Contains(b, l) {
			d.WriteString("-" + l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			d.WriteString("+" + l)
		}
	}
	if d.Len() == 0 {
		return "(the same lines in another order)"
	}
	return d.String()
}

// resumes reports whether what went well in an earlier run is not tried again: all of it takes hours.
func resumes() bool { return everything && os.Getenv("AGAIN") == "" }

// TestMachines tries every fault on every system that it matters on, as many systems at a time as GOMAXPROCS.
// make test-machines runs all and writes results/reliability.md.
func TestMachines(t *testing.T) {
	testkind.Machine(t)
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-10*time.Second)) // to end what was started
		t.Cleanup(cancel)
	}
	dir := t.TempDir()
	files := map[string]string{"/usr/bin/weir": program(t, dir, "weir/cmd/weir"),
		"/usr/lib/weir-test/killat":  program(t, dir, "weir/internal/lab/machine/killat"),
		"/usr/lib/weir-test/foreign": program(t, dir, "weir/internal/lab/machine/foreign"),
		otherWeir:                    otherProgram(t)}
	packages, err := filepath.Glob("../../../dist/weir_*_amd64.deb")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) > 0 {
		files[packageThere] = packages[len(packages)-1]
	}
	results, err := open(files["/usr/bin/weir"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { results.document(t) })
	queue := make(chan system)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for sys := range queue {
				t.Run(sys.String(), func(t *testing.T) { sys.test(ctx, t, files, results) })
			}
		})
	}
	all := systems()
	if !everything {
		t.Run("others", func(t *testing.T) {
			t.Skipf("skipped here: %d other systems run in make test-machines", len(all)-1)
		})
		all = all[:1]
	}
	for _, sys := range all {
		queue <- sys
	}
	close(queue)
	workers.Wait()
}

// system is what faults are tried on.
type system struct {
	suite   string
	kind    Kind
	manager Manager
}

func (s system) String() string {
	if s.kind == OpenRC {
		return "OpenRC"
	}
	return s.suite + "/" + string(s.manager)
}

// systems are all of them, those first that take longest: with networkd all faults are tried, and on trixie most.
func systems() (all []system) {
	const first = "trixie"
	others := slices.DeleteFunc(Suites(), func(suite string) bool { return suite == first })
	for _, manager := range Managers() {
		for _, suite := range append([]string{first}, others...) {
			all = append(all, system{suite, Plain, manager})
		}
	}
	return append(all, system{"bookworm", OpenRC, Ifupdown})
}

func (s system) test(ctx context.Context, t *testing.T, files map[string]string, results results) {
	image, err := Build(ctx, s.suite, s.kind)
	if errors.Is(err, ErrNoTools) || err != nil && everything && s.suite == "sid" {
		t.Skipf("skipped, not passed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.kind == OpenRC {
		files = maps.Clone(files)
		for _, name := range []string{"weir", "weir-follow"} {
			files["/etc/init.d/"+name] = "../../../packaging/openrc/" + name // as the .apk does
		}
	}
	testSystem(ctx, t, image, Options{Manager: s.manager, Files: files}, results)
}

// document writes results/reliability.md, unless something failed.
func (r results) document(t *testing.T) {
	path := os.Getenv("WEIR_RELIABILITY")
	if path == "" || t.Failed() {
		return
	}
	all, err := r.known()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := all.markdown(strings.TrimSpace(string(version)), parseRows(string(before)))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

func testSystem(ctx context.Context, t *testing.T, image Image, o Options, results results) {
	var m *Machine
	for _, f := range faults() {
		if !everything && !f.quick || f.kind != image.kind || !slices.Contains(f.on, o.Manager) ||
			len(f.suites) > 0 && !slices.Contains(f.suites, image.Suite) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			on := image.Suite + "/" + string(o.Manager)
			if counts, well, err := results.wentWell(f.name, on); err != nil {
				t.Fatal(err)
			} else if well && resumes() {
				t.Logf("tried in an earlier run, with this program and these tests: %v", counts)
				return
			}
			if m == nil {
				var err error
				if m, err = image.Start(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(ctx, longestFault)
			defer cancel()
			s := &subject{T: t, ctx: ctx, m: m, suite: image.Suite, man: o.Manager, counts: &tally{},
				down: "weir down", from: Booted, every: 1}
			s.must(m.Reset(ctx, Booted))
			s.settled()
			s.must(results.set(f.name, on, tally{}))
			defer s.explain()
			f.run(s)
			if err := results.set(f.name, on, *s.counts); err != nil {
				t.Error(err)
			}
			t.Log(s.counts)
		})
	}
	if m != nil {
		if m.Retries > 0 {
			t.Logf("%d boots had to be tried again", m.Retries)
		}
		m.Close()
	}
}

// TestWire: two machines on one link hear each other.
func TestWire(t *testing.T) {
	if !everything {
		t.Skipf("skipped here: %s runs in make test-machines", t.Name())
	}
	image, err := Build(t.Context(), "trixie", Plain)
	if err != nil {
		t.Skipf("skipped, not passed: %v", err)
	}
	var ends [2]*os.File
	if ends[0], ends[1], err = Wire(); err != nil {
		t.Fatal(err)
	}
	var machines [2]*Machine
	for i, end := range ends {
		defer end.Close()
		m, err := image.Start(t.Context(), Options{Manager: Networkd, Wire: end})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		machines[i] = m
		if err := m.Must(t.Context(), fmt.Sprintf("until [ -e /sys/class/net/ens8 ]; do sleep 0.2; done; ip link "+
			"set ens8 up; ip address add 192.0.2.%d/24 dev ens8; systemctl start ssh", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := machines[0].Must(t.Context(), "for i in {1..30}; do exec 3<>/dev/tcp/192.0.2.2/22 && break; sleep 1; "+
		"done; read -r -t 30 banner <&3; [[ $banner == SSH-2.0* ]]"); err != nil {
		t.Error(err)
	}
}

// longestFault is a hard limit on a fault's tries on one system. A hundred kills took more than 20 minutes on two
// cores.
const longestFault = time.Hour

// otherProgram is a weir whose congestion control is of another version: there is a byte behind the end of its object,
// where nobody reads.
func otherProgram(t *testing.T) string {
	t.Helper()
	object, err := filepath.Abs("../../bbr/object_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other, overlay := filepath.Join(dir, "other.o"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {object: other}})
	if err := errors.Join(err, os.WriteFile(other, append(text, 0), 0o600),
		os.WriteFile(overlay, replaced, 0o600)); err != nil {
		t.Fatal(err)
	}
	return program(t, dir, "weir/cmd/weir", "-overlay", overlay)
}

// program builds one into a folder, with further options of go build.
func program(t *testing.T, dir, path string, options ...string) string {
	t.Helper()
	out := filepath.Join(dir, filepath.Base(path))
	build := exec.Command("go", slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", out}, options, []string{path})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	return out
}

// results is the file, in the user's cache, of what came of each fault with one and the same program and tests: all of
// them take hours, and may be tried in several runs.
type results struct{ path string }

// report is what came of each fault, by fault and system.
type report map[string]map[string]tally

func open(weir string) (results, error) {
	sum := sha256.New()
	for _, root := range []string{weir, ".", "../../../packaging/openrc"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%d %s", len(text), text)
			return err
		})
		if err != nil {
			return results{}, err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return results{}, err
	}
	dir := filepath.Join(cache, "weir", "machine")
	return results{filepath.Join(dir, fmt.Sprintf("results-%x.json", sum.Sum(nil)))}, os.MkdirAll(dir, 0o755)
}

// known is all that came of earlier runs, and of this one so far.
func (r results) known() (report, error) { return r.update(nil) }

// set replaces what is known of a fault on a system. No counts are that nothing is: it is tried anew, and may not end.
func (r results) set(fault, system string, counts tally) error {
	_, err := r.update(func(known report) {
		if known[fault] == nil {
			known[fault] = map[string]tally{}
		}
		if known[fault][system] = counts; counts == (tally{}) {
			delete(known[fault], system)
		}
	})
	return err
}

func (r results) update(change func(report)) (report, error) {
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	known := report{}
	if err := json.NewDecoder(f).Decode(&known); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if change == nil {
		return known, nil
	}
	change(known)
	text, err := json.Marshal(known)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = f.WriteAt(text, 0)
	return known, err
}

// wentWell are the outcomes of a fault on a system in an earlier run, if none was bad.
func (r results) wentWell(fault, system string) (counts tally, there bool, err error) {
	known, err := r.known()
	counts, there = known[fault][system]
	return counts, there && counts[bad] == 0, err
}

const reportHead = `# What can go wrong, and how the host is afterwards

<!-- generated by make test-machines -->

Each row is a fault that was tried on whole emulated Debians, with each manager of the uplink that it matters for, and
with one program, whose version is given. Afterwards the host was looked at with tools that are not Weir's: every queueing
discipline, class and filter of every device, all of /proc/sys/net, addresses and routes, and every file under /etc and
/usr/local with owner, mode and checksum. It was exactly as before, exactly as planned, or one ` + "`weir recover`" +
	` made it so.
Anything else is bad. A row with none tried is of a fault that no program was tried with yet. Bookworm has Linux 6.1,
trixie 6.12, and sid the newest that Debian has.

| fault | systems | version | tried | as before | as planned | by weir recover | bad |
|---|---|---|--:|--:|--:|--:|--:|
`

// parseRows are the rows of a document, by fault.
func parseRows(text string) map[string]string {
	rows := map[string]string{}
	for l := range strings.Lines(text) {
		if cells := strings.Split(l, "|"); len(cells) == 10 {
			rows[strings.TrimSpace(cells[1])] = l
		}
	}
	return rows
}

// systemsOf counts those of a row, as in "bookworm (networkd, ifupdown); sid (networkd)".
func systemsOf(row string) int {
	cells := strings.Split(row, "|")
	if len(cells) < 3 || strings.TrimSpace(cells[2]) == "" {
		return 0
	}
	return 1 + strings.Count(cells[2], ",") + strings.Count(cells[2], ";")
}

// markdown is the document. A fault keeps its row while this program was not tried with it on as many systems.
func (r report) markdown(version string, before map[string]string) string {
	var b strings.Builder
	b.WriteString(reportHead)
	for _, f := range faults() {
		var sum tally
		tried := 0
		var systems []string
		on := 0
		for _, suite := range Suites() {
			var managers []string
			for _, manager := range Managers() {
				counts, ok := r[f.name][suite+"/"+string(manager)]
				if !ok || counts == (tally{}) {
					continue
				}
				managers = append(managers, string(manager))
				for o, n := range counts {
					sum[o] += n
					tried += n
				}
			}
			on += len(managers)
			if len(managers) > 0 {
				systems = append(systems, suite+" ("+strings.Join(managers, ", ")+")")
			}
		}
		row, there := before[f.name]
		if tried == 0 || on < systemsOf(row) {
			if !there {
				row = fmt.Sprintf("| %s |  |  | 0 | 0 | 0 | 0 | 0 |\n", f.name)
			}
			b.WriteString(row)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d | %d |\n", f.name, strings.Join(systems, "; "), version,
			tried, sum[asBefore], sum[asPlanned], sum[recovered], sum[bad])
	}
	return b.String()
}
