// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that lives from its cache: how quick it is tells what others leave it.
 *
 *	neighbour CPU KIB
 *
 * An operation is LOADS loads, each from where the one before says, in a table of so
 * many KiB whose lines are one cycle in random order. Once a second it says, as a line
 * of JSON, from when to when (seconds since the epoch), how many operations, and how
 * long the quickest 99 % took at most (ns). Ends with its standard input.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

#define LINE_BYTES 64
#define LOADS 32
#define WINDOW_NS 1000000000ULL
#define LONGEST_NS 65536 /* an operation that takes longer counts as this */

struct line {
	struct line *next;
	char rest[LINE_BYTES - sizeof(struct line *)];
};

static uint32_t took[LONGEST_NS + 1]; /* operations, by ns */

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* One cycle through all lines (Sattolo's shuffle of their order). */
static struct line *make_cycle(size_t count)
{
	size_t *order = malloc(count * sizeof(*order));
	uint64_t random = FIRST_RANDOM;
	struct line *lines;

	lines = mmap(NULL, count * sizeof(*lines), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!order || lines == MAP_FAILED)
		return NULL;
	/* Without huge pages it measures the TLB as well; that is no error. */
	madvise(lines, count * sizeof(*lines), MADV_HUGEPAGE);
	for (size_t i = 0; i < count; i++)
		order[i] = i;
	for (size_t i = count - 1; i > 0; i--) {
		size_t j = next_random(&random) % i, kept = order[i];

		order[i] = order[j];
		order[j] = kept;
	}
	for (size_t i = 0; i < count; i++)
		lines[i].next = &lines[order[i]];
	free(order);
	return lines;
}

static uint64_t quickest_99_percent(uint64_t operations)
{
	uint64_t seen = 0;

	for (size_t ns = 0; ns < LONGEST_NS; ns++) {
		seen += took[ns];
		if (100 * seen >= 99 * operations)
			return ns;
	}
	return LONGEST_NS;
}

static struct line *run_window(struct line *at)
{
	uint64_t began = nanoseconds(CLOCK_REALTIME);
	uint64_t first = nanoseconds(CLOCK_MONOTONIC), last = first, now;
	uint64_t operations = 0;

	memset(took, 0, sizeof(took));
	while (last - first < WINDOW_NS) {
		for (int i = 0; i < LOADS; i++)
			at = at->next;
		/* The next clock must not be read before the last load is done. */
		__asm__ volatile("" : : "r"(at) : "memory");
		now = nanoseconds(CLOCK_MONOTONIC);
		took[now - last < LONGEST_NS ? now - last : LONGEST_NS]++;
		operations++;
		last = now;
	}
	printf("{\"began\": %.6f, \"ended\": %.6f, \"operations\": %" PRIu64
	       ", \"p99_ns\": %" PRIu64 "}\n",
	       began * 1e-9, nanoseconds(CLOCK_REALTIME) * 1e-9, operations,
	       quickest_99_percent(operations));
	fflush(stdout);
	return at;
}

int main(int argc, char **argv)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	struct line *at;
	cpu_set_t cpus;

	if (argc != 3 || atol(argv[1]) < 0 || atol(argv[2]) <= 0) {
		fprintf(stderr, "usage: neighbour CPU KIB\n");
		return EXIT_FAILURE;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atol(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus)) {
		perror("neighbour: sched_setaffinity");
		return EXIT_FAILURE;
	}
	at = make_cycle(atol(argv[2]) * 1024 / sizeof(*at));
	if (!at) {
		perror("neighbour: its table");
		return EXIT_FAILURE;
	}
	while (!poll(&input, 1, 0))
		at = run_window(at);
	return EXIT_SUCCESS;
}
