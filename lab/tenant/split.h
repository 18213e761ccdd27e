/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A child that keeps the lock of the anon_vma that its parent's equal pages have, too, for as
 * long as it can: it splits huge pages in a thread that hardly gets a CPU.
 */
#ifndef TENANT_SPLIT_H
#define TENANT_SPLIT_H

#include <stdbool.h>
#include <sys/types.h>

#include "memory.h"

/* It has so many areas where others look for mappings. Returns its number, or -errno. */
pid_t split_prepare(struct memory *memory, size_t areas);

/* Another child, which does nothing. Returns its number, or -errno. */
pid_t split_stay(void);

/* The parent gets a huge page of its own, where some of its equal pages were. Has it one? */
bool split_collapse(const struct memory *memory);

/*
 * Has it begin. It has to be killed first: its parent needs that lock to end. Returns 0, or
 * -errno.
 */
int split_begin(void);

#endif
