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

/*
 * Gives @sharer a page of its own, where it had one before, and counts it in @unshared if
 * it was still there. Returns 0, or an error if it stays.
 */
static int __maybe_unused nuksm_unshare(struct ksm_rmap_item *sharer,
					unsigned long *unshared)
{
	struct mm_struct *mm = sharer->mm;
	struct vm_area_struct *vma;
	int err = 0;

#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_node(sharer->home);
#endif
	mmap_read_lock(mm);
	vma = find_mergeable_vma(mm, sharer->address);
	if (vma)
		err = nuksm_break_ksm(vma, sharer->address & PAGE_MASK);
	mmap_read_unlock(mm);
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_prefer_node(NUMA_NO_NODE);
#endif
	if (err)
		return err;
	remove_rmap_item_from_tree(sharer);
	if (vma)
		nuksm_count(unshared, 1);
	return 0;
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
		nuksm_prefer_node(rmap_item->home);
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
