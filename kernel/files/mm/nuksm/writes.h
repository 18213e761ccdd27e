/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and what is written: a page that nobody wrote to since it was summed up is
 * not read again.
 *
 * The dirty bits of page tables tell. ksmd takes them as it comes by, and leaves
 * them with the page, where reclaim looks for them, too. A page that was written to is
 * not read in the scan that finds it so, but in the next one, as it may be written to
 * again; what is read then holds until the bit is set again. If it was, the page is
 * read nonetheless, and two sums in a row have to be equal, as in stock. So is a page
 * that ksmd sees for the first time, and its sum is kept: if it is not written to until
 * the next scan, it is filed by that.
 *
 * What the bits do not show is written by the kernel on behalf of others, as by
 * process_vm_writev(), or by a guest whose TLB still has the translation. Each page
 * is therefore read once in so many scans. A sum that is out of date costs a late
 * merge: pages are merged by their contents, compared when they are protected.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_WRITES_H
#define _MM_NUKSM_WRITES_H

#ifdef CONFIG_NUKSM

#include <linux/jhash.h>

/* A page is read at least once in so many scans; fewer, if a guest has it. */
#define NUKSM_UNREAD_SCANS	512
#define NUKSM_UNREAD_BY_GUESTS	64

/*
 * At most so many are passed before those who wait for the mmap_lock have their turn;
 * fewer where each is asked for in a guest's page tables.
 */
#define NUKSM_MOST_PASSED	256
#define NUKSM_MOST_PASSED_BY_GUESTS	32

/*
 * How many pages may be passed before ksm_do_scan() has its turn, how many were, and
 * how many smart_scan was asked about.
 */
static unsigned int nuksm_may_pass, nuksm_passed, nuksm_skipped;

/*
 * Tells the page behind a mapping from others, mostly: it may be another one
 * without having been written to there, as by mremap(). Neighbours that changed places
 * with neighbours do not all look alike. Where stock notes in which scan an item was
 * filed, as that does not matter where trees outlast a scan.
 */
static unsigned long nuksm_tag(struct page *page, unsigned long seqnr)
{
	return nuksm_by_checksum() ? jhash_1word(page_to_pfn(page), nuksm_seed) :
				     seqnr;
}

/*
 * In &ksm_rmap_item.address, beside mm/ksm.c's flags and the page's tag: the page is not
 * filed, but &ksm_rmap_item.oldchecksum is its sum if nobody wrote to it since.
 */
#define NUKSM_SUMMED_FLAG	0x400

/* Of a mapping of a merged page the bit says something else, see heat.h. */
static bool nuksm_is_summed(const struct ksm_rmap_item *rmap_item)
{
	return (rmap_item->address & (NUKSM_SUMMED_FLAG | STABLE_FLAG)) ==
	       NUKSM_SUMMED_FLAG;
}

/* Is it the page that was there when the mapping was tagged? */
static bool nuksm_is_same(const struct ksm_rmap_item *rmap_item,
			  struct page *page)
{
	return !((rmap_item->address ^ nuksm_tag(page, 0)) & SEQNR_MASK);
}

/* Is the mapping's page filed, and the same page as then? */
static bool nuksm_is_filed(const struct ksm_rmap_item *rmap_item,
			   struct page *page)
{
	return (rmap_item->address & UNSTABLE_FLAG) &&
	       nuksm_is_same(rmap_item, page) &&
	       NUMA(rmap_item->nid) == get_kpfn_nid(page_to_pfn(page));
}

/* Is it this scan in which the page is read whatever the bits say? */
static bool nuksm_is_turn(const struct ksm_rmap_item *rmap_item)
{
	unsigned long turn = (rmap_item->address >> PAGE_SHIFT) + ksm_scan.seqnr;

	return !(turn % (mm_has_notifiers(rmap_item->mm) ? NUKSM_UNREAD_BY_GUESTS :
							   NUKSM_UNREAD_SCANS));
}

/*
 * Shall a page that is not merged not be read in this scan? It shall not if it is
 * filed and was not written to; nor if it was written to for the first time since it
 * was read, as more may follow; nor as long as somebody is seen to write to it who did
 * so when it was merged.
 */
static bool nuksm_is_left_alone(const struct ksm_rmap_item *rmap_item,
				struct page *page, u8 before)
{
	if (!nuksm_tracks_writes() || nuksm_is_turn(rmap_item))
		return false;
	if (before == NUKSM_UNWRITTEN)
		return nuksm_writing.now == NUKSM_WRITTEN ||
		       nuksm_is_filed(rmap_item, page);
	return before == NUKSM_BROKEN && nuksm_writing.seen;
}

/*
 * What there is to remember of it. A page that is read in its turn is read in the
 * next scan, too, if it is written to all the time: two sums are compared.
 */
static u8 nuksm_writes_of(const struct ksm_rmap_item *rmap_item,
			  struct folio *folio)
{
	bool broken = (rmap_item->address & STABLE_FLAG) ?
		      !folio_test_ksm(folio) : rmap_item->writes == NUKSM_BROKEN;

	return broken && nuksm_writing.seen && !nuksm_is_turn(rmap_item) ?
		       NUKSM_BROKEN : nuksm_writing.now;
}

/* Is the page merged, by this mapping, too, and filed where it is, in its domain? */
static bool nuksm_is_in_place(const struct ksm_rmap_item *rmap_item,
			      struct folio *folio)
{
	const struct ksm_stable_node *stable_node = folio_stable_node(folio);

	return (rmap_item->address & STABLE_FLAG) &&
	       rmap_item->head == stable_node &&
	       stable_node->head != &migrate_nodes &&
	       stable_node->domain == nuksm_filed_domain(rmap_item->mm) &&
	       NUMA(stable_node->nid) == get_kpfn_nid(folio_pfn(folio));
}

/* Notes what was seen of the page. A sum that was kept holds until it is written to. */
static void nuksm_note_visit(struct ksm_rmap_item *rmap_item, struct folio *folio)
{
	if (nuksm_is_summed(rmap_item) &&
	    (folio_test_ksm(folio) || nuksm_writing.now == NUKSM_WRITTEN))
		rmap_item->address &= PAGE_MASK;
	rmap_item->writes = nuksm_writes_of(rmap_item, folio);
}

/*
 * Is there nothing to be done about the page in this scan? Then it is passed, and the
 * next one is looked at.
 *
 * Context: the locks of the page table and of the mm are held.
 */
static bool nuksm_passes(struct vm_area_struct *vma, unsigned long addr,
			 struct page *page, bool touched)
{
	struct ksm_rmap_item *rmap_item = *ksm_scan.rmap_list;
	struct folio *folio = page_folio(page);

	if (!rmap_item || (rmap_item->address & PAGE_MASK) != addr || touched ||
	    nuksm_passed >= nuksm_may_pass || nuksm_is_leaving() ||
	    (nuksm_passed >= NUKSM_MOST_PASSED_BY_GUESTS &&
	     mm_has_notifiers(vma->vm_mm)))
		return false;
	prefetch(rmap_item->rmap_list);
	if (folio_test_ksm(folio)) {
		if (!nuksm_tracks_writes() ||
		    !nuksm_is_in_place(rmap_item, folio) ||
		    !nuksm_stays(rmap_item, vma))
			return false;
	} else if ((rmap_item->address & STABLE_FLAG) ||
		   !nuksm_is_left_alone(rmap_item, page, rmap_item->writes)) {
		return false;
	}
	nuksm_note_visit(rmap_item, folio);
	nuksm_note_use(rmap_item, folio, false);
	ksm_scan.rmap_list = &rmap_item->rmap_list;
	nuksm_passed++;
	return true;
}

/* ksmd came by a page that was not passed. Shall it not be read nonetheless? */
static bool nuksm_leaves_unread(struct ksm_rmap_item *rmap_item,
				struct page *page)
{
	return !folio_test_ksm(page_folio(page)) &&
	       nuksm_is_left_alone(rmap_item, page, nuksm_writing.before);
}

/*
 * The page was just summed up, and will not be filed in this scan. Its sum is kept if
 * all that is written from now on will be seen.
 */
static void nuksm_keep_sum(struct ksm_rmap_item *rmap_item, struct page *page)
{
	if (nuksm_writing.shows)
		rmap_item->address |= NUKSM_SUMMED_FLAG |
				      (nuksm_tag(page, 0) & SEQNR_MASK);
}

/* The page's checksum: the one that was kept, or what it takes to read the page. */
static u32 nuksm_sum(struct ksm_rmap_item *rmap_item, struct page *page)
{
	bool kept = nuksm_is_summed(rmap_item) && nuksm_is_same(rmap_item, page) &&
		    !nuksm_is_turn(rmap_item) &&
		    ksm_scan.seqnr != nuksm_writing.unkept;

	rmap_item->address &= PAGE_MASK;
	return kept ? rmap_item->oldchecksum : calc_checksum(page);
}

/*
 * Is this the first visit, and may the page have been written to just now? It is
 * merged with one that is filed already, but filed only when it was seen again.
 */
static bool nuksm_is_first_sight(void)
{
	return nuksm_tracks_writes() && nuksm_writing.before == NUKSM_NEW &&
	       nuksm_writing.now == NUKSM_WRITTEN;
}

/*
 * May smart_scan leave the page out, as it was in vain so often? Only if it would be
 * read, and in the next scan again: as it is written to all the time, or as it cannot
 * be filed, like all but one of the mappings that share it after a fork. Not in its
 * turn; nor if too many were left out while the mmap_lock was held.
 */
static bool nuksm_may_be_skipped(struct ksm_rmap_item *rmap_item,
				 struct page *page)
{
	/* One that could not be taken from its page has no age */
	if (rmap_item->address & STABLE_FLAG)
		return false;
	return !nuksm_tracks_writes() ||
	       ((nuksm_writing.now == NUKSM_WRITTEN ||
		 nuksm_writing.before == NUKSM_UNWRITTEN) &&
		!nuksm_is_turn(rmap_item) && !nuksm_leaves_unread(rmap_item, page) &&
		nuksm_skipped++ < NUKSM_MOST_PASSED);
}

/*
 * The page's checksum is not what it was in the scan before. That is no reason to
 * wait for the next one if nobody wrote to it since, nor if ksmd has not seen it
 * before: it is merged at once with one that is filed already, if there is any. A huge
 * page, which would have to be split, is not; nor a page of zeros, as it was perhaps
 * just got, and will be filled.
 */
static bool nuksm_may_merge(const struct ksm_rmap_item *rmap_item,
			    struct page *page)
{
	return nuksm_tracks_writes() &&
	       (nuksm_writing.now == NUKSM_UNWRITTEN ||
		(nuksm_writing.before == NUKSM_NEW &&
		 (ksm_pages_shared || ksm_pages_unshared) &&
		 rmap_item->oldchecksum != zero_checksum &&
		 !folio_test_large(page_folio(page))));
}

/* ksmd came by a page that was not passed. */
static void nuksm_note_writes(struct ksm_rmap_item *rmap_item,
			      struct folio *folio)
{
	nuksm_writing.before = rmap_item->writes;
	nuksm_note_visit(rmap_item, folio);
	if ((rmap_item->address & STABLE_FLAG) && !folio_test_ksm(folio))
		remove_rmap_item_from_tree(rmap_item);
}

/* Before the next page is looked for: of @pages that may still be scanned. */
static void nuksm_may_pass_pages(unsigned int pages)
{
	nuksm_passed = 0;
	nuksm_skipped = 0;
	nuksm_may_pass = min(pages, NUKSM_MOST_PASSED);
}

/* Afterwards: how many pages may still be scanned. */
static unsigned int nuksm_charge_passed(unsigned int pages)
{
	ksm_pages_scanned += nuksm_passed;
	return pages - nuksm_passed;
}

#else /* !CONFIG_NUKSM */

static inline unsigned long nuksm_tag(struct page *page, unsigned long seqnr)
{
	return seqnr;
}

/* No function: the compiler would make other code of stock's loop. */
#define nuksm_passes(...)	false

static inline bool nuksm_leaves_unread(struct ksm_rmap_item *rmap_item,
				       struct page *page)
{
	return false;
}

static inline void nuksm_keep_sum(struct ksm_rmap_item *rmap_item,
				  struct page *page)
{
}

static inline u32 nuksm_sum(struct ksm_rmap_item *rmap_item, struct page *page)
{
	return calc_checksum(page);
}

static inline bool nuksm_is_first_sight(void)
{
	return false;
}

static inline bool nuksm_may_be_skipped(struct ksm_rmap_item *rmap_item,
					struct page *page)
{
	return true;
}

static inline bool nuksm_may_merge(const struct ksm_rmap_item *rmap_item,
				   struct page *page)
{
	return false;
}

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_WRITES_H */
