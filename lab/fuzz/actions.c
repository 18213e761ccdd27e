// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a process can do to a range of its own memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "actions.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif

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

void *range_start(const struct fuzzer *fuzzer, const struct range *range)
{
	return shadow_page(&fuzzer->shadow, range->first);
}

struct range choose_range(const struct fuzzer *fuzzer, struct lot *lot)
{
	size_t most = (size_t)1 << lot_below(lot, 11);
	size_t count = 1 + lot_below(lot, most);
	struct range range;

	range.count = count;
	if (range.count > fuzzer->shadow.count)
		range.count = fuzzer->shadow.count;
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
	return madvise(range_start(fuzzer, range),
		       range_bytes(range), advice);
}

static int advise_somewhere(struct fuzzer *fuzzer, struct lot *lot, int advice)
{
	struct range range = choose_range(fuzzer, lot);

	return advise(fuzzer, &range, advice);
}

/* Another content for each page, one for all, or what is there already. */
static int act_write(struct fuzzer *fuzzer, struct lot *lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	struct range range = choose_range(fuzzer, lot);
	size_t how = lot_below(lot, 3);
	uint64_t key = choose_key(lot);

	if (shadow_open(shadow, &range))
		return -1;
	for (size_t i = 0; i < range.count; i++) {
		size_t slot = range.first + i;

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
	for (size_t i = 0; i < range.count; i++)
		*(volatile unsigned char *)shadow_page(&fuzzer->shadow,
						       range.first + i);
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
		EACCES, /* a node that its cpuset does not allow */
		ENOSYS, /* a kernel without it */
		EBADF,	/* and with no descriptor for it */
	};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (error == refusals[i])
			return true;
	return false;
}
