// SPDX-License-Identifier: Apache-2.0

// Testrun is go test, and at its end the slowest tests, the sum by kind (package testkind), and what was skipped and
// why: what is skipped has not passed. Its arguments are go test's, and so is its exit status.
//
// What has passed with the same test binary, kernels and programs need not run again: go test's own cache, which knows
// the files of this module, is told of the rest by a hash (testkind.Outside). With AGAIN=1 or CI=true all of it runs.
//
// A skip begins with one of two forms. "skipped here:" is by design: another place or make target runs it. "skipped,
// not passed:" is for lack of something; if the project's own scripts can install that it names them, as in (make
// kernels), and with CI=true such a skip is a failure. Rights cannot be installed: who is not root is told what was
// skipped for that, and has not failed.
package main

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"weir/internal/testkind"
)

func main() {
	args := append([]string{"test", "-json"}, os.Args[1:]...)
	if os.Getenv("AGAIN") != "" || os.Getenv("CI") == "true" {
		args = slices.Insert(args, 2, "-count=1")
	}
	command := exec.Command("go", args...)
	command.Stderr = os.Stderr
	command.Env = append(os.Environ(), testkind.Outside+"="+outside())
	events, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	missing := show(os.Stdout, events)
	err = command.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case missing > 0 && os.Getenv("CI") == "true":
		fmt.Printf("FAIL: with CI=true what make or a script can install is not to be skipped: %d\n", missing)
		os.Exit(1)
	}
}

// event is what go test -json says, one a line (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Key, Value                                string // of an attribute
	Elapsed                                   float64
}

// outside is a hash of what is outside of this module and decides how tests go. Kernels and the machine's packages
// count by the names and times of their files. The programs count by their content, since make touches it each time.
func outside() string {
	sum := sha256.New()
	cache, _ := os.UserCacheDir()
	for _, pattern := range []string{cache + "/weir/*/*/*", cache + "/weir/*/*", "/var/lib/dpkg/status", "dist/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				fmt.Fprintln(sum, path, info.Size(), info.ModTime())
			}
		}
	}
	for _, name := range []string{"weir", "weir-lab"} {
		if program, err := os.Open(name); err == nil {
			_, _ = io.Copy(sum, program)
			program.Close()
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// timed is how long a test took, in seconds, and on what it ran. Tests at the same time each have all of it.
type timed struct {
	pkg, test, kind string
	seconds         float64
}

// slowest prints the ten tests that took longest, and the sum by kind.
func slowest(w io.Writer, all []timed) {
	if len(all) == 0 {
		return
	}
	kinds := map[string]timed{}
	for _, t := range all {
		sum := kinds[t.kind]
		sum.kind, sum.seconds = t.kind, sum.seconds+t.seconds
		kinds[t.kind] = sum
	}
	bySeconds := func(a, b timed) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test),
			cmp.Compare(a.kind, b.kind))
	}
	slices.SortFunc(all, bySeconds)
	fmt.Fprintln(w, "\nSlowest:")
	for _, t := range all[:min(10, len(all))] {
		fmt.Fprintf(w, "%8.1f s  %-14s  %s %s\n", t.seconds, t.kind, t.pkg, t.test)
	}
	fmt.Fprintln(w, "By kind:")
	for _, sum := range slices.SortedFunc(maps.Values(kinds), bySeconds) {
		fmt.Fprintf(w, "%8.1f s  %s\n", sum.seconds, sum.kind)
	}
}

type skip struct{ pkg, test, why string }

// show prints the tests that fail, with all that they say, a line for each package, the slowest, and the skips. It
// gives how many of those were for lack of what can be installed.
func show(w io.Writer, events io.Reader) (missing int) {
	said := map[[2]string][]string{}
	var skips []skip
	var times []timed
	kinds := map[[2]string]string{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(w, line) // not an event: what stopped go test itself
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			said[key] = append(said[key], e.Output)
		case "attr":
			if e.Key == testkind.Key {
				top, _, _ := strings.Cut(e.Test, "/")
				kinds[[2]string{e.Package, top}] = e.Value
			}
		case "pass", "fail":
			if e.Test != "" && !strings.Contains(e.Test, "/") {
				times = append(times, timed{e.Package, e.Test, cmp.Or(kinds[key], "unit"), e.Elapsed})
			}
		case "skip":
			if e.Test != "" {
				skips = append(skips, skip{e.Package, e.Test, reason(said[key])})
			}
		}
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			for _, inner := range within(said[key], e.Test) {
				skips = append(skips, skip{e.Package, e.Test + ", in its guest: " + inner.test, inner.why})
			}
			if e.Action == "fail" || e.Test == "" {
				for _, output := range said[key] {
					if !strings.HasPrefix(output, "=== ") && (e.Test != "" || output != "PASS\n") {
						fmt.Fprint(w, output)
					}
				}
			}
			delete(said, key)
		}
		if err != nil {
			break
		}
	}
	slowest(w, times)
	if len(skips) > 0 {
		fmt.Fprintln(w, "\nSkipped, and not passed:")
	}
	var reasons []string
	tests := map[string][]string{} // by reason: packages' tests, and how many of each were skipped
	count := map[[2]string]int{}
	for _, s := range skips {
		top, _, _ := strings.Cut(s.test, "/")
		name := s.pkg + " " + top
		if count[[2]string{s.why, name}]++; count[[2]string{s.why, name}] == 1 {
			if tests[s.why] == nil {
				reasons = append(reasons, s.why)
			}
			tests[s.why] = append(tests[s.why], name)
		}
		if remedy.MatchString(s.why) && !strings.HasPrefix(s.why, byDesign) {
			missing++
		}
	}
	slices.Sort(reasons)
	for _, why := range reasons {
		fmt.Fprintf(w, "  %s\n", why)
		slices.Sort(tests[why])
		for _, name := range tests[why] {
			if n := count[[2]string{why, name}]; n > 1 {
				name = fmt.Sprintf("%s (%d)", name, n)
			}
			fmt.Fprintf(w, "    %s\n", name)
		}
	}
	return missing
}

const byDesign = "skipped here:"

var (
	place  = regexp.MustCompile(`^\s*[a-z0-9_]+\.go:\d+: `)
	remedy = regexp.MustCompile(`\((make (lab-kernel|kernels|tc|reference|deps|dist|results)|scripts/need [a-z -]+|` +
		`scripts/npm-clients)\)`)
	inside = regexp.MustCompile(`--- SKIP: (\S+)`)
	begun  = regexp.MustCompile(`=== (?:RUN|CONT|NAME) +(\S+)`)
)

const unsaid = "no reason is given"

// reason is the last thing that a test said before it was skipped.
func reason(said []string) string {
	for _, line := range slices.Backward(said) {
		if s := stripped(line); s != "" && !strings.HasPrefix(s, "--- ") && !strings.HasPrefix(s, "=== ") {
			return s
		}
	}
	return unsaid
}

// stripped is what a test said, without where it did: twice, if a guest's test said it and the test that booted the
// guest has logged it.
func stripped(line string) string {
	return strings.TrimSpace(place.ReplaceAllString(place.ReplaceAllString(line, ""), ""))
}

// within are the tests that were skipped in a guest, whose output the test that booted it has logged. What a test says
// stands below its beginning, and that it was skipped below the end of the test that it is part of.
func within(said []string, own string) (all []skip) {
	test, last := "", map[string]string{}
	for _, line := range said {
		if m := begun.FindStringSubmatch(line); m != nil {
			test = m[1]
		} else if m := inside.FindStringSubmatch(line); m != nil && m[1] != own {
			all = append(all, skip{test: m[1], why: cmp.Or(last[m[1]], unsaid)})
		} else if words := stripped(line); strings.HasPrefix(words, "skipped") || last[test] == "" {
			last[test] = words
		}
	}
	return all
}
