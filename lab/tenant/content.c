// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deterministic page contents: a small counter-based generator. Each word is a
 * mix of the page's key and the word's number, so pages with different keys
 * differ from their first bytes on. The exception is what KSM finds hardest:
 * pages that differ at their very ends.
 */
#include "content.h"

static uint64_t mix(uint64_t word)
{
	word ^= word >> 32;
	word *= 0xd6e8feb86659fd93ULL;
	word ^= word >> 29;
	word *= 0xa24baed4963ee407ULL;
	return word ^ (word >> 32);
}

uint64_t content_name_key(const char *name, uint64_t seed)
{
	uint64_t key = mix(seed + 1);

	for (; *name; name++)
		key = mix(key ^ (unsigned char)*name);
	return key;
}

uint64_t content_random(uint64_t seed, uint64_t stream, uint64_t index)
{
	return mix(mix(mix(seed + 1) + stream) + index);
}

static bool one_key_for_all(enum page_class class)
{
	return class == CLASS_ALIKE || class == CLASS_SAME;
}

static uint64_t page_key(const struct identity *id, const struct pages *pages,
			 size_t index)
{
	uint32_t generation = pages->generation[index];
	bool shared = (pages->class == CLASS_EQUAL && generation == 0) ||
		      one_key_for_all(pages->class);
	uint64_t key = shared ? mix(id->seed) : id->name_key;

	if (shared && id->distinct)
		index %= id->distinct;

	key = mix(key + pages->class);
	if (!one_key_for_all(pages->class))
		key = mix(key + index);
	return mix(key + generation);
}

static uint64_t page_word(const struct pages *pages, uint64_t key,
			  size_t index, size_t word)
{
	if (pages->class == CLASS_ZERO)
		return 0;
	if (pages->class == CLASS_ALIKE && word == PAGE_WORDS - 1)
		return index;
	return mix(key + word);
}

void content_fill(const struct identity *id, const struct pages *pages,
		  size_t index)
{
	uint64_t key = page_key(id, pages, index);
	uint64_t *page = (uint64_t *)(pages->base + index * PAGE_BYTES);

	for (size_t word = 0; word < PAGE_WORDS; word++)
		page[word] = page_word(pages, key, index, word);
}

bool content_matches(const struct identity *id, const struct pages *pages,
		     size_t index)
{
	uint64_t key = page_key(id, pages, index);
	const uint64_t *page =
		(const uint64_t *)(pages->base + index * PAGE_BYTES);

	for (size_t word = 0; word < PAGE_WORDS; word++)
		if (page[word] != page_word(pages, key, index, word))
			return false;
	return true;
}
