/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the qdisc, the marker and the loader share. An instance has its own copy of all of it, and serves one device.
 */
#pragma once

#include "kernel.h"
#include "../../bpf/include/ip.h"
#include "pi2.h"

#define LAYOUT 3		/* of all but struct instance: another number is another version's */

/* What the loader sets before the programs are verified. */
const volatile u32 ifindex;	/* the device, and */
const volatile u64 netns_cookie; /* its namespace: the kernel offers a BPF qdisc's kind in all of them */
const volatile u32 ring_mask;	/* packets that a queue holds, less one; a power of two, less one */
const volatile u64 secret[2];	/* random, the first one odd: see check_word() */

/*
 * What every version of the loader has to understand of an instance, so that an upgrade can take the place of another version's and leave nothing of it.
 * These two never change. The loader writes the first, and the qdisc the second: 8 bytes, the qdisc that this instance is, or 0 for none. (One that init
 * refused is reset and destroyed, too.)
 */
struct instance_data {
	u32 layout;
	u32 split_gso;		/* the loader has told the device to take no superpackets, and */
	u32 gso_max_segs;	/* how many segments it took before */
	u32 unused;
	char kind[16];		/* of the qdisc */
};

struct instance_data instance SEC(".data.instance") = { .layout = LAYOUT };
u64 owner SEC(".data.owner");

/* How it is configured. */
struct config {
	u32 link_header;	/* bytes before IP */
	u32 raw;		/* they count; for the loader, as overhead says it */
	u32 alpha, beta;	/* 256ths of a Hz, as pi2 says them; for the loader */
	u64 rate_bytes;		/* a second, as ns_per_byte says it; for the loader */
	u32 limit;		/* packets in both queues */
	u32 mem_limit;		/* bytes of truesize in both queues; 0: limit times two of the device's largest packets, as sch_dualpi2 has it */
	u32 coupling;		/* k: p_CL = k * p' */
	u32 l4s_mask;		/* the bits of the ECN field that make a packet L4S: 1, or 3 for any ECT */
	u32 step_in_packets;
	u64 step_thresh;	/* ns, or packets */
	u32 min_qlen_step;	/* packets in the L queue below which the step does not apply */
	u32 wc, wl;		/* weights of the C and the L queue, percent */
	u32 drop_overload;	/* when p_CL is beyond 1: drop in both queues, rather than let them overflow */
	u32 drop_enqueue;	/* 1: the probability drops when a packet comes; 0: when it goes */
	u32 bypass_mark, bypass_mask; /* of skb->mark: to the L queue, without signals */
	struct framing framing;
	u32 wire_per_byte;	/* bytes on the wire for each that the kernel counts: more are no note of the marker's */
	u32 unused;
	u64 ns_per_byte;	/* times 2^RATE_SHIFT; 0: unshaped */
	struct pi2 pi2;
};


#define RATE_SHIFT 20
#define LATE 1000000ULL		/* ns: how far the shaper may lag behind and catch up, for timers that are late */

/* Two, so that all of a change comes into force at once: the loader writes the idle one and then the index. */
struct configs {
	u32 active;
	u32 unused;
	struct config slot[2];
};

struct configs conf SEC(".data.config");

#define CONFIG() (&conf.slot[READ_ONCE(conf.active) & 1])

/* Eight buckets an octave of 1.024 us; the first is for less than one. */
#define SUB_BUCKETS 8
#define BUCKETS (1 + 24 * SUB_BUCKETS)

struct histogram {
	u64 count[BUCKETS];
	u64 sum, max;		/* ns */
	u64 packets;
};

/* A queue is a ring of packets: head and tail run freely, and are taken modulo its size. */
struct queue {
	u32 head, tail;
	u64 bytes;		/* as the kernel counts them */
	u64 wire;		/* as the shaper counts them */
};

enum { C, L };			/* the Classic queue, and the Low Latency queue */

/* How it stands. Only the qdisc writes, under the device's root lock; the marker and the loader read. */
struct status {
	u32 handle;		/* of the qdisc */
	struct queue queue[2];
	struct pi2_state pi2;
	u64 next_tx;		/* ns: when the wire is free */
	u64 late;		/* ns, a mean: from when the wire is free to when the next packet goes */
	u64 last_tx_time;	/* ns that the last packet takes on the wire: next_tx is no further away */
	s32 credit;		/* of the weighted round robin, bytes times percent: L's turn while it is not positive */
	u32 mtu;		/* bytes of the device's largest packet, with the link's header */
	u32 memory, max_memory;	/* bytes of truesize */
	u32 max_packets;
	u64 packets_in[2];
	u64 ecn_mark;		/* packets that were marked here and have left */
	u64 step_mark;		/* of those, by the step */
	u64 step_missed;	/* L packets that waited for longer than the step's threshold, and left unmarked */
	u64 step_early;		/* L packets that the step marked, and that waited for less */
	u64 unmarked;		/* packets that had not passed the marker */
	u64 overwritten;	/* packets whose note somebody else's program had written over */
	u64 superpackets;	/* packets of several segments */
	struct histogram sojourn[2];
};

struct status state;

struct slot {
	struct sk_buff __kptr *skb;
	u64 ts;			/* ns: when it came */
	u32 len;		/* bytes, as the kernel counts them */
	u32 wire;		/* bytes, as the shaper counts them */
	u32 truesize;		/* bytes of memory */
	u32 flags;		/* FLAG_ */
};

/* The C queue's ring, and then the L queue's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);	/* the loader sets it */
	__type(key, u32);
	__type(value, struct slot);
} rings SEC(".maps");

static __always_inline struct slot *slot_of(u32 l, u32 i)
{
	i = (i & ring_mask) + (l & 1) * (ring_mask + 1);
	return bpf_map_lookup_elem(&rings, &i);
}

static __always_inline u32 packets(u32 l)
{
	u32 head = READ_ONCE(state.queue[l & 1].head); /* before the tail, so that a packet that leaves meanwhile makes it one too many, and not 2^32 */

	return READ_ONCE(state.queue[l & 1].tail) - head;
}

/* When the head of a queue came, in ns; 0: it is empty. */
static __always_inline u64 head_ts(u32 l)
{
	struct slot *s = slot_of(l, READ_ONCE(state.queue[l].head));

	return packets(l) && s ? READ_ONCE(s->ts) : 0;
}

/*
 * What the marker tells the qdisc about a packet, in __sk_buff.cb, which is qdisc_skb_cb.data. Any other program at the hook may write there, so the
 * qdisc takes a note for the marker's only if its check word is right.
 */
struct note {
	u64 what;		/* the FLAG_s; from bit WIRE on the bytes on the wire, overhead and framing included; from bit 32 on the time, as FLAG_TIMED says */
	u32 check;
	u32 tag;		/* NOTE */
};

/*
 * Of two notes that differ and whose writer does not know the secret, one word in 2^31 at most is right for both: multiply-shift hashing (Dietzfelbinger
 * et al., A reliable randomized algorithm for the closest-pair problem, 1997).
 */
static __always_inline u32 check_word(u64 what)
{
	return (what * secret[0] + secret[1]) >> 32;
}

#define NOTE 0x57d20000U	/* this is a note */
#define NOTE_AGE 1000000000U	/* ns: from the marker to the qdisc is one call in the kernel, which takes less than this */
#define LEAST_WIRE 64		/* bytes: what the shortest packet may count for; an ATM cell is 53 */
#define WIRE 7
#define FLAG_ECT 1		/* the ECN field was not 0 */
#define FLAG_L 2		/* goes to the L queue */
#define FLAG_BYPASS 4		/* and is never signalled */
#define FLAG_MARKED 8		/* is marked CE, which it was not before */
#define FLAG_STEP 16		/* by the step */
#define FLAG_SUPER 32		/* is several segments */
#define FLAG_TIMED 64		/* the marker has looked at the clock: in ns, modulo 2^32 */

static __always_inline bool roll(u32 prob)
{
	return prob && bpf_get_prandom_u32() <= prob;
}

/* p_CL, RFC 9332's coupled probability; beyond MAX_PROB the qdisc is overloaded. */
static __always_inline u64 coupled(const struct config *c, u32 prob)
{
	return (u64)prob * c->coupling;
}

/* In ns. A megabyte and more is counted in 16 KiB, so that the product fits: ns_per_byte is below 2^43, and bytes are below 2^34. */
static __always_inline u64 wire_time(const struct config *c, u64 bytes)
{
	if (bytes >> 20)
		return (bytes >> 14) * c->ns_per_byte >> (RATE_SHIFT - 14);
	return bytes * c->ns_per_byte >> RATE_SHIFT;
}
