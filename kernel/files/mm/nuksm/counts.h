/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's counters of merged pages, by node and by process.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under the
 * lock of the page concerned, or when the page is gone: its node stays, nobody
 * else joins or leaves, and so the counters are exact. Reading them takes no
 * lock.
 */
#ifndef _MM_NUKSM_COUNTS_H
#define _MM_NUKSM_COUNTS_H

#ifdef CONFIG_NUKSM_PLACEMENT

static void nuksm_count_sharer(const struct ksm_rmap_item *rmap_item, int nid,
			       bool first, int n)
{
	struct nuksm_node_count *count = &nuksm_node_counts[nid];

	atomic_long_add(n, first ? &count->shared : &count->sharing);
	/* ksmd may change the other bits of this word, but not these */
	if (data_race((int)rmap_item->home) == nid)
		atomic_long_add(n, &rmap_item->mm->nuksm.local);
}

/* @rmap_item was added to those who share @stable_node's page. */
static void nuksm_joined(const struct ksm_rmap_item *rmap_item,
			 const struct ksm_stable_node *stable_node)
{
	nuksm_count_sharer(rmap_item, pfn_to_nid(stable_node->kpfn),
			   !rmap_item->hlist.next, 1);
}

/* What it shows of use from now on, it shows of a page of its own. */
static void nuksm_mark_left(struct ksm_rmap_item *rmap_item)
{
	rmap_item->left = true;
	rmap_item->gave = false;
	rmap_item->heat = NUKSM_COLD;
}

/* @rmap_item is about to be taken from them. */
static void nuksm_left(struct ksm_rmap_item *rmap_item,
		       struct ksm_stable_node *stable_node)
{
	nuksm_count_sharer(rmap_item, pfn_to_nid(stable_node->kpfn),
			   hlist_is_singular_node(&rmap_item->hlist,
						  &stable_node->hlist), -1);
	nuksm_mark_left(rmap_item);
	stable_node->again = true;
}

/* Its page is gone: all of them are about to be taken from it. */
static void nuksm_all_left(const struct ksm_stable_node *stable_node)
{
	int nid = pfn_to_nid(stable_node->kpfn);
	struct ksm_rmap_item *rmap_item;

	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist) {
		nuksm_count_sharer(rmap_item, nid, !rmap_item->hlist.next, -1);
		nuksm_mark_left(rmap_item);
		cond_resched();
	}
}

/*
 * The page of @stable_node is about to be the one at @kpfn.
 *
 * Context: the locks of both folios, but perhaps not ksm_thread_mutex.
 */
static void nuksm_moved(const struct ksm_stable_node *stable_node,
			unsigned long kpfn)
{
	int from = pfn_to_nid(stable_node->kpfn), to = pfn_to_nid(kpfn);
	const struct ksm_rmap_item *rmap_item;

	if (from == to)
		return;
	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist) {
		bool last = !rmap_item->hlist.next;

		nuksm_count_sharer(rmap_item, from, last, -1);
		nuksm_count_sharer(rmap_item, to, last, 1);
		cond_resched();
	}
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline void nuksm_joined(const struct ksm_rmap_item *rmap_item,
				const struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_left(struct ksm_rmap_item *rmap_item,
			      struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_all_left(const struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_moved(const struct ksm_stable_node *stable_node,
			       unsigned long kpfn)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_COUNTS_H */
