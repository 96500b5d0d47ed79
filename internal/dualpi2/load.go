// SPDX-License-Identifier: Apache-2.0

package dualpi2

import (
	"errors"
	"time"
)

// ErrNotSupported is in the chain of every error that says that this kernel cannot do it, or does not let us.
var ErrNotSupported = errors.New("not supported")

// Probe reports why this kernel cannot run an instance: an ErrNotSupported that says what it takes; nil if it can. Nothing is loaded into the kernel
// but what is needed to find out, and none of that stays.
func Probe() error { return ErrNotSupported }

// Install makes a new instance for a device in the calling thread's network namespace. Place is called with the instance's kind when the kernel knows
// it, and must put it at the device's root. If anything fails, Install leaves nothing in the kernel, and what Place has not changed is as it was.
func Install(ifindex int, c Config, place func(kind string) error) error { return ErrNotSupported }

// Change gives the instance on a device other options, all at once and without touching a packet. Limit may not exceed what it was made for (see
// Capacity).
func Change(ifindex int, c Config) error { return ErrNotSupported }

// Read gives the instance on a device, if there is one; one whose marker alone was left behind is one that is not Placed. It takes CAP_SYS_ADMIN.
func Read(ifindex int) (Instance, bool, error) { return Instance{}, false, nil }

// Clean takes away the markers on a device whose qdisc is gone, and what else they had set.
func Clean(ifindex int) error { return nil }

// Mean is the mean time that a packet has waited; 0 if there was none.
func (h Histogram) Mean() time.Duration { return 0 }

// Quantile is a time that so large a share of the packets has not exceeded, for q from 0 to 1.
func (h Histogram) Quantile(q float64) time.Duration { return 0 }
