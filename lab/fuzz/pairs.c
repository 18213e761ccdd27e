// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pairs of equal pages on different nodes, all of which go away at once just as
 * they begin to be merged. Between the moment when the second of two mappings
 * is merged and the moment when the page is filed, nobody maps it any more.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzzer.h"

#define WAIT_STEPS 2000
#define WAIT_STEP_US 500
#define MOMENT_US 20000

static long merged_pages(void)
{
	char text[32] = "";
	int file = open("/proc/self/ksm_merging_pages", O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return -1;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	return atol(text);
}

static int allocate_on(int node)
{
	unsigned long mask = 1UL << node;

	return (int)syscall(SYS_set_mempolicy, MPOL_BIND, &mask,
			    8 * sizeof(mask) + 1);
}

static int write_pairs(struct fuzzer *fuzzer, const struct range *range)
{
	struct shadow *shadow = &fuzzer->shadow;

	for (size_t side = 0; side < 2; side++) {
		if (fuzzer->node_count > 1 &&
		    allocate_on(fuzzer->nodes[side]))
			return -1;
		for (size_t i = side; i < range->count; i += 2) {
			size_t slot = range->first + i;

			shadow_write(shadow, slot,
				     side ? shadow->slots[slot - 1].key :
					    key_private());
		}
	}
	return 0;
}

static int discard(struct shadow *shadow, const struct range *range)
{
	if (madvise(shadow_page(shadow, range->first), range_bytes(range),
		    MADV_DONTNEED)) {
		shadow_settle(shadow, range);
		return -1;
	}
	shadow_set(shadow, range, ZERO_KEY);
	return 0;
}

int act_pairs(struct fuzzer *fuzzer, struct lot *lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	struct range range = { 0, HUGE_SLOTS };
	unsigned long moment = lot_below(lot, MOMENT_US);
	int error = 0;
	long before;

	if (range.count > shadow->count)
		range.count = shadow->count & ~1UL;
	if (shadow_open(shadow, &range) || discard(shadow, &range))
		return -1;
	if (madvise(shadow->base, range_bytes(&range), MADV_NOHUGEPAGE))
		return -1;
	before = merged_pages();
	if (write_pairs(fuzzer, &range) ||
	    madvise(shadow->base, range_bytes(&range), MADV_MERGEABLE))
		error = errno;
	if (fuzzer->node_count > 1)
		allocate_on(fuzzer->node);
	if (error) {
		errno = error;
		return -1;
	}
	for (int step = 0; step < WAIT_STEPS; step++) {
		if (merged_pages() > before)
			break;
		nap(WAIT_STEP_US);
	}
	nap(moment);
	return discard(shadow, &range);
}
