/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread that keeps using pages while the tenant answers commands. */
#ifndef TENANT_CHURN_H
#define TENANT_CHURN_H

#include "memory.h"

/* It rewrites some, with breaks; or reads all of them without. */
int churn_start(struct memory *memory, bool only_read);

/* *@pages: how many it rewrote, or read. */
int churn_stop(size_t *pages);

#endif
