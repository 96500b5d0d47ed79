// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weir/internal/lab/boot"
	"weir/internal/lab/qemu"
	"weir/internal/lab/qemu/kerneltest"
	"weir/internal/lab/uml/umltest"
)

func TestMain(m *testing.M) {
	if qemu.Inside() {
		kerneltest.Main(m)
	}
	umltest.Main(m)
}

// The live tests, on a kernel that has every queueing discipline.
func TestLabKernel(t *testing.T) { umltest.Run(t, "^TestLive", tcFiles(t)...) }

// tcInside is where a guest has the newest tc (scripts/tc), with its libraries.
const tcInside = "/tc/"

// tcPlace is where a guest has a file of it: its lists of names are looked for in one place.
func tcPlace(path string) string {
	if name, ok := strings.CutPrefix(path, "share/"); ok {
		return "/usr/share/iproute2/" + name
	}
	return tcInside + path
}

func tcCache() string {
	cache, _ := os.UserCacheDir()
	return filepath.Join(cache, "weir", "tc")
}

// tcPaths are its files.
func tcPaths(t *testing.T) (paths []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(tcCache()), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("there is no newest tc (make tc): tests that compare with it are skipped")
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func tcFiles(t *testing.T) (files []boot.File) {
	t.Helper()
	for _, path := range tcPaths(t) {
		body, err := os.ReadFile(filepath.Join(tcCache(), path))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, boot.File{Name: tcPlace(path), Body: body})
	}
	return files
}

// guest reports whether the kernel is one of the tests' own.
func guest() bool { return umltest.Inside() || qemu.Inside() }

// namespace gives what brings a subtest, which is another thread, to this thread's network namespace.
func namespace(t *testing.T) func(t *testing.T) {
	t.Helper()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	return func(t *testing.T) {
		t.Helper()
		runtime.LockOSThread() // never unlocked: the thread ends with the test
		if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs the newest tc, or its ip, with the words of a line, as a shell would split it; what is given besides are
// lines of its standard input.
func run(t *testing.T, line string, input ...string) (string, error) {
	t.Helper()
	at := tcInside
	if !guest() {
		at = tcCache() + "/"
	}
	if _, err := os.Stat(at + "tc"); err != nil {
		t.Skip("skipped, not passed: it needs the newest tc (make tc)")
	}
	if err := os.Chmod(at+"ld.so", 0o755); err != nil {
		t.Fatal(err)
	}
	words := shellWords(line)
	command := exec.Command(at+"ld.so", append([]string{"--library-path", at + "lib", at + words[0]}, words[1:]...)...)
	command.Env = []string{"TC_LIB_DIR=" + at + "dist"}
	command.Stdin = strings.NewReader(strings.Join(input, "\n"))
	said, err := command.CombinedOutput()
	return strings.TrimSpace(string(said)), err
}

var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// shellWords knows quotes around whole words, which is all that is needed.
func shellWords(line string) (words []string) {
	for _, word := range shellWord.FindAllString(line, -1) {
		words = append(words, strings.Trim(word, `'"`))
	}
	return words
}

// counted is what tc shows that no configuration is: what an action's number is, how many use it, and what has passed.
var counted = regexp.MustCompile(`index \d+ ref \d+ bind \d+|\(rule hit \d+ success \d+\)|\(success \d+ ?\)|direct_packets_stat \d+|installed \d+ sec.*|police 0x[0-9a-f]+`)

// shown is all that tc shows of a device, but for counters: disciplines and classes sorted, as the kernel lists them in
// any order, and the filters of what has some.
func shown(t *testing.T, dev string, tree Tree) string {
	t.Helper()
	show := []string{"qdisc show dev " + dev, "class show dev " + dev}
	seen := map[Handle]bool{}
	for _, f := range tree.Filters {
		if !seen[f.Parent] {
			seen[f.Parent] = true
			show = append(show, "filter show dev "+dev+" parent "+f.Parent.String())
		}
	}
	said, err := run(t, "tc -d -batch -", show...)
	if err != nil {
		t.Fatalf("tc -d %s: %v: %s", strings.Join(show, "; "), err, said)
	}
	var queues, filters []string
	for _, line := range strings.Split(said, "\n") {
		line = strings.TrimSpace(line)
		words := append(strings.Fields(line), "", "")
		switch {
		// the flows of fq_codel and its like come and go
		case line == "" || words[0] == "class" && !classful(words[1]):
		case words[0] == "qdisc" || words[0] == "class":
			queues = append(queues, line)
		default:
			filters = append(filters, line)
		}
	}
	slices.Sort(queues)
	return counted.ReplaceAllString(strings.Join(append(queues, filters...), "\n"), "")
}

// difference has the lines that one text has and the other has not.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	text := ""
	for _, line := range a {
		if !slices.Contains(b, line) {
			text += "- " + line + "\n"
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			text += "+ " + line + "\n"
		}
	}
	if text == "" {
		text = "the order: " + after
	}
	return text
}
