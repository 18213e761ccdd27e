/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How ksmd waits for what tenants have: without ksm_thread_mutex, or not at all. Who keeps his
 * mmap_lock, the lock of a page, or one that others have to wait for who have these, would else
 * stop looks and whoever writes to sysfs, and for as long as he likes.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. All of it runs under
 * ksm_thread_mutex, but where it is said to be let go.
 */
#ifndef _MM_NUKSM_WAITS_H
#define _MM_NUKSM_WAITS_H

#ifdef CONFIG_NUKSM

/* Whose mmap_lock ksmd has to wait for before it goes on scanning; with a reference. */
static struct mm_struct *nuksm_waits_for;

/* Whose it has got by that. */
static struct mm_struct *nuksm_has_locked;

/* For a page of the process. If it cannot be locked, the page is not merged for now. */
static bool nuksm_lock_mm(struct mm_struct *mm)
{
	return mmap_read_trylock(mm);
}

/* ksmd is at a process. Returns whether it is locked; if not, nuksm_has_waited(). */
static bool nuksm_lock_to_scan(struct mm_struct *mm)
{
	if (nuksm_has_locked == mm) {
		nuksm_has_locked = NULL;
		return true;
	}
	if (mmap_read_trylock(mm))
		return true;
	mmgrab(mm);
	nuksm_waits_for = mm;
	return false;
}

/*
 * ksmd found no page. Was that because a process could not be locked? Waits for it in line, as
 * whoever locks it for writing all the time has to let ksmd in; with the lock, others are not
 * waited for, who may wait for it. Lets go of ksm_thread_mutex meanwhile: ksmd holds no page,
 * and nothing else is locked. Returns whether it has to go on where it was.
 */
static bool nuksm_has_waited(void)
{
	struct mm_struct *mm = nuksm_waits_for;

	if (!mm)
		return false;
	nuksm_waits_for = NULL;
	mutex_unlock(&ksm_thread_mutex);
	mmap_read_lock(mm);
	if (!mutex_trylock(&ksm_thread_mutex)) {
		mmap_read_unlock(mm);
		mutex_lock(&ksm_thread_mutex);
	} else if (ksm_run == KSM_RUN_MERGE && ksm_scan.mm_slot != &ksm_mm_head &&
		   ksm_scan.mm_slot->slot.mm == mm) {
		nuksm_has_locked = mm;
	} else {
		mmap_read_unlock(mm);
	}
	mmdrop(mm);
	wait_while_offlining();
	return ksm_run & KSM_RUN_MERGE;
}

/*
 * To take an item out of a merged page's list takes the lock of that page, which who moves or
 * reclaims it has while he waits for others. Threads of the kernel do not wait for him: the item
 * stays where it is for now. Who un-merges all does, and so does who takes the trees apart, when
 * nobody shares anything any more.
 */
#define nuksm_removal() \
	(current->flags & PF_KTHREAD ? KSM_GET_FOLIO_TRYLOCK : KSM_GET_FOLIO_LOCK)

/**
 * struct nuksm_stayed - what stayed that the process that ksmd is at has in another domain
 * @first: the first address
 * @last: the last one
 */
static struct nuksm_stayed {
	unsigned long first;
	unsigned long last;
} nuksm_stayed;

/* Has somebody the lock of the page that an item was to be taken from? */
static bool nuksm_is_busy(const struct folio *folio, const struct ksm_rmap_item *rmap_item)
{
	unsigned long address = rmap_item->address & PAGE_MASK;

	if (!IS_ERR(folio))
		return false;
	if (rmap_item->mm == ksm_scan.mm_slot->slot.mm &&
	    rmap_item->head->domain != ksm_scan.domain) {
		nuksm_stayed.first = min(nuksm_stayed.first, address);
		nuksm_stayed.last = max(nuksm_stayed.last, address);
	}
	return true;
}

/* An item was to be freed. Is it still filed? Then it stays in the process's list, too. */
static bool nuksm_keeps_item(struct ksm_rmap_item ***rmap_list, struct ksm_rmap_item *rmap_item)
{
	if (!(rmap_item->address & STABLE_FLAG))
		return false;
	**rmap_list = rmap_item;
	*rmap_list = &rmap_item->rmap_list;
	return true;
}

static bool nuksm_break(struct ksm_rmap_item *rmap_item);

#else /* !CONFIG_NUKSM */

static inline bool nuksm_lock_mm(struct mm_struct *mm)
{
	mmap_read_lock(mm);
	return true;
}

static inline bool nuksm_lock_to_scan(struct mm_struct *mm)
{
	mmap_read_lock(mm);
	return true;
}

#define nuksm_removal()		KSM_GET_FOLIO_LOCK

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_WAITS_H */
