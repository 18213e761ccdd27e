// SPDX-License-Identifier: GPL-2.0-only
/*
 * Solves A x = b by conjugate gradients. A is sparse, symmetric and positive
 * definite, in compressed rows; it is shared. The vectors are each instance's
 * own, since they change.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define PAIRS 32
#define PER_ROW (2 * PAIRS + 1)

static uint32_t rows;
static const double *values;
static const uint32_t *columns;
static double *solution, *residual, *direction, *product;

/* Of the entry in this row that is the pair's distance to the right of it. */
static double weight(uint32_t row, unsigned int pair)
{
	return -fraction(hash((uint64_t)row * PAIRS + pair));
}

static void fill_row(double *value, uint32_t *column, uint32_t row)
{
	double sum = 0;

	for (unsigned int pair = 0; pair < PAIRS; pair++) {
		uint32_t distance = 1 + hash(~(uint64_t)pair) % (rows / 2 - 1);
		uint32_t left = (row + rows - distance) % rows;

		value[2 * pair] = weight(row, pair);
		column[2 * pair] = (row + distance) % rows;
		value[2 * pair + 1] = weight(left, pair);
		column[2 * pair + 1] = left;
		sum += value[2 * pair] + value[2 * pair + 1];
	}
	/* More than all the others together: this makes it definite. */
	value[2 * PAIRS] = 1 - sum;
	column[2 * PAIRS] = row;
}

static size_t prepare(void *shared, size_t bytes)
{
	size_t row_bytes = PER_ROW * (sizeof(*values) + sizeof(*columns));
	double *value = shared;
	uint32_t *column;

	rows = bytes / row_bytes;
	column = (uint32_t *)(value + (size_t)rows * PER_ROW);
	for (uint32_t row = 0; row < rows; row++)
		fill_row(value + (size_t)row * PER_ROW,
			 column + (size_t)row * PER_ROW, row);
	values = value;
	columns = column;
	solution = calloc(4 * (size_t)rows, sizeof(*solution));
	if (!solution)
		return 0;
	residual = solution + rows;
	direction = residual + rows;
	product = direction + rows;
	return rows * row_bytes;
}

static double dot(const double *a, const double *b)
{
	double sum = 0;

	for (uint32_t row = 0; row < rows; row++)
		sum += a[row] * b[row];
	return sum;
}

static void multiply(double *result, const double *vector)
{
	size_t entry = 0;

	for (uint32_t row = 0; row < rows; row++) {
		double sum = 0;

		for (unsigned int i = 0; i < PER_ROW; i++, entry++)
			sum += values[entry] * vector[columns[entry]];
		result[row] = sum;
	}
}

static uint64_t run(uint64_t operations)
{
	double squared, answer;
	uint64_t bits;

	for (uint32_t row = 0; row < rows; row++) {
		solution[row] = 0;
		residual[row] = direction[row] = 1 + row % 7;
	}
	squared = dot(residual, residual);
	for (uint64_t i = 0; i < operations; i++) {
		double step, before = squared;

		multiply(product, direction);
		step = squared / dot(direction, product);
		for (uint32_t row = 0; row < rows; row++) {
			solution[row] += step * direction[row];
			residual[row] -= step * product[row];
		}
		squared = dot(residual, residual);
		for (uint32_t row = 0; row < rows; row++)
			direction[row] = residual[row] +
					 squared / before * direction[row];
	}
	answer = sqrt(squared) + dot(solution, solution);
	memcpy(&bits, &answer, sizeof(bits));
	return bits;
}

const struct workload cg = {
	.name = "cg",
	.operation = "iteration",
	.prepare = prepare,
	.run = run,
};
