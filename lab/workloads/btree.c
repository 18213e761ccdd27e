// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random lookups in a B+ tree. Its nodes lie in one array, level by level from
 * the leaves, and know each other by index: instances have equal pages wherever
 * they lie.
 */
#include "workload.h"

#define FANOUT 16
#define KEY_STEP 1024 /* between two keys, on average */

/**
 * struct node
 * @keys: the lowest key of each child or entry
 * @slots: a child's index, or a leaf's value
 */
struct node {
	uint64_t keys[FANOUT];
	uint64_t slots[FANOUT];
};

static const struct node *nodes;
static uint64_t root, keys;
static unsigned int height;

static uint64_t key(uint64_t number)
{
	return number * KEY_STEP + hash(number) % KEY_STEP;
}

static uint64_t value(uint64_t number)
{
	return hash(~number);
}

static void fill_leaves(struct node *tree, uint64_t leaves)
{
	for (uint64_t number = 0; number < leaves * FANOUT; number++) {
		struct node *leaf = &tree[number / FANOUT];

		leaf->keys[number % FANOUT] = key(number);
		leaf->slots[number % FANOUT] = value(number);
	}
}

/* Puts a level above the nodes from @first on; returns how many it has. */
static uint64_t fill_level(struct node *tree, uint64_t first, uint64_t count)
{
	uint64_t parents = (count + FANOUT - 1) / FANOUT;

	for (uint64_t slot = 0; slot < parents * FANOUT; slot++) {
		struct node *parent = &tree[first + count + slot / FANOUT];
		struct node *child = &tree[first + slot];

		/* No key is as large as this: the search never goes there. */
		parent->keys[slot % FANOUT] =
			slot < count ? child->keys[0] : UINT64_MAX;
		parent->slots[slot % FANOUT] = first + slot;
	}
	return parents;
}

static size_t prepare(void *shared, size_t bytes)
{
	struct node *tree = shared;
	/* All levels above the leaves are a 15th of these, and the rounding. */
	uint64_t leaves = bytes / sizeof(*tree) * (FANOUT - 1) / FANOUT - 16;
	uint64_t first = 0, count = leaves;

	fill_leaves(tree, leaves);
	for (height = 0; count > 1; height++) {
		uint64_t parents = fill_level(tree, first, count);

		first += count;
		count = parents;
	}
	nodes = tree;
	root = first;
	keys = leaves * FANOUT;
	return (first + 1) * sizeof(*tree);
}

/* The last slot whose key is not above the one looked for. */
static unsigned int slot_of(const struct node *node, uint64_t wanted)
{
	unsigned int slot = 0;

	for (unsigned int step = FANOUT / 2; step; step /= 2)
		if (node->keys[slot + step] <= wanted)
			slot += step;
	return slot;
}

static uint64_t run(uint64_t operations)
{
	uint64_t random = FIRST_RANDOM, sum = 0;

	for (uint64_t i = 0; i < operations; i++) {
		uint64_t wanted = key(next_random(&random) % keys);
		uint64_t at = root;
		unsigned int slot;

		for (unsigned int level = 0; level < height; level++)
			at = nodes[at].slots[slot_of(&nodes[at], wanted)];
		slot = slot_of(&nodes[at], wanted);
		if (nodes[at].keys[slot] == wanted)
			sum += nodes[at].slots[slot];
	}
	return sum;
}

const struct workload btree = {
	.name = "btree",
	.operation = "lookup",
	.prepare = prepare,
	.run = run,
};
