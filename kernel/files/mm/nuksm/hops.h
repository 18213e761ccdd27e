/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How sharers of one merged page come to share another one with the same content: one by one, or
 * all at once, as when a replica is folded.
 *
 * Included by replicas.h. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_HOPS_H
#define _MM_NUKSM_HOPS_H

/* @item is one of @to's sharers from now on. The locks of both pages are held. */
static void nuksm_hop(struct ksm_rmap_item *item, struct ksm_stable_node *to)
{
	struct ksm_stable_node *from = item->head;

	nuksm_count_sharer(item, pfn_to_nid(from->kpfn),
			   hlist_is_singular_node(&item->hlist, &from->hlist), -1);
	hlist_del(&item->hlist);
	from->rmap_hlist_len--;
	if (hlist_empty(&from->hlist))
		ksm_pages_shared--;
	else
		ksm_pages_sharing--;

	item->head = to;
	hlist_add_head(&item->hlist, &to->hlist);
	to->rmap_hlist_len++;
	if (item->hlist.next)
		ksm_pages_sharing++;
	else
		ksm_pages_shared++;
	nuksm_count_sharer(item, pfn_to_nid(to->kpfn), !item->hlist.next, 1);
}

/* Lets one sharer of @from share @to. Who keeps his mmap_lock stays where he is. */
static bool nuksm_remap(struct ksm_rmap_item *item, struct folio *from,
			struct folio *to)
{
	unsigned long address = item->address & PAGE_MASK;
	struct mm_struct *mm = item->mm;
	struct mmu_notifier_range range;
	struct vm_area_struct *vma;
	bool mapped = false;

	if (!mmap_read_trylock(mm))
		return false;
	vma = find_mergeable_vma(mm, address);
	if (vma && nuksm_is_found(item, vma) && nuksm_may_leave(item)) {
		mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, address,
					address + PAGE_SIZE);
		mmu_notifier_invalidate_range_start(&range);
		mapped = nuksm_map_instead(vma, address, &from->page, to);
		mmu_notifier_invalidate_range_end(&range);
	}
	mmap_read_unlock(mm);
	return mapped;
}

/*
 * Lets sharers of @stable_node who draw it to @nid, or all if that is NUMA_NO_NODE, share @target,
 * as far as there is room. Returns how many.
 */
static unsigned int nuksm_remap_sharers(struct ksm_stable_node *stable_node,
					struct folio *from,
					struct ksm_stable_node *target,
					struct folio *to, int nid)
{
	struct ksm_rmap_item *item;
	struct hlist_node *next;
	unsigned int n = 0;

	hlist_for_each_entry_safe(item, next, &stable_node->hlist, hlist) {
		cond_resched();
		if (target->rmap_hlist_len >= ksm_max_page_sharing)
			break;
		if (nid != NUMA_NO_NODE && (item->home != nid || !nuksm_draws(item)))
			continue;
		if (!nuksm_remap(item, from, to))
			continue;
		nuksm_hop(item, target);
		n++;
	}
	return n;
}

/*
 * Has anybody the page whom ksmd does not know, but the caller, who has @refs references, and the
 * lock? By a slot in swap, too.
 */
static bool nuksm_is_had(struct folio *folio, int refs)
{
	folio_free_swap(folio);
	if (nuksm_is_held_besides(folio, refs))
		lru_add_drain();
	return folio_mapped(folio) || folio_test_swapcache(folio) ||
	       nuksm_is_held_besides(folio, refs);
}

/*
 * Nobody shares @stable_node any more. Its page goes, unless somebody has it, perhaps a fork
 * that is unknown to ksmd yet. Its lock is held, and the caller has @refs references. Its chain
 * may be left with one page, or none. Returns whether @stable_node is gone.
 */
static bool nuksm_drop_unused(struct ksm_stable_node *stable_node,
			      struct folio *folio, int refs)
{
	unsigned long orphans = nuksm_orphans;

	if (nuksm_is_had(folio, refs)) {
		nuksm_count_orphan(stable_node);
		return false;
	}
	folio_set_stable_node(folio, NULL);
	remove_node_from_stable_tree(stable_node);
	nuksm_orphans = orphans;
	return true;
}

/* The same; the page's sharers have another one instead. */
static void nuksm_drop_folded(struct ksm_stable_node *stable_node, struct folio *folio,
			      int refs)
{
	bool replica = stable_node->replica;

	if (nuksm_drop_unused(stable_node, folio, refs) && replica) {
		nuksm_count(&nuksm_replica_stats.folded, 1);
		nuksm_count(&nuksm_node_counts[folio_nid(folio)].folded, 1);
	}
}

/*
 * Lets sharers of a page whose home is @nid, or all, share another one of the same chain, one
 * after the other. @refs: the caller's to the first one. Returns how many, or -ENOENT if that is
 * gone, as perhaps all of them did. The other one may be gone, too.
 */
static int nuksm_shift(struct ksm_stable_node *stable_node, int refs,
		       struct ksm_stable_node *target, int nid)
{
	struct folio *from, *to = ksm_get_folio(target, KSM_GET_FOLIO_TRYLOCK);
	int n = 0;

	if (IS_ERR_OR_NULL(to))
		return 0;
	from = ksm_get_folio(stable_node, KSM_GET_FOLIO_TRYLOCK);
	if (!from)
		n = -ENOENT;
	if (IS_ERR_OR_NULL(from))
		goto out;
	if (!folio_test_hwpoison(from) && !folio_test_hwpoison(to)) {
		n = nuksm_remap_sharers(stable_node, from, target, to, nid);
		if (n)
			nuksm_trace_replica(from, to, n);
		if (hlist_empty(&stable_node->hlist)) {
			nuksm_drop_folded(stable_node, from, refs + 1);
			n = -ENOENT;
		} else if (!folio_mapped(from)) {
			/* Some are listed that have it no more: ksmd finds that out */
			folio_free_swap(from);
		}
	}
	folio_unlock(from);
	folio_put(from);
out:
	folio_unlock(to);
	folio_put(to);
	return n;
}

/*
 * A page is folded once, and moved again and again: so many areas are gone through for that,
 * which takes some ten milliseconds, before who has them keeps a replica from who needs memory.
 */
#define NUKSM_MOST_TO_FOLD	(16 * NUKSM_MOST_AREAS)

/*
 * Whoever has @from has @to instead, as if it was moved there: by a fork that ksmd does not
 * know of yet, too, and no mmap_lock is needed. Mappings are looked for by the sharers of
 * @from: those of @to are none of its. Both are locked, and all areas of @stable_node, which
 * is @from's.
 */
static void nuksm_map_all_instead(struct ksm_stable_node *stable_node, struct folio *from,
				  struct folio *to)
{
	struct ksm_stable_node *target = folio_stable_node(to);

	/* Who is just being unmapped is waited for, or the page would look mapped */
	try_to_migrate(from, TTU_SYNC);
	nuksm_window(NUKSM_WINDOW_FOLD);
	/* Who asks for that without the lock has ksm_thread_mutex */
	folio_set_stable_node(to, stable_node);
	remove_migration_ptes(from, to, 0);
	folio_set_stable_node(to, target);
}

/*
 * Lets all who share a page share @target, another one of the same chain with room for them, and
 * whoever else has it, at once. Where that cannot be found, as with the fork of an ended process,
 * its memory stays, but is nobody's any more. Returns -ENOENT, as @stable_node is gone then, or
 * what nuksm_lock_at_most() says. Both pages are held.
 */
static int nuksm_fold_at_once(struct ksm_stable_node *stable_node, struct folio *from,
			      struct ksm_stable_node *target, struct folio *to,
			      unsigned int most)
{
	struct ksm_rmap_item *item;
	struct hlist_node *next;
	int err = nuksm_lock_at_most(stable_node, most);

	if (err)
		return err;
	if (!folio_trylock(from))
		goto unlock_areas;
	if (!folio_trylock(to))
		goto unlock_from;
	if (folio_test_hwpoison(from) || folio_test_hwpoison(to))
		goto unlock_to;
	nuksm_map_all_instead(stable_node, from, to);
	nuksm_unlock_areas(stable_node, NULL);
	nuksm_trace_replica(from, to, stable_node->rmap_hlist_len);
	hlist_for_each_entry_safe(item, next, &stable_node->hlist, hlist) {
		nuksm_hop(item, target);
		cond_resched();
	}
	nuksm_drop_folded(stable_node, from, 1);
	folio_unlock(to);
	folio_unlock(from);
	return -ENOENT;

unlock_to:
	folio_unlock(to);
unlock_from:
	folio_unlock(from);
unlock_areas:
	nuksm_unlock_areas(stable_node, NULL);
	return -EBUSY;
}

/*
 * Those who have more areas of a page than others get pages of their own, before it is folded.
 * Returns -ENOENT if it is gone, or listed for nobody any more and goes with who has it, or another
 * error.
 */
static int nuksm_fold_dear(struct ksm_stable_node *stable_node, struct folio *from,
			   struct ksm_stable_node *target, struct folio *to)
{
	nuksm_unshare_dear(stable_node, NUKSM_MOST_TO_FOLD);
	if (hlist_empty(&stable_node->hlist))
		return -ENOENT;
	return nuksm_fold_at_once(stable_node, from, target, to,
				  max(NUKSM_MOST_TO_FOLD,
				      NUKSM_FEW_AREAS * stable_node->rmap_hlist_len));
}

/*
 * Lets all who share a page share @target: at once, if it is in @most areas at most, or in as many
 * as are gone through in a move. Where these are locked by others, or are more, one after the
 * other, as far as that goes, and then, if there were too many areas, who stays at once, in @most
 * areas at most; but one that is in more than @most, if that is less than in a move, stays.
 * @unshare: of these, who has more areas than others gets a page of his own, if there is memory for
 * it. Returns how many share @target now, of those who did not all leave, or -ENOENT: @stable_node
 * is gone. @target may be gone, too, if there are none.
 */
static int nuksm_fold_into(struct ksm_stable_node *stable_node, struct ksm_stable_node *target,
			   unsigned int most, bool unshare)
{
	struct folio *from = nuksm_take_hold(stable_node), *to;
	int err, n = 0;

	if (!from)
		return -ENOENT;
	if (IS_ERR(from))
		return 0;
	/* Before areas are locked: if it is gone, those of its sharers may go, which takes locks */
	to = nuksm_take_hold(target);
	if (IS_ERR_OR_NULL(to))
		goto put_from;
	err = nuksm_fold_at_once(stable_node, from, target, to, min(most, NUKSM_MOST_AREAS));
	if (err == -ENOENT)
		n = err;
	else if (err != -E2BIG || most >= NUKSM_MOST_AREAS)
		n = nuksm_shift(stable_node, 1, target, NUMA_NO_NODE);
	if (n != -ENOENT && most > NUKSM_MOST_AREAS && err == -E2BIG) {
		err = nuksm_fold_at_once(stable_node, from, target, to, most);
		if (err == -E2BIG && unshare)
			err = nuksm_fold_dear(stable_node, from, target, to);
		if (err == -ENOENT)
			n = err;
	}
	folio_put(to);
put_from:
	folio_put(from);
	return n;
}

#endif /* _MM_NUKSM_HOPS_H */
