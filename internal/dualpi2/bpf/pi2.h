/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The PI2 controller of RFC 9332, Appendix A.1, in whole numbers.
 *
 * A probability is a u32 in units of 1/MAX_PROB. A gain is a whole number of 2^-gain_shift of that unit for each nanosecond of delay; the loader
 * chooses the shift so that the larger gain takes 29 bits, which makes both exact to one part in 2^29 of the larger one. An update is exact but for
 * that and for half a unit of rounding.
 */
#pragma once

#define MAX_PROB 0xffffffffU	/* 1 */
#define MAX_DELAY 0xffffffffULL	/* ns: no delay counts for more, so that the sum of two products with a gain fits 63 bits */

struct pi2 {
	u64 target;		/* ns, up to MAX_DELAY: the C queue's delay */
	u64 tupdate;		/* ns: how often the probability is updated */
	u32 alpha;		/* integral gain */
	u32 beta;		/* proportional gain */
	u32 gain_shift;
	u32 max_prob;		/* the largest p': 1, or 1/k where no overload is to be answered by drops */
};

struct pi2_state {
	u64 due;		/* ns, CLOCK_MONOTONIC: the next update; 0: there has been none */
	u64 last_delay;		/* ns: the queue delay at the last update */
	u32 prob;		/* p' */
};

static __always_inline u32 pi2_bound(const struct pi2 *c, s64 prob)
{
	return prob < 0 ? 0 : prob > c->max_prob ? c->max_prob : prob;
}

/* A change of p', rounded to the nearest, for a delay that is off the target by error and off the last one by change. */
static __always_inline s64 pi2_delta(const struct pi2 *c, s64 error, s64 change)
{
	u32 shift = c->gain_shift & 63;

	return (error * c->alpha + change * c->beta + (1LL << shift >> 1)) >> shift;
}

/* One update, RFC 9332 figure 6: p' += alpha * (delay - target) + beta * (delay - last_delay). */
static __always_inline void pi2_update(const struct pi2 *c, struct pi2_state *s, u64 delay)
{
	if (delay > MAX_DELAY)
		delay = MAX_DELAY;
	s->prob = pi2_bound(c, (s64)s->prob + pi2_delta(c, delay - c->target, delay - s->last_delay));
	s->last_delay = delay;
}

/*
 * All updates that are due. There is no timer: this is called before anything is put into a queue or taken out, so between the last call and this one
 * the head of the queue has been the same (head is when it came; 0: there is none), and what each update would have seen at its time is known. One
 * update is exact, and so are any number on empty queues; several on a queue that stands still are as if p' had met no bound on the way.
 */
static __always_inline void pi2_catch_up(const struct pi2 *c, struct pi2_state *s, u64 now, u64 head)
{
	u64 n, last = 0, mean = 0;
	s64 step;

	if (now < s->due)
		return;
	if (!s->due)
		s->due = now;
	else
		pi2_update(c, s, head && head < s->due ? s->due - head : 0);
	s->due += c->tupdate;
	if (now < s->due)
		return;
	n = (now - s->due) / c->tupdate + 1;
	s->due += n * c->tupdate;
	if (n > 1 << 16)
		n = 1 << 16; /* far more than it takes from one bound to the other */
	if (head) {
		last = s->last_delay + n * c->tupdate;
		mean = s->last_delay + (n + 1) * c->tupdate / 2; /* they grow by tupdate each */
		if (last > MAX_DELAY)
			last = MAX_DELAY;
		if (mean > MAX_DELAY)
			mean = MAX_DELAY;
	}
	step = pi2_delta(c, mean - c->target, 0);
	if (step < -(s64)MAX_PROB) /* from one bound to the other, and no more, for the product */
		step = -(s64)MAX_PROB;
	if (step > (s64)MAX_PROB)
		step = MAX_PROB;
	s->prob = pi2_bound(c, (s64)s->prob + (s64)n * step + pi2_delta(c, 0, last - s->last_delay));
	s->last_delay = last;
}
