// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs one of the workloads on one node, or as a guest's only process. Says `ready` when its data lies in
 * memory that the kernel may merge, in huge pages if it is told so; then obeys its standard input, line by line:
 *
 *	warm	reads a byte of each page, so that all of them are mapped
 *	hot FIRST COUNT	which pages it prefers, if it does; see workload.h
 *	use N	N operations a second, until the next line
 *	run N	N operations, between marks for the plugin that counts
 *	sum	of the first word and the last one of each page
 *	flip N	writes to each Nth page: the first word's bits, turned round; once more, and they are as they were
 *	quit
 *
 * Each answer is a line of JSON.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../plugin/mark.h"
#include "../tenant/node.h"
#include "workload.h"

#define PAGE_BYTES 4096UL
#define ANYWHERE -1 /* instead of a node: in a guest, which is bound itself */

static const struct workload *const workloads[] = { &random_access, &btree, &cg,
						    &xsbench, &skewed, &sweep };
#define WORKLOADS (sizeof(workloads) / sizeof(workloads[0]))

struct options {
	const struct workload *workload;
	unsigned int tenant;
	int node;
	size_t bytes;
	bool huge;
};

__attribute__((noreturn, format(printf, 1, 2))) static void
fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "workload: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(EXIT_FAILURE);
}

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long result = strtoul(text, &end, 10);

	if (*end || end == text || result > most)
		fail("'%s' is not a number up to %lu", text, most);
	return result;
}

static const struct workload *find_workload(const char *name)
{
	for (size_t i = 0; i < WORKLOADS; i++)
		if (!strcmp(name, workloads[i]->name))
			return workloads[i];
	fail("there is no workload '%s'", name);
}

static struct options parse_options(char **argv, int argc)
{
	if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "huge")))
		fail("usage: workload NAME TENANT NODE|- KIB [huge]");
	return (struct options){
		.workload = find_workload(argv[1]),
		.tenant = number(argv[2], MARK_TENANTS - 1),
		.node = strcmp(argv[3], "-") ? (int)number(argv[3], 63) : ANYWHERE,
		.bytes = number(argv[4], 1UL << 32) << 10,
		.huge = argc == 6,
	};
}

static void *map_shared(const struct options *options)
{
	int advice = options->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
	void *shared;

	if (options->node != ANYWHERE && (node_bind_cpus(options->node) ||
					  node_bind_memory(options->node)))
		fail("cannot bind to node %d: %s", options->node,
		     strerror(errno));
	shared = mmap(NULL, options->bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("cannot map %zu KiB: %s", options->bytes >> 10,
		     strerror(errno));
	/* A kernel without huge pages, or without merging, does not know these. */
	if (madvise(shared, options->bytes, advice) && errno != EINVAL)
		fail("MADV_%sHUGEPAGE: %s", options->huge ? "" : "NO", strerror(errno));
	if (madvise(shared, options->bytes, MADV_MERGEABLE) && errno != EINVAL)
		fail("MADV_MERGEABLE: %s", strerror(errno));
	return shared;
}

/* What was just merged is not mapped in a guest, until a fault for each page. */
static void warm(const unsigned char *shared, size_t bytes)
{
	size_t pages = 0;

	for (size_t at = 0; at < bytes; at += PAGE_BYTES, pages++)
		*(volatile const unsigned char *)(shared + at);
	printf("{\"pages\": %zu}\n", pages);
	fflush(stdout);
}

/* What others write to pages that are merged with these would change it. */
static void sum(const uint64_t *shared, size_t bytes)
{
	const size_t words = bytes / sizeof(*shared), page = PAGE_BYTES / sizeof(*shared);
	uint64_t all = 0;

	for (size_t first = 0; first + page <= words; first += page)
		all = hash(hash(all ^ shared[first]) ^ shared[first + page - 1]);
	printf("{\"sum\": \"%016" PRIx64 "\"}\n", all);
	fflush(stdout);
}

static void flip(uint64_t *shared, size_t bytes, const char *argument)
{
	const size_t words = bytes / sizeof(*shared), page = PAGE_BYTES / sizeof(*shared);
	unsigned long step = number(argument, UINT32_MAX), pages = 0;

	if (!step)
		fail("'flip N' of at least 1");
	for (size_t first = 0; first + page <= words; first += step * page, pages++)
		shared[first] = ~shared[first];
	printf("{\"pages\": %lu}\n", pages);
	fflush(stdout);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* What it has already stays where it is, for others to move. */
static void move(const char *node)
{
	if (node_bind_cpus(number(node, 63)) || node_bind_memory(number(node, 63)))
		fail("cannot move to node %s: %s", node, strerror(errno));
	printf("{\"node\": %s}\n", node);
	fflush(stdout);
}

static void prefer(const struct options *options, const char *first, const char *count)
{
	if (!options->workload->prefer || !first || !count)
		fail("'hot FIRST COUNT' of what has hot pages");
	options->workload->prefer(number(first, UINT32_MAX), number(count, UINT32_MAX));
}

/* As many as belong to the time that has passed, a millisecond or more at once. */
static void use(const struct options *options, const char *argument)
{
	uint64_t rate = number(argument, UINT32_MAX), done = 0, due;
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	double began = now();

	if (!options->workload->prefer)
		fail("'use' of what has hot pages");
	while (!poll(&input, 1, 1)) {
		due = (now() - began) * rate;
		if (options->workload->run(due - done))
			fail("wrong words");
		done = due;
	}
	printf("{\"operations\": %" PRIu64 "}\n", done);
	fflush(stdout);
}

static void run(const struct options *options, const char *argument)
{
	uint64_t operations = number(argument, UINT32_MAX);
	uint64_t checksum;
	double began;

	began = now();
	mark(MARK_START, options->tenant);
	checksum = options->workload->run(operations);
	mark(MARK_STOP, options->tenant);
	printf("{\"operations\": %" PRIu64 ", \"operation\": \"%s\", "
	       "\"checksum\": \"%016" PRIx64 "\", \"seconds\": %.6f}\n",
	       operations, options->workload->operation, checksum,
	       now() - began);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options options = parse_options(argv, argc);
	void *shared = map_shared(&options);
	size_t used = options.workload->prepare(shared, options.bytes);
	char *line = NULL, *argument;
	size_t capacity = 0;

	if (!used)
		fail("cannot prepare %zu KiB", options.bytes >> 10);
	prctl(PR_SET_NAME, options.workload->name);
	printf("{\"pid\": %d, \"pages\": %zu, \"at\": %lu}\n", getpid(),
	       (used + PAGE_BYTES - 1) / PAGE_BYTES, (unsigned long)shared);
	fflush(stdout);
	while (getline(&line, &capacity, stdin) > 0) {
		strtok(line, " \n");
		argument = strtok(NULL, " \n");
		if (!strcmp(line, "quit"))
			break;
		if (!strcmp(line, "warm"))
			warm(shared, used);
		else if (!strcmp(line, "move") && argument)
			move(argument);
		else if (!strcmp(line, "hot") && argument)
			prefer(&options, argument, strtok(NULL, " \n"));
		else if (!strcmp(line, "use") && argument)
			use(&options, argument);
		else if (!strcmp(line, "rest"))
			continue;
		else if (!strcmp(line, "run") && argument)
			run(&options, argument);
		else if (!strcmp(line, "sum"))
			sum(shared, used);
		else if (!strcmp(line, "flip") && argument)
			flip(shared, used, argument);
		else
			fail("'%s' is no command", line);
	}
	free(line);
	return EXIT_SUCCESS;
}
