/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and the bits of page tables that processors set: which pages were accessed,
 * and which were written to. ksmd takes them, and gives them back to others who ask.
 *
 * Included by mm/ksm.c, whose knobs are private to it. Unless it says otherwise,
 * all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_BITS_H
#define _MM_NUKSM_BITS_H

#ifdef CONFIG_NUKSM

#include <linux/bitmap.h>
#include <linux/hugetlb.h> /* for flush_tlb_range() */
#include <linux/swap.h>

/* Is there anything to decide, and is it for nuKSM to decide it? */
static bool nuksm_places(void)
{
#ifdef CONFIG_NUKSM_PLACEMENT
	return READ_ONCE(nuksm_placement) != NUKSM_FIRST &&
	       ksm_merge_across_nodes && nr_online_nodes > 1;
#else
	return false;
#endif
}

/* Accessed bits were cleared, and the TLB of the process that is being scanned does not know. */
static bool nuksm_tlb_is_stale;

/* Contents decide where a page is filed with the other index: all are read there. */
static bool nuksm_tracks_writes(void)
{
	return nuksm_by_checksum() && !READ_ONCE(nuksm_read_all);
}

/*
 * Does ksmd take the accessed bits of a process? It does for placement, and if a
 * guest may have written to what it used.
 */
static bool nuksm_takes_young(struct mm_struct *mm)
{
	return nuksm_places() || (nuksm_tracks_writes() && mm_has_notifiers(mm));
}

/**
 * struct nuksm_seen - what ksmd saw of a process in the scan that is going on
 * @young: that of the page which is being visited was
 * @block: address of the last block of pages that share an accessed bit, or 1
 * @touched: what that bit said before it was cleared
 */
struct nuksm_seen {
	bool young;
	unsigned long block;
	bool touched;
};

static struct nuksm_seen nuksm_seen = { .block = 1 };

static void nuksm_take_young(struct folio *folio, bool young)
{
	if (young)
		nuksm_was_used(folio);
	nuksm_seen.young = young;
	nuksm_tlb_is_stale |= young;
}

/*
 * One bit tells for a whole block of pages: the first of them to be visited in a
 * scan clears it, and the others go by what that one saw.
 */
static bool __maybe_unused nuksm_seen_before(unsigned long block)
{
	if (nuksm_seen.block == block)
		return true;
	nuksm_seen.block = block;
	nuksm_seen.touched = false;
	return false;
}

/*
 * Was the page used through this mapping since ksmd came by the last time?
 * Clears the bit that tells, but leaves the TLB to nuksm_leave_mm().
 *
 * Context: the lock of the page table is held.
 */
static bool nuksm_test_touched(struct vm_area_struct *vma, unsigned long addr,
			       pte_t *ptep, struct folio *folio)
{
	bool touched;

	/* Merged pages are for nuksm_begin_look() */
	if (!nuksm_takes_young(vma->vm_mm) || folio_test_ksm(folio))
		return false;
	touched = test_and_clear_young_ptes_notify(vma, addr, ptep, 1);
	nuksm_take_young(folio, touched);
#ifdef CONFIG_ARM64_CONTPTE
	/* There, clearing one entry of a large folio may clear its neighbours. */
	if (folio_test_large(folio)) {
		nuksm_seen_before(ALIGN_DOWN(addr, CONT_PTE_SIZE));
		nuksm_seen.touched |= touched;
		return nuksm_seen.touched;
	}
#endif
	return touched;
}

/* The same for a huge page, which has one bit for all its pages. */
static bool nuksm_test_touched_huge(struct vm_area_struct *vma,
				    unsigned long addr, pmd_t *pmdp,
				    struct folio *folio)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	unsigned long block = addr & PMD_MASK;

	if (!nuksm_takes_young(vma->vm_mm))
		return false;
	nuksm_seen.young = false;
	if (!nuksm_seen_before(block)) {
		nuksm_seen.touched =
			pmdp_test_and_clear_young_notify(vma, block, pmdp);
		nuksm_take_young(folio, nuksm_seen.touched);
	}
	return nuksm_seen.touched;
#else
	return false;
#endif
}

/*
 * ksmd is done with the page for this scan. Not before, as what promotes a page
 * holds it for a while, and a page that somebody holds is not merged.
 */
static void nuksm_visited(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (nuksm_seen.young && folio_mapped(folio)) {
		migrate_disable();
		nuksm_promote(folio);
		lru_add_drain();
		migrate_enable();
	}
	nuksm_seen.young = false;
}

/*
 * A new page table entry is marked as accessed. One that merging made is not
 * used yet, and would look hot at ksmd's next visit. All others shall see the
 * page as they would without nuKSM.
 */
static pte_t nuksm_merged_pte(pte_t pte, struct folio *kfolio)
{
	if (!nuksm_places())
		return pte;
	nuksm_was_used(kfolio);
	return pte_mkold(pte);
}

/**
 * enum nuksm_writes - what ksmd saw of a page that is not merged when it came by
 * @NUKSM_NEW: it did not yet
 * @NUKSM_UNWRITTEN: nobody had written to it
 * @NUKSM_WRITTEN: somebody had, or may have
 * @NUKSM_BROKEN: somebody had, and so it was in all scans since it left a merged page
 */
enum nuksm_writes {
	NUKSM_NEW,
	NUKSM_UNWRITTEN,
	NUKSM_WRITTEN,
	NUKSM_BROKEN,
};

/**
 * struct nuksm_writing - what was written to in the process that is being scanned
 * @now: enum nuksm_writes, of the page that is being visited
 * @before: what it was at the visit before
 * @seen: a dirty bit said so, where else it may have been written to
 * @shows: what is written from now on will be seen
 * @taken: up to where dirty bits were taken from the page tables
 * @dirty: those of the last page table, before they were cleared
 * @block: address of the last huge page, or 1
 * @block_written: may it have been written to, when ksmd came to it?
 * @block_seen: its bit, before it was cleared, said so
 * @unkept: the scan in which sums that were kept in the one before do not count
 */
struct nuksm_writing {
	u8 now;
	u8 before;
	bool seen;
	bool shows;
	unsigned long taken;
	DECLARE_BITMAP(dirty, MAX_PTRS_PER_PTE);
	unsigned long block;
	bool block_written;
	bool block_seen;
	unsigned long unkept;
};

static struct nuksm_writing nuksm_writing = { .block = 1 };

/* May it be written to without a page table's saying so? */
static bool nuksm_is_open(struct folio *folio)
{
	if (folio_test_swapcache(folio))
		return true;
	if (folio_test_large(folio))
		return folio_maybe_dma_pinned(folio);
	return folio_ref_count(folio) != folio_mapcount(folio);
}

/*
 * Does a dirty bit say more than that somebody wrote to the page? It says that a page
 * which was given up by MADV_FREE is in use again, and on a shadow stack it belongs to
 * what makes the entry one. Such bits stay: the page counts as written to. So do those
 * of open pages: one may be about to be given up, and those in the swap cache should be
 * locked by who marks them as dirty.
 */
static bool nuksm_dirty_stays(struct vm_area_struct *vma, struct folio *folio)
{
	return !folio_test_swapbacked(folio) || nuksm_is_open(folio) ||
	       (vma->vm_flags & VM_SHADOW_STACK);
}

/*
 * Is PG_dirty there, where ksmd left what it took? It is not if the page came from
 * swap past the swap cache, perhaps to the frame that it had, and may have been
 * written to before it went. It is marked then, unless it was given up, or others go
 * by the same mark.
 */
static bool nuksm_is_marked(struct folio *folio)
{
	if (folio_test_dirty(folio))
		return true;
	if (folio_test_swapbacked(folio) && !folio_test_large(folio))
		folio_mark_dirty(folio);
	return false;
}

/* Takes the dirty bit of an entry, and leaves it with the page for reclaim. */
static bool nuksm_take_dirty(struct vm_area_struct *vma, unsigned long addr,
			     pte_t *ptep)
{
	pte_t pte = ptep_get(ptep);
	struct folio *folio;
	struct page *page;

	if (!pte_present(pte) || !pte_dirty(pte))
		return false;
	page = vm_normal_page(vma, addr, pte);
	if (!page)
		return false;
	folio = page_folio(page);
	if (!folio_test_anon(folio) || folio_test_ksm(folio) ||
	    nuksm_dirty_stays(vma, folio))
		return false;
	pte = ptep_get_and_clear(vma->vm_mm, addr, ptep);
	set_pte_at(vma->vm_mm, addr, ptep, pte_mkclean(pte));
	folio_mark_dirty(folio);
	return true;
}

/*
 * ksmd has come to a page table, or goes on there: takes the dirty bits of all
 * entries from @addr to @end, once in a scan, with one flush of the TLB. That must be
 * done before the lock is dropped: reclaim takes a clean entry to mean that nobody can
 * write to the page once the entry is gone, and begins to write it out before it
 * flushes the TLB.
 *
 * Context: the lock of the page table is held.
 */
static void nuksm_take_dirty_bits(struct vm_area_struct *vma, unsigned long addr,
				  unsigned long end, pte_t *ptep)
{
	unsigned long first = end, last = addr;

	if (addr < nuksm_writing.taken || !nuksm_tracks_writes())
		return;
	nuksm_writing.taken = end;
	for (; addr < end; addr += PAGE_SIZE, ptep++) {
		bool dirty = nuksm_take_dirty(vma, addr, ptep);

		__assign_bit(pte_index(addr), nuksm_writing.dirty, dirty);
		if (!dirty)
			continue;
		first = min(first, addr);
		last = addr + PAGE_SIZE;
	}
	if (first < last)
		flush_tlb_range(vma, first, last);
}

/* Was a huge page there in this scan, of which it is a part now? */
static bool nuksm_is_in_written_block(unsigned long addr)
{
	return nuksm_writing.block == (addr & PMD_MASK) &&
	       nuksm_writing.block_written;
}

/*
 * Did anybody write to the page since ksmd came by the last time? What guests write
 * does not show in the page table of their process: what they use may have been
 * written to. @touched is what nuksm_test_touched() said, which asks them.
 *
 * Context: the lock of the page table is held.
 */
static void nuksm_test_written(struct vm_area_struct *vma, unsigned long addr,
			       pte_t pte, struct folio *folio, bool touched)
{
	bool tracks = nuksm_tracks_writes() && !folio_test_ksm(folio);

	nuksm_writing.seen = tracks &&
			     (test_bit(pte_index(addr), nuksm_writing.dirty) ||
			      (pte_dirty(pte) && !nuksm_dirty_stays(vma, folio)));
	nuksm_writing.shows = tracks && !pte_dirty(pte) &&
			      !(touched && mm_has_notifiers(vma->vm_mm)) &&
			      !nuksm_is_in_written_block(addr) &&
			      !nuksm_is_open(folio) && nuksm_is_marked(folio);
	nuksm_writing.now = folio_test_ksm(folio) ||
			    (nuksm_writing.shows && !nuksm_writing.seen) ?
				    NUKSM_UNWRITTEN : NUKSM_WRITTEN;
}

/* The same for a huge page, which has one bit for all its pages. */
static void nuksm_test_written_huge(struct vm_area_struct *vma,
				    unsigned long addr, pmd_t *pmdp,
				    struct folio *folio, bool touched)
{
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	unsigned long block = addr & PMD_MASK;

	nuksm_writing.now = NUKSM_WRITTEN;
	nuksm_writing.seen = false;
	nuksm_writing.shows = false;
	if (!nuksm_tracks_writes())
		return;

	if (nuksm_writing.block != block) {
		pmd_t pmd = pmdp_get(pmdp);

		nuksm_writing.block = block;
		nuksm_writing.block_written = pmd_dirty(pmd) ||
					      !folio_test_dirty(folio);
		nuksm_writing.block_seen = pmd_dirty(pmd) &&
					   !nuksm_dirty_stays(vma, folio);
		if (nuksm_writing.block_seen) {
			pmd = pmdp_invalidate(vma, block, pmdp);
			set_pmd_at(vma->vm_mm, block, pmdp, pmd_mkclean(pmd));
			folio_mark_dirty(folio);
		}
	}
	nuksm_writing.seen = nuksm_writing.block_seen;
	nuksm_writing.shows = (nuksm_writing.block_seen ||
			       !nuksm_writing.block_written) &&
			      !(touched && mm_has_notifiers(vma->vm_mm)) &&
			      !nuksm_is_open(folio);
	if (nuksm_writing.shows && !nuksm_writing.seen)
		nuksm_writing.now = NUKSM_UNWRITTEN;
#endif
}

/*
 * ksmd is done with @mm for this scan. While the TLB holds a translation, uses
 * of the page do not set the accessed bit anew, and a small working set stays in
 * there from scan to scan: one flush for each process and scan makes them show.
 */
static void nuksm_leave_mm(struct mm_struct *mm)
{
	if (nuksm_tlb_is_stale)
		flush_tlb_mm(mm);
	nuksm_tlb_is_stale = false;
	nuksm_seen.block = 1;
	nuksm_writing.taken = 0;
	nuksm_writing.block = 1;
}

/*
 * This scan will begin anew, perhaps at once: bits were taken of pages that it did not
 * come to, and are forgotten.
 */
static void nuksm_forget_sums(void)
{
	nuksm_writing.unkept = ksm_scan.seqnr;
}

/*
 * To be merged, the page was protected, and its dirty bit with that; then it was not
 * merged. Somebody may have written to it since it was summed up.
 */
static void nuksm_note_failure(struct ksm_rmap_item *rmap_item, int err)
{
	if (!err)
		return;
	nuksm_writing.shows = false;
	if (rmap_item->writes == NUKSM_UNWRITTEN)
		rmap_item->writes = NUKSM_WRITTEN;
}

#else /* !CONFIG_NUKSM */

static inline void nuksm_note_failure(struct ksm_rmap_item *rmap_item, int err)
{
}

static inline void nuksm_visited(struct page *page)
{
}

static inline void nuksm_leave_mm(struct mm_struct *mm)
{
}

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_BITS_H */
