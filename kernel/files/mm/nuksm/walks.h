/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and who looks for all mappings of a merged page: where each was filed comes first.
 *
 * A process may have many areas in which a mapping of a page could be, each of them with one that
 * is filed; then each is found once for each of all. Who asks whether the page is used is done
 * when he was shown as many as there are: with mappings of one process, if these came first.
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
 * Shows all mappings where they were filed. These are shown once more when all are gone through,
 * those of a process at once: what is moved from one place to another meanwhile is missed here.
 * Returns whether that is enough, or had to wait.
 *
 * Context: the folio's lock; @has_areas says whether the locks of all areas are held.
 */
static bool nuksm_walk_filed(const struct ksm_stable_node *stable_node, struct folio *folio,
			     struct rmap_walk_control *rwc, bool has_areas)
{
	const struct ksm_rmap_item *item;
	bool over = false;

	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		struct anon_vma *anon_vma = item->anon_vma;

		cond_resched();
		if (has_areas) {
			over = nuksm_show_filed(item, folio, rwc);
		} else {
			if (!anon_vma_trylock_read(anon_vma)) {
				if (rwc->try_lock) {
					rwc->contended = true;
					return true;
				}
				anon_vma_lock_read(anon_vma);
			}
			over = nuksm_show_filed(item, folio, rwc);
			anon_vma_unlock_read(anon_vma);
		}
		if (over)
			break;
	}
	return over;
}

#endif /* _MM_NUKSM_WALKS_H */
