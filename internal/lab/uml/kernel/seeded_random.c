// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The lab's only source of randomness. User-mode Linux is an ordinary program that asks its host for entropy with getrandom(2); linked
 * with --wrap=getrandom it gets this stream instead, so that two runs with one seed are the same run and another seed is another sample.
 *
 * The kernel also stirs in where in a program each interrupt came, the time, and the addresses of devices (drivers/char/random.c), which differ
 * from build to build of the program: here it does not.
 *
 * WEIR_LAB_SEED: a decimal number in the environment, 0 when absent. Generator: SplitMix64 (Steele, Lea, Flood 2014).
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

ssize_t __wrap_getrandom(void *buf, size_t len, unsigned int flags)
{
	static uint64_t state;
	static int seeded;
	uint8_t *out = buf;
	size_t i;

	(void)flags;
	if (!seeded) {
		const char *seed = getenv("WEIR_LAB_SEED");

		state = seed ? strtoull(seed, NULL, 10) : 0;
		seeded = 1;
	}
	for (i = 0; i < len; i++) {
		static uint64_t word;

		if (i % 8 == 0) {
			word = (state += 0x9e3779b97f4a7c15ULL);
			word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
			word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
			word ^= word >> 31;
		}
		out[i] = (uint8_t)(word >> (8 * (i % 8)));
	}
	return (ssize_t)len;
}

void __wrap_add_interrupt_randomness(int irq)
{
	(void)irq;
}

unsigned long __wrap_random_get_entropy_fallback(void)
{
	return 0;
}

void __wrap_add_device_randomness(const void *buf, size_t len)
{
	(void)buf;
	(void)len;
}
