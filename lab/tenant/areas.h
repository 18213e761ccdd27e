/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is done to a tenant's memory without changing what it holds: each
 * class's mapping is moved, locked, made of huge pages, paged out or merged.
 */
#ifndef TENANT_AREAS_H
#define TENANT_AREAS_H

#include "memory.h"

/**
 * struct outcome - of something that the kernel may refuse
 * @done: mappings, or huge pages, that it was done to
 * @refused: those that were busy, locked, or lacked memory: no error
 */
struct outcome {
	size_t done;
	size_t refused;
};

/* Returns -ENOSYS if there is no such command. */
int areas_obey(struct memory *memory, const char *command,
	       struct outcome *outcome);

#endif
