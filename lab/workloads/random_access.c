// SPDX-License-Identifier: GPL-2.0-only
/* Random lookups in a large array: nearly each one misses all caches. */
#include "workload.h"

static const uint64_t *table;
static uint64_t mask;

static size_t prepare(void *shared, size_t bytes)
{
	uint64_t *words = shared;
	uint64_t count = 1;

	while (2 * count * sizeof(*words) <= bytes)
		count *= 2;
	for (uint64_t i = 0; i < count; i++)
		words[i] = hash(i);
	table = words;
	mask = count - 1;
	return count * sizeof(*words);
}

static uint64_t run(uint64_t operations)
{
	uint64_t random = FIRST_RANDOM, sum = 0;

	for (uint64_t i = 0; i < operations; i++)
		sum = (sum << 1 | sum >> 63) ^ table[next_random(&random) & mask];
	return sum;
}

const struct workload random_access = {
	.name = "random_access",
	.operation = "lookup",
	.prepare = prepare,
	.run = run,
};
