/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A shaper that is fair between clients, over all queues and cores: the algorithm alone. random.c
 * tries it with random packets on CPUs that interrupt each other anywhere.
 *
 * It holds no packets. It gives each an earliest departure time, which fq below keeps. A client has
 * a clock: when all that it was given will be out, at the rate that was its share when it was given.
 * Until then the client is active, and the rate is divided among those who are. Who uses less than
 * its share is active for that part of the time only, so what it leaves goes to the others: the
 * shares are max-min fair, and nobody's rate is measured.
 *
 * How many are active is counted in a calendar. A client is entered in the slot of time in which its
 * clock ends, and when that slot is over it counts no more: no timer, and no walk over clients. The
 * calendar turns round, so each of its words says which slot it stands for, and whoever comes too
 * late to change one finds that out. What the words hold and what is counted as active differ only
 * by what CPUs are just about to add, whatever their order: the count cannot drift.
 */
#pragma once

#define SLOTS		2048		/* of the calendar */
#define HORIZON		(SLOTS / 2 - 1)	/* slots that a clock may be ahead; beyond, a client gets more than its share */
#define PARTS		63		/* a client of weight 1 that is active throughout a slot */
#define MAX_WEIGHT	64
#define NS_SHIFT	20		/* times for each byte are ns << 20 */
#define ONE		65536		/* gains are of this */
#define TRIM_SHIFT	8		/* but the trim has more digits */
#define MAX_TRIM	(ONE / 20)	/* 5 %: more of it overshoots by as much when many come at once */
#define MIN_GAIN	(ONE / 2)
#define LONGEST		(1ULL << 33)	/* ns: 8.6 s */
#define TRIES		8		/* a CPU fails only where another one has got its change in; the verifier walks through them all */

struct params {
	u64 ns_per_byte;	/* << NS_SHIFT, at the rate that the clients share */
	u64 slot_bytes;		/* what that rate sends in a slot */
	u64 trim_gain;		/* << 16, of ONE << TRIM_SHIFT for each byte that a slot lacks */
	u64 settle_slots;	/* in which an overshoot is taken back */
	u64 target;		/* ns that a client's packets may wait without a mark */
	u64 limit;		/* ns that none may wait for longer but what takes marks; above target */
	u32 slot_shift;		/* a slot is 1 << slot_shift ns */
};

struct shaper {
	u64 slot __attribute__((aligned(64)));	/* all before it are over */
	u64 ns_per_byte;			/* now */
	u64 walking __attribute__((aligned(64)));
	s64 over;				/* bytes that were sent above the rate, and not yet taken back */
	s64 trim;				/* of ONE << TRIM_SHIFT */
	u64 sent;				/* bytes whose slot is over */
	s64 active __attribute__((aligned(64))); /* parts times weight */
	s64 late;				/* bytes that came when their slot was over */
	u64 ends[SLOTS], leaves[SLOTS];		/* a slot's number << 32, and parts or bytes */
};

/* The clock (ns, 52 bits), the parts for which it counts in its slot, and the weight less 1 (6 bits each): one word, as they change together. */
struct client {
	u64 word;
	u64 cap_clock;		/* ns */
	u64 cap;		/* ns for a byte << NS_SHIFT, that it may not be faster than; or 0 */
	u64 sparse_clock;	/* ns: as a flow's clock, for all packets that went first */
	u32 weight;		/* 1 to MAX_WEIGHT */
	u32 fair;		/* as a flow's use: more than that is too much; 0 as long as nothing has waited */
};
#define CLOCK_SHIFT	12
#define PARTS_SHIFT	6

/* What a flow uses is time that its client needs for it at its rate, over the last 1 << MEMORY_SHIFT ns or so. */
#define MEMORY_SHIFT	25		/* 34 ms: some packets of each of ten flows at 10 Mbit/s */
#define MEMORY		(1U << MEMORY_SHIFT)
#define MAX_USE		(16 * (u64)MEMORY - 1)
#define SPARSE		8		/* a flow is sparse if it uses less than this part of what is fair */
#define FAR_TOO_MUCH	8		/* times what is fair: marks do not slow it down */
#define FULL_FRAME	1514		/* bytes */

struct flow {
	u64 last;		/* ns: when its last packet leaves */
	u64 clock;		/* ns: it is sparse once this has passed */
	u64 came;		/* ns: its last packet */
	u64 used;		/* ns, as of then; the last bit: its data may be marked */
};

enum verdict { PASS, MARK, DROP };

/* Who includes this has STEP(), which another CPU may come in between, and DICE(), a random u32. */

#define READ(x)			(*(volatile __typeof__(x) *)&(x))
#define add(p, n)		((void)__sync_fetch_and_add(p, n))
#define swap(p, n)		__sync_lock_test_and_set(p, n)
#define change_if(p, is, to)	__sync_val_compare_and_swap(p, is, to)

/* Adds to a slot of the calendar; false if it is over, or not in the calendar yet. */
static __always_inline bool slot_add(u64 *words, u64 slot, u32 n)
{
	u64 *word = &words[slot & (SLOTS - 1)], seen = READ(*word), was;
	int try;

	for (try = 0; try < TRIES; try++) {
		if (seen >> 32 != (u32)slot)
			return false;
		STEP();
		was = change_if(word, seen, (u64)(u32)slot << 32 | (u32)((u32)seen + n));
		if (was == seen)
			return true;
		seen = was;
	}
	return false;
}

/* A slot is over. */
static __always_inline void end_slot(struct shaper *s, const struct params *p, u64 slot)
{
	u64 i = slot & (SLOTS - 1), next = (u64)(u32)(slot + SLOTS) << 32, bytes;
	s64 parts, lack, trim = s->trim;

	parts = (s32)swap(&s->ends[i], next);
	STEP();
	if (parts)
		add(&s->active, -parts);
	STEP();
	bytes = (u32)swap(&s->leaves[i], next);
	s->sent += bytes;
	lack = (s64)p->slot_bytes - (s64)bytes;
	s->over = s->over > lack ? s->over - lack : 0;
	/* Alone, a client may not be able to send more: only while somebody waits is what lacks made good. */
	if (READ(s->active) >= PARTS * 98 / 100)
		trim += lack * (s64)p->trim_gain >> 16;
	else
		trim -= trim >> 7;
	if (trim > MAX_TRIM << TRIM_SHIFT)
		trim = MAX_TRIM << TRIM_SHIFT;
	if (trim < -(MAX_TRIM << TRIM_SHIFT))
		trim = -(MAX_TRIM << TRIM_SHIFT);
	s->trim = trim;
}

/* How fast it is now, from what the slots that are over have sent. */
static __always_inline void set_rate(struct shaper *s, const struct params *p)
{
	s64 gain = ONE + (s->trim >> TRIM_SHIFT) - (s64)((u64)s->over * ONE / (p->slot_bytes * p->settle_slots));

	if (gain < MIN_GAIN)
		gain = MIN_GAIN;
	s->ns_per_byte = p->ns_per_byte * ONE / (u64)gain;
}

/* Begins to end slots: from the one that is returned on, or none if it is not below to. One CPU at a time does. */
static __always_inline u64 begin_walk(struct shaper *s, u64 to)
{
	u64 from = READ(s->slot);

	if (from >= to || READ(s->walking) || change_if(&s->walking, 0, 1))
		return to;
	STEP();
	from = READ(s->slot);
	if (from >= to) {
		s->walking = 0;
		return to;
	}
	return to - from > SLOTS ? to - SLOTS : from; /* after a silence of more than a turn, each word once */
}

static __always_inline void end_walk(struct shaper *s, const struct params *p, u64 to)
{
	s64 late = swap(&s->late, 0);

	s->over += late;
	s->sent += (u64)late;
	set_rate(s, p);
	STEP();
	READ(s->slot) = to;
	STEP();
	READ(s->walking) = 0;
}

/*
 * How far a client's clock is ahead, ns; below 0 if it has ended. It may be further ahead than the horizon of a CPU that was interrupted since it looked at
 * the time. But one that seems to be ahead by more than 8 s has not been looked at for weeks.
 */
static __always_inline s64 ahead_of(u64 word, u64 now)
{
	s64 ahead = (s64)(((word >> CLOCK_SHIFT) - now) << CLOCK_SHIFT) >> CLOCK_SHIFT;

	return ahead > (s64)LONGEST ? -(s64)LONGEST : ahead;
}

/* The word of a client that is new: its clock ended so long ago that it is in no slot of any calendar. */
static __always_inline u64 new_word(u64 now) { return (now - 2 * LONGEST) << CLOCK_SHIFT; }

/* Charges a client for bytes, and returns when its turn comes, ns. */
static __always_inline u64 charge(struct shaper *s, const struct params *p, struct client *c, u64 now, u32 bytes)
{
	u64 base = bytes * READ(s->ns_per_byte) >> NS_SHIFT, horizon = (u64)HORIZON << p->slot_shift;
	u64 seen = READ(c->word), weight = c->weight, full = weight * PARTS, slot, start, stop, end, dt, parts, was_slot, is;
	s64 ahead, others, was, change = 0;
	int try;

	for (try = 0; try < TRIES; try++) {
		slot = READ(s->slot);
		if (now < slot << p->slot_shift) /* this CPU was interrupted: it is later by now */
			now = slot << p->slot_shift;
		STEP();
		ahead = ahead_of(seen, now);
		was_slot = (now + (u64)ahead) >> p->slot_shift;
		parts = was = 0;
		if (ahead > -(s64)LONGEST && was_slot >= slot) {
			parts = seen >> PARTS_SHIFT & 63;
			was = (s64)(parts * ((seen & 63) + 1));
		}
		others = READ(s->active) - was;
		if (others < 0)
			others = 0;
		dt = base * ((u64)others + full) / full;
		start = ahead > 0 ? now + (u64)ahead : now;
		stop = start + dt;
		if (stop > now + horizon)
			stop = now + horizon;
		end = stop >> p->slot_shift;
		if (end > slot) {
			parts = PARTS;
		} else {
			end = slot;
			/* Rounded by chance, for which the time is good enough: short packets are a small part of one. */
			parts += dt * PARTS + (now & ((1ULL << p->slot_shift) - 1)) >> p->slot_shift;
			if (parts > PARTS)
				parts = PARTS;
		}
		STEP();
		is = change_if(&c->word, seen, stop << CLOCK_SHIFT | parts << PARTS_SHIFT | (weight - 1));
		if (is == seen)
			break;
		seen = is;
	}
	if (try == TRIES)
		return start;
	parts *= weight;
	if (was == (s64)parts && (was_slot == end || !was))
		return start;
	STEP();
	if (was && slot_add(s->ends, was_slot, (u32)-was))
		change -= was;
	STEP();
	if (slot_add(s->ends, end, (u32)parts))
		change += (s64)parts;
	STEP();
	if (change)
		add(&s->active, change);
	return start;
}

/* When a client that may not be faster than its cap may send, ns. */
static __always_inline u64 charge_cap(struct client *c, u64 now, u32 bytes)
{
	u64 seen = READ(c->cap_clock), start = now, is;
	int try;

	for (try = 0; try < TRIES; try++) {
		start = seen > now ? seen : now;
		STEP();
		is = change_if(&c->cap_clock, seen, start + (bytes * c->cap >> NS_SHIFT));
		if (is == seen)
			break;
		seen = is;
	}
	return start;
}

/* A packet, or several as one superpacket. */
struct arrival {
	u64 now, wanted;	/* ns: the time, and when its sender wants it to leave, if it says so */
	u32 bytes;		/* on the wire */
	bool small, ect;	/* of at most two packets; it may be marked */
	bool marked;		/* what became of it, if it was not dropped */
};

static __always_inline u64 fair_of(const struct client *c) { return c->fair ? c->fair : 2 * MEMORY; }

/* How long a client's packet has to wait, ns. */
static __always_inline u64 wait_of(struct client *c, u64 now)
{
	s64 ahead = ahead_of(READ(c->word), now);
	u64 wait = ahead > 0 ? (u64)ahead : 0, capped = READ(c->cap_clock);

	return c->cap && capped > now + wait ? capped - now : wait;
}

/*
 * What becomes of a packet that has to wait, and takes unit ns at its client's rate; a full frame takes frame ns.
 *
 * A client's packets leave in the order in which they came, so its flows share as they come. Those that send more than is fair are marked for what is too
 * much, and what is fair is whatever makes the packets wait for the target: Approximate Fair Dropping (Pan, Breslau, Prabhakar and Shenker 2003), but
 * that each flow's use is known here, not estimated from samples. A flow that marks do not slow down is dropped from; of one that they do slow down
 * nothing is, not even what cannot be marked, as acknowledgements and what is sent again (RFC 3168, sections 6.1.4 and 6.1.5).
 */
static __always_inline enum verdict judge(const struct params *p, struct client *c, struct flow *f, const struct arrival *a,
	u64 unit, u64 frame)
{
	u64 wait = wait_of(c, a->now), fair = fair_of(c), since, used, target, weight, each, most, off, room;
	bool marks;

	if (!wait && fair == 2 * MEMORY) /* nothing is too much, whosoever it is */
		return PASS;
	since = a->now > f->came ? a->now - f->came : 0;
	used = f->used;
	target = p->target > 2 * unit ? p->target : 2 * unit;
	weight = unit < MEMORY ? unit : MEMORY;
	each = 2 * frame * MEMORY / fair; /* two frames of each flow */
	most = ((u64)HORIZON << p->slot_shift) / 4 * 3; /* what takes marks may wait for longer, as they take an RTT to tell */
	if (target < each)
		target = each;
	if (target > p->limit / 2)
		target = p->limit / 2;
	marks = a->ect || used & 1 && since < MEMORY;
	used = since < MEMORY ? used - (used * since >> MEMORY_SHIFT) : 0;
	used += unit;
	if (used > MAX_USE)
		used = MAX_USE;
	f->came = a->now;
	f->used = used & ~1ULL | marks;
	/* So far nothing was too much. Marks take an RTT to tell, so they begin near what one flow uses: else what tells is that the queue is full. But what
	 * the client's whole rate carries is not far too much at once, however little the flow uses that is the first to wait. */
	if (marks && wait > target && fair == 2 * MEMORY && used < fair / 3 * 2) {
		fair = used / 2 * 3;
		if (fair < MEMORY / FAR_TOO_MUCH)
			fair = MEMORY / FAR_TOO_MUCH;
	}
	off = wait > target ? wait - target : target - wait;
	if (off > 4 * target)
		off = 4 * target;
	if (wait > target && used < fair / 2 && !marks) /* it is far too much for all flows that there are, as when many begin */
		off *= 4;
	if (wait > target && marks) /* more marks are no use until then, and drops the last resort; those who use little are no measure of what is fair */
		off /= used > fair ? 8 : 4;
	off = (fair * weight >> MEMORY_SHIFT) * off / (8 * target); /* e times less in 270 ms at twice the target */
	fair = wait > target ? fair - off : fair + off;
	if (fair > 2 * MEMORY)
		fair = 2 * MEMORY;
	if (fair < MEMORY / 1024)
		fair = MEMORY / 1024;
	c->fair = (u32)fair;
	if (wait < target / 2)
		return PASS;
	if (wait >= (marks ? most : p->limit))
		return DROP;
	room = wait >= p->limit ? 0 : wait > target ? fair * (p->limit - wait) / (p->limit - target) : fair;
	if (used <= room || DICE() <= (u32)(room * 0xffffffff / used))
		return PASS;
	if (!marks || used > FAR_TOO_MUCH * fair)
		return DROP;
	return a->ect ? MARK : PASS;
}

/*
 * When a packet leaves, ns; 0 if it is dropped. Not before the time that its sender wants. The walk has begun and ended.
 *
 * A short packet of a flow that uses less than an eighth of what is fair leaves at once, as long as no more than half of what its client may send does, and
 * few at a time: ten connections would be sparse one by one. No flow's packets overtake each other.
 */
static __always_inline u64 departure(struct shaper *s, const struct params *p, struct client *c, struct flow *f, struct arrival *a)
{
	u64 now = a->now, start = now, at = now >> p->slot_shift, unit, frame, per_byte, leaves, full = c->weight * PARTS;
	s64 active = READ(s->active);
	enum verdict verdict;
	bool first;

	per_byte = READ(s->ns_per_byte) * (active > (s64)full ? (u64)active : full) / full;
	if (per_byte < c->cap)
		per_byte = c->cap;
	unit = a->bytes * per_byte >> NS_SHIFT;
	frame = FULL_FRAME * per_byte >> NS_SHIFT;
	first = a->small && f->clock <= now && READ(c->sparse_clock) <= now + 2 * frame;
	verdict = judge(p, c, f, a, unit, frame);
	if (verdict == DROP && !first)
		return 0;
	a->marked = verdict == MARK && !first;
	if (at - READ(s->slot) <= HORIZON || at <= READ(s->slot)) { /* else: nothing was sent for long, and another CPU is just clearing the calendar */
		start = charge(s, p, c, now, a->bytes);
		if (c->cap) {
			u64 capped = charge_cap(c, now, a->bytes);

			start = start > capped ? start : capped;
		}
	}
	if (first) {
		start = now;
		c->sparse_clock = (c->sparse_clock > now ? c->sparse_clock : now) + 2 * unit;
	}
	start = start > a->wanted ? start : a->wanted;
	start = start > f->last ? start : f->last;
	f->last = start;
	unit *= fair_of(c) < MEMORY ? SPARSE * MEMORY / fair_of(c) : SPARSE;
	f->clock = (f->clock > now ? f->clock : now) + unit;
	leaves = start >> p->slot_shift;
	if (leaves > at + HORIZON)
		leaves = at + HORIZON;
	STEP();
	if (!slot_add(s->leaves, leaves, a->bytes))
		add(&s->late, a->bytes);
	return start;
}
