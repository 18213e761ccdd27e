// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deterministic page contents: a small counter-based generator. Each word is a
 * mix of the page's key and the word's number, so pages with different keys
 * differ from their first bytes on.
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

static uint64_t page_key(const struct identity *id, const struct pages *pages,
			 size_t index)
{
	uint32_t generation = pages->generation[index];
	bool shared = pages->class == CLASS_EQUAL && generation == 0;
	uint64_t key = shared ? mix(id->seed) : id->name_key;

	key = mix(key + pages->class);
	key = mix(key + index);
	return mix(key + generation);
}

static uint64_t page_word(const struct pages *pages, uint64_t key,
			  size_t word)
{
	return pages->class == CLASS_ZERO ? 0 : mix(key + word);
}

void content_fill(const struct identity *id, const struct pages *pages,
		  size_t index)
{
	uint64_t key = page_key(id, pages, index);
	uint64_t *page = (uint64_t *)(pages->base + index * PAGE_BYTES);

	for (size_t word = 0; word < PAGE_WORDS; word++)
		page[word] = page_word(pages, key, word);
}

bool content_matches(const struct identity *id, const struct pages *pages,
		     size_t index)
{
	uint64_t key = page_key(id, pages, index);
	const uint64_t *page =
		(const uint64_t *)(pages->base + index * PAGE_BYTES);

	for (size_t word = 0; word < PAGE_WORDS; word++)
		if (page[word] != page_word(pages, key, word))
			return false;
	return true;
}
