/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's un-merging of what is paged out.
 *
 * Merged pages that were paged out are one in swap, too: mincore() tells who has them when
 * another one reads them back. What a process that has left its domain has in swap with
 * others is read for it, and copied: at once, or in the next scan where reading takes longer.
 * What it has read back itself may go back to the same slot, and gets another one.
 * What of all that was merged, and what only a fork shares, nobody knows any more.
 *
 * Included by mm/ksm.c, whose types are private to it. Unless it says otherwise, it runs
 * under ksm_thread_mutex, and the mmap_lock of the process that is scanned, for reading.
 */
#ifndef _MM_NUKSM_SWAPPED_H
#define _MM_NUKSM_SWAPPED_H

#ifdef CONFIG_NUKSM_DOMAINS

/*
 * Where ksmd has stopped: at which entry, with a reference to what it maps, if it does; and
 * whether it was read from swap just now.
 */
static struct nuksm_stop {
	pte_t pte;
	struct folio *folio;
	bool read;
} nuksm_stop;

#ifdef CONFIG_SWAP

/*
 * Others have a part in it as they need the slot, or as they map the page that was read back.
 * They may change from the one to the other beside this: then it is shared.
 *
 * Context: the lock of the page table that has the entry, so that its slot stays.
 */
static bool nuksm_is_shared_slot(pte_t pte)
{
	softleaf_t entry = softleaf_from_pte(pte);
	struct folio *folio;
	bool shared = true;

	if (pte_swp_exclusive(pte) || nuksm_is_only_slot(entry))
		return false;
	folio = nuksm_get_cached(entry);
	if (!folio)
		return true;
	/* Who changes holds this lock from before the one to after the other */
	if (folio_trylock(folio)) {
		shared = !nuksm_is_cached(folio, entry) || folio_mapped(folio) ||
			 swp_swapcount(entry) > 1;
		folio_unlock(folio);
	}
	folio_put(folio);
	return shared;
}

/*
 * What is in swap at @entry, if it is in memory or can be read without waiting for memory, or
 * for who is reading it; perhaps it is still being read. With a reference.
 */
static struct folio *nuksm_get_swapped(struct vm_area_struct *vma, unsigned long address,
				       softleaf_t entry)
{
	struct swap_info_struct *device = get_swap_device(entry);
	struct mem_cgroup *own;
	struct folio *folio;
	unsigned int flags;

	if (!device)
		return NULL;
	folio = nuksm_get_cached(entry);
	if (!folio && nuksm_payer_has_room(nuksm_payer_of(entry), vma->vm_mm)) {
		/* If the cgroup whose page it was is gone, the process's own pays */
		own = get_mem_cgroup_from_mm(vma->vm_mm);
		set_active_memcg(own);
		/* Who was left may be over its limit */
		flags = memalloc_noreclaim_save();
		folio = nuksm_read_swap(entry, NUKSM_GFP_NOWAIT | __GFP_NOMEMALLOC, vma,
					address);
		memalloc_noreclaim_restore(flags);
		set_active_memcg(NULL);
		mem_cgroup_put(own);
		nuksm_stop.read = folio;
	}
	put_swap_device(device);
	return folio;
}

/*
 * Maps @copy at @address, if @swapped is still the entry there. @folio has its content, and is
 * locked.
 */
static bool nuksm_map_swapped(struct vm_area_struct *vma, unsigned long address,
			      pte_t swapped, struct folio *folio, struct folio *copy)
{
	struct mm_struct *mm = vma->vm_mm;
	pmd_t *pmd = mm_find_pmd(mm, address);
	bool mapped = false;
	spinlock_t *ptl; /* of the page table */
	pte_t *ptep;

	if (!pmd)
		return false;
	ptep = pte_offset_map_lock(mm, pmd, address, &ptl);
	if (!ptep)
		return false;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	if (pte_same(ptep_get(ptep), swapped)) {
		dec_mm_counter(mm, MM_SWAPENTS);
		inc_mm_counter(mm, MM_ANONPAGES);
		folio_get(copy);
		folio_add_new_anon_rmap(copy, vma, address, RMAP_EXCLUSIVE);
		folio_add_lru_vma(copy, vma);
		set_pte_at(mm, address, ptep, nuksm_pte_of(copy, vma, swapped));
		nuksm_put_slot(folio, softleaf_from_pte(swapped));
		mapped = true;
	}
	pte_unmap_unlock(ptep, ptl);
	return mapped;
}

/*
 * What was read from swap, and nobody maps, goes if nobody needs it in swap either, or if it was
 * read just now: whoever pays for it is not to do so any longer, nor to see in its cgroup when
 * others read it back. What zswap had stays, as it has it no more; and what took longer to read,
 * as many may wait for it.
 *
 * Context: the folio is locked, and the caller has a reference.
 */
static void nuksm_drop_swapped(struct folio *folio)
{
	if (folio_mapped(folio))
		return;
	/* What is on its way to the LRU has a reference, and on the LRU it must not be */
	if (nuksm_stop.read && !folio_test_lru(folio))
		lru_add_drain();
	if (folio_free_swap(folio) || !nuksm_stop.read)
		return;
	if (folio_test_writeback(folio) || !folio_isolate_lru(folio))
		return;
	folio_put(folio);
	if (remove_mapping(folio_mapping(folio), folio)) {
		/* It is freed: nothing may say that it is on a list */
		folio_clear_active(folio);
		folio_clear_unevictable(folio);
		return;
	}
	folio_get(folio);
	folio_putback_lru(folio);
}

/*
 * Gives the process a page of its own for the one that is paged out as @swapped, and has been
 * read into @folio. The folio is locked. Returns 1 if it got one, or an error.
 */
static int nuksm_copy_swapped(struct vm_area_struct *vma, unsigned long address,
			      pte_t swapped, struct folio *folio)
{
	softleaf_t entry = softleaf_from_pte(swapped);
	struct page *page = folio_file_page(folio, swp_offset(entry));
	struct folio *copy;
	bool mapped;

	if (!nuksm_is_cached(folio, entry) || !folio_test_uptodate(folio) ||
	    PageHWPoison(page))
		return -EBUSY;
	arch_swap_restore(folio_swap(entry, folio), folio);
	copy = nuksm_private_copy(page, vma, address);
	if (IS_ERR(copy))
		return PTR_ERR(copy);
	mapped = nuksm_map_swapped(vma, address, swapped, folio, copy);
	folio_put(copy);
	return mapped ? 1 : -EBUSY;
}

#else /* !CONFIG_SWAP */

static bool nuksm_is_shared_slot(pte_t pte)
{
	return false;
}

static struct folio *nuksm_get_swapped(struct vm_area_struct *vma, unsigned long address,
				       softleaf_t entry)
{
	return NULL;
}

static int nuksm_copy_swapped(struct vm_area_struct *vma, unsigned long address,
			      pte_t swapped, struct folio *folio)
{
	return -EBUSY;
}

static void nuksm_drop_swapped(struct folio *folio)
{
}

#endif /* CONFIG_SWAP */

/*
 * Is @page, which is mapped, one that others may have in swap? It goes back to their slot when
 * it is paged out again.
 */
static bool nuksm_has_slot(struct page *page)
{
	return PageAnon(page) && !PageAnonExclusive(page) &&
	       folio_test_swapcache(page_folio(page));
}

/* So many slots of who leaves are looked at for each page that may be passed. */
#define NUKSM_SLOTS_PER_PAGE	16

/* ksmd goes on where it is when others have had their turn. */
static bool nuksm_paused;

/* Nothing was done about an entry: may ksmd go on before others have had their turn? */
static bool nuksm_may_go_on(void)
{
	if (nuksm_passed >= nuksm_may_pass)
		nuksm_paused = true;
	else
		nuksm_passed++;
	return !nuksm_paused;
}

/* Is it not the end of the scan that no page was found? */
static bool nuksm_has_paused(void)
{
	bool paused = nuksm_paused;

	nuksm_paused = false;
	return paused;
}

/*
 * ksmd comes by an entry. Does it stop there for nuksm_unshare_slot()? What others have in
 * swap, too, and what is being moved, is known as leaving.
 *
 * Context: the lock of the page table.
 */
static bool nuksm_stops_at(struct vm_area_struct *vma, unsigned long address, pte_t pte)
{
	static unsigned int slots;
	struct page *page;
	softleaf_t entry;

	if (!nuksm_stay.leaves || pte_none(pte) ||
	    address < nuksm_stay.from || address > nuksm_stay.to)
		return false;
	nuksm_stop = (struct nuksm_stop) { .pte = pte };
	if (pte_present(pte)) {
		page = vm_normal_page(vma, address, pte);
		if (!page || !nuksm_has_slot(page) || folio_test_ksm(page_folio(page)))
			return false;
		nuksm_stop.folio = page_folio(page);
		folio_get(nuksm_stop.folio);
		return true;
	}
	entry = softleaf_from_pte(pte);
	if (softleaf_is_migration_read(entry) && folio_test_anon(softleaf_to_folio(entry)))
		nuksm_keep(address);
	if (!softleaf_is_swap(entry))
		return false;
	return nuksm_is_shared_slot(pte) ||
	       (++slots % NUKSM_SLOTS_PER_PAGE == 0 && !nuksm_may_go_on());
}

/*
 * The page is mapped. Nobody else has it, nor its slot any more, or the process gets another
 * one. Returns 1 then, 0 if nobody has, or an error.
 */
static int nuksm_leave_slot(struct vm_area_struct *vma, unsigned long address,
			    struct folio *folio)
{
	if (folio_mapcount(folio) == 1 &&
	    (!folio_test_swapcache(folio) || folio_free_swap(folio)))
		return 0;
	return nuksm_give_copy(vma, address, pte_page(nuksm_stop.pte));
}

/*
 * ksmd has stopped at an entry: the process gets a page of its own there, whose slot nobody
 * else has. Nobody waits for memory, nor for what has to be read. Returns whether it has one.
 */
static bool nuksm_unshare_slot(struct vm_area_struct *vma, unsigned long address)
{
	struct folio *folio = nuksm_stop.folio;
	int unshared = -EBUSY;

	if (nuksm_paused)
		return false;
	nuksm_prefer_node(nuksm_settled_on(vma->vm_mm));
	/* What is read waits in this CPU's batch, and is to be dropped from there */
	migrate_disable();
	if (!folio && nuksm_has_room(vma->vm_mm))
		folio = nuksm_get_swapped(vma, address, softleaf_from_pte(nuksm_stop.pte));
	if (folio && folio_trylock(folio)) {
		unshared = nuksm_stop.folio ?
				   nuksm_leave_slot(vma, address, folio) :
				   nuksm_copy_swapped(vma, address, nuksm_stop.pte, folio);
		if (!nuksm_stop.folio && folio_test_swapcache(folio))
			nuksm_drop_swapped(folio);
		folio_unlock(folio);
	}
	/* What is still being read shall be there in the next scan */
	if (folio && unshared < 0)
		folio_mark_accessed(folio);
	if (folio)
		folio_put(folio);
	migrate_enable();
	nuksm_take_back();
	nuksm_prefer_node(NUMA_NO_NODE);
	if (unshared < 0)
		nuksm_keep(address);
	else
		nuksm_count(&nuksm_domain_unmerged, unshared);
	return unshared >= 0;
}

/*
 * Is what is at @address merged, or may others have it in swap? What is being moved counts, as
 * who asks waits for that.
 *
 * Context: the lock of the page table.
 */
static bool nuksm_may_be_shared(struct vm_area_struct *vma, unsigned long address, pte_t pte)
{
	softleaf_t entry;
	struct page *page;

	if (pte_none(pte))
		return false;
	if (pte_present(pte)) {
		page = vm_normal_page(vma, address, pte);
		return page && (folio_test_ksm(page_folio(page)) || nuksm_has_slot(page));
	}
	entry = softleaf_from_pte(pte);
	if (softleaf_is_migration_read(entry))
		return folio_test_anon(softleaf_to_folio(entry));
	return softleaf_is_swap(entry) && nuksm_is_shared_slot(pte);
}

/* Stops at the first one. Its address is for *@walk->private. */
static int nuksm_find_shared(pmd_t *pmd, unsigned long address, unsigned long end,
			     struct mm_walk *walk)
{
	unsigned long *where = walk->private;
	pte_t *first, *ptep;
	spinlock_t *ptl; /* of the page table */
	int found = 0;

	first = pte_offset_map_lock(walk->mm, pmd, address, &ptl);
	if (!first)
		return 0;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	for (ptep = first; address < end && !found; ptep++, address += PAGE_SIZE) {
		found = nuksm_may_be_shared(walk->vma, address, ptep_get(ptep));
		if (found)
			*where = address;
	}
	pte_unmap_unlock(first, ptl);
	return found;
}

static const struct mm_walk_ops nuksm_find_shared_ops = {
	.pmd_entry = nuksm_find_shared,
	.walk_lock = PGWALK_WRLOCK,
};

/*
 * A part of an area will not be mergeable any more, and what was merged there is un-merged.
 * So is what was paged out before: ksmd will not come there when the process leaves its
 * domain. It is the process itself that asks, so it may wait for its pages.
 *
 * Context: the mmap_lock for writing; not ksm_thread_mutex.
 *
 * Returns 0; -ENOMEM, -ERESTARTSYS, or -EBUSY if some could not be read, by the process at
 * least: that part has to stay mergeable.
 */
static int nuksm_unmerge_swapped(struct vm_area_struct *vma, unsigned long start,
				 unsigned long end)
{
	const struct mm_walk_ops *ops = &nuksm_find_shared_ops;
	vm_fault_t fault;
	int err = 0;

	if (!READ_ONCE(nuksm_has_domains))
		return 0;
	while (start < end && walk_page_range_vma(vma, start, end, ops, &start) > 0) {
		if (signal_pending(current))
			return -ERESTARTSYS;
		cond_resched();
		/* Maps it, or if it is mapped already, copies it: asked for until it is both */
		fault = handle_mm_fault(vma, start, FAULT_FLAG_UNSHARE | FAULT_FLAG_REMOTE,
					NULL);
		if (fault & VM_FAULT_OOM)
			return -ENOMEM;
		if (!(fault & VM_FAULT_ERROR))
			continue;
		if (walk_page_range_vma(vma, start, start + PAGE_SIZE, ops, &start) > 0)
			err = -EBUSY;
		start += PAGE_SIZE;
	}
	return err;
}

#else /* !CONFIG_NUKSM_DOMAINS */

static inline bool nuksm_stops_at(struct vm_area_struct *vma, unsigned long address,
				  pte_t pte)
{
	return false;
}

static inline bool nuksm_unshare_slot(struct vm_area_struct *vma, unsigned long address)
{
	return false;
}

static inline bool nuksm_may_go_on(void)
{
	return true;
}

static inline bool nuksm_has_paused(void)
{
	return false;
}

/* No function: the compiler would make other code of stock's. */
#define nuksm_unmerge_swapped(...)	0

#endif /* CONFIG_NUKSM_DOMAINS */
#endif /* _MM_NUKSM_SWAPPED_H */
