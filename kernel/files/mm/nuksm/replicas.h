/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's replicas: copies of a merged page on other nodes, for those who use it there.
 *
 * Merged pages are read only, so copies need not be kept equal. A page that is hot on
 * several nodes gets one on each of them, as long as all replicas together take no more
 * than replica_percent of what merging saves. A replica is a dup of KSM's chain of pages
 * with the same content, as those that max_page_sharing makes, but for a mark: who is
 * scanned on its node joins it, and when nobody uses it any more, or memory is short
 * there (see folding.h), its sharers go back to another page of the chain.
 *
 * A replica costs one of those who use it on its node: his memory cgroup pays, if it has no
 * limit. One that nobody shares any more goes on costing him while somebody has it, by a pipe, or
 * by a fork that ksmd does not know. So it stays filed until it is free, and he has it again
 * before he pays for another one there (nuksm_share_again()); and of a content of which many are
 * left so, as some were moved meanwhile, there are no copies. A replica whose sharers no other page
 * of its chain has room for is a page as any other, and counts as such.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. Unless it says
 * otherwise, all of it runs under ksm_thread_mutex, and is done by nuksmd.
 */
#ifndef _MM_NUKSM_REPLICAS_H
#define _MM_NUKSM_REPLICAS_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include "budget.h"
#include "chains.h"
#include "hops.h"

/*
 * Somebody is to join a page of @chain, @found: of pages that have replicas, the one on the
 * node of his own page is better.
 */
static struct ksm_stable_node *nuksm_nearest(struct ksm_stable_node *chain,
					     struct ksm_stable_node *found,
					     struct page *page)
{
	if (!is_stable_node_chain(chain) || !chain->replica)
		return found;
	return nuksm_dup_on(chain, page_to_nid(page), NULL) ?: found;
}

/* A copy of @folio on node @nid, locked, for which @payer pays. Nobody waits for memory. */
static struct folio *nuksm_copy(struct folio *folio, int nid, struct mm_struct *payer)
{
	gfp_t gfp = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_THISNODE |
		    __GFP_NOWARN | __GFP_NOMEMALLOC;
	struct folio *copy = __folio_alloc_node(gfp, 0, nid);
	struct nuksm_payers payers = {};
	bool made;

	if (!copy)
		return NULL;
	/* If it ended meanwhile, the root cgroup pays, which nobody asked for */
	made = !mem_cgroup_charge(copy, payer, GFP_NOWAIT | __GFP_NOWARN) &&
	       nuksm_may_pay(payer, &payers) && !folio_mc_copy(copy, folio);
	mem_cgroup_put(payers.limited);
	if (!made) {
		folio_put(copy);
		return NULL;
	}
	flush_dcache_folio(copy);
	__folio_mark_uptodate(copy);
	__folio_set_locked(copy);
	__folio_set_swapbacked(copy);
	/* Or reclaim would drop it, see try_to_merge_one_page() */
	folio_set_dirty(copy);
	return copy;
}

/* @dup, which nobody shares yet, is to be a replica of @stable_node. */
static void nuksm_begin_replica(struct ksm_stable_node *dup,
				const struct ksm_stable_node *stable_node,
				struct ksm_stable_node *chain)
{
	nuksm_begin_asking(dup);
	dup->lot = stable_node->lot;
	dup->rank = NUKSM_RANK_COPIED;
	dup->ranked = stable_node->ranked;
	dup->replica = true;
	chain->replica = true;
}

/* Files @folio, which is new and locked, as @dup, a replica of @stable_node. */
static void nuksm_file_copy(struct ksm_stable_node *dup, struct folio *folio,
			    const struct ksm_stable_node *stable_node,
			    struct ksm_stable_node *chain)
{
	INIT_HLIST_HEAD(&dup->hlist);
	dup->kpfn = folio_pfn(folio);
	dup->rmap_hlist_len = 0;
	DO_NUMA(dup->nid = stable_node->nid);
	dup->checksum = stable_node->checksum;
	dup->domain = stable_node->domain;
	nuksm_begin_replica(dup, stable_node, chain);
	stable_node_chain_add_dup(dup, chain);
	folio_set_stable_node(folio, dup);
}

/* Maps a copy of the page, @to, for its sharers on @nid. Both are locked. */
static int nuksm_map_copy(struct ksm_stable_node *stable_node, struct folio *from,
			  struct ksm_stable_node *dup, struct folio *to, int nid)
{
	int n;

	/* On its list first: mlock() counts there. It waits in this CPU's batch, which holds it */
	migrate_disable();
	folio_add_lru(to);
	lru_add_drain();
	migrate_enable();
	nuksm_window(NUKSM_WINDOW_REPLICA);
	n = nuksm_remap_sharers(stable_node, from, dup, to, nid);
	nuksm_trace_replica(from, to, n);
	if (n) {
		nuksm_count(&nuksm_replica_stats.made, 1);
		nuksm_ranking.rules.outranked -= min(nuksm_ranking.rules.outranked, 1UL);
	} else {
		nuksm_drop_unused(dup, to, 1);
	}
	if (!hlist_empty(&stable_node->hlist))
		return n;
	nuksm_drop_unused(stable_node, from, 1);
	return -ENOENT;
}

/*
 * Copies a page to node @nid for its sharers there, of whom @payer is one. *@chain: the page's,
 * or NULL; there may be one then. Returns how many share the copy, or -ENOENT if @stable_node
 * is gone.
 */
static int nuksm_replicate(struct ksm_stable_node *stable_node,
			   struct ksm_stable_node **chain, int nid,
			   struct mm_struct *payer)
{
	struct ksm_stable_node *dup;
	struct folio *from, *to = NULL;
	int n = 0;

	dup = kmem_cache_alloc(stable_node_cache, GFP_NOWAIT | __GFP_NOWARN);
	if (!dup)
		return 0;
	dup->rmap_hlist_len = 0;
	if (!*chain)
		*chain = alloc_stable_node_chain(stable_node, nuksm_root_of(stable_node));
	from = *chain ? ksm_get_folio(stable_node, KSM_GET_FOLIO_TRYLOCK) :
			ERR_PTR(-ENOMEM);
	if (!from)
		n = -ENOENT;
	if (IS_ERR_OR_NULL(from))
		goto out;
	if (!folio_test_hwpoison(from))
		to = nuksm_copy(from, nid, payer);
	if (to) {
		nuksm_file_copy(dup, to, stable_node, *chain);
		n = nuksm_map_copy(stable_node, from, dup, to, nid);
		dup = NULL;
		folio_unlock(to);
		folio_put(to);
	}
	folio_unlock(from);
	folio_put(from);
out:
	if (dup)
		free_stable_node(dup);
	return n;
}

/*
 * Sharers of a page whose home is @nid share @left, a page of the same chain that is there, that
 * nobody shares any more, and that @payer pays for. Returns how many, or -ENOENT if all of them
 * do, or -EINVAL if @payer does not pay, or it is gone.
 */
static int nuksm_share_again(struct ksm_stable_node *stable_node, struct ksm_stable_node *left,
			     struct ksm_stable_node *chain, int nid, struct mm_struct *payer)
{
	struct folio *folio = ksm_get_folio(left, KSM_GET_FOLIO_TRYLOCK);
	bool pays;
	int n;

	if (!folio)
		return -EINVAL;
	if (IS_ERR(folio))
		return 0;
	pays = nuksm_pays_for(payer, folio);
	folio_unlock(folio);
	folio_put(folio);
	if (!pays)
		return -EINVAL;
	nuksm_begin_replica(left, stable_node, chain);
	n = nuksm_shift(stable_node, 0, left, nid);
	if (n > 0)
		nuksm_ranking.rules.outranked -= min(nuksm_ranking.rules.outranked, 1UL);
	return n;
}

/*
 * The page is near for its sharers whose home is @nid, too: by one that others have left there, or
 * by a copy. @payer pays. Of a content of which many pages are left, there are no more.
 * Returns as nuksm_replicate().
 */
static int nuksm_bring_near(struct ksm_stable_node *stable_node, struct ksm_stable_node **chain,
			    int nid, struct mm_struct *payer)
{
	struct ksm_stable_node *dup;
	unsigned int nr = 0;
	struct hlist_node *next;
	int n;

	/* If it was not found again, its copies would stay */
	if (!*chain && !nuksm_filed_as(stable_node))
		return 0;
	if (*chain) {
		hlist_for_each_entry_safe(dup, next, &(*chain)->hlist, hlist_dup) {
			if (nr++ == NUKSM_MOST_DUPS)
				break;
			if (!nuksm_is_left_on(dup, nid))
				continue;
			n = nuksm_share_again(stable_node, dup, *chain, nid, payer);
			if (n != -EINVAL)
				return n;
		}
	}
	if (nuksm_has_many_left(*chain, stable_node))
		return 0;
	return nuksm_replicate(stable_node, chain, nid, payer);
}

/* Is one of those who share the page hot? */
static bool nuksm_is_hot(const struct ksm_stable_node *stable_node)
{
	const struct ksm_rmap_item *item;

	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		if (nuksm_own_heat(item) == NUKSM_TOUCHED && nuksm_draws(item))
			return true;
		cond_resched();
	}
	return false;
}

/* From now on the page is a replica, or none. Its lock is held. */
static void nuksm_count_as(struct ksm_stable_node *stable_node, struct folio *folio,
			   bool replica)
{
	struct nuksm_node_count *count = &nuksm_node_counts[folio_nid(folio)];
	int more = replica - stable_node->replica;
	const struct ksm_rmap_item *item;

	if (more) {
		hlist_for_each_entry(item, &stable_node->hlist, hlist) {
			atomic_long_add(more, &item->mm->nuksm.replicas);
			cond_resched();
		}
	}
	if (!hlist_empty(&stable_node->hlist))
		atomic_long_add(more, &count->replicas);
	stable_node->replica = replica;
}

/*
 * Is the page needed, or could another one of @chain, which has or had replicas, have all of
 * its sharers? Then it is a replica. *@dear: it is one, and the memory cgroup that pays for it may
 * need it for something else, or it has just become one, and the budget is spent.
 * Returns -ENOENT if @stable_node is gone, or another error.
 */
static int nuksm_find_out(struct ksm_stable_node *stable_node,
			  struct ksm_stable_node *chain, bool *dear)
{
	struct folio *folio = ksm_get_folio(stable_node, KSM_GET_FOLIO_TRYLOCK);
	bool replica, was;

	if (!folio)
		return -ENOENT;
	if (IS_ERR(folio))
		return PTR_ERR(folio);
	replica = nuksm_dup_for(chain, stable_node);
	was = stable_node->replica;
	nuksm_count_as(stable_node, folio, replica);
	*dear = replica && (nuksm_payer_is_limited(folio) || (!was && !nuksm_fits_budget(0)));
	folio_unlock(folio);
	folio_put(folio);
	return 0;
}

/* Looks fold what is in many areas once in so many times. */
#define NUKSM_SELDOM		32

/*
 * Through how many areas looks go to fold a replica. One that is in more than these and stays
 * is asked in each look in vain: so that this does not keep others from being looked at, through
 * as many as are gone through at all only now and then. By chance, as nobody then chooses when.
 */
static unsigned int nuksm_most_to_fold(void)
{
	return get_random_u32_below(NUKSM_SELDOM) ? NUKSM_MOST_AREAS : NUKSM_MOST_TO_FOLD;
}

/*
 * A replica is there for those who use it, within the budget, beside a page that could have
 * all of its sharers. Returns whether any of them share another one now; @stable_node may be
 * gone then.
 */
static bool nuksm_tend_replica(struct ksm_stable_node *stable_node,
			       struct ksm_stable_node *chain, bool is_used)
{
	int here = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	bool tight = nuksm_is_tight(here);
	bool stays = is_used && nuksm_has_room_for(stable_node) &&
		     !nuksm_is_outranked(stable_node) && !tight;
	struct ksm_stable_node *target;

	if (stays) {
		/* Somebody may have moved one of them */
		target = nuksm_dup_on(chain, here, stable_node);
		if (target && !nuksm_fits_into(stable_node, target))
			target = NULL;
	} else {
		target = nuksm_dup_for(chain, stable_node);
	}
	return target && nuksm_fold_into(stable_node, target,
					 tight ? NUKSM_MOST_TO_FOLD : nuksm_most_to_fold(),
					 !tight);
}

/* Is it a replica that is hot, and could be folded into @other? */
static bool nuksm_is_hot_replica(struct ksm_stable_node *dup,
				 const struct ksm_stable_node *other, int nid)
{
	return dup->replica &&
	       dup->rmap_hlist_len + other->rmap_hlist_len <= ksm_max_page_sharing &&
	       nuksm_takes_replica(pfn_to_nid(READ_ONCE(dup->kpfn))) && nuksm_is_hot(dup);
}

/*
 * Nobody uses the page where it is, but perhaps one of its replicas: then these are to be one, if
 * that is said often enough in a row. The page goes where the replica is, which is folded into it
 * then: if the page cannot be moved, nobody loses what is near. Returns whether there is such a
 * replica; @stable_node may be gone then.
 */
static bool nuksm_draw_in(struct ksm_stable_node *stable_node,
			  struct ksm_stable_node *chain)
{
	struct ksm_stable_node *replica =
		nuksm_find_dup(chain, nuksm_is_hot_replica, stable_node, NUMA_NO_NODE);
	int nid, err, here = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	unsigned int used, cost = 0;

	if (!replica)
		return false;
	used = nuksm_used_in_looks(replica, false, NUMA_NO_NODE);
	if (!nuksm_is_noted() || !nuksm_follows(stable_node, nuksm_says_elsewhere(used)))
		return true;
	nuksm_window(NUKSM_WINDOW_DRAW_IN);
	nid = pfn_to_nid(READ_ONCE(replica->kpfn));
	err = nid == here ? 0 : nuksm_move(stable_node, nid, &cost);
	nuksm_tried(stable_node, err, cost, false);
	if (!err)
		nuksm_fold_into(replica, stable_node, nuksm_most_to_fold(), false);
	return true;
}

/*
 * Who uses the page on another node shares one that is there; or with @copies, if there is none, a
 * copy. Returns whether any do now; @stable_node may be gone then. @first: as for nuksm_affords().
 */
static bool nuksm_spread(struct ksm_stable_node *stable_node,
			 struct ksm_stable_node **chain, bool copies, bool first)
{
	int nid, n, here = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	bool done = false, failed = false;

	for_each_set_bit(nid, nuksm_ballot.hot_nodes, NUKSM_MOST_NODES) {
		struct ksm_stable_node *target;
		struct mm_struct *payer;

		if (nid == here)
			continue;
		n = 0;
		target = nuksm_dup_on(*chain, nid, stable_node);
		/* It would not stay there, or is to go from there */
		if (target && (!node_is_toptier(nid) ||
			       (target->replica && nuksm_is_tight(nid))))
			continue;
		payer = target || !copies ? NULL : nuksm_affords(stable_node, nid, first);
		if (payer) {
			n = nuksm_bring_near(stable_node, chain, nid, payer);
			failed |= !n;
		} else if (target && (!target->replica || nuksm_fits_budget(0))) {
			n = nuksm_shift(stable_node, 0, target, nid);
		}
		if (n == -ENOENT)
			return true;
		done |= n > 0;
	}
	/* What cannot be copied keeps no budget from others */
	if (failed && !done && !stable_node->replica)
		stable_node->rank = 0;
	return done;
}

/*
 * The page was looked at, and the ballot has all who draw it. Does it need replicas, or is it one
 * that nobody needs? @waits: it could not be moved, so that it is drawn to no replica, and copied
 * though nobody uses it where it is. Returns whether something was done for that; @stable_node may
 * be gone then.
 */
static bool nuksm_tend(struct ksm_stable_node *stable_node, bool waits)
{
	int here = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	bool hot = nuksm_ballot.hottest == NUKSM_TOUCHED;
	bool by_heat = nuksm_ballot.placement == NUKSM_FAIR;
	struct ksm_stable_node *chain = NULL;
	bool dear = false, done = false, copies, first;
	struct rb_root *root;
	int err;

	if (!nuksm_by_checksum() || !ksm_merge_across_nodes ||
	    stable_node->head == &migrate_nodes || hlist_empty(&stable_node->hlist))
		return false;
	root = nuksm_root_of(stable_node);
	if (is_stable_node_dup(stable_node)) {
		chain = nuksm_filed_as(stable_node);
		if (!chain)
			return false;
	}
	if (stable_node->replica || (chain && chain->replica)) {
		err = nuksm_find_out(stable_node, chain, &dear);
		if (err) {
			nuksm_collapse(chain, root);
			return err == -ENOENT;
		}
	}
	first = nuksm_rank(stable_node, here);
	if (stable_node->replica)
		done = nuksm_tend_replica(stable_node, chain, hot && !dear);
	else if (!hot && by_heat && chain && chain->replica && !waits &&
		 nuksm_used_in_looks(stable_node, false, NUMA_NO_NODE) < NUKSM_LATELY_LOOKS)
		done = nuksm_draw_in(stable_node, chain);
	/* If nobody uses it here, it is to be moved before it is copied, if it can be */
	copies = !by_heat || waits || test_bit(here, nuksm_ballot.hot_nodes);
	if (!done && hot && READ_ONCE(nuksm_replica_percent))
		done = nuksm_spread(stable_node, &chain, copies, first);
	nuksm_collapse(chain, root);
	return done;
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline struct ksm_stable_node *nuksm_nearest(struct ksm_stable_node *chain,
						    struct ksm_stable_node *found,
						    struct page *page)
{
	return found;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_REPLICAS_H */
