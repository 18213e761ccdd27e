/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and who asks whether a merged page is used.
 *
 * A process may have many areas in which a mapping of a page could be, each of them with one that
 * is filed; then each is found once for each of all. Who asks for use is done when he was shown
 * as many as there are, and would not come to others. So he is shown each where it was filed,
 * and then those of forks.
 *
 * Included by sharers.h.
 */
#ifndef _MM_NUKSM_WALKS_H
#define _MM_NUKSM_WALKS_H

/* Shows the item's mapping where it was filed, if it is there. Returns whether that is enough. */
static bool nuksm_show_filed(const struct ksm_rmap_item *item, struct folio *folio,
			     struct rmap_walk_control *rwc)
{
	unsigned long address = READ_ONCE(item->address) & PAGE_MASK;
	struct anon_vma_chain *vmac;
	struct vm_area_struct *vma;

	anon_rmap_tree_foreach(vmac, item->anon_vma, nuksm_first_index(item),
			       nuksm_last_index(item)) {
		cond_resched();
		vma = vmac->vma;
		if (vma->vm_mm != item->mm || nuksm_address_in(item, vma) != address)
			continue;
		if (rwc->invalid_vma && rwc->invalid_vma(vma, rwc->arg))
			return false;
		return !rwc->rmap_one(folio, vma, address, rwc->arg) ||
		       (rwc->done && rwc->done(folio));
	}
	return false;
}

/*
 * Shows all mappings where they were filed to who asks for use; *@search_new_forks: what is left
 * to be gone through. What was moved since ksmd came by may be missed, which nobody else can bear:
 * who takes mappings away, and gives them back, goes through all areas of a process at once.
 * Returns whether that is enough, or had to wait.
 *
 * Context: the folio's lock.
 */
static bool nuksm_walk_filed(const struct ksm_stable_node *stable_node, struct folio *folio,
			     struct rmap_walk_control *rwc, int *search_new_forks)
{
	const struct ksm_rmap_item *item;
	bool over;

	/* Nobody else who comes here has that */
	if (!rwc->try_lock)
		return false;
	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		cond_resched();
		if (!anon_vma_trylock_read(item->anon_vma)) {
			rwc->contended = true;
			return true;
		}
		over = nuksm_show_filed(item, folio, rwc);
		anon_vma_unlock_read(item->anon_vma);
		if (over)
			return true;
	}
	*search_new_forks = 1;
	return false;
}

#endif /* _MM_NUKSM_WALKS_H */
