/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's view of who shares a merged page.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. Unless it says
 * otherwise, all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_SHARERS_H
#define _MM_NUKSM_SHARERS_H

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

static bool nuksm_take_young(struct folio *folio, bool young)
{
	if (young)
		nuksm_was_used(folio);
	nuksm_look.young = young;
	nuksm_look.cleared |= young;
	return young;
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
	touched = nuksm_take_young(folio, ptep_clear_young_notify(vma, addr, ptep));
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
	unsigned long block = addr & PMD_MASK;

	if (!nuksm_places())
		return false;
	nuksm_look.young = false;
	if (!nuksm_seen_before(block))
		nuksm_look.touched =
			nuksm_take_young(folio,
					 pmdp_clear_young_notify(vma, block, pmdp));
	return nuksm_look.touched;
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
 * ksmd has found @folio behind @rmap_item: remember what placement asks for.
 *
 * A page that is new here was touched by whoever wrote it; one that was written
 * to, and so left a merged page, by whoever wants it to look used. Neither is a
 * use of the merged page: who rewrites such pages again and again would else
 * have them to himself.
 */
static void nuksm_visit(struct ksm_rmap_item *rmap_item, struct folio *folio,
			bool touched)
{
	BUILD_BUG_ON(BIT(NUKSM_HOME_BITS) < MAX_NUMNODES);

	nuksm_window(NUKSM_WINDOW_VISIT);
	if ((rmap_item->address & STABLE_FLAG) && !folio_test_ksm(folio)) {
		remove_rmap_item_from_tree(rmap_item);
		rmap_item->left = true;
	}
	if (rmap_item->address & STABLE_FLAG)
		rmap_item->left = false;
	else
		rmap_item->home = folio_nid(folio);
	if (!nuksm_places())
		return;
	if (touched && (rmap_item->left || rmap_item->heat == NUKSM_UNSEEN))
		rmap_item->heat = max_t(u8, rmap_item->heat, NUKSM_COLD);
	else
		rmap_item->heat = nuksm_heat(folio, touched);
}

/*
 * ksmd is done with the page for this scan. Not before, as what promotes a page
 * holds it for a while, and a page that somebody holds is not merged.
 */
static void nuksm_visited(struct folio *folio)
{
	if (nuksm_look.young && folio_mapped(folio))
		nuksm_promote(folio);
	nuksm_look.young = false;
}

static struct nuksm_ballot nuksm_ballot;

/* Counts a sharer, unless its process is about to end. */
static void nuksm_add_sharer(const struct ksm_rmap_item *rmap_item, u8 heat)
{
	struct mm_struct *mm = rmap_item->mm;
	struct nuksm_sharer sharer = {
		.voter = &mm->nuksm.voter,
		.nid = rmap_item->home,
		.heat = max_t(u8, heat, NUKSM_COLD),
	};
	struct task_struct *owner;

	if (ksm_test_exit(mm))
		return;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner)
		sharer.nice = task_nice(READ_ONCE(owner->group_leader));
	rcu_read_unlock();
	nuksm_ballot_add(&nuksm_ballot, &sharer);
}

/*
 * Two pages are about to become one: should that be the page scanned now, as
 * in stock KSM, or the one that was in the unstable tree?
 */
static bool nuksm_keeps_scanned(struct ksm_rmap_item *rmap_item,
				struct page *page,
				struct ksm_rmap_item *tree_rmap_item,
				struct page *tree_page)
{
	int nid = page_to_nid(page);
	u16 lot;

	if (!nuksm_places() || PageKsm(page) || PageKsm(tree_page) ||
	    nid == page_to_nid(tree_page))
		return true;

	/* Both may have been moved since they were looked at. */
	rmap_item->home = nid;
	tree_rmap_item->home = page_to_nid(tree_page);
	nuksm_ballot_open(&nuksm_ballot, READ_ONCE(nuksm_placement));
	nuksm_add_sharer(rmap_item, rmap_item->heat);
	nuksm_add_sharer(tree_rmap_item, tree_rmap_item->heat);
	lot = nuksm_lot(rmap_item->oldchecksum);
	nid = nuksm_belongs(&nuksm_ballot, lot, page_to_pfn(page), false);
	nuksm_window(NUKSM_WINDOW_CHOOSE);
	return nid != page_to_nid(tree_page);
}

/*
 * The page that stays when two are merged may be the one of the unstable tree,
 * and nobody but its mappings has it then: keep it until it is filed.
 */
static void nuksm_hold(struct page *kpage)
{
	if (kpage)
		get_page(kpage);
}

static void nuksm_release(struct page *kpage)
{
	nuksm_window(NUKSM_WINDOW_FILED);
	put_page(kpage);
}

/* What reclaim's lists say of a merged page, they say of none of its sharers. */
static u8 nuksm_own_heat(const struct ksm_rmap_item *rmap_item)
{
	return rmap_item->heat == NUKSM_LISTED ? NUKSM_COLD : rmap_item->heat;
}

/* A mapping has joined a merged page: where does the page belong now? */
static void nuksm_place_joined(struct ksm_rmap_item *rmap_item)
{
	struct ksm_stable_node *stable_node = rmap_item->head;
	unsigned long kpfn = READ_ONCE(stable_node->kpfn);
	struct ksm_rmap_item *sharer;
	struct folio *folio;
	int nid;

	if (!nuksm_places())
		return;

	nuksm_window(NUKSM_WINDOW_JOINED);
	nuksm_ballot_open(&nuksm_ballot, READ_ONCE(nuksm_placement));
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist)
		nuksm_add_sharer(sharer, nuksm_own_heat(sharer));
	nid = nuksm_belongs(&nuksm_ballot, stable_node->lot, kpfn, true);
	if (nid == NUMA_NO_NODE || nid == pfn_to_nid(kpfn))
		return;

	nuksm_window(NUKSM_WINDOW_MOVE);
	folio = ksm_get_folio(stable_node, KSM_GET_FOLIO_NOLOCK);
	if (folio)
		nuksm_migrate(folio, nid);
}

/*
 * A new page in the stable tree gets its lot. Of several pages with the same
 * content, each gets another one than its predecessor.
 */
static void nuksm_give_lot(struct ksm_stable_node *stable_node,
			   struct ksm_stable_node *chain)
{
	struct ksm_stable_node *dup = chain;

	stable_node->lot = nuksm_lot(stable_node->checksum);
	if (!chain)
		return;
	if (is_stable_node_chain(chain))
		dup = hlist_entry(chain->hlist.first, struct ksm_stable_node,
				  hlist_dup);
	stable_node->lot = nuksm_next_lot(dup->lot);
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

static inline void nuksm_visit(struct ksm_rmap_item *rmap_item,
			       struct folio *folio, bool touched)
{
}

static inline void nuksm_visited(struct folio *folio)
{
}

static inline bool nuksm_keeps_scanned(struct ksm_rmap_item *rmap_item,
				       struct page *page,
				       struct ksm_rmap_item *tree_rmap_item,
				       struct page *tree_page)
{
	return true;
}

static inline void nuksm_hold(struct page *kpage)
{
}

static inline void nuksm_release(struct page *kpage)
{
}

static inline void nuksm_place_joined(struct ksm_rmap_item *rmap_item)
{
}

static inline void nuksm_give_lot(struct ksm_stable_node *stable_node,
				  struct ksm_stable_node *chain)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_SHARERS_H */
