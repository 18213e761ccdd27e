/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM: what KSM (mm/ksm.c) sees of it.
 *
 * Without CONFIG_NUKSM everything here folds away: one tree, ordered by
 * content.
 */
#ifndef _MM_NUKSM_H
#define _MM_NUKSM_H

#include <linux/types.h>

struct attribute_group;

#ifdef CONFIG_NUKSM

/* For fields that exist with CONFIG_NUKSM only, as mm/ksm.c has NUMA(). */
#define NUKSM(x)	(x)
#define DO_NUKSM(x)	do { (x); } while (0)

/**
 * struct nuksm_index - how the stable and unstable trees are organised
 * @trees: number of trees of each kind and node
 * @by_checksum: order inside a tree is by (checksum, content), not by content
 *
 * Locking: written under ksm_thread_mutex while KSM tracks no page; read by
 * whoever walks a tree, which holds that mutex as well, or knows by holding
 * mmap_lock of a tracked mm that KSM tracks a page.
 */
struct nuksm_index {
	unsigned int trees;
	bool by_checksum;
};

/**
 * struct nuksm_stats - what searching costs, counted by ksmd alone
 * @checksum_compares: levels passed by comparing two integers
 * @content_compares: levels at which two pages were compared
 * @collisions: pages of equal checksum that differed
 * @replaced: pages gone or rewritten, whose place in the unstable tree was taken
 */
struct nuksm_stats {
	unsigned long checksum_compares;
	unsigned long content_compares;
	unsigned long collisions;
	unsigned long replaced;
};

extern struct nuksm_index nuksm_index;
extern struct nuksm_stats nuksm_stats;
extern const struct attribute_group nuksm_attr_group;

#define nuksm_count(counter)	(nuksm_stats.counter++)

/* The number of roots that trees of one kind take for @nids nodes. */
static inline unsigned int nuksm_nr_roots(unsigned int nids)
{
	return nids * nuksm_index.trees;
}

/* The root, among those of its kind, of node @nid's pages with @checksum. */
static inline unsigned int nuksm_root(int nid, u32 checksum)
{
	return nid * nuksm_index.trees + checksum % nuksm_index.trees;
}

static inline bool nuksm_by_checksum(void)
{
	return nuksm_index.by_checksum;
}

/*
 * Which way to go from a tree's node whose page has checksum @there, looking
 * for one with checksum @here: below 0 left, above 0 right, 0 for the contents
 * to decide.
 */
static inline int nuksm_compare(u32 here, u32 there)
{
	if (!nuksm_index.by_checksum)
		return 0;
	if (here == there)
		return 0;
	nuksm_count(checksum_compares);
	return here < there ? -1 : 1;
}

unsigned int nuksm_default_trees(void);

/* Implemented by mm/ksm.c, which owns the trees and their lock. */
int ksm_reindex(struct nuksm_index index);

#else /* !CONFIG_NUKSM */

#define NUKSM(x)	(0)
#define DO_NUKSM(x)	do { } while (0)
#define nuksm_count(counter)	do { } while (0)

static inline int nuksm_nr_roots(int nids)
{
	return nids;
}

static inline int nuksm_root(int nid, u32 checksum)
{
	return nid;
}

static inline bool nuksm_by_checksum(void)
{
	return false;
}

static inline int nuksm_compare(u32 here, u32 there)
{
	return 0;
}

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_H */
