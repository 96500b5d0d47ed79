// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * shaper.h as a program: packets come at random on CPUs, each of which may be interrupted between any two accesses to what they share, and for long. What
 * must hold holds whatever the order.
 *
 *	random SEED PACKETS CPUS
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

static void step(void);
#define STEP() step()

#include "../../bpf/include/dice.h"
#define DICE() ((u32)roll64())

#include "shaper.h"

#define MAX_CPUS	16
#define CLIENTS		64
#define FLOWS		(CLIENTS * MAX_CPUS)

static struct params params;
static struct shaper shaper;
static struct client clients[CLIENTS];
static struct flow flows[FLOWS];
static u64 now, bytes_in, packets, packet_limit, interrupts, walks;
static struct cpu {
	ucontext_t context;
	char stack[64 << 10];
	bool inside;			/* a packet */
	bool stop;			/* after this one */
} cpus[MAX_CPUS], *running;
static ucontext_t scheduler;
static unsigned int cpu_count;
static u64 seed;

#define HOLDS(that) do { if (!(that)) { printf("bpf/random.c:%d: not true: %s\nagain: random %llu %llu %u, at packet %llu\n", __LINE__, #that, \
	(unsigned long long)seed, (unsigned long long)packet_limit, cpu_count, (unsigned long long)packets); exit(1); } } while (0)

static void step(void)
{
	if (!running || roll64() & 3)
		return;
	interrupts++;
	swapcontext(&running->context, &scheduler);
}

static void walk(u64 at)
{
	u64 to = at >> params.slot_shift, slot = begin_walk(&shaper, to);

	if (slot >= to)
		return;
	walks++;
	for (; slot < to; slot++)
		end_slot(&shaper, &params, slot);
	end_walk(&shaper, &params, to);
}

static void packet(void)
{
	u64 at = now, r = roll64(), last, leaves, word;
	struct client *c = &clients[r % CLIENTS];
	u32 size = roll64() & 1 ? 60 + (u32)(roll64() % 1455) : (u32)(roll64() % 65536) + 1;
	struct arrival a;
	struct flow *f;

	if (roll64() % 3)
		c = &clients[r % 3]; /* a few are busy, so that CPUs meet */
	f = &flows[(c - clients) * MAX_CPUS + (running - cpus)]; /* a flow's packets come on one CPU */
	last = f->last;
	if (roll64() % 1000 == 0)
		c->weight = 1 + (u32)(roll64() % MAX_WEIGHT);
	if (roll64() % 1000 == 0)
		c->cap = roll64() & 1 ? 0 : params.ns_per_byte * (1 + roll64() % 1000);
	a = (struct arrival){ .now = at, .bytes = size, .small = size <= 3028, .ect = roll64() % 8 };
	a.wanted = roll64() % 8 ? 0 : at + roll64() % (4 * (u64)SLOTS << params.slot_shift);
	walk(at);
	word = READ(c->word);
	leaves = departure(&shaper, &params, c, f, &a);
	HOLDS((!c->fair || c->fair >= MEMORY / 1024) && c->fair <= 2 * MEMORY && f->used <= MAX_USE);
	if (!leaves)
		return;
	HOLDS(a.ect || !a.marked);
	bytes_in += size;
	HOLDS(leaves >= at && leaves >= a.wanted && leaves >= last);
	HOLDS(READ(c->word) == word || ahead_of(READ(c->word), now) <= (s64)((u64)HORIZON << params.slot_shift));
}

static void live(void)
{
	for (;;) {
		struct cpu *mine = running;

		mine->inside = true;
		packet();
		packets++;
		mine->inside = false;
		swapcontext(&mine->context, &scheduler);
	}
}

static void go_on(struct cpu *c)
{
	running = c;
	swapcontext(&scheduler, &c->context);
}

/* The calendar's sum. Of slots that are over and were not taken out nothing is left: their words are of the next turn. */
static s64 counted(void)
{
	s64 sum = 0;

	for (int i = 0; i < SLOTS; i++)
		sum += (s32)shaper.ends[i];
	return sum;
}

/* The same from the clients' own words: those whose clock is in a slot that is not over. */
static s64 registered(void)
{
	s64 sum = 0;

	for (int i = 0; i < CLIENTS; i++) {
		u64 word = clients[i].word;

		if ((now + (u64)ahead_of(word, now)) >> params.slot_shift >= shaper.slot)
			sum += (s64)(word >> PARTS_SHIFT & 63) * (s64)((word & 63) + 1);
	}
	return sum;
}

static u64 accounted(void)
{
	u64 sum = shaper.sent + (u64)shaper.late;

	for (int i = 0; i < SLOTS; i++)
		sum += (u32)shaper.leaves[i];
	return sum;
}

int main(int argc, char **argv)
{
	u64 rate, slot;

	if (argc != 4)
		return 2;
	dice = seed = strtoull(argv[1], NULL, 0);
	packet_limit = strtoull(argv[2], NULL, 0);
	cpu_count = (unsigned int)strtoul(argv[3], NULL, 0);
	if (cpu_count < 1 || cpu_count > MAX_CPUS)
		return 2;
	rate = 125000ULL << roll64() % 15; /* bytes/s: 1 Mbit/s to 16 Gbit/s */
	params.slot_shift = rate < 50000000 ? 20 : rate < 625000000 ? 18 : 16;
	slot = 1ULL << params.slot_shift;
	params.ns_per_byte = (1000000000ULL << NS_SHIFT) / rate;
	params.slot_bytes = rate * slot / 1000000000;
	params.settle_slots = 64000000 / slot + 1;
	params.target = roll64() & 3 ? 2 * LONGEST : 5000000; /* mostly none is dropped, so that clocks get to the horizon */
	params.limit = 4 * LONGEST;
	if (params.target < params.limit / 4)
		params.limit = HORIZON * slot * 3 / 4 < 100000000 ? HORIZON * slot * 3 / 4 : 100000000;
	params.trim_gain = (slot << 40) / (120000000 * params.slot_bytes);
	shaper.ns_per_byte = params.ns_per_byte;
	/* Before a clock of 52 bits, or a slot's number of 32, is through. */
	now = (roll64() & 1 ? 1ULL << 52 : 1ULL << (32 + params.slot_shift)) * (1 + roll64() % 2) - roll64() % (16 * SLOTS * slot);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){ .word = new_word(now), .weight = 1 + (u32)(roll64() & 1) };
	for (unsigned int i = 0; i < cpu_count; i++) {
		getcontext(&cpus[i].context);
		cpus[i].context.uc_stack.ss_sp = cpus[i].stack;
		cpus[i].context.uc_stack.ss_size = sizeof cpus[i].stack;
		makecontext(&cpus[i].context, live, 0);
	}
	while (packets < packet_limit) {
		u64 pause = roll64() % 64;

		go_on(&cpus[roll64() % cpu_count]);
		if (pause == 0)
			now += roll64() % slot;
		else if (pause < 32)
			now += roll64() % (slot / 16);
		if (roll64() % 100000 == 0) /* a silence */
			now += roll64() % (3 * SLOTS * slot);
		if (roll64() % 10000)
			continue;
		for (unsigned int i = 0; i < cpu_count; i++)
			while (cpus[i].inside)
				go_on(&cpus[i]);
		HOLDS(shaper.active == counted());
		HOLDS(shaper.active == registered());
		HOLDS(accounted() == bytes_in);
		HOLDS(!shaper.walking);
		if (roll64() % 4)
			continue;
		/* Quiet: when all clocks have ended nobody is active, and all has been sent. */
		now += 2 * SLOTS * slot;
		running = NULL;
		walk(now);
		HOLDS(shaper.active == 0);
		HOLDS(counted() == 0);
		HOLDS(shaper.sent == bytes_in);
	}
	printf("%llu packets, %llu interrupts, %llu walks\n", (unsigned long long)packets, (unsigned long long)interrupts, (unsigned long long)walks);
	return 0;
}
