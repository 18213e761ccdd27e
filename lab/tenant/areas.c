// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "areas.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_BYTES (2UL << 20)

/* Counts what the kernel answered; returns what is no legitimate answer. */
static int count(struct outcome *outcome, int result)
{
	if (!result)
		outcome->done++;
	else if (errno == ENOMEM || errno == EAGAIN || errno == EBUSY)
		outcome->refused++;
	else
		return -errno;
	return 0;
}

/* The same for what EINVAL declines as impossible here. */
static int count_possible(struct outcome *outcome, int result)
{
	if (result && errno == EINVAL)
		errno = EBUSY;
	return count(outcome, result);
}

static size_t bytes_of(const struct pages *pages)
{
	return pages->count * PAGE_BYTES;
}

/* To another address; the inaccessible pages around the mapping go along. */
static int remap(struct pages *pages, struct outcome *outcome)
{
	size_t bytes = bytes_of(pages), all = bytes + 2 * PAGE_BYTES;
	unsigned char *leave = pages->base - PAGE_BYTES;
	unsigned char *area = mmap(NULL, all, PROT_NONE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	if (area == MAP_FAILED)
		return count(outcome, -1);
	if (mremap(pages->base, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		   area + PAGE_BYTES) == MAP_FAILED) {
		error = count(outcome, -1);
		leave = area;
	} else {
		error = count(outcome, 0);
		pages->base = area + PAGE_BYTES;
	}
	return munmap(leave, all) ? -errno : error;
}

static int lock(struct pages *pages, struct outcome *outcome)
{
	return count(outcome, mlock(pages->base, bytes_of(pages)));
}

static int unlock(struct pages *pages, struct outcome *outcome)
{
	return count(outcome, munlock(pages->base, bytes_of(pages)));
}

/* Impossible without huge pages, or where pages are shared or swapped. */
static int huge(struct pages *pages, struct outcome *outcome)
{
	unsigned char *end = pages->base + bytes_of(pages);
	unsigned char *page = (unsigned char *)
		(((uintptr_t)pages->base + HUGE_BYTES - 1) & -HUGE_BYTES);
	int error = 0;

	if (madvise(pages->base, bytes_of(pages), MADV_HUGEPAGE))
		return count_possible(outcome, -1);
	for (; !error && page + HUGE_BYTES <= end; page += HUGE_BYTES)
		error = count_possible(
			outcome, madvise(page, HUGE_BYTES, MADV_COLLAPSE));
	return error;
}

/* Locked pages stay. */
static int page_out(struct pages *pages, struct outcome *outcome)
{
	return count_possible(outcome, madvise(pages->base, bytes_of(pages),
					       MADV_PAGEOUT));
}

static int merge(struct pages *pages, struct outcome *outcome)
{
	return count(outcome,
		     madvise(pages->base, bytes_of(pages), MADV_MERGEABLE));
}

static int unmerge(struct pages *pages, struct outcome *outcome)
{
	return count(outcome,
		     madvise(pages->base, bytes_of(pages), MADV_UNMERGEABLE));
}

static const struct {
	const char *name;
	int (*act)(struct pages *pages, struct outcome *outcome);
} commands[] = {
	{ "remap", remap },	  { "lock", lock },   { "unlock", unlock },
	{ "huge", huge },	  { "merge", merge }, { "unmerge", unmerge },
	{ "pageout", page_out },
};

static int for_each_area(struct memory *memory, struct outcome *outcome,
			 int (*act)(struct pages *pages,
				    struct outcome *outcome))
{
	int error = 0;

	for (int class = 0; class < CLASS_COUNT && !error; class++) {
		if (!memory->class[class].count)
			continue;
		memory_lock();
		error = act(&memory->class[class], outcome);
		memory_unlock();
	}
	return error;
}

int areas_obey(struct memory *memory, const char *command,
	       struct outcome *outcome)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(command, commands[i].name))
			return for_each_area(memory, outcome, commands[i].act);
	return -ENOSYS;
}
