/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The marker: a program at the device's TCX egress hook, right before the enqueue. It classifies a packet, decides whether it is marked, marks it, and
 * leaves a note for the qdisc. It runs without the qdisc's lock, on any number of CPUs at once, so it only reads the state, of which each field is
 * read whole.
 */
#pragma once

#include "dualpi2.h"

#define TCX_NEXT (-1)		/* go on with the next program, and to the qdisc (include/uapi/linux/bpf.h) */
#define TC_H_MAJ_MASK 0xffff0000U
#define TC_H_MIN_MASK 0x0000ffffU

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
	find_ip(c->link_header, skb, &ip);
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
	what = flags | on_the_wire(&c->framing, c->ns_per_byte, skb) << WIRE | now << 32;
	note->what = what;
	note->check = check_word(what);
	note->tag = NOTE;
	return TCX_NEXT;
}
