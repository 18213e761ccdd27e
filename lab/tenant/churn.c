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
static atomic_bool stop;
static size_t total;

static void *churn(void *argument)
{
	const struct timespec rest = { .tv_nsec = STEP_BREAK_NS };
	struct memory *memory = argument;

	for (uint64_t step = 0; !atomic_load(&stop); step++) {
		total += memory_churn_step(memory, step);
		nanosleep(&rest, NULL);
	}
	return NULL;
}

int churn_start(struct memory *memory)
{
	int error;

	if (running)
		return -EALREADY;
	total = 0;
	atomic_store(&stop, false);
	error = pthread_create(&thread, NULL, churn, memory);
	running = !error;
	return -error;
}

int churn_stop(size_t *written)
{
	int error;

	if (!running)
		return -ESRCH;
	atomic_store(&stop, true);
	error = pthread_join(thread, NULL);
	running = false;
	*written = total;
	return -error;
}
