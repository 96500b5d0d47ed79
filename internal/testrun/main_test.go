// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A list of skips ends what go test says; of tests, those that fail are shown whole, and the others not at all.
func TestShow(t *testing.T) {
	var events strings.Builder
	say := func(action, test string, output ...string) {
		for _, o := range output {
			_ = json.NewEncoder(&events).Encode(event{Action: "output", Package: "weir/x", Test: test, Output: o})
		}
		if action != "" {
			_ = json.NewEncoder(&events).Encode(event{Action: action, Package: "weir/x", Test: test})
		}
	}
	events.WriteString("go: what is no event\n")
	say("pass", "TestFine", "=== RUN   TestFine\n", "    a_test.go:1: quiet\n", "--- PASS: TestFine (0.00s)\n")
	say("fail", "TestBad", "=== RUN   TestBad\n", "    a_test.go:2: loud\n", "        and long\n",
		"--- FAIL: TestBad (0.00s)\n")
	for _, sub := range []string{"TestSkip/one", "TestSkip/two"} {
		say("skip", sub, "=== RUN   "+sub+"\n", "    a_test.go:3: skipped, not passed: no chromium (make deps)\n",
			"    --- SKIP: "+sub+" (0.00s)\n")
	}
	say("skip", "TestElsewhere", "    a_test.go:4: skipped here: it runs in make test-kernels\n",
		"--- SKIP: TestElsewhere (0.00s)\n")
	say("skip", "TestSilent", "=== RUN   TestSilent\n", "--- SKIP: TestSilent (0.00s)\n")
	say("pass", "TestBoots", "    k.go:5: === RUN   TestInA\n",
		"    k.go:5:     in_test.go:6: this kernel has no cake\n", "    k.go:5: --- SKIP: TestInA (0.00s)\n",
		"--- PASS: TestBoots (1s)\n")
	say("fail", "", "FAIL\n", "FAIL\tweir/x\t0.1s\n")
	const want = `go: what is no event
    a_test.go:2: loud
        and long
--- FAIL: TestBad (0.00s)
FAIL
FAIL	weir/x	0.1s

Skipped, and not passed:
  no reason is given
    weir/x TestSilent
  skipped here: it runs in make test-kernels
    weir/x TestElsewhere
  skipped, not passed: no chromium (make deps)
    weir/x TestSkip (2)
  this kernel has no cake
    weir/x TestBoots, in its guest: TestInA
`
	var shown strings.Builder
	if missing := show(&shown, strings.NewReader(events.String())); shown.String() != want || missing != 2 {
		t.Errorf("%d are missing, and it shows\n%s\nwant\n%s", missing, shown.String(), want)
	}
}
