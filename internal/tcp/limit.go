// SPDX-License-Identifier: Apache-2.0

// Package tcp says what the kernel's own account of a TCP connection means.
//
// It reads nothing: tcp_info comes from those who ask the kernel.
package tcp

import "time"

// Limit is what kept a TCP sender from being faster.
type Limit string

// Who limits a sender, as the kernel's own stopwatches say (tcp_info(7): tcpi_busy_time and its parts).
const (
	NoLimit     Limit = ""            // it had nothing to send
	Application Limit = "application" // it often had nothing to send
	Receiver    Limit = "receiver"    // its receiver's window was full
	SendBuffer  Limit = "send buffer" // its own socket buffer was full, and too small
	Network     Limit = "network"     // its congestion window, which is what the path lets through
)

// LimitOf says who limited a sender over a time. Busy is how much of it data was on its way or waiting; of busy, the
// receiver's window limited it for one part and the send buffer for another.
func LimitOf(elapsed, busy, receiver, buffer time.Duration) Limit {
	const (
		idle   = 0.01 // of the time: a keep-alive is no transfer
		always = 0.9  // of the time: less is a program that pauses
		much   = 0.2  // of the busy time
	)
	switch b := float64(busy); {
	case b <= idle*float64(elapsed):
		return NoLimit
	case float64(receiver) >= much*b && receiver >= buffer:
		return Receiver
	case float64(buffer) >= much*b:
		return SendBuffer
	case b < always*float64(elapsed):
		return Application
	}
	return Network
}
