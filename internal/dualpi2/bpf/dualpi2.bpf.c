// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * DualPI2, the coupled dual-queue AQM of RFC 9332, as a BPF queueing discipline with a shaper of its own.
 *
 * A qdisc in BPF may hold packets, drop them and let them go, but not write into them. So the decision to mark is taken by a program at the TCX hook
 * right before the enqueue (the marker, in marker.h), from what the packet is going to wait; the decision to drop is taken here, when the packet
 * leaves, as sch_dualpi2 takes it.
 */
#include "dualpi2.h"
#include "marker.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define NET_XMIT_DROP 1
#define NET_XMIT_BYPASS 0x20000	/* NET_XMIT_SUCCESS | __NET_XMIT_BYPASS: dropped by the AQM, and no error to the sender */
#define TC_H_ROOT 0xffffffffU
#define EBUSY 16
#define EOPNOTSUPP 95
#define MAX_RING (1U << 17)

/*
 * A device's largest packet, in bytes, with the link's header (include/net/pkt_sched.h, psched_mtu). Within bounds, as the kernel's own dualpi2 has it: an
 * MTU may be 2^31 - 1, and times a weight of 100 % the credit would overflow from 26,843,546 on.
 */
#define MAX_MTU (1U << 20)
static __always_inline u32 largest(struct net_device *dev)
{
	u32 bytes = dev->mtu + dev->hard_header_len;

	return bytes < 1 ? 1 : bytes > MAX_MTU ? MAX_MTU : bytes;
}

static __always_inline void reset_credit(const struct config *c)
{
	state.credit = (s32)state.mtu * ((s32)c->wc - (s32)c->wl);
}

/*
 * Functions that are not static are verified once and by themselves, and not again on each path that leads to them; the same goes for those below.
 */
__attribute__((noinline)) int update_pi2(u64 now)
{
	u64 head = head_ts(C), l = head_ts(L);

	if (!head || l && l < head)
		head = l;
	pi2_catch_up(&CONFIG()->pi2, &state.pi2, now, head);
	return 0;
}

/*
 * Whether the AQM drops a packet, where backlog is what else waits, in bytes: by the probability, when it comes or when it goes, as configured (RFC 9332
 * figure 4 and section 2.5.1.1); and in the L queue, where a filter may put one that cannot be marked, by the step when it goes.
 */
__attribute__((noinline)) int must_drop(u32 flags, u64 sojourn, u64 backlog, u32 coming)
{
	const struct config *c = CONFIG();
	u32 prob = state.pi2.prob, in_l = flags & FLAG_L, ect = flags & FLAG_ECT;
	bool overload = coupled(c, prob) > MAX_PROB;

	if (flags & FLAG_BYPASS || ect && !overload)
		return false;
	if (!coming && in_l && !ect && packets(L) > c->min_qlen_step && (c->step_in_packets ? packets(L) - 1 : sojourn) > c->step_thresh)
		return true;
	if (coming != c->drop_enqueue || backlog < 2 * state.mtu)
		return false;
	if (in_l && !overload)
		return roll(coupled(c, prob));
	if (in_l && !c->drop_overload)
		return false;
	return roll(prob) && roll(prob);
}

SEC("struct_ops")
int dualpi2_enqueue(u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct Qdisc *sch = (struct Qdisc *)ctx[1];
	struct bpf_sk_buff_ptr *to_free = (struct bpf_sk_buff_ptr *)ctx[2];
	struct qdisc_skb_cb *cb = (struct qdisc_skb_cb *)skb->cb;
	struct note *note = (struct note *)cb->data;
	const struct config *c = CONFIG();
	u64 now, what = note->what;
	u32 len = cb->pkt_len, flags = what & ((1 << WIRE) - 1), wire = (u32)what >> WIRE, truesize = skb->truesize, age = 0;
	u64 memory = (u64)state.memory + truesize;
	struct queue *q;
	struct slot *s;
	bool l;

	now = bpf_ktime_get_ns();
	if (flags & FLAG_TIMED)
		age = (u32)now - (u32)(what >> 32);
	if (note->tag == NOTE && note->check == check_word(what) && age < NOTE_AGE && wire <= LEAST_WIRE + (u64)len * c->wire_per_byte) {
		now -= age;
	} else {
		if (note->tag == NOTE)
			state.overwritten++;
		else
			state.unmarked++;
		flags = 0;
		wire = len;
	}
	l = flags & FLAG_L;
	q = &state.queue[l];
	if (now >= state.pi2.due)
		update_pi2(now);
	s = slot_of(l, q->tail);
	if (sch->q.qlen >= c->limit || memory > (c->mem_limit ? c->mem_limit : (u64)c->limit * 2 * state.mtu) || packets(l) > ring_mask || !s) {
		sch->qstats.overlimits++;
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	if (c->drop_enqueue && must_drop(flags, 0, sch->qstats.backlog, true)) {
		sch->qstats.drops++;
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_BYPASS;
	}
	s->ts = now;
	s->len = len;
	s->wire = wire;
	s->truesize = truesize;
	s->flags = flags;
	skb = bpf_kptr_xchg(&s->skb, skb);
	if (skb) /* cannot be: the slot was free */
		bpf_qdisc_skb_drop(skb, to_free);
	q->tail++;
	q->bytes += len;
	q->wire += wire;
	state.packets_in[l]++;
	state.superpackets += flags / FLAG_SUPER & 1;
	state.memory = memory;
	if (memory > state.max_memory)
		state.max_memory = memory;
	if (!sch->q.qlen && state.next_tx < now)
		state.next_tx = now; /* nothing was there to send: what time has passed is gone */
	sch->q.qlen++;
	if (sch->q.qlen > state.max_packets)
		state.max_packets = sch->q.qlen;
	sch->qstats.backlog += len;
	return 0;
}

/* Whose turn it is: weighted round robin, where L goes first unless it has had its share (RFC 9332 section 2.5.1.1). */
__attribute__((noinline)) int l_is_next(void)
{
	return packets(L) && (!packets(C) || state.credit <= 0);
}

static __always_inline u32 next_queue(void)
{
	u32 l = l_is_next();

	barrier_var(l); /* the compiler knows more of a function than the verifier, and would take the bound away */
	return l & 1;
}

/* What is left of a queue once its head is out. */
static __always_inline struct sk_buff *pop(struct Qdisc *sch, struct slot *s, u32 l)
{
	struct queue *q = &state.queue[l];
	struct sk_buff *skb;

	q->head++;
	q->bytes -= s->len;
	q->wire -= s->wire;
	state.memory -= s->truesize;
	sch->q.qlen--;
	sch->qstats.backlog -= s->len;
	skb = bpf_kptr_xchg(&s->skb, NULL);
	return skb;
}

struct dropping {
	struct Qdisc *sch;
	u64 now;
	u64 sure;	/* the AQM has said so of the first already */
};

/* Drops the head of the queue whose turn it is, if the AQM says so; 1 if it stays. A callback of bpf_loop. */
static long drop_head(u64 i, struct dropping *d)
{
	struct Qdisc *sch = d->sch;
	u32 l = next_queue();
	struct slot *s = slot_of(l, state.queue[l].head);
	struct sk_buff *skb;

	if (!sch->q.qlen || !s || !d->sure && !must_drop(s->flags, d->now - s->ts, sch->qstats.backlog - s->len, false))
		return 1;
	d->sure = 0;
	sch->qstats.drops++;
	skb = pop(sch, s, l);
	if (skb)
		bpf_kfree_skb(skb);
	return 0;
}

/* 1 if v is above limit, both below 2^63, and 0 otherwise: without a branch, which the compiler would make of it and the verifier would take both ways. */
static __always_inline u64 above(u64 v, u64 limit)
{
	u64 difference = limit - v;

	barrier_var(difference);
	return difference >> 63;
}

/* The place of the highest bit of v, from 0. */
static __always_inline u32 log2_of(u64 v)
{
	u64 r = above(v, 0xffff) << 4, shift;

	v >>= r;
	shift = above(v, 0xff) << 3;
	v >>= shift;
	r |= shift;
	shift = above(v, 0xf) << 2;
	v >>= shift;
	r |= shift;
	shift = above(v, 0x3) << 1;
	v >>= shift;
	return r | shift | v >> 1;
}

/* Counts a packet that leaves. */
__attribute__((noinline)) int record(u32 l, u32 flags, u64 sojourn)
{
	const struct config *c = CONFIG();
	struct histogram *h = &state.sojourn[l & 1];
	u64 v = sojourn >> 7; /* eighths of 1.024 us, of which 8 begin the first octave */
	u32 octave, i = 0;
	u64 marked = flags / FLAG_MARKED & 1, step = flags / FLAG_STEP & 1;
	u64 timed = l & (c->step_in_packets ^ 1), late = above(sojourn, c->step_thresh);

	if (v >> 32) {
		i = BUCKETS - 1;
	} else if (v >= SUB_BUCKETS) {
		octave = log2_of(v) - 3;
		i = 1 + octave * SUB_BUCKETS + (v >> (octave & 31) & (SUB_BUCKETS - 1));
	}
	if (i >= BUCKETS)
		i = BUCKETS - 1;
	h->count[i]++;
	h->sum += sojourn;
	h->packets++;
	if (sojourn > h->max)
		h->max = sojourn;
	state.ecn_mark += marked;
	state.step_mark += step;
	state.step_early += timed & step & (late ^ 1);
	state.step_missed += timed & late & (marked ^ 1) & (flags / FLAG_BYPASS & 1 ^ 1);
	return 0;
}

/* Takes a packet's time on the wire, and its turn. */
static __always_inline void spend(const struct config *c, u32 l, u32 len, u32 wire, u64 now)
{
	if (packets(l ^ 1))
		state.credit += l ? (s32)(c->wc * len) : -(s32)(c->wl * len);
	if (c->ns_per_byte) {
		if (state.next_tx + LATE < now)
			state.next_tx = now - LATE;
		state.late = (7 * state.late + now - state.next_tx) >> 3;
		state.last_tx_time = wire_time(c, wire);
		state.next_tx += state.last_tx_time;
	}
}

SEC("struct_ops")
struct sk_buff *dualpi2_dequeue(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	const struct config *c = CONFIG();
	struct sk_buff *skb;
	struct slot *s;
	u64 now, sojourn;
	u32 flags, l;

	if (!sch->q.qlen) {
		reset_credit(c);
		return NULL;
	}
	now = bpf_ktime_get_ns();
	if (now >= state.pi2.due) {
		update_pi2(now);
		state.mtu = largest(sch->dev_queue->dev);
	}
	if (c->ns_per_byte && state.next_tx > now) {
		sch->qstats.overlimits++;
		bpf_qdisc_watchdog_schedule(sch, state.next_tx, 0);
		return NULL;
	}
	l = next_queue();
	s = slot_of(l, state.queue[l].head);
	if (!s)
		return NULL;
	if ((state.pi2.prob || (s->flags & (FLAG_L | FLAG_ECT)) == FLAG_L) && must_drop(s->flags, now - s->ts, sch->qstats.backlog - s->len, false)) {
		struct dropping d = { sch, now, true };

		bpf_loop(MAX_RING, drop_head, &d, 0);
		if (!sch->q.qlen) {
			reset_credit(c);
			return NULL;
		}
		l = next_queue();
		s = slot_of(l, state.queue[l].head);
		if (!s)
			return NULL;
	}
	flags = s->flags;
	sojourn = now - s->ts;
	spend(c, l, s->len, s->wire, now);
	skb = pop(sch, s, l);
	if (!skb)
		return NULL;
	record(l, flags, sojourn);
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

SEC("struct_ops")
int dualpi2_init(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	struct net_device *dev = sch->dev_queue->dev;
	const struct config *c = CONFIG();

	if (owner || dev->ifindex != ifindex || dev->nd_net.net->net_cookie != netns_cookie)
		return -EBUSY;
	if (sch->parent != TC_H_ROOT)
		return -EOPNOTSUPP; /* one rate for the device: below mq each of its queues would have it */
	state.handle = sch->handle;
	state.mtu = largest(dev);
	sch->limit = c->limit;
	reset_credit(c);
	owner = (u64)sch;
	return 0;
}

static long free_head(u64 i, void *at)
{
	u32 l = *(u32 *)at & 1;
	struct queue *q = &state.queue[l];
	struct slot *s = slot_of(l, q->head);
	struct sk_buff *skb;

	if (!packets(l) || !s)
		return 1;
	q->head++;
	skb = bpf_kptr_xchg(&s->skb, NULL);
	if (skb)
		bpf_kfree_skb(skb);
	return 0;
}

SEC("struct_ops")
void dualpi2_reset(u64 *ctx)
{
	struct Qdisc *sch = (struct Qdisc *)ctx[0];
	u32 c = C, l = L;

	if (owner != (u64)sch)
		return;
	bpf_loop(MAX_RING, free_head, &c, 0);
	bpf_loop(MAX_RING, free_head, &l, 0);
	state.queue[C] = state.queue[L] = (struct queue){};
	state.pi2 = (struct pi2_state){};
	state.next_tx = state.last_tx_time = 0;
	state.memory = 0;
	reset_credit(CONFIG());
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops")
void dualpi2_destroy(u64 *ctx)
{
	if (owner == ctx[0])
		owner = 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops dualpi2 = {
	.id = "dualpi2",	/* the loader gives each instance a name of its own */
	.enqueue = (void *)dualpi2_enqueue,
	.dequeue = (void *)dualpi2_dequeue,
	.init = (void *)dualpi2_init,
	.reset = (void *)dualpi2_reset,
	.destroy = (void *)dualpi2_destroy,
};
