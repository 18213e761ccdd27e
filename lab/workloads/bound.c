// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs any program on one node: on its CPUs, with its memory, and at the same
 * addresses in each instance, so that pages with pointers are equal, too. With a
 * tenant's number, all that the program does is between that tenant's marks.
 * Without a node, it runs anywhere.
 *
 * It gets no huge pages, as the workloads ask for none: khugepaged makes them of
 * areas of which up to half is merged, and so undoes merging at times of its own.
 *
 * usage: bound NODE|- TENANT|- COMMAND...
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../plugin/mark.h"
#include "../tenant/node.h"

__attribute__((noreturn)) static void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

__attribute__((noreturn)) static void run(char **command)
{
	execvp(command[0], command);
	fail(command[0]);
}

static int run_marked(unsigned int tenant, char **command)
{
	int status;
	pid_t child;

	mark(MARK_START, tenant);
	child = fork();
	if (child == 0)
		run(command);
	if (child < 0 || waitpid(child, &status, 0) != child)
		fail("bound");
	mark(MARK_STOP, tenant);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static void bind_to(int node)
{
	if (node_bind_cpus(node) || node_bind_memory(node) ||
	    personality(ADDR_NO_RANDOMIZE) < 0)
		fail("bound");
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: bound NODE|- TENANT|- COMMAND...\n");
		return EXIT_FAILURE;
	}
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		fail("bound");
	if (strcmp(argv[1], "-"))
		bind_to(atoi(argv[1]));
	if (!strcmp(argv[2], "-"))
		run(argv + 3);
	return run_marked(atoi(argv[2]) % MARK_TENANTS, argv + 3);
}
