/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's work on the trees of mm/ksm.c.
 *
 * Included there once, because the trees' types and locks are private to that
 * file. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_TREES_H
#define _MM_NUKSM_TREES_H

#ifdef CONFIG_NUKSM

#include <linux/vmalloc.h>

/* How many nodes root_stable_tree and root_unstable_tree have roots for. */
static int nuksm_root_nids = 1;

/*
 * Drops stable nodes whose pages are gone. In the order of contents each walk
 * looks at the pages it passes and so notices; in the order of checksums it
 * does not, and the trees would only grow. Once per full scan is enough: a
 * dead node costs its memory and an integer comparison.
 */
static void nuksm_prune_stable_trees(void)
{
	unsigned int tree;

	if (!nuksm_by_checksum())
		return;

	for (tree = 0; tree < nuksm_nr_roots(ksm_nr_node_ids); tree++) {
		struct rb_root *root = root_stable_tree + tree;
		struct rb_node *node, *next;

		for (node = rb_first(root); node; node = next) {
			struct ksm_stable_node *stable_node, *dup;
			struct folio *folio;

			/* Erasing @node leaves its successor's place alone */
			next = rb_next(node);
			stable_node = rb_entry(node, struct ksm_stable_node, node);
			folio = chain_prune(&dup, &stable_node, root);
			if (folio)
				folio_put(folio);
			cond_resched();
		}
		cond_resched();
	}
}

/*
 * Has the page behind an item of the unstable tree changed since the item was
 * filed? It then hides all pages of the checksum it had.
 */
static bool nuksm_unstable_is_stale(struct ksm_rmap_item *tree_rmap_item,
				    struct page *tree_page)
{
	return nuksm_by_checksum() &&
	       calc_checksum(tree_page) != tree_rmap_item->oldchecksum;
}

/*
 * Gives the place of @old, whose page is gone or changed, to @new, which has
 * the same checksum.
 */
static void nuksm_unstable_replace(struct ksm_rmap_item *old,
				   struct ksm_rmap_item *new, int nid)
{
	struct rb_root *root;

	if (!nuksm_by_checksum())
		return;

	root = root_unstable_tree + nuksm_root(nid, new->oldchecksum);
	rb_replace_node(&old->node, &new->node, root);
	old->address &= PAGE_MASK;

	new->address |= UNSTABLE_FLAG;
	new->address |= (ksm_scan.seqnr & SEQNR_MASK);
	DO_NUMA(new->nid = nid);
	nuksm_stats.replaced++;
}

/*
 * Roots of @nr trees of each kind. A large machine has more than kvcalloc()
 * takes, and short of memory no process should be killed for them.
 */
static struct rb_root *nuksm_alloc_roots(size_t nr)
{
	return __vmalloc_array(2 * nr, sizeof(struct rb_root),
			       GFP_KERNEL | __GFP_ZERO | __GFP_RETRY_MAYFAIL |
			       __GFP_NOWARN);
}

static void nuksm_use_roots(struct rb_root *roots, size_t nr, int nids)
{
	if (root_stable_tree != one_stable_tree)
		vfree(root_stable_tree);
	root_stable_tree = roots;
	root_unstable_tree = roots + nr;
	nuksm_root_nids = nids;
}

/* Of @trees in the whole machine, those of one of @nids nodes. */
static unsigned int nuksm_trees_per_node(unsigned int trees, int nids)
{
	return max(trees / nids, 1U);
}

/* Replaces the trees, which are empty, by those that @index asks for. */
static int nuksm_use_index(struct nuksm_index index, int nids)
{
	size_t nr = (size_t)nids * index.trees;
	struct rb_root *roots = nuksm_alloc_roots(nr);

	if (!roots)
		return -ENOMEM;
	nuksm_use_roots(roots, nr, nids);
	nuksm_index = index;
	zero_checksum = calc_checksum(ZERO_PAGE(0));
	return 0;
}

/*
 * Makes room for the roots of @nids nodes. The stable trees are empty; what is
 * in the unstable ones, filed when there was one node, stays.
 */
static int __maybe_unused nuksm_use_nodes(int nids)
{
	struct nuksm_index index = nuksm_index;
	size_t nr = (size_t)nids * index.trees;
	struct rb_root *roots;

	if (nids == nuksm_root_nids)
		return 0;
	if (!ksm_rmap_items) {
		index.trees = nuksm_trees_per_node(nuksm_trees_wanted(), nids);
		return nuksm_use_index(index, nids);
	}
	if (nids < nuksm_root_nids)
		return 0;

	roots = nuksm_alloc_roots(nr);
	if (!roots)
		return -ENOMEM;
	memcpy(roots + nr, root_unstable_tree,
	       nuksm_nr_roots(nuksm_root_nids) * sizeof(*roots));
	nuksm_use_roots(roots, nr, nids);
	return 0;
}

/**
 * ksm_reindex - change the number of trees, or the order in them
 * @index: what it should be, with the number of trees for the whole machine
 *
 * Pages are not filed anew: as long as KSM tracks any, the answer is -EBUSY.
 * Writing 2 to run stops KSM and makes it forget all pages.
 *
 * Return: 0, -EBUSY or -ENOMEM; on error nothing has changed.
 */
int ksm_reindex(struct nuksm_index index)
{
	int err = 0;

	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	index.trees = nuksm_trees_per_node(index.trees, ksm_nr_node_ids);
	if (memcmp(&index, &nuksm_index, sizeof(index))) {
		if (ksm_rmap_items || remove_all_stable_nodes())
			err = -EBUSY;
		else
			err = nuksm_use_index(index, ksm_nr_node_ids);
	}
	mutex_unlock(&ksm_thread_mutex);
	return err;
}

/*
 * KSM is being started: fits the number of trees to the memory of today. Not
 * earlier, as many never start it, and not while pages are tracked.
 */
static void nuksm_fit_forest(void)
{
	struct nuksm_index index = nuksm_index;

	index.trees = nuksm_trees_per_node(nuksm_trees_wanted(),
					   ksm_nr_node_ids);
	if (index.trees == nuksm_index.trees || ksm_rmap_items ||
	    remove_all_stable_nodes())
		return;
	if (nuksm_use_index(index, ksm_nr_node_ids))
		pr_warn("ksm: no memory for %u trees, there are %u\n",
			index.trees, nuksm_index.trees);
}

static void __init nuksm_sysfs_init(void)
{
	int err;

	err = sysfs_merge_group(mm_kobj, &nuksm_index_attr_group);
	err = err ?: sysfs_merge_group(mm_kobj, &nuksm_cost_attr_group);
#ifdef CONFIG_NUKSM_PLACEMENT
	err = err ?: sysfs_merge_group(mm_kobj, &nuksm_placement_attr_group);
#endif
	if (err)
		pr_err("ksm: register nuksm's sysfs files failed\n");
}

#else /* !CONFIG_NUKSM */

static inline void nuksm_prune_stable_trees(void)
{
}

static inline bool nuksm_unstable_is_stale(struct ksm_rmap_item *tree_rmap_item,
					   struct page *tree_page)
{
	return false;
}

static inline void nuksm_unstable_replace(struct ksm_rmap_item *old,
					  struct ksm_rmap_item *new, int nid)
{
}

static inline void nuksm_fit_forest(void)
{
}

static inline int nuksm_use_nodes(int nids)
{
	return 0;
}

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_TREES_H */
