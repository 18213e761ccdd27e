/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's view of who shares a merged page.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. All of it runs
 * under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_SHARERS_H
#define _MM_NUKSM_SHARERS_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include <linux/nuksm.h>
#include <linux/seq_file.h>

/* Is there anything to decide, and is it for nuKSM to decide it? */
static bool nuksm_places(void)
{
	return READ_ONCE(nuksm_placement) != NUKSM_FIRST &&
	       ksm_merge_across_nodes && nr_online_nodes > 1;
}

/* Accessed bits were cleared in the mm that is being scanned. */
static bool nuksm_cleared;

/*
 * Was the page used through this mapping since ksmd came by the last time?
 * Clears the bit that tells, but leaves the TLB to nuksm_leave_mm().
 */
static bool nuksm_test_touched(struct vm_area_struct *vma, unsigned long addr,
			       pte_t *ptep)
{
	bool touched;

	if (!nuksm_places())
		return false;
	touched = ptep_clear_young_notify(vma, addr, ptep);
	nuksm_cleared |= touched;
	return touched;
}

/* A huge page has one bit for all its pages: the last of them clears it. */
static bool nuksm_test_touched_huge(struct vm_area_struct *vma,
				    unsigned long addr, pmd_t *pmdp)
{
	bool touched;

	if (!nuksm_places())
		return false;
	if (!IS_ALIGNED(addr + PAGE_SIZE, PMD_SIZE))
		return pmd_young(pmdp_get(pmdp));
	touched = pmdp_clear_young_notify(vma, addr & PMD_MASK, pmdp);
	nuksm_cleared |= touched;
	return touched;
}

/*
 * ksmd is done with @mm for this scan. While the TLB holds a translation, uses
 * of the page do not set the bit anew, and a small working set stays in there
 * from scan to scan: one flush for each process and scan makes it show.
 */
static void nuksm_leave_mm(struct mm_struct *mm)
{
	if (nuksm_cleared)
		flush_tlb_mm(mm);
	nuksm_cleared = false;
}

/* ksmd has found @folio behind @rmap_item: remember what placement asks for. */
static void nuksm_visit(struct ksm_rmap_item *rmap_item, struct folio *folio,
			bool touched)
{
	if (!folio_test_ksm(folio) || !(rmap_item->address & STABLE_FLAG))
		rmap_item->home = folio_nid(folio);
	if (nuksm_places())
		rmap_item->heat = nuksm_heat(folio, touched);
}

/* Returns false for a process that is about to end. */
static bool nuksm_describe(const struct ksm_rmap_item *rmap_item,
			   struct nuksm_sharer *sharer)
{
	struct task_struct *owner;

	if (ksm_test_exit(rmap_item->mm))
		return false;

	sharer->owner = (unsigned long)rmap_item->mm;
	sharer->nid = rmap_item->home;
	sharer->heat = rmap_item->heat;
	rcu_read_lock();
	owner = rcu_dereference(rmap_item->mm->owner);
	sharer->nice = owner ? task_nice(owner->group_leader) : 0;
	rcu_read_unlock();
	return true;
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
	struct nuksm_sharer newcomer, other;
	struct nuksm_ballot ballot;

	if (!nuksm_places() || PageKsm(page) ||
	    page_to_nid(page) == page_to_nid(tree_page))
		return true;
	if (!nuksm_describe(rmap_item, &newcomer) ||
	    !nuksm_describe(tree_rmap_item, &other))
		return true;
	newcomer.nid = page_to_nid(page);
	other.nid = page_to_nid(tree_page);

	nuksm_ballot_init(&ballot, nuksm_placement, other.nid, &newcomer);
	nuksm_ballot_add(&ballot, &other);
	return nuksm_decide(&ballot, page_to_pfn(tree_page), true);
}

/* A mapping has joined a merged page: does the page belong on its node now? */
static void nuksm_place_joined(struct ksm_rmap_item *rmap_item)
{
	struct ksm_stable_node *stable_node = rmap_item->head;
	unsigned long kpfn = READ_ONCE(stable_node->kpfn);
	struct nuksm_sharer newcomer, sharer;
	struct ksm_rmap_item *other;
	struct nuksm_ballot ballot;
	struct folio *folio;

	if (!nuksm_places() || rmap_item->home == pfn_to_nid(kpfn) ||
	    !nuksm_describe(rmap_item, &newcomer))
		return;

	/* What nobody can say of the others does not count for the newcomer */
	if (newcomer.heat == NUKSM_LISTED)
		newcomer.heat = NUKSM_COLD;

	nuksm_ballot_init(&ballot, nuksm_placement, pfn_to_nid(kpfn), &newcomer);
	hlist_for_each_entry(other, &stable_node->hlist, hlist) {
		if (other == rmap_item || !nuksm_describe(other, &sharer))
			continue;
		if (sharer.heat == NUKSM_LISTED)
			sharer.heat = NUKSM_COLD;
		if (!nuksm_ballot_add(&ballot, &sharer))
			break;
	}
	if (!nuksm_decide(&ballot, kpfn, false))
		return;

	folio = ksm_get_folio(stable_node, KSM_GET_FOLIO_NOLOCK);
	if (folio)
		nuksm_migrate(folio, newcomer.nid);
}

static void nuksm_count_node(const struct ksm_stable_node *stable_node,
			     struct ksm_node_count *counts)
{
	int nid = pfn_to_nid(READ_ONCE(stable_node->kpfn));

	if (!stable_node->rmap_hlist_len)
		return;
	counts[nid].shared++;
	counts[nid].sharing += stable_node->rmap_hlist_len - 1;
}

/**
 * ksm_count_by_node - count merged pages by the node they are on
 * @counts: one per node, zeroed
 */
void ksm_count_by_node(struct ksm_node_count *counts)
{
	struct ksm_stable_node *stable_node, *dup;
	struct rb_node *node;
	unsigned int tree;

	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	for (tree = 0; tree < nuksm_nr_roots(ksm_nr_node_ids); tree++) {
		for (node = rb_first(root_stable_tree + tree); node;
		     node = rb_next(node)) {
			stable_node = rb_entry(node, struct ksm_stable_node, node);
			if (!is_stable_node_chain(stable_node)) {
				nuksm_count_node(stable_node, counts);
				continue;
			}
			hlist_for_each_entry(dup, &stable_node->hlist, hlist_dup)
				nuksm_count_node(dup, counts);
		}
		cond_resched();
	}
	list_for_each_entry(stable_node, &migrate_nodes, list)
		nuksm_count_node(stable_node, counts);
	mutex_unlock(&ksm_thread_mutex);
}

/**
 * ksm_show_placement - show where a process's merged pages are
 * @m: the process's ksm_stat
 * @mm: of the process; the caller keeps it in use
 *
 * Local are those on the node where the process had its own copy of the page.
 */
void ksm_show_placement(struct seq_file *m, struct mm_struct *mm)
{
	unsigned long local = 0, remote = 0;
	struct ksm_rmap_item *rmap_item;
	struct mm_slot *slot;

	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	spin_lock(&ksm_mmlist_lock);
	slot = mm_slot_lookup(mm_slots_hash, mm);
	spin_unlock(&ksm_mmlist_lock);
	/* It stays: only ksmd, and the last user of @mm, would free it */
	rmap_item = slot ? mm_slot_entry(slot, struct ksm_mm_slot,
					 slot)->rmap_list : NULL;
	for (; rmap_item; rmap_item = rmap_item->rmap_list) {
		cond_resched();
		if (!(rmap_item->address & STABLE_FLAG))
			continue;
		if (pfn_to_nid(READ_ONCE(rmap_item->head->kpfn)) == rmap_item->home)
			local++;
		else
			remote++;
	}
	mutex_unlock(&ksm_thread_mutex);

	seq_printf(m, "ksm_merged_local %lu\n", local);
	seq_printf(m, "ksm_merged_remote %lu\n", remote);
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline bool nuksm_test_touched(struct vm_area_struct *vma,
				      unsigned long addr, pte_t *ptep)
{
	return false;
}

static inline bool nuksm_test_touched_huge(struct vm_area_struct *vma,
					   unsigned long addr, pmd_t *pmdp)
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

static inline bool nuksm_keeps_scanned(struct ksm_rmap_item *rmap_item,
				       struct page *page,
				       struct ksm_rmap_item *tree_rmap_item,
				       struct page *tree_page)
{
	return true;
}

static inline void nuksm_place_joined(struct ksm_rmap_item *rmap_item)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_SHARERS_H */
