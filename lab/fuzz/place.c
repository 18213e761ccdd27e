// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a range is, and what may be done there: nodes, addresses, protection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzzer.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define MOVE_PAGES 64
#define LOCK_PAGES 64

int act_protect(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	int protection = lot_percent(lot, 50) ? PROT_READ : PROT_NONE;

	shadow_mark(&fuzzer->shadow, &range, SLOT_CLOSED);
	return mprotect(range_start(fuzzer, &range),
			range_bytes(&range), protection);
}

/* Unless only faults lock pages, all of them are written to, which nobody allows. */
int act_lock(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	int flags = lot_percent(lot, 50) ? MLOCK_ONFAULT : 0;

	if (range.count > LOCK_PAGES)
		range.count = LOCK_PAGES;
	if (!flags && shadow_open(&fuzzer->shadow, &range))
		return -1;
	return mlock2(range_start(fuzzer, &range), range_bytes(&range), flags);
}

int act_unlock(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	return munlock(range_start(fuzzer, &range),
		       range_bytes(&range));
}

static int any_node(const struct fuzzer *fuzzer, struct lot *lot)
{
	return fuzzer->nodes[lot_below(lot, fuzzer->node_count)];
}

int act_bind(struct fuzzer *fuzzer, struct lot *lot)
{
	static const int modes[] = { MPOL_DEFAULT, MPOL_BIND, MPOL_PREFERRED,
				     MPOL_INTERLEAVE };
	struct range range = choose_range(fuzzer, lot);
	int mode = modes[lot_below(lot, 4)];
	unsigned long mask = 0;

	if (mode != MPOL_DEFAULT && fuzzer->node_count)
		mask = 1UL << any_node(fuzzer, lot);
	if (mode == MPOL_INTERLEAVE && fuzzer->node_count)
		mask |= 1UL << any_node(fuzzer, lot);
	return (int)syscall(SYS_mbind, range_start(fuzzer, &range),
			    range_bytes(&range), mode, &mask,
			    8 * sizeof(mask) + 1, MPOL_MF_MOVE);
}

int act_move(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	int nodes[MOVE_PAGES], status[MOVE_PAGES];
	void *pages[MOVE_PAGES];

	if (!fuzzer->node_count) {
		errno = EINVAL;
		return -1;
	}
	if (range.count > MOVE_PAGES)
		range.count = MOVE_PAGES;
	for (size_t i = 0; i < range.count; i++) {
		pages[i] = shadow_page(&fuzzer->shadow, range.first + i);
		nodes[i] = any_node(fuzzer, lot);
	}
	return syscall(SYS_move_pages, 0, range.count, pages, nodes, status,
		       MPOL_MF_MOVE) < 0 ? -1 : 0;
}

static int map_anew(struct fuzzer *fuzzer, const struct range *range)
{
	if (mmap(range_start(fuzzer, range), range_bytes(range),
		 PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -1;
	shadow_set(&fuzzer->shadow, range, ZERO_KEY);
	for (size_t slot = 0; slot < range->count; slot++)
		fuzzer->shadow.slots[range->first + slot].state = 0;
	return 0;
}

int act_map(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	return map_anew(fuzzer, &range);
}

/* From one half of the memory over something in the other. */
int act_remap(struct fuzzer *fuzzer, struct lot *lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	size_t half = shadow->count / 2;
	bool up = lot_percent(lot, 50), stays = lot_percent(lot, 30);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED |
		    (stays ? MREMAP_DONTUNMAP : 0);
	struct range from = choose_range(fuzzer, lot), to;
	size_t target = lot_draw(lot);
	int error;

	if (from.count > half)
		from.count = half;
	from.first %= half - from.count + 1;
	to.count = from.count;
	to.first = target % (half - to.count + 1);
	*(up ? &to.first : &from.first) += half;

	if (shadow_open(shadow, &from))
		return -1;
	if (mremap(range_start(fuzzer, &from), range_bytes(&from),
		   range_bytes(&from),
		   flags, range_start(fuzzer, &to)) == MAP_FAILED) {
		/* A part of either may be gone: the kernel does not say. */
		error = errno;
		if (map_anew(fuzzer, &from) || map_anew(fuzzer, &to))
			abort();
		errno = error;
		return -1;
	}
	for (size_t slot = 0; slot < from.count; slot++) {
		struct slot *target = shadow->slots + to.first + slot;

		*target = shadow->slots[from.first + slot];
		target->state &= ~SLOT_PINNED;
	}
	if (!stays && map_anew(fuzzer, &from))
		abort();
	shadow_set(shadow, &from, ZERO_KEY);
	return 0;
}

