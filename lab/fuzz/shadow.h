/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fuzzer's memory, and what each of its pages has to hold.
 *
 * A content is known by its key: 0 is the page of zeros, any other key names a
 * template, which all fuzzers have in common, and the page's last word. So
 * pages are equal, differ in their last bytes only, or differ from the start.
 */
#ifndef FUZZ_SHADOW_H
#define FUZZ_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096UL
#define HUGE_BYTES (2UL << 20)
#define HUGE_SLOTS (HUGE_BYTES / PAGE_BYTES)
#define TEMPLATES 8
#define ZERO_KEY 0

/**
 * enum slot_state - what else is to be known of a page
 * @SLOT_LAZY: the kernel may turn it into zeros until it is written
 * @SLOT_CLOSED: reading or writing has to be allowed first
 * @SLOT_PINNED: an io_uring has it registered, and must see what is written
 */
enum slot_state {
	SLOT_LAZY = 1,
	SLOT_CLOSED = 2,
	SLOT_PINNED = 4,
};

struct slot {
	uint64_t key;
	uint8_t state;
};

/**
 * struct range - consecutive slots
 * @first: the first one's number
 * @count: how many
 */
struct range {
	size_t first;
	size_t count;
};

/**
 * struct shadow - the memory
 * @base: where it starts, at a huge page's boundary
 * @slots: one per page
 * @count: how many
 * @uffd: userfaultfd of this process, or below 0
 * @bad: pages that did not hold what they had to, up to now
 */
struct shadow {
	unsigned char *base;
	struct slot *slots;
	size_t count;
	int uffd;
	size_t bad;
};

uint64_t key_shared(size_t choice);
uint64_t key_private(void);
void key_write(uint64_t key, void *page);
bool key_matches(uint64_t key, const void *page);
bool key_known(const void *page);

void *shadow_page(const struct shadow *shadow, size_t slot);
size_t range_bytes(const struct range *range);

/* Returns 0, or an error as system calls have it. */
int shadow_map(struct shadow *shadow, size_t count);
int shadow_open(struct shadow *shadow, const struct range *range);

void shadow_write(struct shadow *shadow, size_t slot, uint64_t key);
void shadow_set(struct shadow *shadow, const struct range *range, uint64_t key);
void shadow_mark(struct shadow *shadow, const struct range *range,
		 uint8_t state);
void shadow_verify(struct shadow *shadow, const struct range *range);

/* After the kernel did only a part: pages hold what they held, or zeros. */
int shadow_settle(struct shadow *shadow, const struct range *range);

#endif
