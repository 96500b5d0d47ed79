// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	const far = 30 * time.Millisecond
	// What comes back late is late, and keeps no keystroke after it from being written.
	d, err := run([]string{"sh", "-c", "echo ready; sleep 0.3; exec cat"}, 10*far, far)
	if err != nil {
		t.Fatal(err)
	}
	if d.N != 10 || d.Max < 150 || d.Min < 0 {
		t.Errorf("10 keystrokes, the first of which waits for 0.3 s: %+v", d)
	}
}

func TestRunFails(t *testing.T) {
	for name, script := range map[string]string{
		"before it is ready":    "exit 1",
		"with keystrokes to go": "echo ready; head -n 2",
		"with other words":      "echo ready; echo hello; exec cat",
	} {
		if d, err := run([]string{"sh", "-c", script}, time.Second, 100*time.Millisecond); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
