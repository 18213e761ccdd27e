// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lot.h"
#include "shadow.h"

#define WORDS (PAGE_BYTES / sizeof(uint64_t))
#define SHARED_TAILS 4 /* contents that differ in their last word only */
#define BAD_SHOWN 8

static const uint64_t zeros[WORDS];

static const uint64_t *template_of(uint64_t key)
{
	static uint64_t templates[TEMPLATES][WORDS];

	if (!templates[0][0])
		for (size_t number = 0; number < TEMPLATES; number++) {
			struct lot lot = lot_of(number, 0);

			for (size_t word = 0; word < WORDS; word++)
				templates[number][word] = lot_draw(&lot);
		}
	return templates[(key >> 32) - 1];
}

/* One of the contents that all fuzzers write. */
uint64_t key_shared(size_t choice)
{
	uint64_t number = choice % TEMPLATES;

	return (number + 1) << 32 | choice / TEMPLATES % SHARED_TAILS;
}

/* A content that no other page of any fuzzer had before. */
uint64_t key_private(void)
{
	static uint32_t tail;
	uint64_t mark = (uint64_t)getpid() << 16;

	tail++;
	return (uint64_t)(tail % TEMPLATES + 1) << 32 |
	       ((mark + tail) & 0xffffffff) | 0x80000000;
}

void key_write(uint64_t key, void *page)
{
	if (key == ZERO_KEY) {
		memset(page, 0, PAGE_BYTES);
		return;
	}
	memcpy(page, template_of(key), PAGE_BYTES - sizeof(uint64_t));
	((uint64_t *)page)[WORDS - 1] = key;
}

bool key_matches(uint64_t key, const void *page)
{
	if (key == ZERO_KEY)
		return !memcmp(page, zeros, PAGE_BYTES);
	return ((const uint64_t *)page)[WORDS - 1] == key &&
	       !memcmp(page, template_of(key), PAGE_BYTES - sizeof(uint64_t));
}

/* Did some fuzzer write this page? */
bool key_known(const void *page)
{
	uint64_t key = ((const uint64_t *)page)[WORDS - 1];

	return key >> 32 <= TEMPLATES && key_matches(key, page);
}

void *shadow_page(const struct shadow *shadow, size_t slot)
{
	return shadow->base + slot * PAGE_BYTES;
}

size_t range_bytes(const struct range *range)
{
	return range->count * PAGE_BYTES;
}

int shadow_map(struct shadow *shadow, size_t count)
{
	size_t bytes = count * PAGE_BYTES;
	unsigned char *area = mmap(NULL, bytes + HUGE_BYTES,
				   PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	shadow->slots = calloc(count, sizeof(*shadow->slots));
	if (!shadow->slots || area == MAP_FAILED)
		return -1;
	shadow->count = count;
	shadow->base = (unsigned char *)(((uintptr_t)area + HUGE_BYTES - 1) &
					 -HUGE_BYTES);
	return 0;
}

/* Lets the pages be read and written again, whatever stood in the way. */
int shadow_open(struct shadow *shadow, const struct range *range)
{
	struct uffdio_writeprotect allow = {
		.range.start = (uintptr_t)shadow_page(shadow, range->first),
		.range.len = range_bytes(range),
	};
	struct slot *slot = shadow->slots + range->first;
	size_t index = 0;

	while (index < range->count && !(slot[index].state & SLOT_CLOSED))
		index++;
	if (index == range->count)
		return 0;
	/* A part that is not registered (any more) ends it: page by page. */
	allow.range.len = PAGE_BYTES;
	for (index = 0; index < range->count; index++) {
		if (slot[index].state & SLOT_CLOSED && shadow->uffd >= 0 &&
		    ioctl(shadow->uffd, UFFDIO_WRITEPROTECT, &allow) &&
		    errno != ENOENT)
			return -1;
		allow.range.start += PAGE_BYTES;
	}
	/* Only then: of locked pages the kernel writes to those that may be. */
	if (mprotect(shadow_page(shadow, range->first), range_bytes(range),
		     PROT_READ | PROT_WRITE))
		return -1;
	for (index = 0; index < range->count; index++)
		slot[index].state &= ~SLOT_CLOSED;
	return 0;
}

/* The caller has opened the page. */
void shadow_write(struct shadow *shadow, size_t slot, uint64_t key)
{
	key_write(key, shadow_page(shadow, slot));
	shadow->slots[slot].key = key;
	shadow->slots[slot].state &= ~SLOT_LAZY;
}

/* The kernel gave the range new pages of this content. */
void shadow_set(struct shadow *shadow, const struct range *range, uint64_t key)
{
	for (size_t i = 0; i < range->count; i++) {
		struct slot *slot = shadow->slots + range->first + i;

		slot->key = key;
		slot->state &= ~(SLOT_LAZY | SLOT_PINNED);
	}
}

void shadow_mark(struct shadow *shadow, const struct range *range,
		 uint8_t state)
{
	for (size_t i = 0; i < range->count; i++)
		shadow->slots[range->first + i].state |= state;
}

static void report(struct shadow *shadow, size_t slot)
{
	const uint64_t *page = shadow_page(shadow, slot);
	uint64_t key = shadow->slots[slot].key;
	const uint64_t *wanted = key ? template_of(key) : zeros;
	size_t word = 0;

	if (shadow->bad++ >= BAD_SHOWN)
		return;
	while (word < WORDS - 1 && page[word] == wanted[word])
		word++;
	fprintf(stderr,
		"fuzzer %d: page %zu (%p) should hold %#lx%s;"
		" word %zu is %#lx, the last one %#lx: %s's content\n",
		getpid(), slot, (const void *)page, key,
		shadow->slots[slot].state & SLOT_LAZY ? " or zeros" : "", word,
		page[word], page[WORDS - 1],
		key_known(page) ? "another page" : "nobody");
}

static bool slot_holds(struct shadow *shadow, size_t slot, bool or_zeros)
{
	const void *page = shadow_page(shadow, slot);

	if (key_matches(shadow->slots[slot].key, page))
		return true;
	if (!or_zeros && !(shadow->slots[slot].state & SLOT_LAZY))
		return false;
	/* It may have turned into zeros while it was compared: now it stays. */
	if (!key_matches(ZERO_KEY, page))
		return false;
	shadow->slots[slot].key = ZERO_KEY;
	return true;
}

/* The caller has opened the range. */
void shadow_verify(struct shadow *shadow, const struct range *range)
{
	for (size_t slot = range->first; slot < range->first + range->count;
	     slot++)
		if (!slot_holds(shadow, slot, false))
			report(shadow, slot);
}

int shadow_settle(struct shadow *shadow, const struct range *range)
{
	if (shadow_open(shadow, range))
		return -1;
	for (size_t slot = range->first; slot < range->first + range->count;
	     slot++) {
		shadow->slots[slot].state &= ~SLOT_PINNED;
		if (!slot_holds(shadow, slot, true))
			report(shadow, slot);
	}
	return 0;
}
