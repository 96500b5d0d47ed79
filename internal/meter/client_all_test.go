// SPDX-License-Identifier: Apache-2.0

//go:build all

package meter

// In make test-all: a server hangs for real time.

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// A server that hangs is not said to speak no TLS: it may have spoken it a moment ago.
func TestHangs(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // its kernel connects
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = Target{Addr: hangs.Addr().String()}.connect(ctx, "", 0)
	if err == nil || !strings.Contains(err.Error(), "takes connections, and says nothing for 10 s") {
		t.Error(err)
	}
}
