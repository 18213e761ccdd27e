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

#include <linux/random.h>
#include <linux/vmalloc.h>

static struct ksm_rmap_item *
unstable_tree_search_insert(struct ksm_rmap_item *rmap_item, struct page *page,
			    struct page **tree_pagep);

/*
 * Which roots have, or had, something below them: a bit for each, of the stable
 * trees first. What is done with all trees at each scan is done with these, as a
 * machine has a tree for each 16 KiB of its memory, whether there is something to
 * merge or not. NULL as long as there are only the trees that mm/ksm.c begins
 * with.
 */
static unsigned long *nuksm_used_roots;

/* Something is about to be filed below @root. */
static void nuksm_use_root(const struct rb_root *root)
{
	if (nuksm_used_roots)
		__set_bit(root - root_stable_tree, nuksm_used_roots);
}

/* So many bits are looked at before others may run; a power of two. */
#define NUKSM_ROOTS_AT_ONCE	BIT(20)

/* The first used one of the stable (@base is 0) or unstable trees from @tree on. */
static unsigned int nuksm_next_used(unsigned int base, unsigned int tree)
{
	unsigned int nr = nuksm_nr_roots(ksm_nr_node_ids);

	if (!nuksm_used_roots)
		return min(tree, nr);
	for (; tree < nr; tree = round_up(tree + 1, NUKSM_ROOTS_AT_ONCE)) {
		unsigned int end = min(nr, round_up(tree + 1, NUKSM_ROOTS_AT_ONCE));
		size_t next = find_next_bit(nuksm_used_roots, (size_t)base + end,
					    (size_t)base + tree) - base;

		cond_resched();
		if (next < end)
			return next;
	}
	return nr;
}

/*
 * For the loops of mm/ksm.c over unstable trees, each of which it empties. In the
 * order of checksums they stay as they are from scan to scan.
 */
static unsigned int nuksm_next_unstable(unsigned int tree)
{
	unsigned int base = root_unstable_tree - root_stable_tree;
	unsigned int next;

	if (nuksm_by_checksum())
		return nuksm_nr_roots(ksm_nr_node_ids);
	if (!nuksm_used_roots)
		return tree;
	next = nuksm_next_used(base, tree);
	if (next < nuksm_nr_roots(ksm_nr_node_ids))
		__clear_bit((size_t)base + next, nuksm_used_roots);
	return next;
}

/*
 * The trees are pruned when one in so many of their pages may be gone. What was there the last
 * time, as somebody holds it, counts once in so many scans.
 */
#define NUKSM_ORPHANS	16

/*
 * Drops stable nodes whose pages are gone. In the order of contents each walk
 * looks at the pages it passes and so notices; in the order of checksums it
 * does not, and the trees would only grow. A page that is gone while it has sharers
 * is noticed when ksmd comes by one of them; the others are looked for here, when
 * it is worth it: a dead node costs its memory and an integer comparison.
 */
static void nuksm_prune_stable_trees(void)
{
	static unsigned int waits;
	static unsigned long held;
	unsigned long sought = nuksm_orphans;
	unsigned int tree;

	waits -= !!waits;
	if (waits)
		sought -= min(sought, held);
	if (!nuksm_by_checksum() || sought <= ksm_pages_shared / NUKSM_ORPHANS)
		return;
	held = 0;

	for (tree = nuksm_next_used(0, 0); tree < nuksm_nr_roots(ksm_nr_node_ids);
	     tree = nuksm_next_used(0, tree + 1)) {
		struct rb_root *root = root_stable_tree + tree;
		struct rb_node *node, *next;

		for (node = rb_first(root); node; node = next) {
			struct ksm_stable_node *stable_node, *dup;
			struct folio *folio;

			/* Erasing @node leaves its successor's place alone */
			next = rb_next(node);
			stable_node = rb_entry(node, struct ksm_stable_node, node);
			folio = chain_prune(&dup, &stable_node, root);
			if (folio) {
				held += hlist_empty(&dup->hlist);
				folio_put(folio);
			}
			cond_resched();
		}
		if (nuksm_used_roots && RB_EMPTY_ROOT(root))
			__clear_bit(tree, nuksm_used_roots);
	}
	/* Not those that were dropped just now */
	nuksm_orphans = held;
	waits = NUKSM_ORPHANS;
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
 * Takes an item of the unstable tree whose page is gone, changed, or cannot be asked for as
 * somebody has the lock of its process, out of it. There may be others of its checksum behind
 * it: the search begins again, so often at most.
 *
 * Returns whether it shall.
 */
#define NUKSM_MOST_DROPS	16

static bool nuksm_unstable_drop(struct ksm_rmap_item *stale, int *drops)
{
	nuksm_window(NUKSM_WINDOW_STALE);
	remove_rmap_item_from_tree(stale);
	nuksm_count(&nuksm_stats.replaced, 1);
	return ++*drops < NUKSM_MOST_DROPS;
}

/*
 * @page was not merged with the page of the unstable tree that it equals. If that is
 * because somebody holds that one, or it could not be split, @page takes its place there: or
 * who has such a page would keep all others from finding each other.
 */
static void nuksm_file_instead(struct ksm_rmap_item *rmap_item, struct page *page,
			       struct ksm_rmap_item *tree_rmap_item,
			       struct page *tree_page)
{
	struct folio *folio = page_folio(tree_page);
	struct page *other;

	nuksm_window(NUKSM_WINDOW_INSTEAD);
	/* One was merged in vain, and there was no memory for a copy: it was filed alone */
	if ((rmap_item->address | tree_rmap_item->address) & STABLE_FLAG)
		return;
	/* Or not even that; or there is a copy, which is another page */
	if (folio_test_ksm(page_folio(page)))
		return;
	if (nuksm_is_held(page_folio(page)) ||
	    !(nuksm_is_held(folio) || folio_test_large(folio)))
		return;
	remove_rmap_item_from_tree(tree_rmap_item);
	nuksm_count(&nuksm_stats.replaced, 1);
	/* It was merged for a moment, and may have lost its checksum thereby */
	rmap_item->oldchecksum = ksm_scan.checksum;
	if (unstable_tree_search_insert(rmap_item, page, &other))
		put_page(other);
}

static struct ksm_stable_node *stable_tree_insert(struct folio *kfolio);
static void stable_tree_append(struct ksm_rmap_item *rmap_item,
			       struct ksm_stable_node *stable_node,
			       bool max_page_sharing_bypass);

/*
 * The merged page that @rmap_item's process has there is filed with one sharer, if it is filed
 * nowhere: so others can move and reclaim it, and merge theirs with it. Not if @rmap_item is
 * still filed with the page that was there before, whose lock somebody has.
 *
 * Context: the mmap_lock for reading.
 */
static void nuksm_file_alone(struct ksm_rmap_item *rmap_item, struct vm_area_struct *vma)
{
	struct ksm_stable_node *stable_node;
	struct folio *folio;

	if (rmap_item->address & STABLE_FLAG)
		return;
	folio = nuksm_get_merged(vma, rmap_item->address & PAGE_MASK);
	if (IS_ERR_OR_NULL(folio))
		return;
	if (folio_trylock(folio)) {
		stable_node = folio_stable_node(folio) ? NULL : stable_tree_insert(folio);
		if (stable_node) {
			rmap_item->anon_vma = vma->anon_vma;
			get_anon_vma(vma->anon_vma);
			nuksm_keep_index(rmap_item, vma);
			stable_tree_append(rmap_item, stable_node, false);
		}
		folio_unlock(folio);
	}
	folio_put(folio);
}

/*
 * A page became a merged one, but was filed nowhere: the process gets one of its own, where it
 * had it. Memory is not waited for, for want of which others would be ended in a cgroup that is
 * full: if there is none, the page is filed after all. Nor is who has the mmap_lock: then ksmd
 * tries again when it comes by.
 *
 * Returns true.
 */
static bool nuksm_break(struct ksm_rmap_item *rmap_item)
{
	struct mm_struct *mm = rmap_item->mm;
	struct vm_area_struct *vma;

	if (!nuksm_lock_mm(mm))
		return true;
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_home(rmap_item);
#endif
	vma = find_mergeable_vma(mm, rmap_item->address);
	/* If its memory has failed, it is not read for that, either */
	if (vma && nuksm_unmap_merged(vma, rmap_item->address & PAGE_MASK) == -ENOMEM)
		nuksm_file_alone(rmap_item, vma);
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_node(NUMA_NO_NODE);
#endif
	mmap_read_unlock(mm);
	return true;
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

/* Of @trees in the whole machine, those of one of @nids nodes. */
static unsigned int nuksm_trees_per_node(unsigned int trees, int nids)
{
	return max(trees / nids, 1U);
}

/*
 * Replaces the trees by those that @index asks for. No page is merged; what is
 * filed in the unstable trees is taken out, and filed again by the next scan.
 */
static int nuksm_use_index(struct nuksm_index index, int nids)
{
	unsigned long *used;
	struct rb_root *roots;
	size_t nr;

	index.trees = nuksm_trees_per_node(nuksm_trees_wanted(index.kib_per_tree),
					   nids);
	nr = (size_t)nids * index.trees;
	roots = nuksm_alloc_roots(nr);
	used = kvcalloc(BITS_TO_LONGS(2 * nr), sizeof(*used),
			GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (!roots || !used) {
		vfree(roots);
		kvfree(used);
		return -ENOMEM;
	}
	reset_unstable_trees();
	if (root_stable_tree != one_stable_tree)
		vfree(root_stable_tree);
	kvfree(nuksm_used_roots);
	nuksm_used_roots = used;
	root_stable_tree = roots;
	root_unstable_tree = roots + nr;
	WRITE_ONCE(nuksm_index.kib_per_tree, index.kib_per_tree);
	WRITE_ONCE(nuksm_index.trees, index.trees);
	WRITE_ONCE(nuksm_index.by_checksum, index.by_checksum);
	WRITE_ONCE(nuksm_index.checksum_mask, index.checksum_mask);
	zero_checksum = calc_checksum(ZERO_PAGE(0));
	return 0;
}

/* merge_across_nodes changes, and with it for how many nodes there are trees. */
static int __maybe_unused nuksm_use_nodes(int nids)
{
	return nuksm_use_index(nuksm_index, nids);
}

/**
 * ksm_reindex - change how the trees are organised
 * @setting: what to change
 * @value: the value that it is to have
 *
 * Pages are not filed anew: as long as KSM tracks any, the answer is -EBUSY.
 * Writing 2 to run stops KSM and makes it forget all pages. The number of trees
 * is worked out anew, from the memory of today.
 *
 * Return: 0, -EBUSY or -ENOMEM; on error nothing has changed.
 */
int ksm_reindex(enum nuksm_setting setting, u32 value)
{
	struct nuksm_index index;
	unsigned int trees;
	int err = 0;

	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	index = nuksm_index;
	switch (setting) {
	case NUKSM_SET_ORDER:
		index.by_checksum = value;
		break;
	case NUKSM_SET_KIB_PER_TREE:
		index.kib_per_tree = value;
		break;
	case NUKSM_SET_CHECKSUM_MASK:
		index.checksum_mask = value;
		break;
	}
	trees = nuksm_trees_per_node(nuksm_trees_wanted(index.kib_per_tree),
				     ksm_nr_node_ids);
	if (index.by_checksum == nuksm_index.by_checksum &&
	    index.checksum_mask == nuksm_index.checksum_mask &&
	    trees == nuksm_index.trees)
		WRITE_ONCE(nuksm_index.kib_per_tree, index.kib_per_tree);
	else if (ksm_rmap_items || remove_all_stable_nodes())
		err = -EBUSY;
	else
		err = nuksm_use_index(index, ksm_nr_node_ids);
	mutex_unlock(&ksm_thread_mutex);
	return err;
}

/*
 * KSM is being started. The first time, what tenants must not foresee is drawn.
 * And whenever no page is tracked, the number of trees is fitted to the memory
 * of today. Not earlier, as many never start KSM.
 */
static void nuksm_fit_forest(void)
{
	unsigned int trees =
		nuksm_trees_per_node(nuksm_trees_wanted(nuksm_index.kib_per_tree),
				     ksm_nr_node_ids);

	if (!nuksm_seed) {
		nuksm_seed = get_random_u64() | 1;
		nuksm_draw_secret();
		zero_checksum = calc_checksum(ZERO_PAGE(0));
	}
	if (trees == nuksm_index.trees || ksm_rmap_items ||
	    remove_all_stable_nodes())
		return;
	if (nuksm_use_index(nuksm_index, ksm_nr_node_ids))
		pr_warn("ksm: no memory for %u trees, there are %u\n",
			trees, nuksm_index.trees);
}

static void __init nuksm_sysfs_init(void)
{
	int err;

	err = sysfs_merge_group(mm_kobj, &nuksm_index_attr_group);
	err = err ?: sysfs_merge_group(mm_kobj, &nuksm_cost_attr_group);
#ifdef CONFIG_NUKSM_PLACEMENT
	err = err ?: sysfs_merge_group(mm_kobj, &nuksm_placement_attr_group);
#endif
#ifdef CONFIG_NUKSM_DOMAINS
	err = err ?: sysfs_merge_group(mm_kobj, &nuksm_domains_attr_group);
#endif
	if (err)
		pr_err("ksm: register nuksm's sysfs files failed\n");
}

#else /* !CONFIG_NUKSM */

static inline void nuksm_use_root(const struct rb_root *root)
{
}

static inline int nuksm_next_unstable(int tree)
{
	return tree;
}

static inline void nuksm_prune_stable_trees(void)
{
}

static inline bool nuksm_unstable_is_stale(struct ksm_rmap_item *tree_rmap_item,
					   struct page *tree_page)
{
	return false;
}

static inline bool nuksm_unstable_drop(struct ksm_rmap_item *stale, int *drops)
{
	return false;
}

static inline void nuksm_file_instead(struct ksm_rmap_item *rmap_item,
				      struct page *page,
				      struct ksm_rmap_item *tree_rmap_item,
				      struct page *tree_page)
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
