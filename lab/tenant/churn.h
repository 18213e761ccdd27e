/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread that keeps rewriting pages while the tenant answers commands. */
#ifndef TENANT_CHURN_H
#define TENANT_CHURN_H

#include "memory.h"

int churn_start(struct memory *memory);
int churn_stop(size_t *written);

#endif
