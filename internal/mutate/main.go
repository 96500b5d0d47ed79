// SPDX-License-Identifier: Apache-2.0

// Mutate reports whether tests can fail: it makes small mistakes in packages, one at a time, and runs their own tests
// of make test on each. A mistake that they miss has survived. Its arguments are folders.
//
// It changes no file: the mistake is laid over the source (go build -overlay). The same seed gives the same mistakes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory is what a mistake may take, in bytes: an endless loop that appends would take the machine's.
const memory = 4 << 30

func main() {
	n := flag.Int("n", 200, "how many mistakes")
	seed := flag.Uint64("seed", 1, "chooses them")
	timeout := flag.Duration("timeout", 10*time.Minute, "of one run of a package's tests")
	only := flag.String("only", "", "a pattern of file:line, to try the mistakes there alone")
	flag.Parse()
	if err := run(*n, *seed, *timeout, *only, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64, timeout time.Duration, only string, folders []string) error {
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}); err != nil {
		return err
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var all []mistake
	for _, folder := range folders {
		found, err := mistakes(folder)
		if err != nil {
			return err
		}
		for _, m := range found {
			if pattern.MatchString(m.where()) {
				all = append(all, m)
			}
		}
		if r, out := try(folder, nil, timeout); r != survived {
			return fmt.Errorf("%s fails as it is:\n%s", folder, out)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	counts := map[string]map[result]int{}
	for _, folder := range folders {
		counts[folder] = map[result]int{}
	}
	var outcomes []chan result // of the first mistakes, in their order: one for each core is being tried
	i := 0
	for done := 0; done < n && i < len(all); i++ {
		for len(outcomes) < min(i+runtime.NumCPU(), len(all)) {
			m, outcome := all[len(outcomes)], make(chan result, 1)
			outcomes = append(outcomes, outcome)
			go func() {
				r, _ := try(m.folder, &m, timeout)
				outcome <- r
			}()
		}
		m, r := all[i], <-outcomes[i]
		counts[m.folder][r]++
		if r != refused {
			done++
			fmt.Printf("%-8s  %s: %s\n", r, m.where(), m.what)
		}
	}
	for ; i < len(outcomes); i++ { // begun, and more than was asked for
		<-outcomes[i]
	}
	fmt.Println()
	dead, tried := 0, 0
	for _, folder := range folders {
		c := counts[folder]
		fmt.Printf("%-20s %s\n", folder, share(c[killed], c[killed]+c[survived]))
		dead, tried = dead+c[killed], tried+c[killed]+c[survived]
	}
	fmt.Printf("%-20s %s\n", "all", share(dead, tried))
	return nil
}

func share(dead, tried int) string {
	return fmt.Sprintf("%3d of %3d killed, %3.0f %%", dead, tried, 100*float64(dead)/float64(max(tried, 1)))
}

type result int

const (
	killed   result = iota // a test has seen the mistake, or never ended
	survived               // no test has
	refused                // it does not compile
)

func (r result) String() string {
	return [...]string{"killed", "survived", "refused"}[r]
}

// try runs a package's tests with a mistake in it, or without.
func try(folder string, m *mistake, timeout time.Duration) (result, string) {
	args := []string{"test", "-failfast", "-count=1", "-vet=off", "-ldflags=-s -w",
		"-timeout", timeout.String()}
	if m != nil {
		overlay, err := m.overlay()
		if err != nil {
			return refused, err.Error()
		}
		defer os.RemoveAll(filepath.Dir(overlay))
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.Command("go", append(args, "./"+filepath.Clean(folder))...).CombinedOutput()
	switch {
	case err == nil:
		return survived, string(out)
	case bytes.Contains(out, []byte("[build failed]")):
		return refused, string(out)
	}
	return killed, string(out)
}

// overlay writes the file with the mistake, and a list that tells go build to read it instead (go help build). It
// gives the list's name, in a folder of its own.
func (m *mistake) overlay() (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	name, list := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	changed := string(source[:m.from]) + m.to + string(source[m.end:])
	err = os.WriteFile(name, []byte(changed), 0o644)
	if err == nil {
		file, _ := filepath.Abs(m.file)
		var text []byte
		text, err = json.Marshal(map[string]map[string]string{"Replace": {file: name}})
		if err == nil {
			err = os.WriteFile(list, text, 0o644)
		}
	}
	return list, err
}

// mistake is a piece of a source file, and what stands there instead.
type mistake struct {
	folder, file string
	line         int
	from, end    int // bytes
	to           string
	what         string
}

func (m mistake) where() string { return fmt.Sprintf("%s:%d", m.file, m.line) }

// oneLine is a text short enough to be printed beside others.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 70 {
		s = string(r[:69]) + "…"
	}
	return s
}
