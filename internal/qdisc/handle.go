// SPDX-License-Identifier: Apache-2.0

package qdisc

import (
	"fmt"
	"strconv"
	"strings"
)

// Handle names a queueing discipline ("1:"), or a class or a slot below one ("1:1"). Every device has two places
// besides (Root, Ingress). It is a 16-bit major and a 16-bit minor number (include/uapi/linux/pkt_sched.h, "Handles").
type Handle uint32

// The two fixed parents (TC_H_ROOT, TC_H_INGRESS; clsact shares the latter).
const (
	Root    Handle = 0xFFFFFFFF
	Ingress Handle = 0xFFFFFFF1
)

// major is the part that a discipline shares with all below it.
func (h Handle) major() uint16 { return uint16(h >> 16) }

// minor is 0 for a discipline, 1 and up for its classes and queues.
func (h Handle) minor() uint16 { return uint16(h) }

// below is the slot of h with that minor number.
func (h Handle) below(minor uint16) Handle { return h&0xFFFF0000 | Handle(minor) }

// String writes it as tc does: hexadecimal, a zero minor left out.
func (h Handle) String() string {
	switch {
	case h == Root:
		return "root"
	case h == Ingress:
		return "ingress"
	case h == Shaper:
		return "shaper"
	case h.minor() == 0:
		return fmt.Sprintf("%x:", h.major())
	case h.major() == 0:
		return fmt.Sprintf(":%x", h.minor())
	}
	return fmt.Sprintf("%x:%x", h.major(), h.minor())
}

// parseHandle reads what String writes.
func parseHandle(s string) (Handle, error) {
	switch s {
	case "root":
		return Root, nil
	case "ingress", "clsact":
		return Ingress, nil
	case "shaper":
		return Shaper, nil
	}
	major, minor, found := strings.Cut(s, ":")
	if !found || s == ":" {
		return 0, fmt.Errorf("%q is not a handle: write it like 1:, 1:10 or root", s)
	}
	h := Handle(0)
	for i, part := range []string{major, minor} {
		if part == "" {
			continue
		}
		v, err := strconv.ParseUint(part, 16, 16)
		if err != nil {
			return 0, fmt.Errorf("handle %q: %q is not a hexadecimal number up to ffff", s, part)
		}
		h |= Handle(v) << (16 * (1 - i))
	}
	return h, nil
}

// MarshalText lets JSON carry what a person would write.
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Handle) UnmarshalText(b []byte) (err error) {
	*h, err = parseHandle(string(b))
	return err
}
