/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's looks at one mapping of a merged page: its accessed bit is cleared, and read some
 * time later; see looks.h.
 *
 * Included by mm/ksm.c, whose types and functions are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_ONE_LOOK_H
#define _MM_NUKSM_ONE_LOOK_H

/*
 * The page table of a mapping, or NULL. It is looked for in an area of KSM's only: where
 * there is none, page tables may be freed while others read the mmap_lock.
 *
 * Context: the mmap_lock is held.
 */
static pmd_t *nuksm_table_of(const struct ksm_rmap_item *item,
			     struct vm_area_struct **vma)
{
	*vma = find_mergeable_vma(item->mm, item->address & PAGE_MASK);
	return *vma ? mm_find_pmd(item->mm, item->address & PAGE_MASK) : NULL;
}

/* Is the merged page there? */
static bool nuksm_is_there(const struct ksm_rmap_item *item, pte_t pte)
{
	return pte_present(pte) && pte_pfn(pte) == READ_ONCE(item->head->kpfn);
}

/*
 * Clears the accessed bit of a mapping, and gives what it said to others who ask. Returns
 * whether the page is there. *@young: the bit was set.
 */
static bool nuksm_clear_young(struct ksm_rmap_item *item, bool *young)
{
	unsigned long address = item->address & PAGE_MASK;
	struct vm_area_struct *vma;
	pmd_t *pmd = nuksm_table_of(item, &vma);
	spinlock_t *ptl; /* of the page table */
	bool there;
	pte_t *ptep;

	*young = false;
	if (!pmd)
		return false;
	ptep = pte_offset_map_lock(item->mm, pmd, address, &ptl);
	if (!ptep)
		return false;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	there = nuksm_is_there(item, ptep_get(ptep));
	if (there)
		*young = test_and_clear_young_ptes_notify(vma, address, ptep, 1);
	if (*young) {
		struct folio *folio = pfn_folio(pte_pfn(ptep_get(ptep)));

		nuksm_was_used(folio);
		nuksm_promote(folio);
	}
	pte_unmap_unlock(ptep, ptl);
	return there;
}

/*
 * The first look at a mapping. A page that is not there is not used, nor is one of a
 * process whose page tables cannot be seen.
 */
static bool nuksm_begin_look(struct ksm_rmap_item *item, bool locked)
{
	bool young = false;

	if (locked && nuksm_clear_young(item, &young)) {
		WRITE_ONCE(item->address, item->address | NUKSM_LOOKED_FLAG);
	} else {
		/* No glance says anything else, nor does a look that was not ended */
		WRITE_ONCE(item->address,
			   item->address & ~(NUKSM_GLANCED_FLAG | NUKSM_LOOKED_FLAG));
		nuksm_note_look(item, false);
	}
	return young;
}

/*
 * What processors remember of the page tables of a process would keep them from setting
 * accessed bits. The processors of a KVM guest remember page tables of their own, which
 * are flushed when one of its pages is taken away; the guest finds it again. Nobody may
 * begin to be notified between the two halves of that, hence the lock.
 */
static void nuksm_flush(struct mm_struct *mm, unsigned long address)
{
	struct mmu_notifier_range range;

	flush_tlb_mm(mm);
	if (!mmap_read_trylock(mm))
		return;
	mmu_notifier_range_init(&range, MMU_NOTIFY_CLEAR, 0, mm, address,
				address + PAGE_SIZE);
	mmu_notifier_invalidate_range_start(&range);
	mmu_notifier_invalidate_range_end(&range);
	mmap_read_unlock(mm);
}

/* Where the memory of the process that a look is at may be; under ksm_thread_mutex. */
static nodemask_t nuksm_looked_memory;

/*
 * Where a mapping's home is to be: where its process has moved to, unless its memory, or the
 * area's, shall be elsewhere; or where it is. The area's policy alone, which anybody may change
 * all the time, moves no home. If the process may have no memory where @folio is, which has to
 * leave, there has to be room, too.
 */
static int nuksm_home_for(const struct ksm_rmap_item *item, const struct folio *folio,
			  struct mempolicy *policy)
{
	int nid = nuksm_settled_on(item->mm);
	bool moves = nid != NUMA_NO_NODE && node_isset(nid, nuksm_looked_memory) &&
		     nuksm_allows(policy, nid) &&
		     (node_isset(folio_nid(folio), nuksm_looked_memory) ||
		      nuksm_node_has_room(nid));

	return moves ? nid : item->home;
}

/**
 * nuksm_stays_put() - is a page left where it is, though its process's memory is moved?
 * @folio: mapped, by a page table whose lock is held
 *
 * Who writes to cpuset.mems of a cgroup has a thread of the kernel move all pages of its
 * processes, what others share included. A merged page that is somebody else's, too, is not moved
 * for that: its sharers who are in that cgroup have another home when ksmd comes by, see
 * nuksm_house(), and where it belongs then, all of them say.
 *
 * Context: any. Who may move what others share, by a system call, does.
 */
bool nuksm_stays_put(const struct folio *folio)
{
	if (!(current->flags & PF_KTHREAD) || !folio_test_ksm(folio))
		return false;
	/* data_race() as a page that was moved all the same is asked again, see nuksm_moved() */
	return data_race((ksm_run & KSM_RUN_MERGE) && nuksm_places());
}

/* Notes what a look saw of a mapping. */
static void nuksm_note_use_of(struct ksm_rmap_item *item, bool touched, int nid)
{
	if (!nuksm_is_noted())
		return;
	if (touched)
		nuksm_count(nid == item->home ? &nuksm_look_stats.used_local :
						&nuksm_look_stats.used_remote, 1);
	nuksm_note_look(item, touched);
}

/*
 * Was the merged page used since, and where is it? If its process has moved, so has its home
 * from now on, and *@moved says so; not without @moved. Returns the node, or NUMA_NO_NODE if it is
 * not there.
 */
static int nuksm_look_again(struct ksm_rmap_item *item, bool *touched, bool *moved)
{
	unsigned long address = item->address & PAGE_MASK;
	struct vm_area_struct *vma;
	pmd_t *pmd = nuksm_table_of(item, &vma);
	spinlock_t *ptl; /* of the page table */
	int nid = NUMA_NO_NODE;
	pte_t *ptep, pte;

	*touched = false;
	if (!pmd)
		return NUMA_NO_NODE;
	ptep = pte_offset_map_lock(item->mm, pmd, address, &ptl);
	if (!ptep)
		return NUMA_NO_NODE;
	__acquire(RCU); /* by pte_offset_map_lock(), unseen by sparse */
	pte = ptep_get(ptep);
	if (nuksm_is_there(item, pte)) {
		struct folio *folio = pfn_folio(pte_pfn(pte));

		*touched = pte_young(pte) ||
			   mmu_notifier_test_young(item->mm, address);
		if (moved)
			*moved = nuksm_rehome(item, folio,
					      nuksm_home_for(item, folio, vma->vm_policy));
		nid = folio_nid(folio);
	}
	pte_unmap_unlock(ptep, ptl);
	return nid;
}

/* The glance between the two looks, at a mapping that the first one has looked at. */
static void nuksm_glance_at_one(struct ksm_rmap_item *item, bool locked)
{
	unsigned long address = item->address & ~NUKSM_GLANCED_FLAG;
	bool touched = false;

	if (locked)
		nuksm_look_again(item, &touched, NULL);
	WRITE_ONCE(item->address, touched ? address | NUKSM_GLANCED_FLAG : address);
}

/* The second look at a mapping. Returns whether there is a reason to ask the page. */
static bool nuksm_end_look(struct ksm_rmap_item *item, bool locked,
			   struct nuksm_question *question)
{
	bool touched = false, moved = false;
	int nid = NUMA_NO_NODE;

	if (locked)
		nid = nuksm_look_again(item, &touched, &moved);
	if (item->address & NUKSM_LOOKED_FLAG) {
		WRITE_ONCE(item->address, item->address & ~NUKSM_LOOKED_FLAG);
		nuksm_note_use_of(item, touched, nid);
	}

	question->stable_node = item->head;
	question->strictly = moved || nuksm_looks.replaces;
	if (item->head->hlist.first == &item->hlist)
		return true;
	/* To ask many sharers for each of them takes too long: ksmd will, once */
	if (moved && item->head->rmap_hlist_len > NUKSM_ALWAYS_ASK) {
		nuksm_want_asked(item->head);
		return false;
	}
	return moved;
}

#endif /* _MM_NUKSM_ONE_LOOK_H */
