// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "churn.h"

/* Breaks between steps, so that the scanner finds pages that stood still. */
#define STEP_BREAK_NS 5000000L

static pthread_t thread;
static bool running;
static bool reads;
static atomic_bool stop;
static size_t total;

static void *churn(void *argument)
{
	const struct timespec rest = { .tv_nsec = STEP_BREAK_NS };
	struct memory *memory = argument;
	uint64_t step = 0;

	do {
		if (reads) {
			total += memory_touch(memory);
		} else {
			total += memory_churn_step(memory, step++);
			nanosleep(&rest, NULL);
		}
	} while (!atomic_load(&stop));
	return NULL;
}

int churn_start(struct memory *memory, bool only_read)
{
	int error;

	if (running)
		return -EALREADY;
	total = 0;
	reads = only_read;
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
