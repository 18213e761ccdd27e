/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's un-merging of pages: of one, and of all.
 *
 * Included by mm/ksm.c, whose types and functions are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_UNMERGE_H
#define _MM_NUKSM_UNMERGE_H

#ifdef CONFIG_NUKSM

#include <linux/userfaultfd_k.h>

#include "homes.h"

/* For pages of a process's own: whoever asks for them does not wait until there is memory. */
#define NUKSM_GFP_NOWAIT \
	((GFP_HIGHUSER_MOVABLE & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN)

/*
 * The page table entry of @to, instead of @pte, which has another page of the same content,
 * or one that is paged out. What was seen of use and of writes before stays, and what
 * userfaultfd protects.
 */
static pte_t nuksm_pte_of(struct folio *to, struct vm_area_struct *vma, pte_t pte)
{
	pte_t new = pte_wrprotect(folio_mk_pte(to, vma->vm_page_prot));
	bool present = pte_present(pte);

	new = present && pte_young(pte) ? pte_mkyoung(new) : pte_mkold(new);
	if (present ? pte_soft_dirty(pte) : pte_swp_soft_dirty(pte))
		new = pte_mksoft_dirty(new);
	if (present ? pte_uffd(pte) : pte_swp_uffd(pte)) {
		new = pte_mkuffd(new);
		if (userfaultfd_rwp(vma))
			new = pte_modify(new, PAGE_NONE);
	}
	return new;
}

/* The merged page that is mapped at @address, with a reference to it; NULL if none is. */
static struct folio *nuksm_get_merged(struct vm_area_struct *vma, unsigned long address)
{
	pmd_t *pmd = mm_find_pmd(vma->vm_mm, address);
	struct folio *folio = NULL;
	spinlock_t *ptl; /* of the page table */
	pte_t *ptep, pte;

	if (!pmd)
		return NULL;
	ptep = pte_offset_map_lock(vma->vm_mm, pmd, address, &ptl);
	if (!ptep)
		return NULL;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	pte = ptep_get(ptep);
	if (pte_present(pte))
		folio = vm_normal_folio(vma, address, pte);
	else if (!pte_none(pte) && softleaf_is_migration(softleaf_from_pte(pte)))
		folio = softleaf_to_folio(softleaf_from_pte(pte));

	/* Who moves the page holds its lock: it is not taken from him */
	if (!folio || !folio_test_ksm(folio))
		folio = NULL;
	else if (folio_test_hwpoison(folio))
		folio = ERR_PTR(-EHWPOISON);
	else if (!pte_present(pte))
		folio = ERR_PTR(-EBUSY);
	else
		folio_get(folio);
	pte_unmap_unlock(ptep, ptl);
	return folio;
}

/*
 * A copy of @page for the process, which pays for it. Nobody waits for memory: that may be
 * long in a cgroup that is full, and end a process there, which waits for us.
 */
static struct folio *nuksm_private_copy(struct page *page, struct vm_area_struct *vma,
					unsigned long address)
{
	struct folio *copy;
	int err = -ENOMEM;

	if (!nuksm_has_room(vma->vm_mm))
		return ERR_PTR(err);
	copy = nuksm_alloc_folio(NUKSM_GFP_NOWAIT, vma, address);
	if (!copy)
		return ERR_PTR(err);
	if (mem_cgroup_charge(copy, vma->vm_mm, GFP_NOWAIT | __GFP_NOWARN))
		nuksm_want_room(vma->vm_mm);
	else
		err = copy_mc_user_highpage(&copy->page, page, address, vma) ?
			      -EHWPOISON : 0;
	if (err) {
		folio_put(copy);
		return ERR_PTR(err);
	}
	flush_dcache_folio(copy);
	__folio_mark_uptodate(copy);
	return copy;
}

/*
 * Maps @to at @address, if it is @from that is mapped there. @to is a merged page, whose lock
 * and @from's are held, or a new one, which nobody else has.
 *
 * Context: the mmap_lock; who shares the page tables with the process, as guests do, has been
 * told.
 */
static bool nuksm_map_instead(struct vm_area_struct *vma, unsigned long address,
			      struct page *from, struct folio *to)
{
	struct mm_struct *mm = vma->vm_mm;
	pmd_t *pmd = mm_find_pmd(mm, address);
	bool mapped = false;
	spinlock_t *ptl; /* of the page table */
	pte_t *ptep, pte;

	if (!pmd)
		return false;
	ptep = pte_offset_map_lock(mm, pmd, address, &ptl);
	if (!ptep)
		return false;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	pte = ptep_get(ptep);
	if (pte_present(pte) && pte_pfn(pte) == page_to_pfn(from) && !pte_write(pte)) {
		flush_cache_page(vma, address, pte_pfn(pte));
		/* The processor may set the accessed bit until then */
		pte = ptep_clear_flush(vma, address, ptep);
		folio_get(to);
		if (folio_test_anon(to)) {
			folio_add_anon_rmap_pte(to, &to->page, vma, address, RMAP_NONE);
		} else {
			folio_add_new_anon_rmap(to, vma, address, RMAP_EXCLUSIVE);
			folio_add_lru_vma(to, vma);
		}
		set_pte_at(mm, address, ptep, nuksm_pte_of(to, vma, pte));
		folio_remove_rmap_pte(page_folio(from), from, vma);
		/* What waits in this CPU's batch is held */
		if (vma->vm_flags & VM_LOCKED)
			mlock_drain_local();
		folio_put(page_folio(from));
		mapped = true;
	}
	pte_unmap_unlock(ptep, ptl);
	return mapped;
}

/*
 * Gives the process a page of its own at @address for @page, which nobody may write to.
 *
 * Context: the mmap_lock for reading, and a reference to the page.
 *
 * Returns 1, -ENOMEM, -EHWPOISON if the page's memory has failed, or -EBUSY if it is mapped
 * there no more.
 */
static int nuksm_give_copy(struct vm_area_struct *vma, unsigned long address,
			   struct page *page)
{
	struct folio *copy = nuksm_private_copy(page, vma, address);
	struct mmu_notifier_range range;
	bool mapped;

	if (IS_ERR(copy))
		return PTR_ERR(copy);
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, vma->vm_mm, address,
				address + PAGE_SIZE);
	mmu_notifier_invalidate_range_start(&range);
	mapped = nuksm_map_instead(vma, address, page, copy);
	mmu_notifier_invalidate_range_end(&range);
	folio_put(copy);
	return mapped ? 1 : -EBUSY;
}

/*
 * Gives the process a page of its own where a merged one is mapped.
 *
 * Context: the mmap_lock for reading.
 *
 * Returns 1 if it got one, 0 if none was there; -ENOMEM, -EHWPOISON if the page's memory has
 * failed, or -EBUSY.
 */
static int nuksm_unmap_merged(struct vm_area_struct *vma, unsigned long address)
{
	struct folio *folio = nuksm_get_merged(vma, address);
	int mapped;

	if (IS_ERR_OR_NULL(folio))
		return PTR_ERR_OR_ZERO(folio);
	mapped = nuksm_give_copy(vma, address, &folio->page);
	if (folio_test_swapcache(folio) && !folio_mapped(folio) && folio_trylock(folio)) {
		folio_free_swap(folio);
		folio_unlock(folio);
	}
	folio_put(folio);
	return mapped;
}

/*
 * Gives @sharer a page of its own, where it had one before, and counts it in @unshared if
 * it still had the merged one. @vma is its area, or NULL if it is not to be merged any more.
 * Returns 1 then, 0 if not, or an error if it stays.
 *
 * Context: the mmap_lock for reading.
 */
static int __maybe_unused nuksm_unshare_in(struct ksm_rmap_item *sharer,
					   struct vm_area_struct *vma,
					   unsigned long *unshared)
{
	int err = 0;

#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_home(sharer);
#endif
	if (vma)
		err = nuksm_unmap_merged(vma, sharer->address & PAGE_MASK);
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_node(NUMA_NO_NODE);
#endif
	if (err < 0)
		return err;
	nuksm_count(unshared, err);
	remove_rmap_item_from_tree(sharer);
	return sharer->address & STABLE_FLAG ? -EBUSY : err;
}

/* The same; -EBUSY, too, if somebody has the mmap_lock, who is not waited for. */
static int __maybe_unused nuksm_unshare(struct ksm_rmap_item *sharer, unsigned long *unshared)
{
	struct mm_struct *mm = sharer->mm;
	int err;

	if (!nuksm_lock_mm(mm))
		return -EBUSY;
	err = nuksm_unshare_in(sharer, find_mergeable_vma(mm, sharer->address), unshared);
	mmap_read_unlock(mm);
	return err;
}

#endif /* CONFIG_NUKSM */

#ifdef CONFIG_NUKSM_PLACEMENT

/*
 * Un-merging on behalf of somebody else, who wrote 2 to run: puts each copy on
 * the node where the process had its own page, as far as there is room. By
 * itself, a copy would go to the node of whoever writes.
 *
 * Context: ksm_thread_mutex, and the mmap_lock of the process for reading.
 */
static int nuksm_unmerge(struct ksm_mm_slot *mm_slot)
{
	struct mm_struct *mm = mm_slot->slot.mm;
	struct ksm_rmap_item *rmap_item;
	struct vm_area_struct *vma;
	int err = 0;

	if (nr_online_nodes < 2)
		return 0;

	for (rmap_item = mm_slot->rmap_list; rmap_item && !err;
	     rmap_item = rmap_item->rmap_list) {
		if (!(rmap_item->address & STABLE_FLAG))
			continue;
		if (ksm_test_exit(mm))
			break;
		if (signal_pending(current)) {
			err = -ERESTARTSYS;
			break;
		}
		nuksm_window(NUKSM_WINDOW_UNMERGE);
		vma = find_mergeable_vma(mm, rmap_item->address);
		if (!vma)
			continue;
		nuksm_prefer_home(rmap_item);
		err = nuksm_break_ksm(vma, rmap_item->address & PAGE_MASK);
		if (err == -EBUSY) /* whoever keeps it merged stops no other */
			err = 0;
		cond_resched();
	}
	nuksm_prefer_node(NUMA_NO_NODE);
	return err;
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline int nuksm_unmerge(struct ksm_mm_slot *mm_slot)
{
	return 0;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_UNMERGE_H */
