// SPDX-License-Identifier: GPL-2.0-only
#include <stdlib.h>
#include <string.h>

#include "cache.h"

bool cache_create(struct cache *cache, size_t bytes, size_t ways)
{
	if (!ways)
		return false;
	cache->ways = ways;
	cache->sets = (bytes >> LINE_SHIFT) / ways;
	if (!cache->sets || cache->sets & (cache->sets - 1) ||
	    cache->sets * ways << LINE_SHIFT != bytes)
		return false;
	cache->lines = calloc(cache->sets * ways, sizeof(*cache->lines));
	return cache->lines;
}

void cache_clear(struct cache *cache)
{
	memset(cache->lines, 0,
	       cache->sets * cache->ways * sizeof(*cache->lines));
}

/*
 * By a hash, as in real last-level caches. If the address chose the set, whether
 * hot pages get into each other's way would depend on which frames the kernel
 * happens to give them: with a cache of few pages per way that made 8 % of the
 * misses of a B+ tree, in one run and not in another.
 */
static size_t set_of(const struct cache *cache, uint64_t line)
{
	return (line * 0x9e3779b97f4a7c15 >> 32) & (cache->sets - 1);
}

bool cache_access(struct cache *cache, uint64_t line)
{
	uint64_t *set = cache->lines + set_of(cache, line) * cache->ways;
	uint64_t wanted = line + 1;
	size_t way = 0;
	bool hit;

	while (way < cache->ways - 1 && set[way] != wanted)
		way++;
	hit = set[way] == wanted;
	memmove(set + 1, set, way * sizeof(*set));
	set[0] = wanted;
	return hit;
}
