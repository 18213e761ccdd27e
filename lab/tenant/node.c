// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node.h"

#define NODE_MASK_BITS (8 * sizeof(unsigned long))

/* A list as in "0-3,8": ranges of CPU numbers, both ends included. */
static int read_cpulist(FILE *list, cpu_set_t *cpus)
{
	unsigned int first, last;
	int separator;

	CPU_ZERO(cpus);
	do {
		if (fscanf(list, "%u", &first) != 1)
			return -EINVAL;
		last = first;
		separator = fgetc(list);
		if (separator == '-') {
			if (fscanf(list, "%u", &last) != 1)
				return -EINVAL;
			separator = fgetc(list);
		}
		for (unsigned int cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, cpus);
	} while (separator == ',');
	return 0;
}

int node_bind_cpus(int node)
{
	char path[64];
	cpu_set_t cpus;
	FILE *list;
	int error;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist",
		 node);
	list = fopen(path, "r");
	if (!list)
		return -errno;
	error = read_cpulist(list, &cpus);
	fclose(list);
	if (error)
		return error;
	return sched_setaffinity(0, sizeof(cpus), &cpus) ? -errno : 0;
}

/* The kernel reads one bit less than it is told there are. */
static int node_mask(int node, unsigned long *mask)
{
	if (node < 0 || (size_t)node >= NODE_MASK_BITS)
		return -EINVAL;
	*mask = 1UL << node;
	return 0;
}

int node_bind_memory(int node)
{
	unsigned long mask;
	int error = node_mask(node, &mask);

	if (error)
		return error;
	if (syscall(SYS_set_mempolicy, MPOL_BIND, &mask, NODE_MASK_BITS + 1))
		return -errno;
	return 0;
}

/* What is there already stays where it is. */
int node_bind_area(void *area, size_t bytes, int node, bool strictly)
{
	int error, mode = strictly ? MPOL_BIND : MPOL_PREFERRED;
	unsigned long mask;

	error = node_mask(node, &mask);
	if (error)
		return error;
	if (syscall(SYS_mbind, area, bytes, mode, &mask, NODE_MASK_BITS + 1, 0))
		return -errno;
	return 0;
}
