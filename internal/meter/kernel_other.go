// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package meter

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"

	"weir/internal/calibrate"
	"weir/internal/hint"
)

func readKernel(net.Conn) (TCPInfo, bool) { return TCPInfo{}, false }

func receivedEarly(net.Conn) (uint32, bool) { return 0, false }

// SetCC chooses a connection's congestion control; "" leaves the host's own.
func SetCC(_ net.Conn, cc string) error { return TryCC(cc) }

// TryCC reports whether a congestion control can be chosen here.
func TryCC(cc string) error {
	if cc == "" {
		return nil
	}
	return hint.New(fmt.Sprintf("congestion control %q: it cannot be chosen on %s", cc, runtime.GOOS), "without --cc")
}

// CCs are the congestion controls that anybody may choose here.
func CCs() []string { return nil }

// SetUnsent bounds what waits in a connection's buffer and is not yet sent.
func SetUnsent(net.Conn, int) error { return nil }

// Discard reads what has arrived, and throws it away.
func Discard(c net.Conn, b []byte) (int, error) { return c.Read(b) }

func sleep(d time.Duration) { time.Sleep(d) }

func packetBound(int) func(network, address string, c syscall.RawConn) error { return nil }

func pace(net.Conn, float64) error { return errors.ErrUnsupported }

func readSending(net.Conn, *calibrate.Sample) (time.Duration, error) { return 0, errors.ErrUnsupported }

func segmentsSent() (sent, again float64, ok bool) { return 0, 0, false }

func sentAgain(net.Conn) bool { return false }

func headersOf(net.Conn) (float64, error) { return 0, errors.ErrUnsupported }
