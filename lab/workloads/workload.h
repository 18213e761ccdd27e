/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the paper's programs have in common: data that is the same in every
 * instance, does not depend on where it lies, and is only read while it is
 * measured.
 */
#ifndef WORKLOADS_WORKLOAD_H
#define WORKLOADS_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct workload
 * @name: as on the command line
 * @operation: what one operation is
 * @prepare: fills at most so many bytes of shared memory, which is all zero;
 *           returns how many it used. What it needs besides, it allocates
 * @prefer: the pages in the order of how hot they are begin with this one, and so many of them
 *          are; none: each is less so than the one before. Or NULL
 * @run: so many operations; returns a checksum of their answers
 */
struct workload {
	const char *name;
	const char *operation;
	size_t (*prepare)(void *shared, size_t bytes);
	void (*prefer)(uint64_t first, uint64_t count);
	uint64_t (*run)(uint64_t operations);
};

extern const struct workload random_access, btree, cg, xsbench, skewed, sweep;

/* A good 64-bit hash of a number (the finalizer of splitmix64). */
static inline uint64_t hash(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* From 0 up to 1. */
static inline double fraction(uint64_t x)
{
	return (double)(x >> 11) * 0x1p-53;
}

/* The next of a quick series of pseudo-random numbers (xorshift64). */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

#define FIRST_RANDOM 0x2545f4914f6cdd1d

#endif
