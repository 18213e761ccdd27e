/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM: what KSM (mm/ksm.c) sees of it.
 *
 * Without CONFIG_NUKSM everything here folds away: one tree, ordered by
 * content.
 */
#ifndef _MM_NUKSM_H
#define _MM_NUKSM_H

#include <linux/mm.h>
#include <linux/sysfs.h>
#include <linux/types.h>

#include "policy.h"

#ifdef CONFIG_NUKSM

/* For fields that exist with CONFIG_NUKSM only, as mm/ksm.c has NUMA(). */
#define NUKSM(x)	(x)
#define DO_NUKSM(x)	(x)

/**
 * struct nuksm_index - how the stable and unstable trees are organised
 * @trees: number of trees of each kind, for each node that has its own
 * @by_checksum: order inside a tree is by (checksum, content), not by content
 * @checksum_mask: the bits of a checksum that are used; all but in tests
 *
 * Locking: written under ksm_thread_mutex while KSM tracks no page; read by
 * whoever walks a tree, which holds that mutex as well, or knows by holding
 * mmap_lock of a tracked mm that KSM tracks a page.
 */
struct nuksm_index {
	unsigned int trees;
	bool by_checksum;
	u32 checksum_mask;
};

/**
 * struct nuksm_stats - what searching costs, counted by ksmd alone
 * @checksum_compares: levels passed by comparing two integers
 * @content_compares: levels at which two pages were compared
 * @compared_bytes: that these looked at, of each page
 * @collisions: pages of equal checksum that differed
 * @replaced: pages gone or rewritten, whose place in the unstable tree was taken
 * @last_scan_ms: duration of the last full scan
 * @last_scan_cpu_ms: CPU time that ksmd took for it
 */
struct nuksm_stats {
	unsigned long checksum_compares;
	unsigned long content_compares;
	unsigned long compared_bytes;
	unsigned long collisions;
	unsigned long replaced;
	unsigned long last_scan_ms;
	unsigned long last_scan_cpu_ms;
};

extern struct nuksm_index nuksm_index;
extern struct nuksm_stats nuksm_stats;
extern const struct attribute_group nuksm_index_attr_group;
extern const struct attribute_group nuksm_cost_attr_group;

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
	nuksm_stats.checksum_compares++;
	return here < there ? -1 : 1;
}

/* The part of a checksum that is used. */
static inline u32 nuksm_narrow(u32 checksum)
{
	return checksum & nuksm_index.checksum_mask;
}

/**
 * struct nuksm_counter - a file in /sys/kernel/mm/ksm that shows a counter
 * @attr: the file, read by nuksm_counter_show()
 * @counter: what it shows
 */
struct nuksm_counter {
	struct kobj_attribute attr;
	unsigned long *counter;
};

#define NUKSM_COUNTER(_name, _what)					\
	struct nuksm_counter _name##_counter = {			\
		.attr = __ATTR(_name, 0444, nuksm_counter_show, NULL),	\
		.counter = &(_what),					\
	}

ssize_t nuksm_counter_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf);

unsigned int nuksm_trees_wanted(void);
int nuksm_compare_contents(struct page *page, struct page *other, u32 here,
			   u32 there);
void nuksm_scan_begins(void);
void nuksm_scan_ends(void);

/* Implemented by mm/ksm.c, which owns the trees and their lock. */
int ksm_reindex(struct nuksm_index index);

#else /* !CONFIG_NUKSM */

#define NUKSM(...)	(0)
#define DO_NUKSM(...)	((void)0)

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

static inline u32 nuksm_narrow(u32 checksum)
{
	return checksum;
}

static inline int nuksm_compare_contents(struct page *page, struct page *other,
					 u32 here, u32 there)
{
	return memcmp_pages(page, other);
}

static inline void nuksm_scan_begins(void)
{
}

static inline void nuksm_scan_ends(void)
{
}

#endif /* CONFIG_NUKSM */

#ifdef CONFIG_NUKSM_PLACEMENT

/**
 * struct nuksm_placement_stats - counted by ksmd alone
 * @placed: decisions where a merged page belongs, by enum nuksm_reason
 * @migrated: merged pages moved to where they belong
 * @migrate_refused: those that could not be moved
 */
struct nuksm_placement_stats {
	unsigned long placed[NR_NUKSM_REASONS];
	unsigned long migrated;
	unsigned long migrate_refused;
};

/**
 * struct ksm_node_count - merged pages on a node
 * @shared: pages, as in pages_shared
 * @sharing: mappings beyond each page's first, as in pages_sharing
 */
struct ksm_node_count {
	unsigned long shared;
	unsigned long sharing;
};

extern enum nuksm_placement nuksm_placement;
extern struct nuksm_placement_stats nuksm_placement_stats;
extern const struct attribute_group nuksm_placement_attr_group;

u8 nuksm_heat(struct folio *folio, bool touched);
bool nuksm_decide(const struct nuksm_ballot *ballot, unsigned long kpfn,
		  bool merging);
void nuksm_migrate(struct folio *folio, int nid);

/*
 * A new page table entry is marked as accessed. One that merging made is not
 * used yet, and would look hot at ksmd's next visit.
 */
static inline pte_t nuksm_merged_pte(pte_t pte)
{
	return READ_ONCE(nuksm_placement) == NUKSM_FIRST ? pte : pte_mkold(pte);
}

/* Implemented by mm/ksm.c, which owns the trees and their lock. */
void ksm_count_by_node(struct ksm_node_count *counts);

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline pte_t nuksm_merged_pte(pte_t pte)
{
	return pte;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_H */
