/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A BBR that hears: the algorithm alone. bbr.bpf.c makes a BPF congestion control of it, twin.c a
 * built-in one for the lab's kernel, and random.c throws random events at it.
 *
 * Its model and its states are those of draft-ietf-ccwg-bbr, and so are the constants that give no
 * reason of their own here. It departs from the draft in these points:
 *
 *   queue     In CRUISE a flow keeps a few packets of its own in the bottleneck's queue; how many
 *             grows with the square root of its rate. All flows of a queue see the same delay, and
 *             one that has less than its share finds too few of its own there, whatever its RTT:
 *             it speeds up, and the others slow down.
 *   rising    While it finds too few it speeds up without probing. UP is for paths that lose
 *             packets, and for those whose capacity still grows.
 *   others    Where the delay does not follow what the flow does, others keep the queue full. Then
 *             delay tells nothing, and the flow takes its share as cubic does.
 *   loss      Congestion is only what is lost beyond what gentle sending loses as well. Where that is
 *             nothing, and nothing queues, the limit is a policer: it is neared slowly.
 *   marks     A mark says that the queue is too long: the flow aims at less of its own. If marks
 *             go on, it is others' queue that is marked.
 */
#pragma once

#define BW_SHIFT	24		/* rates are packets/us << 24 */
#define SHARE_SHIFT	10		/* shares are of 1024 */
#define NONE		0xffffffffU

enum {
	MIN_CWND	= 3,		/* packets; with the draft's 4, many flows on a slow link always queue */
	BETA		= 307,		/* of 1024, what a loss takes: 0.3 */
	LOSSLESS	= 4,		/* of 1024: a path that loses less of what is sent gently does not lose by itself */
	REGAIN_SHIFT	= 5,		/* a round gives back 1/32 of what losses left of inflight_shortterm, */
	POLICED_SHIFT	= 8,		/* or 1/256 at a policer, where four flows that went faster lost 5 % of all packets */
	POLICED_RISE_SHIFT = 14,	/* in place of RISE_SHIFT: as much slower */
	LOSS_SHARE	= 20,		/* of 1024: a round that loses more than 2 % is congested */
	STARTUP_SHARE	= 300,		/* the same in STARTUP while nothing queues: above 29 % it is a policer */
	HEADROOM	= 56,		/* of 1024: 5 %; the draft's 15 % are lost behind a small policer */
	PROBE_RTT_AFTER	= 4882,		/* ticks of 1.024 ms: 5 s */
	PROBE_RTT_MS	= 98,		/* ticks: 100 ms, and at least a round; 200 cost 1 % at an RTT of 10 ms */

	/*
	 * How many packets of its own a flow aims at: 6 for each square root of a packet/ms. That is
	 * 3 ms of delay for one flow at 50 Mbit/s, and 6 ms for four. Flows slower than QUEUE_SLOW aim
	 * at less, so for many of them the delay grows with the fourth root of their number only: 7 ms
	 * for 16, 14 ms for 64. Delay is heard a round late and takes another to follow. An excess
	 * must be given longer than both to drain, or all flows swing together.
	 */
	QUEUE_K		= 22,		/* quarters of a packet */
	QUEUE_SLOW	= 12582,	/* packets/us << 24: 0.75 packets/ms */
	QUEUE_LEAST	= 2,		/* quarters of a packet */
	QUEUE_ALONE	= 3,		/* the same below 47 packets/s, where a flow may take the second of a pair for a queue */
	GONE_US		= 100000,	/* us in which an excess is to drain, and besides: */
	GONE_RTTS	= 4,
	GAIN_DOWN	= 25,		/* %, by how much pacing may go below the rate to drain it */
	GAIN_UP		= 10,		/* %, and above it */
	FALL_SHIFT	= 10,		/* how fast the rate follows: within a second or two; longer where a round exceeds 131 ms */
	RISE_SHIFT	= 11,
	FLOOR_SHARE	= 512,		/* of 1024 of the measured bandwidth: delay alone takes no more, unless less gets through */
	BEYOND_SHIFT	= 4,		/* the rate may run 1/16 ahead of the measured bandwidth */

	/*
	 * Others keep the queue full if, for a whole cycle, the delay was never below 4 times what it
	 * should be (below that it may be jitter), or 1.4 times if packets were lost. A flow that aims
	 * at less than two packets cannot tell. Then inflight_shortterm is a window like cubic's (RFC
	 * 9438): a round with losses cuts it by 0.3, and it recovers in 3.2 s, a large one later. It
	 * grows at least as Reno's would with such a cut. The window is what limits then, so pacing
	 * leaves it room.
	 *
	 * Flows may take each other for such others. So all flows of a host drain their part of the
	 * queue at the same time, by the host's clock: if the queue was theirs, they see that.
	 */
	HELD_PERCENT	= 400,
	HELD_LOSSY	= 140,
	HELD_LEAST	= 8,		/* quarters of a packet */
	HELD_MS		= 7500,		/* ticks, the pace: in them a window would grow by its own size */
	HELD_LARGE	= 128,		/* packets; of what a window has above them only a quarter counts */
	HELD_GAIN	= 120,		/* % */
	HELD_REST	= 2,		/* rounds from one cut to the next */
	HELD_PROBE_SHIFT = 13,		/* of ticks: every 8.4 s */

	/*
	 * A mark (ECN CE) takes 0.3 of the packets that a flow aims at, and the next one counts only
	 * when that has had the time to drain. If marks still come when the flow aims at a third, the
	 * queue is others': the flow shares it as above, for MARK_CYCLES / aim cycles, so for longer
	 * each time. While a flow remembers marks, delay alone takes next to nothing from its rate: an
	 * AQM lets the queue stand at its own target, and a sender that goes by losses and marks keeps
	 * it there.
	 */
	AIM_FULL	= 255,		/* of 256: nothing was marked for minutes */
	AIM_MARKED	= 224,		/* the most once something was marked */
	AIM_OWN		= 100,		/* the least at which the marked queue may be its own */
	AIM_LEAST	= 8,
	AIM_SHIFT	= 5,		/* a cycle gives 1/32 of what is missing back, and 1 at least */
	MARK_ROUNDS	= 12,		/* rounds from one mark that counts to the next */
	MARK_REST	= 3,		/* the same while it shares: one mark is echoed (ECE) for up to three */
	MARK_CYCLES	= 1024,		/* a flow at AIM_OWN shares for ten cycles, half a minute, and one at AIM_LEAST for minutes */
	MARK_FALL_SHIFT	= 15,		/* in place of FALL_SHIFT: 32 times as slow */
	MARK_BEYOND_SHIFT = 6,		/* in place of BEYOND_SHIFT: running further ahead is what would be marked */

	UP_CWND		= 130,		/* % of the BDP, where the draft has 225: no probe can queue more than that */
	UP_ROUNDS	= 1,		/* rounds that UP waits for more to get through */
	UP_GREW		= 16,		/* by 1/16 more than in the cycle before: above noise, and as far as rising alone goes */
	UP_SHARE	= 512,		/* of 1024: how much of what delay took UP tries to get back */
};

enum { STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP, PROBE_RTT };

struct bbr {
	u32 bw[2];		/* the greatest delivery rate of this cycle, and of the one before */
	u32 bw_round;		/* of this round */
	u32 rate;		/* what the queue lets this flow have; bw_shortterm, too */
	u32 hi, lo;		/* inflight_longterm, inflight_shortterm: packets */
	u32 min_rtt;		/* us */
	u32 round_rtt, cycle_rtt; /* the least of this round, and of this cycle without its DOWN: us */
	u32 min_rtt_at, phase_at, cycle_at, judged_at; /* 1.024 ms */
	u32 round_end, delivered, ce, lost;
	u32 full_bw, prior_cwnd, undo_hi;
	u32 epoch_at, epoch_acked; /* of ACK aggregation: us, packets */
	u16 extra[2];		/* packets */
	u16 tolerate;		/* share that is lost whatever is done */
	u16 queue;		/* quarters of a packet of its own that it aims at */
	u8 state, rounds, full_count, raise, gain;
	u8 aim;			/* of 256: how much of its usual queue marks leave it */
	u8 marked;		/* cycles for which it shares because of marks */
	u8 hit : 1, held : 1, idle : 1, rto : 1, full : 1, lossy : 1, app : 1, queued : 1;
};
_Static_assert(sizeof(struct bbr) <= 104, "icsk_ca_priv");
#define BBR(tp) ((struct bbr *)(tp)->inet_conn.icsk_ca_priv)

static __always_inline u32 min_of(u32 a, u32 b) { return a < b ? a : b; }
static __always_inline u32 max_of(u32 a, u32 b) { return a > b ? a : b; }
static __always_inline u32 now_of(const struct tcp_sock *tp) { return (u32)(tp->tcp_mstamp >> 10); }
static __always_inline u32 max_bw(const struct bbr *b) { return max_of(b->bw[0], b->bw[1]); }
static __always_inline u32 bw_of(const struct bbr *b) { return b->rate == NONE ? max_bw(b) : b->rate; }

/* What a rate delivers in a time. */
static __always_inline u32 packets(u64 bw, u32 us) { return bw * us >> BW_SHIFT; }

/* A rate, never 0 and to the byte: what is slow has no packets in a second to round to. */
static __always_inline u64 bytes_per_second(const struct tcp_sock *tp, u64 bw) { return ((bw * tp->mss_cache >> 8) * 1000000 >> (BW_SHIFT - 8)) + 1; }

static __always_inline u32 share_of(u32 n, u32 share) { return (u64)n * share >> SHARE_SHIFT; }

/* In bytes/s; a program may have set a bound (SO_MAX_PACING_RATE), which with cong_control is this side's to keep. */
static __always_inline void set_pacing(struct sock *sk, u64 rate)
{
	u64 bound = sk->sk_max_pacing_rate;

	sk->sk_pacing_rate = rate < bound ? rate : bound;
}

/* The square root of what is below 2^32, without a branch: a verifier would follow each of 2^16 ways. */
GLOBAL u32 root_of(u64 square)
{
	s64 x = square;
	u32 root = 0, bit;
	int i;

	for (i = 15; i >= 0; i--) {
		bit = 1U << i;
		root += bit & (u32)~((x - (s64)(root + bit) * (root + bit)) >> 63);
	}
	return root;
}

/*
 * The quarters of a packet that a flow of this rate is to have in the queue: k times the square root of the packets that it sends in a ms, and for a slow one
 * less, with the power of three quarters.
 */
GLOBAL u32 queue_of(u32 bw)
{
	u32 queue = root_of((u64)bw * 1000 * QUEUE_K * QUEUE_K >> BW_SHIFT); /* k is in quarters */

	if (bw < QUEUE_SLOW)
		queue = share_of(queue, root_of((u64)root_of(((u64)bw << 20) / QUEUE_SLOW) << 10));
	return max_of(queue, bw < QUEUE_SLOW / 16 ? QUEUE_ALONE : QUEUE_LEAST);
}

static __always_inline void enter(struct tcp_sock *tp, struct bbr *b, u8 state)
{
	b->state = state;
	b->phase_at = now_of(tp);
	b->rounds = 0;
}

static __always_inline void new_cycle(struct tcp_sock *tp, struct bbr *b)
{
	if (b->bw[0]) { /* a flow with nothing to send has told nothing: what is known stays */
		b->bw[1] = b->bw[0];
		b->bw[0] = 0;
	}
	b->extra[1] = b->extra[0];
	b->extra[0] = 0;
	b->raise = 0;
	if (!b->held && b->aim < AIM_FULL)
		b->aim += max_of((AIM_FULL - b->aim) >> AIM_SHIFT, 1);
	b->cycle_rtt = NONE;
	b->cycle_at = now_of(tp) + 1953 + (bpf_get_prandom_u32() & 1023); /* for 2 to 3 s */
}

static __always_inline void bbr_start(struct sock *sk, struct tcp_sock *tp)
{
	struct bbr *b = BBR(tp);
	u32 rtt = tp->srtt_us >> 3, known = tp->rtt_min.s[0].v;

	b->bw[0] = b->bw[1] = b->bw_round = b->full_bw = 0;
	b->rate = b->lo = b->hi = b->undo_hi = NONE;
	b->min_rtt = known && known != NONE ? known : rtt ? rtt : 1000000;
	b->round_rtt = b->cycle_rtt = NONE;
	b->min_rtt_at = b->judged_at = b->cycle_at = now_of(tp);
	b->prior_cwnd = 0;
	b->round_end = b->delivered = tp->delivered;
	b->lost = tp->lost;
	b->ce = tp->delivered_ce;
	b->epoch_at = (u32)tp->tcp_mstamp;
	b->epoch_acked = 0;
	b->extra[0] = b->extra[1] = 0;
	b->tolerate = 0;
	b->queue = 4 * MIN_CWND;
	b->gain = 100;
	b->full_count = b->raise = b->marked = 0;
	b->aim = AIM_FULL;
	b->hit = b->held = b->idle = b->rto = b->full = b->lossy = b->app = b->queued = 0;
	enter(tp, b, STARTUP);
	pace(sk);
	set_pacing(sk, (u64)tp->snd_cwnd * tp->mss_cache * 1000000 / (rtt ? rtt : 1000) * 277 / 100);
}

/* The least RTT that is known of the path: within tcp_min_rtt_wlen, 300 s. */
static __always_inline u32 base_rtt(const struct tcp_sock *tp, const struct bbr *b)
{
	return min_of(tp->rtt_min.s[0].v, b->min_rtt);
}

/* Did the delay not obey? It never was what flows like this one would make of it. */
static __always_inline bool others_hold(const struct tcp_sock *tp, const struct bbr *b)
{
	u32 base = base_rtt(tp, b), bw = max_bw(b), queue = queue_of(bw);
	u32 percent = b->hi != NONE || b->lo != NONE || b->aim < AIM_FULL ? HELD_LOSSY : HELD_PERCENT;

	/* (One that aims at less than two packets cannot tell.) */
	return b->cycle_rtt != NONE && b->cycle_rtt > base && queue >= HELD_LEAST &&
	       (u64)packets(4ULL * bw, b->cycle_rtt - base) * 100 > (u64)queue * percent;
}

/* The least that a packet of this round has waited, us. */
static __always_inline u32 delay_of(const struct bbr *b)
{
	return b->round_rtt != NONE && b->round_rtt > b->min_rtt ? b->round_rtt - b->min_rtt : 0;
}

/* A round is over in which nothing was lost or marked beyond measure: what does its delay say? */
static __always_inline void hear_queue(struct bbr *b, u32 ms, bool policed)
{
	u32 delay = delay_of(b);
	u32 own = packets(4ULL * b->bw_round, delay), rate = bw_of(b), sent = max_of(packets(4ULL * rate, GONE_US + GONE_RTTS * b->min_rtt), 1);

	b->queue = (u16)min_of(max_of((u64)queue_of(rate) * (b->aim + 1) >> 8, QUEUE_LEAST), 65535);
	b->gain = 100;
	if (b->state != CRUISE && b->state != DOWN || b->held)
		return;
	ms = min_of(ms, 128);
	if (own > b->queue) {
		if (b->aim < AIM_FULL)
			rate = min_of(rate, max_bw(b));
		b->gain = (u8)(100 - min_of((u64)(own - b->queue) * 100 / sent, GAIN_DOWN));
		rate -= (u64)rate * (own - b->queue) / own * ms >> (b->aim < AIM_FULL && !b->raise ? MARK_FALL_SHIFT : FALL_SHIFT);
		b->rate = max_of(rate, max_of(min_of(share_of(max_bw(b), FLOOR_SHARE), b->bw_round), 1));
	} else if (!b->app) { /* what a program leaves unsent says nothing of room */
		u32 bound = max_bw(b);

		b->gain = (u8)(100 + min_of((u64)(b->queue - own) * 100 / sent, GAIN_UP));
		if (b->hi == NONE && b->lo == NONE) /* nothing was ever lost: beyond what is known */
			bound += bound >> (b->aim < AIM_FULL ? MARK_BEYOND_SHIFT : BEYOND_SHIFT);
		rate += (u64)rate * (b->queue - own) / b->queue * ms >> (policed ? POLICED_RISE_SHIFT : RISE_SHIFT);
		b->rate = min_of(rate, bound);
	}
}

/* A round is over while others keep the queue full: inflight_shortterm is a window as cubic's. */
static __always_inline void share_queue(struct tcp_sock *tp, struct bbr *b, u32 ms, bool lossy, u32 cut)
{
	u32 lo = b->lo == NONE ? tp->snd_cwnd : b->lo, grown;

	b->gain = HELD_GAIN;
	if (b->raise)
		b->raise--;
	if (lossy && !b->raise) {
		lo -= share_of(lo, cut ? cut : BETA);
		b->raise = b->aim < AIM_FULL ? MARK_REST : HELD_REST;
	} else if (!lossy && !b->app && tp->snd_cwnd >= lo) {
		grown = min_of(min_of(lo, HELD_LARGE + (lo >> 2)), 1 << 16) * min_of(ms, 1024);
		lo += (max_of(grown, HELD_MS / 4 * 3) + bpf_get_prandom_u32() % HELD_MS) / HELD_MS;
	}
	b->lo = max_of(lo, MIN_CWND);
}

/* A round is over in which packets were marked. */
static __always_inline void hear_marks(struct bbr *b)
{
	b->queued = 1;
	b->aim = (u8)min_of(b->aim, AIM_MARKED);
	if (b->state == STARTUP)
		b->full_count = 3;
	if (b->state != CRUISE || b->held || b->raise)
		return;
	b->raise = MARK_ROUNDS;
	if (b->aim < AIM_OWN) {
		b->held = 1;
		b->marked = (u8)min_of(MARK_CYCLES / b->aim, 255);
	}
	b->aim = (u8)max_of(b->aim - share_of(b->aim, BETA), AIM_LEAST);
}

static __always_inline void judge_round(struct tcp_sock *tp, struct bbr *b)
{
	u32 delivered = tp->delivered - b->delivered, lost = tp->lost - b->lost, ce = tp->delivered_ce - b->ce;
	u32 now = now_of(tp), ms = now - b->judged_at, all = delivered + lost, share, limit, cut = 0, target;
	bool queue = packets(4ULL * b->bw_round, delay_of(b)) > 2 * b->queue;

	b->hit = 0;
	if (queue)
		b->queued = 1;
	b->delivered = tp->delivered;
	b->lost = tp->lost;
	b->ce = tp->delivered_ce;
	if (ms) /* rounds may be shorter */
		b->judged_at = now;
	if (!delivered)
		goto out;
	b->lossy = lost > 0;
	if (all >= 8) {
		share = ((u64)lost << SHARE_SHIFT) / all;
		/* What is lost of what was sent gently is lost whatever is done. */
		if (b->state == DOWN) {
			if (share < b->tolerate)
				b->tolerate = (u16)share;
			else if (!queue && b->rounds >= 2) /* the first round acknowledges what UP sent */
				b->tolerate = (u16)(b->tolerate + ((share - b->tolerate) >> 1));
		} else if (b->state == CRUISE && 2 * lost + 2 <= share_of(all, b->tolerate)) {
			b->tolerate >>= 1; /* less than half of that: others had lost it for this flow */
		}
		limit = b->tolerate + (b->tolerate >> 1) + LOSS_SHARE;
		if (!b->full && !queue)
			limit = STARTUP_SHARE;
		/* Of a handful of packets many may be lost by chance. */
		if (lost > 2 && share > limit && (b->full || queue || all >= 40))
			cut = BETA;
	}
	b->hit = cut != 0;
	if (ce && (b->full || queue)) {
		hear_marks(b);
		if (b->held)
			cut = BETA;
	}
	if (b->state == STARTUP)
		goto out;
	if (b->held && b->state == CRUISE) {
		share_queue(tp, b, ms, cut || (u64)lost << SHARE_SHIFT > (u64)all * (b->tolerate + (b->tolerate >> 1)), cut);
		goto out;
	}
	if (b->raise && b->state == CRUISE)
		b->raise--;
	if (!cut) {
		bool policed = b->lo != NONE && !b->held && !b->queued && b->tolerate < LOSSLESS;

		if (policed) /* rounded by chance */
			b->lo += (b->lo + (bpf_get_prandom_u32() & ((1 << POLICED_SHIFT) - 1))) >> POLICED_SHIFT;
		else if (b->lo != NONE && (!b->held || b->aim == AIM_FULL))
			b->lo += max_of(b->lo >> REGAIN_SHIFT, 1);
		if (b->full)
			hear_queue(b, ms, policed);
		goto out;
	}
	b->gain = 100;
	target = packets(bw_of(b), b->min_rtt);
	if (b->state == UP || b->state == REFILL) {
		b->hi = max_of(max_of(delivered, target - share_of(target, cut)), MIN_CWND);
	} else {
		u32 bw = bw_of(b), lo = b->lo == NONE ? tp->snd_cwnd : b->lo;

		b->rate = max_of(b->bw_round, bw - share_of(bw, cut));
		b->lo = max_of(max_of(delivered, lo - share_of(lo, cut)), MIN_CWND);
	}
out:
	b->bw_round = 0;
	b->app = 0;
	b->round_rtt = NONE;
}

/* What has come beyond the bandwidth since the epoch began: ACKs were held back together. */
static __always_inline void hear_aggregation(struct tcp_sock *tp, struct bbr *b, u32 acked)
{
	u32 us = (u32)tp->tcp_mstamp - b->epoch_at, expected = packets(max_bw(b), us), bw = bw_of(b), extra;

	if (b->epoch_acked <= expected || us > 200000) {
		b->epoch_at = (u32)tp->tcp_mstamp;
		b->epoch_acked = expected = 0;
	}
	b->epoch_acked += acked;
	extra = b->epoch_acked > expected ? b->epoch_acked - expected : 0;
	extra = min_of(extra, min_of(packets(bw, 10000), packets(bw, b->min_rtt) >> 2));
	if (b->state == CRUISE && extra > b->extra[0])
		b->extra[0] = (u16)min_of(extra, 65535);
}

/* Is there ever more to be had? A long way, or a large capacity that came late, would take minutes by rising alone. */
static __always_inline bool grows(const struct bbr *b)
{
	return b->rate != NONE && b->rate > max_bw(b) && (u64)b->bw[0] * UP_GREW > (u64)b->bw[1] * (UP_GREW + 1);
}

static __always_inline void bbr_ack(struct sock *sk, struct tcp_sock *tp, const struct rate_sample *rs)
{
	struct bbr *b = BBR(tp);
	u32 now = now_of(tp), flight = in_flight(tp), acked = rs->acked_sacked, gain = 100, cwnd, target, bw, bound, n;
	bool round = false, grew, due, shares;
	u64 rate;

	if (rs->rtt_us > 0) {
		u32 rtt = rs->rtt_us;

		b->round_rtt = min_of(b->round_rtt, rtt);
		if (b->state != DOWN)
			b->cycle_rtt = min_of(b->cycle_rtt, rtt);
		if (rtt <= b->min_rtt) {
			b->min_rtt = rtt;
			b->min_rtt_at = now;
		} else if (b->idle) { /* a silence has emptied the queue as PROBE_RTT would have */
			b->min_rtt_at = now;
		}
	}
	if (rs->delivered > 0 && rs->interval_us > 0) {
		bw = min_of(((u64)rs->delivered << BW_SHIFT) / (u64)rs->interval_us, NONE - 1);
		b->bw_round = max_of(b->bw_round, bw);
		if (rs->is_app_limited)
			b->app = 1;
		if (!rs->is_app_limited || bw > max_bw(b))
			b->bw[0] = max_of(b->bw[0], bw);
		if ((s32)(rs->prior_delivered - b->round_end) >= 0) {
			round = true;
			if (b->rounds < 255)
				b->rounds++;
			b->round_end = tp->delivered;
			judge_round(tp, b);
		}
	}
	hear_aggregation(tp, b, acked);

	bw = bw_of(b);
	target = packets(bw, b->min_rtt);
	switch (b->state) {
	case STARTUP:
		gain = 277;
		/* A program that writes little at a time (tcp_notsent_lowat) may fill the path all the same: then there is a queue. */
		if (round && (!rs->is_app_limited || b->queued)) {
			n = max_bw(b);
			if ((u64)n * 4 >= (u64)b->full_bw * 5) {
				b->full_bw = n;
				b->full_count = 0;
			} else {
				b->full_count++;
			}
		}
		if (round)
			b->queued = 0;
		if (b->full_count >= 3 || round && b->hit) {
			if (b->hit)
				b->hi = max_of(target, MIN_CWND);
			b->full = 1;
			enter(tp, b, DRAIN);
		}
		break;
	case DRAIN:
		gain = 50;
		if (flight <= target || b->rounds > 3) {
			new_cycle(tp, b);
			enter(tp, b, DOWN);
		}
		break;
	case DOWN:
		gain = b->lossy ? 75 : 90;
		if (b->rounds >= (b->lossy ? 3 : 1) && (flight <= target + (b->queue >> 2) || b->rounds > 4))
			enter(tp, b, CRUISE);
		break;
	case CRUISE:
		gain = b->gain;
		/* Not after a timeout: what comes through then says nothing of the bandwidth, and the filter must not forget it. */
		if (b->rto || (s32)(now - b->cycle_at) < 0 && b->rounds <= 62)
			break;
		n = b->held;
		if (b->marked)
			b->marked--;
		b->held = b->marked || others_hold(tp, b);
		if (b->held) {
			if (!n)
				b->lo = max_of(packets(max_bw(b), tp->srtt_us >> 3), MIN_CWND);
			b->rate = NONE;
			new_cycle(tp, b);
			enter(tp, b, CRUISE);
			break;
		}
		if (n) {
			b->gain = 100;
			if (b->aim < AIM_FULL) /* they may have been of its own queue: with less of that, once more */
				b->lo = NONE;
		}
		if (b->hi != NONE || b->lo != NONE || grows(b)) {
			if (b->lo != NONE || !b->queued || b->rate == NONE)
				b->rate = NONE;
			else /* half way back */
				b->rate += share_of(max_bw(b) - min_of(b->rate, max_bw(b)), UP_SHARE);
			b->lo = NONE;
			b->undo_hi = b->hi;
			enter(tp, b, REFILL);
		} else {
			new_cycle(tp, b);
			enter(tp, b, CRUISE);
		}
		break;
	case REFILL:
		if (round) {
			b->full_bw = max_bw(b);
			b->queued = 0;
			b->raise = 0;
			enter(tp, b, UP);
		}
		break;
	case UP:
		gain = 125;
		if (!round)
			break;
		if (b->hi != NONE && !b->hit) { /* room for more: twice as much each round */
			n = 1U << min_of(b->raise, 14);
			if (b->raise < 14)
				b->raise++;
			if (tp->snd_cwnd >= b->hi)
				b->hi += max_of(n, b->hi >> 3);
		}
		n = max_bw(b);
		grew = (u64)n * 8 > (u64)b->full_bw * 9;
		if (grew)
			b->full_bw = n;
		if (b->hit || b->queued && !b->held || !grew && b->rounds > UP_ROUNDS || b->rounds > 8) {
			/*
			 * More was sent, some of it was lost, and nothing queued: losses ended STARTUP too
			 * early, if this path loses by itself. A flow of a few packets has not learned that.
			 */
			bool early = !b->hit && !b->queued && !rs->is_app_limited && b->lossy &&
				     (b->tolerate >= LOSSLESS || target < 16);

			new_cycle(tp, b);
			enter(tp, b, DOWN);
			if (early) {
				b->full = b->full_count = 0;
				b->full_bw = 0;
				b->rate = b->hi = b->undo_hi = NONE;
				enter(tp, b, STARTUP);
			}
		}
		break;
	case PROBE_RTT:
		/* full_bw is not needed meanwhile: it is when this ends. */
		if (!b->full_bw && flight <= max_of(packets(bw, b->min_rtt) >> 1, MIN_CWND) + 2) {
			b->full_bw = (now + (b->held ? 2 * PROBE_RTT_MS : PROBE_RTT_MS)) | 1;
			b->round_end = tp->delivered;
			b->rounds = 0;
			b->min_rtt = NONE; /* forget it: the least that is seen from now on */
		}
		if (b->full_bw && b->min_rtt == NONE)
			b->min_rtt = b->round_rtt != NONE ? b->round_rtt : max_of(tp->srtt_us >> 3, 1);
		if (b->full_bw && (s32)(now - b->full_bw) > 0 && b->rounds > 0 || now - b->phase_at > 3000) {
			b->min_rtt_at = now;
			tp->snd_cwnd = max_of(b->prior_cwnd, tp->snd_cwnd);
			if (b->lo != NONE && !b->held)
				b->lo = b->rate = NONE;
			enter(tp, b, CRUISE);
		}
		break;
	}
	due = b->held ? now >> HELD_PROBE_SHIFT != b->phase_at >> HELD_PROBE_SHIFT : now - b->min_rtt_at > PROBE_RTT_AFTER;
	/* REFILL and UP last longer than 5 s where an RTT is above a second: what they find out comes first. */
	if (due && (b->state == DRAIN || b->state == DOWN || b->state == CRUISE) && !b->idle && !b->rto) {
		b->prior_cwnd = tp->snd_cwnd;
		b->full_bw = 0;
		enter(tp, b, PROBE_RTT);
	}
	if (rs->delivered > 0)
		b->idle = 0;
	if (may_limit && b->state == PROBE_RTT)
		tp->app_limited = (tp->delivered + flight) ? : 1;

	/* What follows from it. */
	bw = bw_of(b);
	if (b->state != CRUISE)
		gain = gain * 99 / 100 ? : 1;
	rate = bytes_per_second(tp, (u64)bw * gain / 100);
	if (b->full || rate > sk->sk_pacing_rate)
		set_pacing(sk, rate);
	target = packets(bw, b->min_rtt);
	switch (b->state) {
	case STARTUP: case DRAIN:
		target = b->state == STARTUP ? 2 * target : target;
		break;
	case PROBE_RTT:
		target >>= 1;
		break;
	case UP:
		target = (u64)target * UP_CWND / 100;
		break;
	}
	shares = b->held && b->state == CRUISE && b->lo != NONE;
	if (shares)
		target = b->lo;
	if (b->state != PROBE_RTT) /* what TSO and delayed ACKs keep: three bursts of a millisecond */
		target += (b->queue >> 1) + max_of(min_of(packets(bw, 1000), 44) * 3, 2) + max_of(b->extra[0], b->extra[1]);
	cwnd = tp->snd_cwnd;
	if (b->full)
		cwnd = min_of(cwnd + acked, target);
	else if (cwnd < target || tp->delivered < 20)
		cwnd += acked;
	bound = b->hi;
	if (shares)
		bound = NONE;
	else if (b->hi != NONE && (b->state == CRUISE || b->state == DOWN))
		bound = b->hi - share_of(b->hi, HEADROOM);
	bound = min_of(bound, b->lo);
	cwnd = max_of(min_of(cwnd, bound), MIN_CWND);
	if (b->state == PROBE_RTT)
		cwnd = min_of(cwnd, max_of(target, MIN_CWND));
	tp->snd_cwnd = min_of(cwnd, tp->snd_cwnd_clamp);
}

static __always_inline void bbr_state(struct tcp_sock *tp, u8 to)
{
	struct bbr *b = BBR(tp);

	if (to == TCP_CA_Loss) {
		b->rto = 1;
		b->prior_cwnd = max_of(tp->snd_cwnd, b->prior_cwnd);
		if (b->state == STARTUP)
			b->full_bw = b->full_count = 0;
		b->round_end = tp->delivered;
	} else if (to == TCP_CA_Open && b->rto) {
		b->rto = 0;
		b->rate = b->lo = NONE;
	}
}

static __always_inline u32 bbr_ssthresh(struct tcp_sock *tp)
{
	struct bbr *b = BBR(tp);

	b->prior_cwnd = max_of(tp->snd_cwnd, b->state == PROBE_RTT ? b->prior_cwnd : 0);
	return tp->snd_ssthresh;
}

/* It was no loss after all. */
static __always_inline u32 bbr_undo(struct tcp_sock *tp)
{
	struct bbr *b = BBR(tp);

	b->rate = b->lo = NONE;
	if (b->hi != NONE)
		b->hi = max_of(b->hi, b->undo_hi);
	b->undo_hi = b->hi;
	return max_of(tp->snd_cwnd, b->prior_cwnd);
}

/* The first packet after a silence. */
static __always_inline void bbr_restart(struct sock *sk, struct tcp_sock *tp)
{
	struct bbr *b = BBR(tp);

	if (!tp->app_limited || !b->full)
		return;
	b->idle = 1;
	b->epoch_at = (u32)tp->tcp_mstamp;
	b->epoch_acked = 0;
	set_pacing(sk, bytes_per_second(tp, bw_of(b)));
}
