// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads each cache line once per operation, in order: how many of that miss
 * which cache can be told beforehand. For calibration.
 */
#include "workload.h"

#define LINE_WORDS 8

static const uint64_t *words;
static size_t count;

static size_t prepare(void *shared, size_t bytes)
{
	uint64_t *data = shared;

	count = bytes / sizeof(*data);
	for (size_t i = 0; i < count; i++)
		data[i] = hash(i);
	words = data;
	return bytes;
}

static uint64_t run(uint64_t operations)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < operations; i++)
		for (size_t word = 0; word < count; word += LINE_WORDS)
			sum += words[word];
	return sum;
}

const struct workload sweep = {
	.name = "sweep",
	.operation = "pass",
	.prepare = prepare,
	.run = run,
};
