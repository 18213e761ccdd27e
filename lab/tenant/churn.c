// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "churn.h"

/* Breaks between steps, so that the scanner finds pages that stood still. */
#define STEP_BREAK_NS 5000000L

/*
 * Between a few reads, or reads of all pages: no more than a fraction of what a page
 * rests for, and enough for others who share the CPU.
 */
#define READ_BREAK_NS 200000L
#define READS 64

static pthread_t thread;
static bool running;
static enum churn kind;
static size_t first_page, preferred_pages;
static atomic_bool stop;
static size_t total;

static void *churn(void *argument)
{
	const struct timespec rest = { .tv_nsec = STEP_BREAK_NS };
	const struct timespec short_rest = { .tv_nsec = READ_BREAK_NS };
	struct memory *memory = argument;
	uint64_t step = 0;

	do {
		switch (kind) {
		case CHURN_REWRITE:
			total += memory_churn_step(memory, step++);
			nanosleep(&rest, NULL);
			break;
		case CHURN_READ:
			total += memory_touch(memory);
			nanosleep(&short_rest, NULL);
			break;
		case CHURN_PREFER:
			total += memory_prefer(memory, first_page,
					       preferred_pages, READS, step++);
			nanosleep(&short_rest, NULL);
			break;
		}
	} while (!atomic_load(&stop));
	return NULL;
}

int churn_start(struct memory *memory, enum churn how, size_t first,
		size_t preferred)
{
	int error;

	if (running)
		return -EALREADY;
	total = 0;
	kind = how;
	first_page = first;
	preferred_pages = preferred;
	atomic_store(&stop, false);
	error = pthread_create(&thread, NULL, churn, memory);
	running = !error;
	return -error;
}

int churn_stop(size_t *pages)
{
	int error;

	if (!running)
		return -ESRCH;
	atomic_store(&stop, true);
	error = pthread_join(thread, NULL);
	running = false;
	*pages = total;
	return -error;
}
