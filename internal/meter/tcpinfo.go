// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net"
	"time"
)

// TCPInfo is a kernel's view of a connection, by the names that ndt7 has for it. Times are in µs, amounts in bytes.
// What the kernel does not tell is 0.
type TCPInfo struct {
	BusyTime, BytesRetrans, BytesSent, ElapsedTime, MinRTT, RTT, RTTVar, RWndLimited, SndBufLimited int64
	BytesAcked, BytesReceived, Delivered, DeliveredCE                                               int64
	CC                                                                                              string // ours
	ECN                                                                                             bool   // ours
}

// ReadTCPInfo asks the kernel; nil where it does not tell.
func ReadTCPInfo(c net.Conn, elapsed time.Duration) *TCPInfo {
	k, ok := readKernel(c)
	if !ok {
		return nil
	}
	k.ElapsedTime = elapsed.Microseconds()
	return &k
}
