// SPDX-License-Identifier: Apache-2.0

package far

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A host that prints for ever is left, and not waited for.
func TestEndless(t *testing.T) {
	ssh := filepath.Join(t.TempDir(), "ssh")
	here := "#!/bin/sh\nfor command; do :; done\nexec sh -c \"$command\"\n"
	if err := os.WriteFile(ssh, []byte(here), 0o755); err != nil {
		t.Fatal(err)
	}
	h := Host{Name: "there", Program: ssh}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for name, run := range map[string]func() (string, error){
		"alone":         func() (string, error) { return h.Run(ctx, "yes", nil) },
		"at a terminal": func() (string, error) { return h.RunAsked(ctx, "yes", Answer{Asks: "assword: "}) },
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), "there prints without end") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
