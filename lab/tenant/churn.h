/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread that keeps using pages while the tenant answers commands. */
#ifndef TENANT_CHURN_H
#define TENANT_CHURN_H

#include "memory.h"

/**
 * enum churn - how
 * @CHURN_REWRITE: some of them are rewritten, with breaks
 * @CHURN_READ: all of them are read, without
 * @CHURN_PREFER: equal ones are read at random, nine times of ten one of a few; some 10^5
 *	times a second, so that the others rest for much of the time
 */
enum churn {
	CHURN_REWRITE,
	CHURN_READ,
	CHURN_PREFER,
};

/* @first, @preferred: of the few, and how many these are, for CHURN_PREFER. */
int churn_start(struct memory *memory, enum churn how, size_t first,
		size_t preferred);

/* *@pages: how many it rewrote, or read. */
int churn_stop(size_t *pages);

#endif
