/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The marker: a program at the device's TCX egress hook, right before the enqueue. It classifies a packet, decides whether it is marked, marks it, and
 * leaves a note for the qdisc. It runs without the qdisc's lock, on any number of CPUs at once, so it only reads the state, of which each field is
 * read whole.
 */
#pragma once

#include "dualpi2.h"

#define TCX_NEXT (-1)		/* go on with the next program, and to the qdisc (include/uapi/linux/bpf.h) */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_TAG 4		/* bytes */
#define ECN_MASK 3
#define CE 3
#define TC_H_MAJ_MASK 0xffff0000U
#define TC_H_MIN_MASK 0x0000ffffU
#define BE16(x) __builtin_bswap16(x)

/* An IP header: where it is, in bytes from the packet's start, and its first two bytes, which both versions have the ECN field in. */
struct ip {
	u32 at;
	u8 version;		/* 4 or 6; 0: no IP */
	u8 tagged;		/* behind VLAN tags that are part of the packet */
	u8 head[2];
};

static __always_inline u32 ecn_of(const struct ip *ip)
{
	return ip->version == 4 ? ip->head[1] & ECN_MASK : ip->version == 6 ? ip->head[1] >> 4 & ECN_MASK : 0;
}

/* Tags that the device adds are not part of the packet, and skb->protocol is what they would hide; up to two that are part of it are looked behind. */
static __always_inline void find_ip(const struct config *c, struct __sk_buff *skb, struct ip *ip)
{
	u32 protocol = skb->protocol;
	u8 *header;
	__be16 inner;

	ip->at = c->link_header;
	ip->version = ip->tagged = 0;
	for (int i = 0; i < 2 && (protocol == BE16(ETH_P_8021Q) || protocol == BE16(ETH_P_8021AD)); i++) {
		if (bpf_skb_load_bytes(skb, ip->at + 2, &inner, sizeof(inner)))
			return;
		protocol = inner;
		ip->at += VLAN_TAG;
		ip->tagged = 1;
	}
	if (protocol != BE16(ETH_P_IP) && protocol != BE16(ETH_P_IPV6))
		return;
	header = (void *)(long)skb->data + (ip->at & 63);
	if ((void *)(header + 2) <= (void *)(long)skb->data_end) { /* nearly always */
		ip->head[0] = header[0];
		ip->head[1] = header[1];
	} else if (bpf_skb_load_bytes(skb, ip->at, ip->head, sizeof(ip->head))) {
		return;
	}
	if (ip->head[0] >> 4 == (protocol == BE16(ETH_P_IP) ? 4 : 6)) /* else it is not where it should be: nothing to be marked */
		ip->version = ip->head[0] >> 4;
}

/* Marks a packet CE; false if it cannot be written to. */
static __always_inline bool set_ce(struct __sk_buff *skb, struct ip *ip)
{
	__be16 before = *(__be16 *)ip->head, after;

	/* Of the two ways the cheaper one takes no packet whose header others share, and none behind tags. */
	if (!ip->tagged && bpf_skb_ecn_set_ce((void *)skb))
		return true;
	ip->head[1] |= ip->version == 4 ? CE : CE << 4;
	after = *(__be16 *)ip->head;
	if (ip->version == 4 && bpf_l3_csum_replace(skb, ip->at + 10, before, after, sizeof(after)))
		return false;
	return !bpf_skb_store_bytes(skb, ip->at, ip->head, sizeof(ip->head), 0);
}

/* What one packet takes on the wire, in bytes (tc-cake(8): overhead, mpu, atm, ptm). */
static __always_inline u32 framed(const struct config *c, u32 len)
{
	s32 n = (s32)len + c->overhead;

	if (n < (s32)c->mpu)
		n = c->mpu;
	if (c->framing == ATM)
		return ((u32)n + 47) / 48 * 53;
	if (c->framing == PTM)
		return (u32)n + ((u32)n + 63) / 64;
	return n;
}

/* What a packet has instead of a segment's size if each of its segments has one of its own, as SCTP's have (include/linux/skbuff.h). */
#define GSO_BY_FRAGS 0xffff

/* The same of a packet that may be several segments: all but the last are of one size, or are taken to be where nobody says. */
static __always_inline u32 on_the_wire(const struct config *c, struct __sk_buff *skb)
{
	u32 len = skb->wire_len, more = skb->gso_segs, size = skb->gso_size, full;

	if (!c->ns_per_byte)
		return len;
	if (size && !more) /* a virtual machine's, that nobody has counted */
		more = (skb->len + size - 1) / size;
	if (more <= 1)
		return framed(c, len);
	more--;
	if (size == GSO_BY_FRAGS)
		full = len / (more + 1);
	else
		full = size + (len - skb->len) / more; /* wire_len counts the headers of each segment */
	return more * framed(c, full) + framed(c, len - more * full);
}

/*
 * How long a packet that came now would wait in the L queue, in ns: for the wire, for those before it, for those of the C queue whose turn comes in
 * between, and for the timer. Where the wire's rate is not known, or the device takes nothing though the wire is free, the age of the L queue's head
 * says more.
 */
static __always_inline u64 predicted(const struct config *c, u64 now)
{
	u64 free = READ_ONCE(state.next_tx), ahead, between = 0, waiting = READ_ONCE(state.queue[C].wire), wait = 0, since = 0;
	s64 credit;

	if (!c->ns_per_byte || free + LATE < now)
		since = head_ts(L);
	if (c->ns_per_byte) {
		ahead = READ_ONCE(state.queue[L].wire);
		if (waiting) {
			credit = READ_ONCE(state.credit) + (s64)(c->wc * ahead);
			if (credit > 0) {
				u64 turn = (u64)c->wl * state.mtu;

				between = turn ? ((u64)credit + turn - 1) / turn * state.mtu : waiting;
			}
			if (between > waiting)
				between = waiting;
		}
		if (free + LATE < now) /* as spend() will have it */
			free = now - LATE;
		free += READ_ONCE(state.late) + wire_time(c, ahead + between);
		if (free > now)
			wait = free - now;
	}
	return since && since + wait < now ? now - since : wait;
}

/* Nothing waits, and what is on the wire is gone before the step's threshold: there is no need for the clock. */
static __always_inline bool soon(const struct config *c)
{
	return !packets(L) && !packets(C) && READ_ONCE(state.last_tx_time) + READ_ONCE(state.late) <= c->step_thresh;
}

SEC("tcx/egress")
int dualpi2_mark(struct __sk_buff *skb)
{
	const struct config *c = CONFIG();
	u32 ecn, flags = 0, prob, minor;
	bool mark = false, overload, standing;
	u64 now = 0, wait, what;
	struct note *note = (struct note *)skb->cb;
	struct ip ip;

	if (!READ_ONCE(owner)) {
		(void)READ_ONCE(instance.layout); /* that the marker refers to a map is how the loader finds it */
		return TCX_NEXT;
	}
	find_ip(c, skb, &ip);
	ecn = ecn_of(&ip);
	if (ecn)
		flags |= FLAG_ECT;
	minor = skb->priority & TC_H_MIN_MASK;
	if (ecn & c->l4s_mask)
		flags |= FLAG_L;
	else if ((skb->priority & TC_H_MAJ_MASK) == state.handle && minor <= 2)
		flags |= minor == 1 ? FLAG_L : minor == 2 ? FLAG_L | FLAG_BYPASS : 0; /* the numbers of sch_dualpi2's classes */
	else if (c->bypass_mask && (skb->mark & c->bypass_mask) == c->bypass_mark)
		flags |= FLAG_L | FLAG_BYPASS;

	prob = READ_ONCE(state.pi2.prob);
	overload = coupled(c, prob) > MAX_PROB;
	standing = prob && READ_ONCE(state.queue[C].bytes) + READ_ONCE(state.queue[L].bytes) >= 2 * state.mtu;
	if (!ecn || ecn == CE || flags & FLAG_BYPASS) {
		/* nothing to mark */
	} else if (flags & FLAG_L) {
		wait = packets(L);
		if (wait < c->min_qlen_step || !c->step_in_packets && soon(c)) {
			wait = 0;
		} else if (!c->step_in_packets) {
			now = bpf_ktime_get_ns();
			flags |= FLAG_TIMED;
			wait = predicted(c, now);
		}
		if (wait > c->step_thresh) {
			mark = true;
			flags |= FLAG_STEP;
		} else if (standing) {
			mark = overload || roll(coupled(c, prob));
		}
	} else if (standing && !overload) {
		mark = roll(prob) && roll(prob);
	}
	if (mark) {
		if (set_ce(skb, &ip))
			flags |= FLAG_MARKED;
		else
			flags &= ~FLAG_STEP;
	}
	if (skb->gso_size)
		flags |= FLAG_SUPER;
	what = flags | on_the_wire(c, skb) << WIRE | now << 32;
	note->what = what;
	note->check = check_word(what);
	note->tag = NOTE;
	return TCX_NEXT;
}
