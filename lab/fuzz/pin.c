// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that are in use without being mapped: by a pipe, which keeps what is in
 * them, and by an io_uring, which has to see what is written to them later.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fuzzer.h"

#define PIPE_PAGES 16
#define PIN_PAGES 64

void pins_init(struct pins *pins)
{
	*pins = (struct pins){ .pipe = { -1, -1 }, .ring = -1 };
}

/* Puts pages themselves, not copies, into a pipe. */
int act_splice(struct fuzzer *fuzzer, struct lot *lot)
{
	struct pins *pins = &fuzzer->pins;
	struct range range = choose_range(fuzzer, lot);
	struct iovec pages;

	if (pins->pipe[0] < 0 && pipe2(pins->pipe, O_NONBLOCK | O_CLOEXEC))
		return -1;
	if (range.count > PIPE_PAGES)
		range.count = PIPE_PAGES;
	if (shadow_open(&fuzzer->shadow, &range))
		return -1;
	pages.iov_base = shadow_page(&fuzzer->shadow, range.first);
	pages.iov_len = range_bytes(&range);
	if (vmsplice(pins->pipe[1], &pages, 1, SPLICE_F_NONBLOCK) < 0)
		return -1;
	return 0;
}

static void check_known(struct fuzzer *fuzzer, const void *page)
{
	if (key_known(page))
		return;
	fprintf(stderr,
		"fuzzer %d: a pipe holds what no fuzzer wrote: %#lx\n",
		getpid(), *(const uint64_t *)page);
	fuzzer->shadow.bad++;
}

/* The pages may have been written to meanwhile, but by fuzzers only. */
int act_drain(struct fuzzer *fuzzer, struct lot *lot)
{
	unsigned char page[PAGE_BYTES];
	struct pins *pins = &fuzzer->pins;

	if (pins->pipe[0] < 0) {
		errno = EAGAIN;
		return -1;
	}
	for (size_t pages = lot_below(lot, 2 * PIPE_PAGES); pages; pages--) {
		if (read(pins->pipe[0], page, sizeof(page)) < 0)
			return errno == EAGAIN ? 0 : -1;
		check_known(fuzzer, page);
	}
	/* With what is left in it. */
	close(pins->pipe[0]);
	close(pins->pipe[1]);
	pins->pipe[0] = pins->pipe[1] = -1;
	return 0;
}

/* The kernel pins pages that are registered: they must not be replaced. */
int act_pin(struct fuzzer *fuzzer, struct lot *lot)
{
	struct pins *pins = &fuzzer->pins;
	struct range range = choose_range(fuzzer, lot);
	struct iovec buffer;
	int error;

	if (pins->ring >= 0) {
		errno = EAGAIN;
		return -1;
	}
	if (range.count > PIN_PAGES)
		range.count = PIN_PAGES;
	if (shadow_open(&fuzzer->shadow, &range))
		return -1;
	memset(&pins->parameters, 0, sizeof(pins->parameters));
	pins->ring = syscall(__NR_io_uring_setup, 1, &pins->parameters);
	if (pins->ring < 0)
		return -1;
	buffer.iov_base = shadow_page(&fuzzer->shadow, range.first);
	buffer.iov_len = range_bytes(&range);
	if (syscall(__NR_io_uring_register, pins->ring, IORING_REGISTER_BUFFERS,
		    &buffer, 1)) {
		error = errno;
		close(pins->ring);
		pins->ring = -1;
		errno = error;
		return -1;
	}
	pins->range = range;
	pins->base = (uintptr_t)buffer.iov_base;
	shadow_mark(&fuzzer->shadow, &range, SLOT_PINNED);
	return 0;
}

/* The first request ever to this ring: its heads and tails are still 0. */
static int ring_write(const struct pins *pins, int file)
{
	const struct io_uring_params *parameters = &pins->parameters;
	size_t bytes = parameters->cq_off.cqes +
		       parameters->cq_entries * sizeof(struct io_uring_cqe);
	struct io_uring_sqe *request;
	unsigned char *rings;
	int result = -1;

	rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		     pins->ring, IORING_OFF_SQ_RING);
	request = mmap(NULL, sizeof(*request), PROT_READ | PROT_WRITE,
		       MAP_SHARED, pins->ring, IORING_OFF_SQES);
	if (rings != MAP_FAILED && request != MAP_FAILED) {
		*request = (struct io_uring_sqe){
			.opcode = IORING_OP_WRITE_FIXED,
			.fd = file,
			.addr = pins->base,
			.len = range_bytes(&pins->range),
		};
		*(uint32_t *)(rings + parameters->sq_off.array) = 0;
		*(uint32_t *)(rings + parameters->sq_off.tail) = 1;
		if (syscall(__NR_io_uring_enter, pins->ring, 1, 1,
			    IORING_ENTER_GETEVENTS, NULL, 0) == 1)
			result = ((struct io_uring_cqe *)(rings +
				  parameters->cq_off.cqes))->res;
	}
	if (request != MAP_FAILED)
		munmap(request, sizeof(*request));
	if (rings != MAP_FAILED)
		munmap(rings, bytes);
	return result;
}

/* Pages given up lazily may have become zeros before they were pinned. */
static bool was_freed(const struct slot *slot, const void *page)
{
	return slot->state & SLOT_LAZY && key_matches(ZERO_KEY, page);
}

/* What the ring sees in the pages is what the process wrote to them last. */
static int check_pinned(struct fuzzer *fuzzer)
{
	const struct pins *pins = &fuzzer->pins;
	struct shadow *shadow = &fuzzer->shadow;
	size_t bytes = range_bytes(&pins->range);
	unsigned char page[PAGE_BYTES];
	int file = memfd_create("seen", MFD_CLOEXEC);
	int error = -1;

	if (file < 0)
		return -1;
	if (ring_write(pins, file) == (int)bytes)
		error = 0;
	for (size_t i = 0; !error && i < pins->range.count; i++) {
		struct slot *slot = shadow->slots + pins->range.first + i;

		if (pread(file, page, sizeof(page), i * PAGE_BYTES) < 0)
			error = -1;
		else if (slot->state & SLOT_PINNED &&
			 !key_matches(slot->key, page) &&
			 !was_freed(slot, page)) {
			fprintf(stderr,
				"fuzzer %d: an io_uring misses page %zu: should"
				" be %#lx, the last word is %#lx\n",
				getpid(), pins->range.first + i, slot->key,
				((uint64_t *)page)[PAGE_BYTES / 8 - 1]);
			shadow->bad++;
		}
	}
	close(file);
	return error;
}

int act_unpin(struct fuzzer *fuzzer, struct lot *lot)
{
	struct pins *pins = &fuzzer->pins;
	int error;

	(void)lot;
	if (pins->ring < 0) {
		errno = EAGAIN;
		return -1;
	}
	error = check_pinned(fuzzer);
	close(pins->ring);
	pins->ring = -1;
	for (size_t i = 0; i < pins->range.count; i++) {
		struct slot *slot = fuzzer->shadow.slots + pins->range.first + i;

		slot->state &= ~SLOT_PINNED;
	}
	return error;
}
