// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net"
	"time"
)

// TCPInfo is what ndt7 tells of a kernel's view, by its names. Times are in µs.
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
	return &TCPInfo{BusyTime: k.busy, BytesRetrans: k.again, BytesSent: k.sent, MinRTT: k.minRTT, RTT: k.rtt,
		RTTVar: k.rttvar, RWndLimited: k.receiver, SndBufLimited: k.buffer, BytesAcked: k.acked,
		BytesReceived: k.received, ElapsedTime: elapsed.Microseconds(), Delivered: k.delivered, DeliveredCE: k.ce,
		CC: k.cc, ECN: k.ecn}
}
