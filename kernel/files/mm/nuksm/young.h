/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and the accessed bits of page tables: what ksmd takes from there, and
 * gives back to others who ask.
 *
 * Included by mm/ksm.c, whose knobs are private to it. Unless it says otherwise,
 * all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_YOUNG_H
#define _MM_NUKSM_YOUNG_H

#ifdef CONFIG_NUKSM_PLACEMENT

/* Is there anything to decide, and is it for nuKSM to decide it? */
static bool nuksm_places(void)
{
	return READ_ONCE(nuksm_placement) != NUKSM_FIRST &&
	       ksm_merge_across_nodes && nr_online_nodes > 1;
}

/**
 * struct nuksm_look - what ksmd saw of a process in the scan that is going on
 * @cleared: accessed bits were cleared, and the TLB does not know
 * @young: that of the page which is being visited was
 * @block: address of the last block of pages that share an accessed bit, or 1
 * @touched: what that bit said before it was cleared
 */
struct nuksm_look {
	bool cleared;
	bool young;
	unsigned long block;
	bool touched;
};

static struct nuksm_look nuksm_look = { .block = 1 };

static void nuksm_take_young(struct folio *folio, bool young)
{
	if (young)
		nuksm_was_used(folio);
	nuksm_look.young = young;
	nuksm_look.cleared |= young;
}

/*
 * One bit tells for a whole block of pages: the first of them to be visited in a
 * scan clears it, and the others go by what that one saw.
 */
static bool nuksm_seen_before(unsigned long block)
{
	if (nuksm_look.block == block)
		return true;
	nuksm_look.block = block;
	nuksm_look.touched = false;
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

	if (!nuksm_places())
		return false;
	touched = test_and_clear_young_ptes_notify(vma, addr, ptep, 1);
	nuksm_take_young(folio, touched);
#ifdef CONFIG_ARM64_CONTPTE
	/* There, clearing one entry of a large folio may clear its neighbours. */
	if (folio_test_large(folio)) {
		nuksm_seen_before(ALIGN_DOWN(addr, CONT_PTE_SIZE));
		nuksm_look.touched |= touched;
		return nuksm_look.touched;
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

	if (!nuksm_places())
		return false;
	nuksm_look.young = false;
	if (!nuksm_seen_before(block)) {
		nuksm_look.touched =
			pmdp_test_and_clear_young_notify(vma, block, pmdp);
		nuksm_take_young(folio, nuksm_look.touched);
	}
	return nuksm_look.touched;
#else
	return false;
#endif
}

/*
 * ksmd is done with @mm for this scan. While the TLB holds a translation, uses
 * of the page do not set the bit anew, and a small working set stays in there
 * from scan to scan: one flush for each process and scan makes it show.
 */
static void nuksm_leave_mm(struct mm_struct *mm)
{
	if (nuksm_look.cleared)
		flush_tlb_mm(mm);
	nuksm_look.cleared = false;
	nuksm_look.block = 1;
}

/*
 * ksmd is done with the page for this scan. Not before, as what promotes a page
 * holds it for a while, and a page that somebody holds is not merged.
 */
static void nuksm_visited(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (nuksm_look.young && folio_mapped(folio))
		nuksm_promote(folio);
	nuksm_look.young = false;
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

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline bool nuksm_test_touched(struct vm_area_struct *vma,
				      unsigned long addr, pte_t *ptep,
				      struct folio *folio)
{
	return false;
}

static inline bool nuksm_test_touched_huge(struct vm_area_struct *vma,
					   unsigned long addr, pmd_t *pmdp,
					   struct folio *folio)
{
	return false;
}

static inline void nuksm_leave_mm(struct mm_struct *mm)
{
}

static inline void nuksm_visited(struct page *page)
{
}

static inline pte_t nuksm_merged_pte(pte_t pte, struct folio *kfolio)
{
	return pte;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_YOUNG_H */
