// SPDX-License-Identifier: GPL-2.0-only
/*
 * Children: they have the same pages, and end at bad moments.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzzer.h"

#define CHILD_ACTIONS 8
#define CHILD_NAP_US 3000

/* What a child does: its pages are its own, whatever the parent does. */
__attribute__((noreturn)) static void child_main(struct fuzzer *fuzzer,
						 struct lot lot)
{
	struct shadow *shadow = &fuzzer->shadow;
	struct range all = { 0, shadow->count };
	size_t before = shadow->bad;

	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	/* Registrations and write-protection stayed with the parent. */
	close(shadow->uffd);
	shadow->uffd = -1;
	if (shadow_open(shadow, &all))
		_exit(EXIT_SUCCESS);
	for (int action = 0; action < CHILD_ACTIONS; action++) {
		struct range range = choose_range(fuzzer, &lot);

		shadow_verify(shadow, &range);
		switch (lot_below(&lot, 4)) {
		case 0:
			for (size_t slot = 0; slot < range.count; slot++)
				shadow_write(shadow, range.first + slot,
					     choose_key(&lot));
			break;
		case 1:
			if (!madvise(shadow_page(shadow, range.first),
				     range_bytes(&range), MADV_DONTNEED))
				shadow_set(shadow, &range, ZERO_KEY);
			else
				shadow_settle(shadow, &range);
			break;
		case 2:
			madvise(shadow_page(shadow, range.first),
				range_bytes(&range), MADV_UNMERGEABLE);
			break;
		}
		nap(lot_below(&lot, CHILD_NAP_US));
	}
	shadow_verify(shadow, &all);
	_exit(shadow->bad > before ? EXIT_FAILURE : EXIT_SUCCESS);
}

int act_fork(struct fuzzer *fuzzer, struct lot *lot)
{
	struct child *child = fuzzer->children;

	act_reap(fuzzer, lot);
	while (child < fuzzer->children + CHILDREN_MAX && child->pid)
		child++;
	if (child == fuzzer->children + CHILDREN_MAX) {
		errno = EAGAIN;
		return -1;
	}
	child->pid = fork();
	if (!child->pid)
		child_main(fuzzer, *lot);
	if (child->pid < 0) {
		child->pid = 0;
		return -1;
	}
	return 0;
}

/* Whatever it is doing. */
int act_kill(struct fuzzer *fuzzer, struct lot *lot)
{
	struct child *child = fuzzer->children + lot_below(lot, CHILDREN_MAX);

	if (!child->pid) {
		errno = EAGAIN;
		return -1;
	}
	return kill(child->pid, SIGKILL);
}

/* A child short of memory is killed by the kernel, which is no fault. */
static void judge(struct fuzzer *fuzzer, const struct child *child, int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
		return;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	fprintf(stderr, "fuzzer %d: child %d ended with status %#x\n", getpid(),
		child->pid, status);
	fuzzer->shadow.bad++;
}

static void reap(struct fuzzer *fuzzer, int options)
{
	for (size_t i = 0; i < CHILDREN_MAX; i++) {
		struct child *child = fuzzer->children + i;
		int status;

		if (!child->pid || waitpid(child->pid, &status, options) <= 0)
			continue;
		judge(fuzzer, child, status);
		child->pid = 0;
	}
}

int act_reap(struct fuzzer *fuzzer, struct lot *lot)
{
	(void)lot;
	reap(fuzzer, WNOHANG);
	return 0;
}

void children_end(struct fuzzer *fuzzer)
{
	reap(fuzzer, 0);
}
