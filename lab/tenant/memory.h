/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A tenant's memory: one mapping per class of pages, and everything that is
 * done to it. All functions may be called from several threads.
 */
#ifndef TENANT_MEMORY_H
#define TENANT_MEMORY_H

#include "content.h"

/**
 * struct memory - all pages of the tenant
 * @id: what their contents are made from
 * @class: the pages by class
 */
struct memory {
	struct identity id;
	struct pages class[CLASS_COUNT];
};

/**
 * struct use - which pages are used, and how
 * @percent: so many of all, chosen at random
 * @seed: of that choice
 * @write: what is there is written once more, not read
 */
struct use {
	unsigned int percent;
	uint64_t seed;
	bool write;
};

int memory_map(struct memory *memory, bool mergeable);
size_t memory_verify(struct memory *memory, size_t *bad);
size_t memory_touch(struct memory *memory);
size_t memory_prefer(const struct memory *memory, size_t first, size_t preferred,
		     size_t reads, uint64_t seed);
size_t memory_use(struct memory *memory, const struct use *use);
size_t memory_write(struct memory *memory, size_t wanted);
size_t memory_restore(struct memory *memory);
bool memory_again(struct memory *memory, size_t index);
size_t memory_change(struct memory *memory);
size_t memory_stack(struct memory *memory, size_t wanted);
int memory_take(size_t pages, volatile uint64_t *taken);
size_t memory_churn_step(struct memory *memory, uint64_t step);

void memory_lock(void);
void memory_unlock(void);

#endif
