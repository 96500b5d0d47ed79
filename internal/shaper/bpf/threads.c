// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * shaper.h on threads, which count what CPUs would have to share: atomic operations on the shaper's own words and on a client's, and those that had to be
 * done again, as another thread came in between. Each thread sends packets of all clients, at its part of the rate; at the end nobody is active who is not,
 * and no byte is missing. It says in JSON what a packet took.
 *
 *	threads THREADS PACKETS BYTES RATE PARAMETERS
 *
 * PACKETS of BYTES each are sent at RATE, bytes/s. PARAMETERS are the numbers of struct params in their order, with commas.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

static __thread struct {
	u64 shared, own, again, walks, bytes;
} counted;
static bool is_shared(const void *p);
#define COUNT(p) ((void)(is_shared(p) ? counted.shared++ : counted.own++))

/* What shaper.h calls, counted. */
#define __sync_fetch_and_add(p, n) ({ COUNT(p); __atomic_fetch_add(p, n, __ATOMIC_SEQ_CST); })
#define __sync_lock_test_and_set(p, n) ({ COUNT(p); __atomic_exchange_n(p, n, __ATOMIC_SEQ_CST); })
#define __sync_val_compare_and_swap(p, is, to) ({ \
	__typeof__(*(p)) found = is; \
	COUNT(p); \
	if (!__atomic_compare_exchange_n(p, &found, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
		counted.again++; \
	found; })

#define STEP() ((void)0)
static __thread u32 dice = 1;
#define DICE() (dice = dice * 1664525 + 1013904223)

#include "shaper.h"

#define CLIENTS 16
#define MAX_THREADS 64

static struct params params;
static struct shaper shaper;
static struct client clients[CLIENTS];
static struct flow flows[MAX_THREADS][CLIENTS]; /* a flow's packets come on one CPU */
static u64 packets, bytes, rate;
static unsigned int thread_count;
static pthread_barrier_t begin;

static bool is_shared(const void *p) { return (const char *)p >= (const char *)&shaper && (const char *)p < (const char *)(&shaper + 1); }

static u64 clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

static void walk(u64 at)
{
	u64 to = at >> params.slot_shift, slot = begin_walk(&shaper, to);

	if (slot >= to)
		return;
	counted.walks++;
	for (; slot < to; slot++)
		end_slot(&shaper, &params, slot);
	end_walk(&shaper, &params, to);
}

static void *send_packets(void *flow)
{
	u64 each = bytes * thread_count * 1000000000 / rate, due, at;
	struct arrival a;

	pthread_barrier_wait(&begin);
	due = clock_ns();
	for (u64 i = 0; i < packets / thread_count; i++, due += each) {
		while ((at = clock_ns()) < due)
			;
		a = (struct arrival){ .now = at, .bytes = (u32)bytes, .small = bytes <= 2 * FULL_FRAME };
		walk(at);
		if (departure(&shaper, &params, &clients[i % CLIENTS], &((struct flow *)flow)[i % CLIENTS], &a))
			counted.bytes += bytes;
	}
	u64 *all = malloc(sizeof counted);

	__builtin_memcpy(all, &counted, sizeof counted);
	return all;
}

int main(int argc, char **argv)
{
	unsigned long long numbers[6];
	unsigned int shift;
	pthread_t threads[MAX_THREADS];
	u64 sum[5] = { 0 }, accounted, last;
	s64 active = 0;

	if (argc != 6 || sscanf(argv[5], "%llu,%llu,%llu,%llu,%llu,%llu,%u", &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5],
		&shift) != 7)
		return 2;
	thread_count = (unsigned int)strtoul(argv[1], NULL, 0);
	packets = strtoull(argv[2], NULL, 0);
	bytes = strtoull(argv[3], NULL, 0);
	rate = strtoull(argv[4], NULL, 0);
	if (thread_count < 1 || thread_count > MAX_THREADS || !rate)
		return 2;
	params = (struct params){ numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], shift };
	shaper.ns_per_byte = params.ns_per_byte;
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){ .word = new_word(clock_ns()), .weight = 1 };
	pthread_barrier_init(&begin, NULL, thread_count);
	for (unsigned int i = 0; i < thread_count; i++)
		pthread_create(&threads[i], NULL, send_packets, flows[i]);
	for (unsigned int i = 0; i < thread_count; i++) {
		u64 *each;

		pthread_join(threads[i], (void **)&each);
		for (int j = 0; j < 5; j++)
			sum[j] += each[j];
		free(each);
	}
	last = clock_ns() + (2ULL * SLOTS << params.slot_shift);
	walk(last);
	accounted = shaper.sent + (u64)shaper.late;
	for (int i = 0; i < SLOTS; i++) {
		accounted += (u32)shaper.leaves[i];
		active += (s32)shaper.ends[i];
	}
	printf("{\"shared\":%.4f,\"own\":%.4f,\"again\":%.6f,\"walks\":%llu,\"bytes\":%llu,\"accounted\":%llu,\"active\":%lld,\"calendar\":%lld}\n",
		(double)sum[0] / (double)packets, (double)sum[1] / (double)packets, (double)sum[2] / (double)packets, (unsigned long long)sum[3],
		(unsigned long long)sum[4], (unsigned long long)accounted, (long long)shaper.active, (long long)active);
	return 0;
}
