/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random choices that can be repeated. Each action draws from a generator of
 * its own, made of the seed and the action's number: what the kernel answered
 * to one action does not change what the next one is.
 */
#ifndef FUZZ_LOT_H
#define FUZZ_LOT_H

#include <stddef.h>
#include <stdint.h>

struct lot {
	uint64_t state;
};

/* splitmix64 */
static inline uint64_t lot_draw(struct lot *lot)
{
	uint64_t word = lot->state += 0x9e3779b97f4a7c15ULL;

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
	return word ^ (word >> 31);
}

static inline struct lot lot_of(uint64_t seed, uint64_t number)
{
	struct lot lot = { seed };

	lot.state = lot_draw(&lot) + number;
	lot.state = lot_draw(&lot);
	return lot;
}

/* From 0 to @below - 1. */
static inline size_t lot_below(struct lot *lot, size_t below)
{
	return lot_draw(lot) % below;
}

static inline int lot_percent(struct lot *lot, unsigned int percent)
{
	return lot_below(lot, 100) < percent;
}

#endif
