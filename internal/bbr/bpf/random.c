// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * bbr.h as a program: connections to which anything happens that can, and after each event, is what must hold true? Some go on along a calm path at last,
 * and have to fill it.
 *
 *	random SEED FIRST COUNT		sequences FIRST… of SEED; of a single one, all that happens is printed
 *
 * It says nothing of how good the algorithm is: the path here is none that exists.
 */
#include "kernel.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../bpf/include/dice.h"

static u32 may_limit; /* 6.1 does not let it */

static u32 roll(void) { return (u32)(roll64() >> 32); }

#define GLOBAL static
#define bpf_get_prandom_u32 roll

#include "bbr.h"

#define S		1000000ULL	/* us */
#define RTT_MIN_WINDOW	(300 * S)
#define MOST_BITS	100000ULL	/* 100 Gbit/s, in bits/us */
#define EVENTS		120		/* of a sequence, at most */
/* Of a calm path. */
#define CALM_RTT	(2 * S)
#define CALM_LEAST	1ULL		/* packets/s */
#define CALM_MOST	1000000ULL	/* packets/s: more take too long */
#define BACK_IN		(180 * S)	/* and 100 RTTs; and the window of tcp_min_rtt where the way has become longer */
#define CALM_ONE_IN	1000		/* sequences */

enum { TCP_CA_Disorder = 1, TCP_CA_CWR, TCP_CA_Recovery };

static struct sock sk;
static struct tcp_sock tp;
static struct bbr *const b = BBR(&tp);
static u64 rtt_min_at;			/* us */
static u32 first_delivered;		/* tp.delivered starts anywhere */
static u32 rtt_least, rtt_most;		/* of this sequence's path, us */
static u64 rate_most;			/* of it, packets/s */
static u8 ca_state;
static bool acked, trace;		/* did an ACK come since a rest of the stack set cwnd? */
static u64 calm_rate;			/* of the calm path that it is on, packets/s */
static const char *event;
static bool marks;			/* does the path mark? */
static u64 seed, sequence, visits[PROBE_RTT + 1], calm_runs, calm_longest;

static void state_of(FILE *to)
{
	fprintf(to, "%s: now %llu cwnd %u clamp %u pacing %lu of %lu mss %u out %u sacked %u lost %u retrans %u rtt_min %u | state %u rounds %u bw %u %u "
		"round %u rate %u hi %u lo %u min_rtt %u round_rtt %u cycle_rtt %u full_bw %u prior %u undo_hi %u extra %u %u aim %u marked %u raise %u tolerate %u queue %u "
		"gain %u full %u hit %u held %u idle %u rto %u lossy %u app %u queued %u\n",
		event, tp.tcp_mstamp, tp.snd_cwnd, tp.snd_cwnd_clamp, sk.sk_pacing_rate, sk.sk_max_pacing_rate, tp.mss_cache, tp.packets_out, tp.sacked_out,
		tp.lost_out, tp.retrans_out, tp.rtt_min.s[0].v, b->state, b->rounds, b->bw[0], b->bw[1], b->bw_round, b->rate, b->hi, b->lo, b->min_rtt,
		b->round_rtt, b->cycle_rtt, b->full_bw, b->prior_cwnd, b->undo_hi, b->extra[0], b->extra[1], b->aim, b->marked, b->raise, b->tolerate, b->queue, b->gain, b->full,
		b->hit, b->held, b->idle, b->rto, b->lossy, b->app, b->queued);
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	printf("\nagain: random %llu %llu 1\n", seed, sequence);
	state_of(stdout);
	exit(1);
}

#define HOLDS(that) do { if (!(that)) fail("bpf/random.c:%d: not true: %s", __LINE__, #that); } while (0)

/*
 * What clang calls where C says nothing of the result. Clocks and counters of 32 bits wrap, and are meant to: not so a product, nor what has 64.
 */
struct type { u16 kind, info; char name[]; };
struct place { const char *file; u32 line, column; const struct type *type; };
#define UNDEFINED(what) \
	void __ubsan_handle_##what(const struct place *p); \
	void __ubsan_handle_##what(const struct place *p) { fail("%s:%u: %s", p->file, p->line, #what); }
#define WRAPS(what, may) \
	void __ubsan_handle_##what(const struct place *p); \
	void __ubsan_handle_##what(const struct place *p) \
	{ \
		if (!(may && p->type->info >> 1 == 5)) /* log2 of its bits */ \
			fail("%s:%u: %s wraps", p->file, p->line, #what); \
	}
UNDEFINED(add_overflow_abort) UNDEFINED(sub_overflow_abort) UNDEFINED(mul_overflow_abort) UNDEFINED(negate_overflow_abort)
UNDEFINED(divrem_overflow_abort) UNDEFINED(shift_out_of_bounds_abort) UNDEFINED(out_of_bounds_abort) UNDEFINED(load_invalid_value_abort)
UNDEFINED(type_mismatch_v1_abort) UNDEFINED(pointer_overflow_abort) UNDEFINED(implicit_conversion_abort) UNDEFINED(float_cast_overflow_abort)
UNDEFINED(nonnull_arg_abort) UNDEFINED(invalid_builtin_abort) UNDEFINED(builtin_unreachable)
WRAPS(add_overflow, true) WRAPS(sub_overflow, true) WRAPS(mul_overflow, false) WRAPS(negate_overflow, true)

static void check(const char *what)
{
	event = what;
	if (trace && !calm_rate)
		state_of(stdout);
	HOLDS(b->state <= PROBE_RTT);
	visits[b->state]++;
	HOLDS(sk.sk_pacing_rate <= sk.sk_max_pacing_rate);
	HOLDS(sk.sk_pacing_status == SK_PACING_NEEDED);
	if (acked) {
		HOLDS(tp.snd_cwnd >= min_of(MIN_CWND, tp.snd_cwnd_clamp));
		HOLDS(tp.snd_cwnd <= tp.snd_cwnd_clamp);
	}
	HOLDS(b->hi >= MIN_CWND);
	HOLDS(b->lo >= MIN_CWND);
	HOLDS(b->rate > 0);
	HOLDS(b->min_rtt > 0 && b->min_rtt != NONE);
	HOLDS(b->aim >= AIM_LEAST);
	HOLDS(b->tolerate <= 1 << SHARE_SHIFT);
	HOLDS(b->queue >= QUEUE_LEAST);
	HOLDS(b->gain >= 100 - GAIN_DOWN && b->gain <= HELD_GAIN);
	HOLDS(!b->full || max_bw(b) > 0);
}

static void check_ack(const char *what)
{
	acked = true;
	check(what);
	HOLDS(sk.sk_pacing_rate > 0);
}

static u32 below(u32 n) { return n ? (u32)((u64)roll() * n >> 32) : 0; }
static bool one_in(u32 n) { return below(n) == 0; }

/* As likely to have one number of digits as another: least ≤ x ≤ most. */
static u64 spread(u64 least, u64 most)
{
	u64 low = least, high;

	for (u32 doublings = below(64 - (u32)__builtin_clzll(most / least)); doublings; doublings--)
		low *= 2;
	high = low < most / 2 ? 2 * low : most;
	return low + ((u64)roll() * (high - low + 1) >> 32);
}

static void hear_rtt(u32 rtt)
{
	u64 smoothed = tp.srtt_us ? tp.srtt_us - (tp.srtt_us >> 3) + rtt : 8ULL * rtt;

	tp.srtt_us = (u32)smoothed;
	if (rtt <= tp.rtt_min.s[0].v || tp.tcp_mstamp - rtt_min_at > RTT_MIN_WINDOW) {
		tp.rtt_min.s[0].v = rtt;
		rtt_min_at = tp.tcp_mstamp;
	}
}

static void set_state(u8 to)
{
	bbr_state(&tp, to);
	ca_state = to;
	check("set_state");
}

static void start(void)
{
	const u64 clocks[] = {0, 0xffffffffULL - 2 * S, (1ULL << 42) - 3 * S, (1ULL << 41) - 3 * S}; /* us, and units of 1024 us, wrap soon */

	tp = (struct tcp_sock){};
	sk = (struct sock){.sk_max_pacing_rate = ~0UL, .sk_pacing_rate = ~0UL};
	calm_rate = 0;
	may_limit = one_in(2);
	acked = false;
	ca_state = TCP_CA_Open;
	tp.tcp_mstamp = clocks[below(4)] + below(4 * S);
	tp.mss_cache = one_in(8) ? below(65483 - 88) + 88 : below(9000 - 536) + 536;
	tp.snd_cwnd = one_in(4) ? (u32)spread(1, 10000) : 10;
	tp.snd_cwnd_clamp = one_in(16) ? (u32)spread(2, 1000) : NONE;
	tp.snd_cwnd = min_of(tp.snd_cwnd, tp.snd_cwnd_clamp);
	tp.snd_ssthresh = 0x7fffffff;
	if (one_in(4)) {
		tp.delivered = 0 - below(1000);
		tp.lost = 0 - below(100);
		tp.delivered_ce = 0 - below(100);
	}
	first_delivered = tp.delivered;
	marks = one_in(4);
	if (one_in(16))
		sk.sk_max_pacing_rate = sk.sk_pacing_rate = spread(1000, MOST_BITS * S / 8);

	/* One path, or a different one for each packet. */
	rtt_least = (u32)spread(10, 2 * S);
	rtt_most = min_of(rtt_least + (u32)spread(1, 10 * S), 10 * S);
	rate_most = spread(1, MOST_BITS * S / (8ULL * max_of(tp.mss_cache, 536)));
	if (one_in(4)) {
		rtt_least = 1;
		rtt_most = 10 * S;
		rate_most = MOST_BITS * S / (8 * 536);
	}
	tp.rtt_min.s[0].v = NONE;
	rtt_min_at = tp.tcp_mstamp;
	if (!one_in(3))
		hear_rtt((u32)spread(rtt_least, rtt_most));
	bbr_start(&sk, &tp);
	check("start");
}

static void send(void)
{
	u32 flight = in_flight(&tp), room = tp.snd_cwnd > flight ? tp.snd_cwnd - flight : 0, again = min_of(room, tp.lost_out - tp.retrans_out);

	if (!tp.packets_out && !one_in(4)) {
		bbr_restart(&sk, &tp);
		check("restart");
	}
	tp.retrans_out += again;
	room -= again;
	tp.packets_out += one_in(2) ? room : below(min_of(room, NONE - 1) + 1);
	if (tp.packets_out > 1 << 24) /* more than any buffer has */
		tp.packets_out = 1 << 24;
}

static void lose(void)
{
	u32 n = tp.packets_out - tp.sacked_out - tp.lost_out;

	n = one_in(2) ? n : below(n + 1);
	tp.lost_out += n;
	tp.lost += n;
	if (one_in(8)) { /* what was sent again, too */
		n = below(tp.retrans_out + 1);
		tp.retrans_out -= n;
		tp.lost += n;
	}
}

static void acknowledge(void)
{
	struct rate_sample rs = {.delivered = -1, .interval_us = -1, .rtt_us = -1, .prior_delivered = tp.delivered, .is_app_limited = one_in(4)};
	u32 sacked = 0, gone = below(min_of(tp.packets_out, 65535) + 1), was_sacked, was_lost, n;

	if (one_in(3)) {
		sacked = below(min_of(tp.packets_out - tp.sacked_out - tp.lost_out, 1000) + 1);
		gone = one_in(2) ? 0 : gone;
	}
	tp.sacked_out += sacked;
	/* Of those that are gone some were sacked before, and some were lost and sent again. */
	was_lost = min_of(tp.lost_out, gone);
	was_sacked = min_of(tp.sacked_out, gone - was_lost);
	tp.packets_out -= gone;
	tp.sacked_out -= was_sacked;
	tp.lost_out -= was_lost;
	tp.retrans_out = min_of(tp.retrans_out, tp.lost_out);
	tp.sacked_out = min_of(tp.sacked_out, tp.packets_out - tp.lost_out);
	n = gone - min_of(was_sacked, gone) + sacked;
	tp.delivered += n;
	if (marks && one_in(3))
		tp.delivered_ce += one_in(2) ? n : below(n + 1) + below(16); /* or some that were heard of late */
	rs.acked_sacked = n;
	if (n && !one_in(16)) {
		rs.rtt_us = (long)spread(rtt_least, rtt_most);
		hear_rtt((u32)rs.rtt_us);
	}
	if (n && !one_in(16)) {
		u32 ever = tp.delivered - first_delivered, d = min_of(n + below(in_flight(&tp) + 1), ever);
		u64 most = max_of((u32)(rate_most * 1024 / S), 1), least = d * 1024ULL / most;

		rs.prior_delivered = tp.delivered - d;
		rs.delivered = (s32)d;
		rs.interval_us = (long)spread(least + 1, least + 1 + spread(1, 10 * S));
		if (rs.interval_us < tp.rtt_min.s[0].v || one_in(32)) /* as the kernel does */
			rs.interval_us = one_in(2) ? -1 : 0;
	}
	if (tp.app_limited && (s32)(tp.delivered - tp.app_limited) > 0)
		tp.app_limited = 0;
	bbr_ack(&sk, &tp, &rs);
	check_ack("ack");
}

static void reduce(void) /* into recovery, or for a mark */
{
	u32 before = tp.snd_cwnd;

	tp.snd_ssthresh = bbr_ssthresh(&tp);
	HOLDS(tp.snd_cwnd == before);
}

static void time_out(void)
{
	u32 n = tp.packets_out - tp.sacked_out - tp.lost_out;

	reduce();
	tp.lost_out += n;
	tp.lost += n;
	tp.retrans_out = 0;
	tp.snd_cwnd = in_flight(&tp) + 1;
	acked = false;
	set_state(TCP_CA_Loss);
}

static void undo(void)
{
	u32 before = tp.snd_cwnd;

	tp.lost_out = tp.retrans_out = 0;
	tp.snd_cwnd = bbr_undo(&tp);
	HOLDS(tp.snd_cwnd >= before);
	acked = false; /* the clamp may be a new one: the next ACK keeps it */
	check("undo");
	set_state(TCP_CA_Open);
}

static void happen(void)
{
	switch (below(64)) {
	case 0:
		time_out();
		break;
	case 1:
		if (ca_state != TCP_CA_Open)
			undo();
		break;
	case 2:
		if (ca_state == TCP_CA_Open) {
			reduce();
			set_state(one_in(4) ? TCP_CA_CWR : TCP_CA_Recovery);
		} else if (ca_state == TCP_CA_Loss && one_in(4)) {
			set_state(TCP_CA_Recovery); /* what was sent again was lost */
		}
		break;
	case 3:
		tp.mss_cache = below(9000 - 536) + 536;
		break;
	case 4:
		tp.snd_cwnd_clamp = one_in(2) ? NONE : (u32)spread(2, 100000);
		acked = false;
		break;
	case 5:
		sk.sk_max_pacing_rate = one_in(2) ? ~0UL : spread(1000, MOST_BITS * S / 8);
		if (sk.sk_pacing_rate > sk.sk_max_pacing_rate) /* as setsockopt() does */
			sk.sk_pacing_rate = sk.sk_max_pacing_rate;
		break;
	case 6: case 7:
		tp.tcp_mstamp += spread(S, 10 * S);
		break;
	case 8: case 9: case 10:
		lose();
		break;
	case 11: case 12: /* nothing is left to send */
		tp.app_limited = (tp.delivered + in_flight(&tp)) ? : 1;
		break;
	case 13: case 14: /* and all has come */
		tp.packets_out = tp.sacked_out = tp.lost_out = tp.retrans_out = 0;
		break;
	default:
		if (ca_state != TCP_CA_Open && one_in(8))
			set_state(one_in(4) ? TCP_CA_Disorder : TCP_CA_Open);
		send();
		tp.tcp_mstamp += spread(1, one_in(4) ? S : min_of(rtt_most, S));
		acknowledge();
	}
}

/*
 * A path: one bottleneck of a fixed rate, a FIFO before it, and a fixed delay. What does not fit is lost, and is told when it would have come. Times are ns.
 */
struct burst {
	u64 back, sent, prior_at, first_sent;
	u32 n, prior_delivered;
	bool lost;
};

#define BURSTS	(1U << 17)
static struct burst bursts[BURSTS];

static void calm(void)
{
	u64 rtt = 1000 * spread(10, CALM_RTT), rate = spread(CALM_LEAST, CALM_MOST);
	u64 buffer = max_of((u32)(2 * rate * (rtt / 1000) / S), 200), window = 3 * S * 1000 + 10 * rtt;
	u64 began = tp.tcp_mstamp * 1000, now = began, end, pace_at = now, free_at = now, came_at = now, first_sent = now, window_at, came = 0;
	u32 head = 0, tail = 0;

	/* All that was sent before has come. */
	ca_state = TCP_CA_Open;
	bbr_state(&tp, TCP_CA_Open);
	tp.packets_out = tp.sacked_out = tp.lost_out = tp.retrans_out = tp.app_limited = 0;
	tp.snd_cwnd_clamp = NONE;
	if (tp.mss_cache < 1000 || tp.mss_cache > 9000) /* small ones hear their own bursts, which are of 64 KiB, as a queue */
		tp.mss_cache = 1448;
	sk.sk_max_pacing_rate = ~0UL;
	end = now + 1000 * (BACK_IN + (rtt > 1000ULL * tp.rtt_min.s[0].v ? RTT_MIN_WINDOW : 0)) + 100 * rtt;
	window_at = now + window;
	calm_runs++;
	calm_rate = rate;
	if (trace)
		printf("calm: %llu packets/s, RTT %llu us, FIFO of %llu packets\n", rate, rtt / 1000, buffer);
	for (;;) {
		bool may = tp.packets_out < tp.snd_cwnd && tail - head < BURSTS - 2;

		HOLDS(may || head != tail);
		if (may && (head == tail || (pace_at > now ? pace_at : now) <= bursts[head % BURSTS].back)) {
			u64 burst = min_of((u32)(sk.sk_pacing_rate / 1000), 65536) / tp.mss_cache; /* TSO: 1 ms, but 64 KiB */
			u32 n = min_of(tp.snd_cwnd - tp.packets_out, max_of((u32)burst, 2)), fits;
			u64 waits;

			now = pace_at > now ? pace_at : now;
			if (!tp.packets_out)
				came_at = first_sent = now;
			free_at = free_at > now ? free_at : now;
			waits = (u64)((double)(free_at - now) * (double)rate / 1e9);
			fits = waits >= buffer ? 0 : min_of(n, (u32)(buffer - waits));
			free_at += (u64)(fits * 1e9 / (double)rate);
			if (fits)
				bursts[tail++ % BURSTS] = (struct burst){free_at + rtt, now, came_at, first_sent, fits, tp.delivered, false};
			if (fits < n)
				bursts[tail++ % BURSTS] = (struct burst){free_at + rtt, now, came_at, first_sent, n - fits, tp.delivered, true};
			tp.packets_out += n;
			if (sk.sk_pacing_rate)
				pace_at = now + (u64)((double)n * tp.mss_cache * 1e9 / (double)sk.sk_pacing_rate);
			continue;
		}
		struct burst *p = &bursts[head++ % BURSTS];

		now = p->back > now ? p->back : now;
		tp.tcp_mstamp = now / 1000;
		if (now >= window_at) {
			double share = (double)came * 1e9 / (double)(now - window_at + window) / (double)rate;

			if (trace) {
				printf("%llu ms, share %.3f: ", (now - began) / 1000000, share);
				state_of(stdout);
			}
			if (share >= 0.8) {
				calm_longest = now - began > calm_longest ? now - began : calm_longest;
				return;
			}
			if (now > end)
				fail("%llu s on a path of %llu packets/s and %llu us, and %.3f of it is used", (now - began) / 1000000000, rate,
				     rtt / 1000, share);
			came = 0;
			window_at = now + window;
		}
		tp.packets_out -= p->n;
		if (p->lost) {
			tp.lost += p->n;
			continue;
		}
		tp.delivered += p->n;
		came += p->n;
		came_at = now;
		first_sent = p->sent;
		struct rate_sample rs = {.prior_delivered = p->prior_delivered, .delivered = (s32)(tp.delivered - p->prior_delivered),
			.acked_sacked = p->n, .rtt_us = (long)(now - p->sent) / 1000};
		u64 sending = p->sent - p->first_sent, coming = now - p->prior_at;

		rs.interval_us = (long)((sending > coming ? sending : coming) / 1000);
		hear_rtt((u32)rs.rtt_us);
		if (rs.interval_us < tp.rtt_min.s[0].v)
			rs.interval_us = -1;
		bbr_ack(&sk, &tp, &rs);
		check_ack("calm");
	}
}

int main(int count, char **words)
{
	u64 first, end;

	if (count != 4)
		return 2;
	seed = strtoull(words[1], NULL, 10);
	first = strtoull(words[2], NULL, 10);
	end = first + strtoull(words[3], NULL, 10);
	trace = end - first == 1;
	for (sequence = first; sequence < end; sequence++) {
		dice = seed << 40 ^ sequence;
		roll();
		start();
		for (u32 n = below(EVENTS); n; n--)
			happen();
		if (sequence % CALM_ONE_IN == 0)
			calm();
	}
	if (trace)
		return 0;
	for (u32 i = 0; i <= PROBE_RTT; i++) {
		printf("state %u: %llu times\n", i, visits[i]);
		if (!visits[i]) /* what has not been seen has not been tried */
			return 1;
	}
	printf("%llu calm paths, the longest way back %.1f s\n", calm_runs, (double)calm_longest / 1e9);
	return !calm_runs;
}
