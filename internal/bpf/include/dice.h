/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Random numbers for programs that try an algorithm: splitmix64, which a seed in dice begins. */
#pragma once

static u64 dice;

__attribute__((no_sanitize("integer"))) static u64 roll64(void)
{
	u64 z = dice += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z;
}
