// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory.h"

#define CHURN_PAGES 16
#define CHURN_STRIDE 7919 /* a prime: the walk meets every page */

/*
 * A page and its generation change together under this lock, so that a
 * verification in one thread never sees a page that another is writing.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void memory_lock(void)
{
	pthread_mutex_lock(&lock);
}

void memory_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * Each class lies between two inaccessible pages: the kernel cannot join its
 * mapping with a neighbour's, and /proc/PID/numa_maps counts each class apart.
 */
static int map_class(struct pages *pages, bool mergeable)
{
	size_t bytes = pages->count * PAGE_BYTES;
	unsigned char *area;

	if (!pages->count)
		return 0;
	pages->generation = calloc(pages->count, sizeof(*pages->generation));
	area = mmap(NULL, bytes + 2 * PAGE_BYTES, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!pages->generation || area == MAP_FAILED)
		return -ENOMEM;
	pages->base = area + PAGE_BYTES;
	if (mprotect(pages->base, bytes, PROT_READ | PROT_WRITE))
		return -errno;
	/* A kernel without huge pages does not know the advice, nor need it. */
	if (madvise(pages->base, bytes, MADV_NOHUGEPAGE) && errno != EINVAL)
		return -errno;
	if (mergeable && madvise(pages->base, bytes, MADV_MERGEABLE))
		return -errno;
	/*
	 * User-Mode Linux takes 20 s and more for the faults of 1 GiB, one
	 * by one. Kernels before 5.14 do not know the advice.
	 */
	if (madvise(pages->base, bytes, MADV_POPULATE_WRITE) && errno != EINVAL)
		return -errno;
	return 0;
}

int memory_map(struct memory *memory, bool mergeable)
{
	for (int class = 0; class < CLASS_COUNT; class++) {
		struct pages *pages = &memory->class[class];
		int error = map_class(pages, mergeable);

		if (error)
			return error;
		for (size_t index = 0; index < pages->count; index++)
			content_fill(&memory->id, pages, index);
	}
	return 0;
}

size_t memory_verify(struct memory *memory, size_t *bad)
{
	size_t seen = 0;

	*bad = 0;
	for (int class = 0; class < CLASS_COUNT; class++) {
		struct pages *pages = &memory->class[class];

		for (size_t index = 0; index < pages->count; index++) {
			memory_lock();
			if (!content_matches(&memory->id, pages, index))
				++*bad;
			memory_unlock();
			seen++;
		}
	}
	return seen;
}

size_t memory_touch(struct memory *memory)
{
	size_t seen = 0;

	for (int class = 0; class < CLASS_COUNT; class++) {
		const struct pages *pages = &memory->class[class];

		for (size_t index = 0; index < pages->count; index++) {
			*(volatile unsigned char *)(pages->base +
						    index * PAGE_BYTES);
			seen++;
		}
	}
	return seen;
}

/*
 * Reads a word of equal pages chosen at random: nine times of ten one of those that are
 * preferred, from @first on.
 */
size_t memory_prefer(const struct memory *memory, size_t first, size_t preferred,
		     size_t reads, uint64_t seed)
{
	const struct pages *equal = &memory->class[CLASS_EQUAL];

	if (!preferred || first + preferred > equal->count)
		return 0;
	for (size_t read = 0; read < reads; read++) {
		uint64_t lot = content_random(seed, 0, read);
		size_t index = (lot >> 8) % (lot % 10 ? preferred : equal->count);

		if (lot % 10)
			index += first;
		*(volatile unsigned char *)(equal->base + index * PAGE_BYTES);
	}
	return reads;
}

/* Returns how many pages were used. */
size_t memory_use(struct memory *memory, const struct use *use)
{
	size_t used = 0;

	for (int class = 0; class < CLASS_COUNT; class++) {
		const struct pages *pages = &memory->class[class];

		for (size_t index = 0; index < pages->count; index++) {
			volatile unsigned char *byte =
				pages->base + index * PAGE_BYTES;

			if (content_random(use->seed, class, index) % 100 >=
			    use->percent)
				continue;
			memory_lock();
			if (use->write)
				*byte = *byte;
			else
				(void)*byte;
			memory_unlock();
			used++;
		}
	}
	return used;
}

/* The caller holds the lock. */
static void rewrite(struct memory *memory, struct pages *pages, size_t index,
		    uint32_t generation)
{
	pages->generation[index] = generation;
	content_fill(&memory->id, pages, index);
}

/* Generations of private content only grow: a page never gets an old one. */
static uint32_t next_generation(void)
{
	static uint32_t generation;

	return __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
}

/* Gives up to @wanted equal pages private content, or the reverse. */
static size_t convert(struct memory *memory, size_t wanted, bool to_private)
{
	struct pages *pages = &memory->class[CLASS_EQUAL];
	size_t written = 0;

	for (size_t index = 0; index < pages->count && written < wanted;
	     index++) {
		memory_lock();
		if (to_private == !pages->generation[index]) {
			rewrite(memory, pages, index,
				to_private ? next_generation() : 0);
			written++;
		}
		memory_unlock();
	}
	return written;
}

size_t memory_write(struct memory *memory, size_t wanted)
{
	return convert(memory, wanted, true);
}

size_t memory_restore(struct memory *memory)
{
	return convert(memory, memory->class[CLASS_EQUAL].count, false);
}

/* The same content once more: a merged page becomes a page of its own again. */
bool memory_again(struct memory *memory, size_t index)
{
	struct pages *pages = &memory->class[CLASS_EQUAL];

	if (index >= pages->count)
		return false;
	memory_lock();
	rewrite(memory, pages, index, pages->generation[index]);
	memory_unlock();
	return true;
}

/*
 * Leaves empty areas that the kernel takes for places where the equal pages could
 * be, but for the last one: whoever looks for their mappings goes through all of
 * these. They are made by moving the pages away, which leaves the area behind.
 *
 * Returns how many of @wanted there are: 65,530 areas is what a process may have.
 */
size_t memory_stack(struct memory *memory, size_t wanted)
{
	struct pages *pages = &memory->class[CLASS_EQUAL];
	size_t bytes = (pages->count - 1) * PAGE_BYTES, made = 0;

	memory_lock();
	for (; pages->count > 1 && made < wanted; made++) {
		/* Without an address, what a register has by chance is taken for one */
		void *moved = mremap(pages->base, bytes, bytes,
				     MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

		if (moved == MAP_FAILED ||
		    (!made && madvise(moved, bytes, MADV_DONTNEED)))
			break;
	}
	for (size_t index = 0; index < pages->count; index++)
		rewrite(memory, pages, index, pages->generation[index]);
	memory_unlock();
	return made;
}

/*
 * More memory, that of no class: page after page, and *@taken says at any time how many
 * there are. It is kept, and what is in it is nobody's business.
 */
int memory_take(size_t pages, volatile uint64_t *taken)
{
	unsigned char *area = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (area == MAP_FAILED)
		return -errno;
	if (madvise(area, pages * PAGE_BYTES, MADV_NOHUGEPAGE) && errno != EINVAL)
		return -errno;
	for (*taken = 0; *taken < pages; ++*taken)
		*(volatile unsigned char *)(area + *taken * PAGE_BYTES) = 1;
	return 0;
}

size_t memory_change(struct memory *memory)
{
	struct pages *pages = &memory->class[CLASS_CHANGING];

	for (size_t index = 0; index < pages->count; index++) {
		memory_lock();
		rewrite(memory, pages, index, next_generation());
		memory_unlock();
	}
	return pages->count;
}

/*
 * Walks through the equal pages with a stride, so that over time every other
 * page is private and the rest is equal, and every page goes back and forth.
 */
size_t memory_churn_step(struct memory *memory, uint64_t step)
{
	struct pages *equal = &memory->class[CLASS_EQUAL];
	struct pages *changing = &memory->class[CLASS_CHANGING];
	uint64_t end = (step + 1) * CHURN_PAGES;
	size_t written = 0;

	for (uint64_t turn = step * CHURN_PAGES; turn < end; turn++) {
		memory_lock();
		if (equal->count) {
			size_t index = turn * CHURN_STRIDE % equal->count;
			bool shared = !equal->generation[index];

			rewrite(memory, equal, index,
				shared ? next_generation() : 0);
			written++;
		}
		if (changing->count) {
			rewrite(memory, changing, turn % changing->count,
				next_generation());
			written++;
		}
		memory_unlock();
	}
	return written;
}
