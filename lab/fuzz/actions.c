// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a process can do to a range of its own memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "actions.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define MOVE_PAGES 64
#define LOCK_PAGES 64
#define NAP_US 20000
#define REST_US 300000

void nap(unsigned long microseconds)
{
	const struct timespec rest = {
		.tv_sec = microseconds / 1000000,
		.tv_nsec = microseconds % 1000000 * 1000L,
	};

	nanosleep(&rest, NULL);
}

struct range choose_range(const struct fuzzer *fuzzer, struct lot *lot)
{
	size_t most = (size_t)1 << lot_below(lot, 11);
	size_t count = 1 + lot_below(lot, most);
	struct range range;

	range.count = count < fuzzer->shadow.count ? count : fuzzer->shadow.count;
	range.first = lot_below(lot, fuzzer->shadow.count - range.count + 1);
	return range;
}

/* Few contents are many pages': a lot is merged, and unmerged again. */
uint64_t choose_key(struct lot *lot)
{
	size_t choice = lot_below(lot, 100);
	uint64_t number = lot_draw(lot);

	if (choice < 70)
		return key_shared(number);
	return choice < 85 ? key_private() : ZERO_KEY;
}

static int advise(struct fuzzer *fuzzer, const struct range *range, int advice)
{
	return madvise(shadow_page(&fuzzer->shadow, range->first),
		       range_bytes(range), advice);
}

static int advise_somewhere(struct fuzzer *fuzzer, struct lot *lot, int advice)
{
	struct range range = choose_range(fuzzer, lot);

	return advise(fuzzer, &range, advice);
}

/* Another content for each page, one for all of them, or what is there again. */
static int act_write(struct fuzzer *fuzzer, struct lot *lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	struct range range = choose_range(fuzzer, lot);
	size_t how = lot_below(lot, 3);
	uint64_t key = choose_key(lot);

	if (shadow_open(shadow, &range))
		return -1;
	for (size_t slot = range.first; slot < range.first + range.count; slot++) {
		if (how == 0)
			key = choose_key(lot);
		else if (how == 1)
			key = shadow->slots[slot].key;
		shadow_write(shadow, slot, key);
	}
	return 0;
}

static int act_check(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	if (shadow_open(&fuzzer->shadow, &range))
		return -1;
	shadow_verify(&fuzzer->shadow, &range);
	return 0;
}

static int act_touch(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	if (shadow_open(&fuzzer->shadow, &range))
		return -1;
	for (size_t slot = range.first; slot < range.first + range.count; slot++)
		*(volatile unsigned char *)shadow_page(&fuzzer->shadow, slot);
	return 0;
}

/* Locked pages refuse, after those before them went. */
static int discard(struct fuzzer *fuzzer, const struct range *range)
{
	int error;

	if (!advise(fuzzer, range, MADV_DONTNEED)) {
		shadow_set(&fuzzer->shadow, range, ZERO_KEY);
		return 0;
	}
	error = errno;
	shadow_settle(&fuzzer->shadow, range);
	errno = error;
	return -1;
}

static int act_discard(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	return discard(fuzzer, &range);
}

static int act_discard_all(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = { 0, fuzzer->shadow.count };

	(void)lot;
	return discard(fuzzer, &range);
}

/* Every other page, one by one. */
static int act_discard_pieces(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	size_t end = range.first + range.count;
	int error = 0;

	range.count = 1;
	for (; range.first < end; range.first += 2)
		if (discard(fuzzer, &range))
			error = -1;
	return error;
}

static int act_free(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	shadow_mark(&fuzzer->shadow, &range, SLOT_LAZY);
	return advise(fuzzer, &range, MADV_FREE);
}

static int act_cold(struct fuzzer *fuzzer, struct lot *lot)
{
	return advise_somewhere(fuzzer, lot, MADV_COLD);
}

static int act_page_out(struct fuzzer *fuzzer, struct lot *lot)
{
	return advise_somewhere(fuzzer, lot, MADV_PAGEOUT);
}

static int act_merge(struct fuzzer *fuzzer, struct lot *lot)
{
	return advise_somewhere(fuzzer, lot, MADV_MERGEABLE);
}

static int act_merge_all(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = { 0, fuzzer->shadow.count };

	(void)lot;
	return advise(fuzzer, &range, MADV_MERGEABLE);
}

static int act_unmerge(struct fuzzer *fuzzer, struct lot *lot)
{
	return advise_somewhere(fuzzer, lot, MADV_UNMERGEABLE);
}

static int act_merge_any(struct fuzzer *fuzzer, struct lot *lot)
{
	(void)fuzzer;
	return prctl(PR_SET_MEMORY_MERGE, lot_percent(lot, 75), 0, 0, 0);
}

static int act_huge(struct fuzzer *fuzzer, struct lot *lot)
{
	size_t pages = fuzzer->shadow.count / HUGE_SLOTS;
	struct range range = { 0, HUGE_SLOTS };

	if (!pages) {
		errno = EINVAL;
		return -1;
	}
	range.first = lot_below(lot, pages) * HUGE_SLOTS;
	if (advise(fuzzer, &range, MADV_HUGEPAGE))
		return -1;
	return advise(fuzzer, &range, MADV_COLLAPSE);
}

static int act_small(struct fuzzer *fuzzer, struct lot *lot)
{
	return advise_somewhere(fuzzer, lot, MADV_NOHUGEPAGE);
}

static int act_protect(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	int protection = lot_percent(lot, 50) ? PROT_READ : PROT_NONE;

	shadow_mark(&fuzzer->shadow, &range, SLOT_CLOSED);
	return mprotect(shadow_page(&fuzzer->shadow, range.first),
			range_bytes(&range), protection);
}

static int act_lock(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	if (range.count > LOCK_PAGES)
		range.count = LOCK_PAGES;
	return mlock2(shadow_page(&fuzzer->shadow, range.first),
		      range_bytes(&range),
		      lot_percent(lot, 50) ? MLOCK_ONFAULT : 0);
}

static int act_unlock(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	return munlock(shadow_page(&fuzzer->shadow, range.first),
		       range_bytes(&range));
}

static int act_bind(struct fuzzer *fuzzer, struct lot *lot)
{
	static const int modes[] = { MPOL_DEFAULT, MPOL_BIND, MPOL_PREFERRED,
				     MPOL_INTERLEAVE };
	struct range range = choose_range(fuzzer, lot);
	int mode = modes[lot_below(lot, 4)];
	unsigned long mask = 0;

	if (mode != MPOL_DEFAULT && fuzzer->node_count)
		mask = 1UL << fuzzer->nodes[lot_below(lot, fuzzer->node_count)];
	if (mode == MPOL_INTERLEAVE && fuzzer->node_count)
		mask |= 1UL << fuzzer->nodes[lot_below(lot, fuzzer->node_count)];
	return (int)syscall(SYS_mbind, shadow_page(&fuzzer->shadow, range.first),
			    range_bytes(&range), mode, &mask,
			    8 * sizeof(mask) + 1, MPOL_MF_MOVE);
}

static int act_move(struct fuzzer *fuzzer, struct lot *lot)
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
		nodes[i] = fuzzer->nodes[lot_below(lot, fuzzer->node_count)];
	}
	return syscall(SYS_move_pages, 0, range.count, pages, nodes, status,
		       MPOL_MF_MOVE) < 0 ? -1 : 0;
}

static int map_anew(struct fuzzer *fuzzer, const struct range *range)
{
	if (mmap(shadow_page(&fuzzer->shadow, range->first), range_bytes(range),
		 PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -1;
	shadow_set(&fuzzer->shadow, range, ZERO_KEY);
	for (size_t slot = 0; slot < range->count; slot++)
		fuzzer->shadow.slots[range->first + slot].state = 0;
	return 0;
}

static int act_map(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);

	return map_anew(fuzzer, &range);
}

/* From one half of the memory over something in the other. */
static int act_remap(struct fuzzer *fuzzer, struct lot *lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	size_t half = shadow->count / 2;
	bool up = lot_percent(lot, 50), stays = lot_percent(lot, 30);
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
	if (mremap(shadow_page(shadow, from.first), range_bytes(&from),
		   range_bytes(&from),
		   MREMAP_MAYMOVE | MREMAP_FIXED | (stays ? MREMAP_DONTUNMAP : 0),
		   shadow_page(shadow, to.first)) == MAP_FAILED) {
		/* A part of either may be gone: the kernel does not say. */
		error = errno;
		if (map_anew(fuzzer, &from) || map_anew(fuzzer, &to))
			abort();
		errno = error;
		return -1;
	}
	for (size_t slot = 0; slot < from.count; slot++) {
		shadow->slots[to.first + slot] = shadow->slots[from.first + slot];
		shadow->slots[to.first + slot].state &= ~SLOT_PINNED;
	}
	if (!stays && map_anew(fuzzer, &from))
		abort();
	shadow_set(shadow, &from, ZERO_KEY);
	return 0;
}

static int uffd_register(struct fuzzer *fuzzer, const struct range *range,
			 unsigned int mode)
{
	struct uffdio_register memory = {
		.range.start = (uintptr_t)shadow_page(&fuzzer->shadow, range->first),
		.range.len = range_bytes(range),
		.mode = mode,
	};

	return ioctl(fuzzer->shadow.uffd, UFFDIO_REGISTER, &memory);
}

static int act_write_protect(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	struct uffdio_writeprotect protect = {
		.range.start = (uintptr_t)shadow_page(&fuzzer->shadow, range.first),
		.range.len = range_bytes(&range),
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (uffd_register(fuzzer, &range, UFFDIO_REGISTER_MODE_WP))
		return -1;
	shadow_mark(&fuzzer->shadow, &range, SLOT_CLOSED);
	return ioctl(fuzzer->shadow.uffd, UFFDIO_WRITEPROTECT, &protect);
}

static void fill_missing(struct fuzzer *fuzzer, size_t slot, uint64_t key)
{
	_Alignas(4096) unsigned char page[PAGE_BYTES];
	struct range one = { slot, 1 };
	struct uffdio_copy copy = {
		.dst = (uintptr_t)shadow_page(&fuzzer->shadow, slot),
		.src = (uintptr_t)page,
		.len = PAGE_BYTES,
	};
	struct uffdio_zeropage zero = {
		.range.start = copy.dst,
		.range.len = PAGE_BYTES,
	};

	if (key == ZERO_KEY) {
		ioctl(fuzzer->shadow.uffd, UFFDIO_ZEROPAGE, &zero);
		return;
	}
	key_write(key, page);
	if (!ioctl(fuzzer->shadow.uffd, UFFDIO_COPY, &copy))
		shadow_set(&fuzzer->shadow, &one, key);
}

/* Nobody answers faults: until it is over, nothing may touch the range. */
static int act_fill(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	struct uffdio_range memory = {
		.start = (uintptr_t)shadow_page(&fuzzer->shadow, range.first),
		.len = range_bytes(&range),
	};
	bool gone;
	int error;

	if (shadow_open(&fuzzer->shadow, &range) ||
	    uffd_register(fuzzer, &range, UFFDIO_REGISTER_MODE_MISSING))
		return -1;
	gone = !advise(fuzzer, &range, MADV_DONTNEED);
	error = errno;
	if (gone) {
		shadow_set(&fuzzer->shadow, &range, ZERO_KEY);
		for (size_t slot = 0; slot < range.count; slot++)
			fill_missing(fuzzer, range.first + slot, choose_key(lot));
	}
	if (ioctl(fuzzer->shadow.uffd, UFFDIO_UNREGISTER, &memory))
		abort();
	if (gone)
		return 0;
	shadow_settle(&fuzzer->shadow, &range);
	errno = error;
	return -1;
}

static int act_nap(struct fuzzer *fuzzer, struct lot *lot)
{
	(void)fuzzer;
	nap(lot_below(lot, NAP_US));
	return 0;
}

/* Long enough for ksmd to come by. */
static int act_rest(struct fuzzer *fuzzer, struct lot *lot)
{
	(void)fuzzer;
	nap(lot_below(lot, REST_US));
	return 0;
}

const char *const profile_name[PROFILES] = { "mixed", "calm", "wild", "pairs" };

const struct action actions[] = {
	/* name			mixed calm wild pairs */
	{ "write",		{ 20,  4, 40,  0 }, act_write },
	{ "check",		{ 20,  8, 20,  1 }, act_check },
	{ "touch",		{ 10,  4, 10,  0 }, act_touch },
	{ "discard",		{  6,  1, 20,  0 }, act_discard },
	{ "discard all",	{  1,  0,  4,  1 }, act_discard_all },
	{ "discard pieces",	{  4,  1, 10,  1 }, act_discard_pieces },
	{ "free lazily",	{  4,  1,  4,  0 }, act_free },
	{ "cold",		{  4,  1,  2,  0 }, act_cold },
	{ "page out",		{  4,  1,  2,  0 }, act_page_out },
	{ "merge",		{ 10,  4, 10,  0 }, act_merge },
	{ "merge all",		{  4,  4,  4,  1 }, act_merge_all },
	{ "unmerge",		{  4,  0,  4,  1 }, act_unmerge },
	{ "merge any",		{  1,  0,  1,  0 }, act_merge_any },
	{ "huge",		{  4,  1,  2,  0 }, act_huge },
	{ "small",		{  2,  1,  2,  1 }, act_small },
	{ "protect",		{  6,  1,  4,  0 }, act_protect },
	{ "write-protect",	{  6,  1,  4,  0 }, act_write_protect },
	{ "fill",		{  4,  1,  4,  0 }, act_fill },
	{ "lock",		{  2,  1,  2,  0 }, act_lock },
	{ "unlock",		{  6,  3,  6,  1 }, act_unlock },
	{ "bind",		{  4,  1,  2,  0 }, act_bind },
	{ "move",		{  4,  1,  4,  0 }, act_move },
	{ "map",		{  2,  0,  2,  0 }, act_map },
	{ "remap",		{  6,  1,  6,  0 }, act_remap },
	{ "fork",		{  6,  2,  8,  0 }, act_fork },
	{ "kill",		{  4,  1,  6,  0 }, act_kill },
	{ "reap",		{  4,  2,  4,  0 }, act_reap },
	{ "splice",		{  6,  1,  4,  1 }, act_splice },
	{ "drain",		{  6,  1,  4,  1 }, act_drain },
	{ "pin",		{  4,  1,  4,  0 }, act_pin },
	{ "unpin",		{  4,  1,  4,  0 }, act_unpin },
	{ "pairs",		{  0,  0,  0, 60 }, act_pairs },
	{ "nap",		{ 60, 10, 20,  2 }, act_nap },
	{ "rest",		{ 20, 40,  2,  1 }, act_rest },
};
const size_t action_count = sizeof(actions) / sizeof(actions[0]);

const struct action *choose_action(int profile, struct lot *lot)
{
	const struct action *action = actions;
	size_t total = 0, place;

	for (size_t i = 0; i < action_count; i++)
		total += actions[i].weight[profile];
	place = lot_below(lot, total);
	while (place >= action->weight[profile])
		place -= action++->weight[profile];
	return action;
}

bool may_refuse(int error)
{
	static const int refusals[] = {
		EAGAIN, /* nothing to do it to, or the kernel is at it */
		EBUSY,  EEXIST, EINVAL, ENOENT, ENOMEM,
		EFAULT, /* several mappings, where mremap() takes one */
		EIO,	/* pages that mbind() could not move */
		ENOSYS, /* a kernel without it */
		EBADF,	/* and with no descriptor for it */
	};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (error == refusals[i])
			return true;
	return false;
}
