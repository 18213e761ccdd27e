/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a tenant's pages hold, and what they must still hold when verified.
 *
 * The content of a page is a function of its class, the tenant's seed or name,
 * the page's index and its generation, so that any process can tell at any
 * time what every byte has to be, without keeping a copy.
 */
#ifndef TENANT_CONTENT_H
#define TENANT_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096UL
#define PAGE_WORDS (PAGE_BYTES / sizeof(uint64_t))

/**
 * enum page_class - what a page is to KSM
 * @CLASS_EQUAL: the same in every tenant that has the same seed
 * @CLASS_PRIVATE: found in this tenant only, never rewritten
 * @CLASS_ZERO: all bytes zero
 * @CLASS_CHANGING: found in this tenant only, rewritten again and again
 * @CLASS_ALIKE: as @CLASS_EQUAL, but these pages differ from one another in
 *               their last word only, which is the page's index
 * @CLASS_SAME: one content for all of them, in every tenant of the same seed
 */
enum page_class {
	CLASS_EQUAL,
	CLASS_PRIVATE,
	CLASS_ZERO,
	CLASS_CHANGING,
	CLASS_ALIKE,
	CLASS_SAME,
	CLASS_COUNT,
};

/**
 * struct pages - all pages of one class
 * @class: what they are
 * @count: how many
 * @base: where the first one starts
 * @generation: per page, how often it got new content of its own; for the
 *              equal class 0 stands for the content all tenants share
 */
struct pages {
	enum page_class class;
	size_t count;
	unsigned char *base;
	uint32_t *generation;
};

/**
 * struct identity - what the contents of a tenant are made from
 * @seed: makes the shared content
 * @distinct: so many equal pages differ, then they repeat; 0 if they never do
 * @name_key: makes the content that no other tenant has
 */
struct identity {
	uint64_t seed;
	size_t distinct;
	uint64_t name_key;
};

/* A number that follows from these three, and looks like chance. */
uint64_t content_random(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t content_name_key(const char *name, uint64_t seed);
void content_fill(const struct identity *id, const struct pages *pages,
		  size_t index);
bool content_matches(const struct identity *id, const struct pages *pages,
		     size_t index);

#endif
