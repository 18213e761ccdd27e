/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How ksmd waits for the mmap_lock of a process: without ksm_thread_mutex, or not at all. Who
 * keeps his own, or a lock that others have to wait for who have his, would else stop looks
 * and whoever writes to sysfs, and for as long as he likes.
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

/* ksmd is at a process. Returns whether it is locked; if not, nuksm_wait_to_scan(). */
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
 * Waits in line, as whoever locks a process for writing all the time has to let ksmd in; with
 * the lock, others are not waited for, who may wait for it. Lets go of ksm_thread_mutex
 * meanwhile: ksmd holds no page, and nothing else is locked. Returns whether it has to go on.
 */
static bool nuksm_wait_to_scan(void)
{
	struct mm_struct *mm = nuksm_waits_for;

	if (!mm)
		return true;
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

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_WAITS_H */
