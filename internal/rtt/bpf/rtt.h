/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program keeps of a connection. */
#pragma once

#include "../../bpf/include/types.h"
#include "../../bpf/include/packet.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define FLOWS 4096	/* connections that are known, unless the loader says more */
#define SLOTS_LOG 4
#define SLOTS (1 << SLOTS_LOG)

enum { BPF_MAP_TYPE_LRU_HASH = 9, BPF_NOEXIST = 1 };

/* A connection on a device, as packets leave by that. IPv4 addresses are mapped into IPv6 (RFC 4291, section 2.5.5.2). */
struct flow_key {
	u8 here[16], there[16];
	__be16 here_port, there_port;
	u32 ifindex;
};

/*
 * Most members have one writer, the packets of one direction; a slot is filled by the one if it is free, and freed by both. Two CPUs with packets of
 * one connection in one direction may lose a count between them, and no more than that.
 */
struct flow {
	/* of what comes in */
	u64 acked;	/* bytes */
	u64 sum;	/* of all RTTs, in us */
	u32 samples;	/* of the RTT */
	u32 last, least, smooth;	/* RTTs in us; the last is eight times that of RFC 6298 */
	/* of what goes out */
	u64 sent, again;	/* bytes; those that went out a second time */
	u32 packets, mss;	/* mss: bytes of the largest segment */

	/* Known here alone. Times are in us, and go round in 71 minutes. */
	u32 una;	/* the highest acknowledgement */
	u32 next;	/* the end of what went out */
	u32 mark;	/* that end, when a hole was filled last: what went out before may be acknowledged late */
	u32 holes;	/* bytes that were missing before they came here */
	u32 turn, at;	/* the slot of the next end, and when the last one went out */
	u64 slot[SLOTS];	/* where a segment ends in the upper half, and when it went out in the lower; 0: free */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");
