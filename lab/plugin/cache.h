/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A set-associative cache of 64-byte lines with least-recently-used
 * replacement. It knows which lines it has, and nothing of their contents.
 */
#ifndef PLUGIN_CACHE_H
#define PLUGIN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_SHIFT 6

/**
 * struct cache
 * @ways: lines per set
 * @sets: how many; a power of two
 * @lines: by set, the most recently used first; a line's address plus one,
 *         0 for none
 */
struct cache {
	size_t ways;
	size_t sets;
	uint64_t *lines;
};

/* False if there is no memory, or bytes / ways is not a power of two of lines. */
bool cache_create(struct cache *cache, size_t bytes, size_t ways);
void cache_clear(struct cache *cache);

/* Whether the line was there; it is the most recently used afterwards. */
bool cache_access(struct cache *cache, uint64_t line);

#endif
