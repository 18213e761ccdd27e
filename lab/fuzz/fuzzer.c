// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer: `fuzzer NAME PROFILE PAGES NODE NODES` (as 0,1; both `-` without
 * NUMA).
 *
 * It prints one line `ready KEY=VALUE...`. Then every line that it reads is a
 * command, answered by exactly one line:
 *
 *   go SEED     begins to act; the same seed gives the same actions
 *   pause       stops acting, with all children ended
 *   verify      compares every page with what it has to hold
 *   plan SEED N prints the N first actions of a seed instead of doing them
 *   quit        ends; so does the end of input
 *
 * What is wrong is said on standard error, and counted as bad=N in the answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actions.h"
#include "node.h"

/**
 * struct run - what `go` began
 * @acting: whether it goes on
 * @seed: of it
 * @number: of the next action
 * @refused: by the kernel
 * @errors: answers that a sound kernel does not give
 */
struct run {
	bool acting;
	uint64_t seed;
	uint64_t number;
	size_t refused;
	size_t errors;
};

__attribute__((noreturn)) static void fail(const char *what)
{
	fprintf(stderr, "fuzzer: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static void read_nodes(struct fuzzer *fuzzer, const char *node, char *nodes)
{
	fuzzer->node = -1;
	if (!strcmp(nodes, "-"))
		return;
	for (char *one = strtok(nodes, ","); one; one = strtok(NULL, ","))
		if (fuzzer->node_count < NODES_MAX)
			fuzzer->nodes[fuzzer->node_count++] = atoi(one);
	fuzzer->node = atoi(node);
	errno = -node_bind_cpus(fuzzer->node);
	if (errno)
		fail("cannot bind to the node's CPUs");
	errno = -node_bind_memory(fuzzer->node);
	if (errno)
		fail("cannot bind to the node's memory");
}

/* Below 0 where the kernel has none, or does not let this user. */
static int open_uffd(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	int uffd = (int)syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api)) {
		close(uffd);
		uffd = -1;
	}
	return uffd;
}

static void act(struct fuzzer *fuzzer, struct run *run, int profile)
{
	struct lot lot = lot_of(run->seed, run->number);
	const struct action *action = choose_action(profile, &lot);
	size_t before = fuzzer->shadow.bad;

	errno = 0;
	if (action->act(fuzzer, &lot)) {
		run->refused++;
		if (!may_refuse(errno)) {
			run->errors++;
			fprintf(stderr, "fuzzer %d: action %lu, %s: %s\n",
				getpid(), run->number, action->name,
				strerror(errno));
		}
	}
	if (fuzzer->shadow.bad > before)
		fprintf(stderr, "fuzzer %d: found by action %lu, %s\n",
			getpid(), run->number, action->name);
	run->number++;
}

static void verify_all(struct fuzzer *fuzzer)
{
	struct range all = { 0, fuzzer->shadow.count };

	if (shadow_open(&fuzzer->shadow, &all))
		fail("cannot read its own memory");
	shadow_verify(&fuzzer->shadow, &all);
}

static void print_plan(int profile, uint64_t seed, size_t count)
{
	printf("ok");
	for (size_t number = 0; number < count; number++) {
		struct lot lot = lot_of(seed, number);
		const struct action *action = choose_action(profile, &lot);

		printf(" %zu,%#lx", action - actions, lot_draw(&lot));
	}
	putchar('\n');
}

/* Returns false when it is to end. */
static bool obey(struct fuzzer *fuzzer, struct run *run, int profile,
		 char *line)
{
	char *command = strtok(line, " \n"), *first = strtok(NULL, " \n");
	char *second = strtok(NULL, " \n");

	if (!command) {
		printf("error empty command\n");
	} else if (!strcmp(command, "go") && first) {
		*run = (struct run){ true, strtoull(first, NULL, 10), 0, 0, 0 };
		printf("ok\n");
	} else if (!strcmp(command, "pause")) {
		run->acting = false;
		children_end(fuzzer);
		printf("ok actions=%lu refused=%zu errors=%zu bad=%zu\n",
		       run->number, run->refused, run->errors,
		       fuzzer->shadow.bad);
	} else if (!strcmp(command, "verify")) {
		verify_all(fuzzer);
		printf("ok pages=%zu bad=%zu\n", fuzzer->shadow.count,
		       fuzzer->shadow.bad);
	} else if (!strcmp(command, "plan") && second) {
		print_plan(profile, strtoull(first, NULL, 10),
			   strtoul(second, NULL, 10));
	} else if (!strcmp(command, "quit")) {
		children_end(fuzzer);
		printf("ok\n");
		return false;
	} else {
		printf("error '%s' is no command\n", command);
	}
	fflush(stdout);
	return true;
}

static bool told_something(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	struct fuzzer fuzzer = { 0 };
	struct run run = { 0 };
	char line[128];
	int profile = 0;

	if (argc != 6) {
		fputs("usage: fuzzer NAME PROFILE PAGES NODE NODES\n", stderr);
		return EXIT_FAILURE;
	}
	/* Nothing that was said may wait in a buffer, which poll() misses. */
	setvbuf(stdin, NULL, _IONBF, 0);
	prctl(PR_SET_NAME, argv[1]);
	while (profile < PROFILES && strcmp(profile_name[profile], argv[2]))
		profile++;
	errno = EINVAL;
	if (profile == PROFILES)
		fail(argv[2]);
	read_nodes(&fuzzer, argv[4], argv[5]);
	pins_init(&fuzzer.pins);
	if (shadow_map(&fuzzer.shadow, strtoul(argv[3], NULL, 10)))
		fail("cannot map its memory");
	fuzzer.shadow.uffd = open_uffd();
	printf("ready pid=%d at=%lx pages=%zu\n", getpid(),
	       (unsigned long)fuzzer.shadow.base, fuzzer.shadow.count);
	fflush(stdout);
	for (;;) {
		if (run.acting && !told_something())
			act(&fuzzer, &run, profile);
		else if (!fgets(line, sizeof(line), stdin) ||
			 !obey(&fuzzer, &run, profile, line))
			return EXIT_SUCCESS;
	}
}
