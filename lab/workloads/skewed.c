// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lookups of which nine in ten go to a hot part of the pages, or each page's share is that
 * of Zipf's law. The answer is how many found a wrong word: it is the same whatever is hot.
 */
#include <math.h>

#include "workload.h"

#define PAGE_WORDS 512
/* An odd number: hot pages lie among the others, not side by side. */
#define STEP 0x9e3779b1

static const uint64_t *table;
static uint64_t pages, first, hot;
static uint64_t state = FIRST_RANDOM;

static size_t prepare(void *shared, size_t bytes)
{
	uint64_t *words = shared;

	pages = 1;
	while (2 * pages * PAGE_WORDS * sizeof(*words) <= bytes)
		pages *= 2;
	for (uint64_t i = 0; i < pages * PAGE_WORDS; i++)
		words[i] = hash(i);
	table = words;
	hot = pages;
	return pages * PAGE_WORDS * sizeof(*words);
}

static void prefer(uint64_t first_hot, uint64_t count)
{
	first = first_hot;
	hot = count < pages ? count : pages;
}

/* In the order of how hot they are. */
static uint64_t next_page(void)
{
	uint64_t random = next_random(&state);
	double part = fraction(hash(random));

	if (!hot) /* the share of the nth is in proportion to 1/n */
		return (uint64_t)exp2(part * log2((double)pages)) - 1;
	if (hot == pages || random % 10)
		return (uint64_t)(part * (double)hot);
	return hot + (uint64_t)(part * (double)(pages - hot));
}

static uint64_t run(uint64_t operations)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < operations; i++) {
		uint64_t page = (first + next_page()) * STEP & (pages - 1);
		uint64_t word = page * PAGE_WORDS + next_random(&state) % PAGE_WORDS;

		wrong += table[word] != hash(word);
	}
	return wrong;
}

const struct workload skewed = {
	.name = "skewed",
	.operation = "lookup",
	.prepare = prepare,
	.prefer = prefer,
	.run = run,
};
