// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "split.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_BYTES (2UL << 20)
/* Threads that have the CPU instead of the one that splits. */
#define RIVALS 3

/* It says by the one that it is ready, and is told by the other to begin. */
static int ready[2], begin[2];

static void *run_for_ever(void *unused)
{
	volatile unsigned long turns = 0;

	for (;;)
		turns++;
	return unused;
}

/* To free one of its pages splits the huge page that it is in. */
static void *split_for_ever(void *huge)
{
	static const struct sched_param none;

	sched_setscheduler(0, SCHED_IDLE, &none);
	for (;;) {
		madvise(huge, HUGE_BYTES, MADV_DONTNEED);
		*(volatile unsigned char *)huge = 1;
		madvise(huge, HUGE_BYTES, MADV_COLLAPSE); /* if it is none */
		madvise(huge, PAGE_BYTES, MADV_FREE);
	}
	return NULL;
}

/* A place for a huge page among those that are equal, or NULL. */
static void *huge_place(const struct memory *memory)
{
	const struct pages *equal = &memory->class[CLASS_EQUAL];
	size_t bytes = equal->count * PAGE_BYTES;
	uintptr_t huge = ((uintptr_t)equal->base + HUGE_BYTES - 1) & -HUGE_BYTES;

	if (huge + HUGE_BYTES > (uintptr_t)equal->base + bytes)
		return NULL;
	return (void *)huge;
}

/* Nothing of it is merged, nor will be. */
static bool empty(struct memory *memory)
{
	for (int class = 0; class < CLASS_COUNT; class++) {
		const struct pages *pages = &memory->class[class];

		if (pages->count &&
		    (madvise(pages->base, pages->count * PAGE_BYTES, MADV_DONTNEED) ||
		     madvise(pages->base, pages->count * PAGE_BYTES, MADV_UNMERGEABLE)))
			return false;
	}
	return true;
}

static bool stack(void *huge, size_t areas)
{
	for (size_t made = 0; made < areas; made++)
		if (mremap(huge, HUGE_BYTES, HUGE_BYTES,
			   MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) == MAP_FAILED)
			return false;
	return !madvise(huge, HUGE_BYTES, MADV_HUGEPAGE);
}

static int pin_to_this_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	return sched_setaffinity(0, sizeof(one), &one);
}

__attribute__((noreturn)) static void child_main(struct memory *memory, size_t areas)
{
	void *huge = huge_place(memory);
	pthread_t thread;
	char byte = 0;

	/* Who reads what the parent says waits for its end */
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	if (!huge || !empty(memory) || !stack(huge, areas) || pin_to_this_cpu() ||
	    write(ready[1], &byte, 1) != 1 || read(begin[0], &byte, 1) != 1 ||
	    pthread_create(&thread, NULL, split_for_ever, huge))
		_exit(EXIT_FAILURE);
	for (int rival = 1; rival < RIVALS; rival++)
		pthread_create(&thread, NULL, run_for_ever, NULL);
	run_for_ever(NULL);
	_exit(EXIT_FAILURE);
}

pid_t split_prepare(struct memory *memory, size_t areas)
{
	ssize_t got;
	pid_t child;
	char byte;

	if (pipe2(ready, O_CLOEXEC) || pipe2(begin, O_CLOEXEC))
		return -errno;
	child = fork();
	if (child == 0)
		child_main(memory, areas);
	close(ready[1]);
	close(begin[0]);
	if (child < 0)
		return -errno;
	got = read(ready[0], &byte, 1);
	close(ready[0]);
	return got == 1 ? child : -ECHILD;
}

pid_t split_stay(void)
{
	pid_t child = fork();

	if (child)
		return child < 0 ? -errno : child;
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	for (;;)
		pause();
}

bool split_collapse(const struct memory *memory)
{
	volatile unsigned char *huge = huge_place(memory);

	if (!huge)
		return false;
	*huge = *huge; /* one of them at least has to be written to before */
	return !madvise((void *)huge, HUGE_BYTES, MADV_HUGEPAGE) &&
	       !madvise((void *)huge, HUGE_BYTES, MADV_COLLAPSE);
}

int split_begin(void)
{
	char byte = 0;

	return write(begin[1], &byte, 1) == 1 ? 0 : -errno;
}
