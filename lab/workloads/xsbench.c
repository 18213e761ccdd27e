// SPDX-License-Identifier: GPL-2.0-only
/*
 * Macroscopic cross-sections, as codes for Monte Carlo neutron transport look
 * them up: find the energy in the grid of all nuclides' energies, which knows
 * each nuclide's own place; then interpolate there for each nuclide of a
 * material, and add up. After the benchmark XSBench, in small.
 */
#include <string.h>

#include "workload.h"

#define NUCLIDES 32
#define REACTIONS 5
#define MATERIAL_NUCLIDES 12

struct point {
	double energy;
	double section[REACTIONS];
};

/* One energy of the common grid, and each nuclide's last point up to it. */
struct level {
	double energy;
	uint32_t point[NUCLIDES];
};

static const struct level *levels;
static const struct point *points;
static uint32_t per_nuclide, level_count;

/* Each nuclide's points lie close to even steps, and rise. */
static void fill_points(struct point *point)
{
	for (uint32_t i = 0; i < NUCLIDES * per_nuclide; i++) {
		uint64_t random = hash(i);

		point[i].energy = (i % per_nuclide + fraction(random)) /
				  per_nuclide;
		for (unsigned int r = 0; r < REACTIONS; r++)
			point[i].section[r] = fraction(hash(random + r + 1));
	}
}

/* Merges the nuclides' grids: the next energy is the lowest not yet taken. */
static void fill_levels(struct level *level, const struct point *point)
{
	uint32_t taken[NUCLIDES] = { 0 };

	for (uint32_t i = 0; i < level_count; i++) {
		unsigned int lowest = NUCLIDES;
		double energy = 2;

		for (unsigned int n = 0; n < NUCLIDES; n++) {
			const struct point *next =
				&point[n * per_nuclide + taken[n]];

			if (taken[n] < per_nuclide && next->energy < energy) {
				energy = next->energy;
				lowest = n;
			}
		}
		taken[lowest]++;
		level[i].energy = energy;
		for (unsigned int n = 0; n < NUCLIDES; n++)
			level[i].point[n] = taken[n] ? taken[n] - 1 : 0;
	}
}

static size_t prepare(void *shared, size_t bytes)
{
	size_t each = NUCLIDES * (sizeof(struct level) + sizeof(struct point));
	struct level *level = shared;
	struct point *point;

	per_nuclide = bytes / each;
	level_count = NUCLIDES * per_nuclide;
	point = (struct point *)(level + level_count);
	fill_points(point);
	fill_levels(level, point);
	levels = level;
	points = point;
	return per_nuclide * each;
}

static const struct level *find(double energy)
{
	uint32_t low = 0, high = level_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (levels[middle].energy <= energy)
			low = middle;
		else
			high = middle;
	}
	return &levels[low];
}

static void add(double *sum, const struct point *point, double energy)
{
	double share = (energy - point->energy) /
		       (point[1].energy - point->energy);

	for (unsigned int r = 0; r < REACTIONS; r++)
		sum[r] += point->section[r] +
			  share * (point[1].section[r] - point->section[r]);
}

static uint64_t run(uint64_t operations)
{
	uint64_t random = FIRST_RANDOM, checksum = 0;

	for (uint64_t i = 0; i < operations; i++) {
		double energy = fraction(next_random(&random));
		unsigned int material = next_random(&random) % NUCLIDES;
		const struct level *level = find(energy);
		double sum[REACTIONS] = { 0 };
		uint64_t bits[REACTIONS];

		for (unsigned int n = 0; n < MATERIAL_NUCLIDES; n++) {
			unsigned int nuclide = (material + 5 * n) % NUCLIDES;
			uint32_t point = level->point[nuclide];

			/* The last point has no other to interpolate with. */
			if (point + 1 == per_nuclide)
				point--;
			add(sum, &points[nuclide * per_nuclide + point], energy);
		}
		memcpy(bits, sum, sizeof(bits));
		for (unsigned int r = 0; r < REACTIONS; r++)
			checksum = hash(checksum ^ bits[r]);
	}
	return checksum;
}

const struct workload xsbench = {
	.name = "xsbench",
	.operation = "lookup",
	.prepare = prepare,
	.run = run,
};
