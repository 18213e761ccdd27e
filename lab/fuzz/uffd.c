// SPDX-License-Identifier: GPL-2.0-only
/*
 * What userfaultfd does to a range. Nobody answers faults: before a page is
 * used, that is allowed again.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "fuzzer.h"

static int uffd_register(struct fuzzer *fuzzer, const struct range *range,
			 unsigned int mode)
{
	struct uffdio_register memory = {
		.range.start = (uintptr_t)range_start(fuzzer, range),
		.range.len = range_bytes(range),
		.mode = mode,
	};

	return ioctl(fuzzer->shadow.uffd, UFFDIO_REGISTER, &memory);
}

int act_write_protect(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	struct uffdio_writeprotect protect = {
		.range.start = (uintptr_t)range_start(fuzzer, &range),
		.range.len = range_bytes(&range),
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};

	if (uffd_register(fuzzer, &range, UFFDIO_REGISTER_MODE_WP))
		return -1;
	shadow_mark(&fuzzer->shadow, &range, SLOT_CLOSED);
	return ioctl(fuzzer->shadow.uffd, UFFDIO_WRITEPROTECT, &protect);
}

static void fill_missing(struct fuzzer *fuzzer, size_t slot, uint64_t key)
{
	_Alignas(4096) unsigned char page[PAGE_BYTES];
	struct range one = { slot, 1 };
	struct uffdio_copy copy = {
		.dst = (uintptr_t)shadow_page(&fuzzer->shadow, slot),
		.src = (uintptr_t)page,
		.len = PAGE_BYTES,
	};
	struct uffdio_zeropage zero = {
		.range.start = copy.dst,
		.range.len = PAGE_BYTES,
	};

	if (key == ZERO_KEY) {
		ioctl(fuzzer->shadow.uffd, UFFDIO_ZEROPAGE, &zero);
		return;
	}
	key_write(key, page);
	if (!ioctl(fuzzer->shadow.uffd, UFFDIO_COPY, &copy))
		shadow_set(&fuzzer->shadow, &one, key);
}

/* Nobody answers faults: until it is over, nothing may touch the range. */
int act_fill(struct fuzzer *fuzzer, struct lot *lot)
{
	struct range range = choose_range(fuzzer, lot);
	struct uffdio_range memory = {
		.start = (uintptr_t)range_start(fuzzer, &range),
		.len = range_bytes(&range),
	};
	bool gone;
	int error;

	if (shadow_open(&fuzzer->shadow, &range) ||
	    uffd_register(fuzzer, &range, UFFDIO_REGISTER_MODE_MISSING))
		return -1;
	gone = !madvise(range_start(fuzzer, &range), range_bytes(&range),
			MADV_DONTNEED);
	error = errno;
	if (gone) {
		shadow_set(&fuzzer->shadow, &range, ZERO_KEY);
		for (size_t slot = 0; slot < range.count; slot++)
			fill_missing(fuzzer, range.first + slot,
				     choose_key(lot));
	}
	if (ioctl(fuzzer->shadow.uffd, UFFDIO_UNREGISTER, &memory))
		abort();
	if (gone)
		return 0;
	shadow_settle(&fuzzer->shadow, &range);
	errno = error;
	return -1;
}

