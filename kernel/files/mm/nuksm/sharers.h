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
	bool young = folio_test_young(folio) && !rmap_item->gave;

	BUILD_BUG_ON(BIT(NUKSM_HOME_BITS) < MAX_NUMNODES);

	nuksm_window(NUKSM_WINDOW_VISIT);
	if ((rmap_item->address & STABLE_FLAG) && !folio_test_ksm(folio))
		remove_rmap_item_from_tree(rmap_item);
	if (rmap_item->address & STABLE_FLAG)
		rmap_item->left = false;
	else
		rmap_item->home = folio_nid(folio);
	if (!nuksm_places())
		return;
	if (rmap_item->left || (touched && rmap_item->heat == NUKSM_UNSEEN))
		rmap_item->heat = NUKSM_COLD;
	else
		rmap_item->heat = nuksm_heat(folio, touched, young);
	rmap_item->gave = folio_test_young(folio) && (touched || rmap_item->gave);
}

/* Its content is another one now: it has nothing to do with the page it left. */
static void nuksm_changed(struct ksm_rmap_item *rmap_item)
{
	rmap_item->left = false;
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

	if (nuksm_ballot.placement == NUKSM_PRIORITY) {
		rcu_read_lock();
		owner = rcu_dereference(mm->owner);
		if (owner)
			sharer.nice = task_nice(READ_ONCE(owner->group_leader));
		rcu_read_unlock();
	}
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

	/* Both may have been moved since they were looked at */
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

/* The page that a mapping joined, if it is to be asked where it belongs. */
static struct ksm_stable_node *nuksm_asked;

/* Of more sharers than these, one more changes little. */
#define NUKSM_ALWAYS_ASK	64

static bool nuksm_worth_asking(const struct ksm_stable_node *stable_node)
{
	return stable_node->rmap_hlist_len <= NUKSM_ALWAYS_ASK ||
	       is_power_of_2(stable_node->rmap_hlist_len);
}

/*
 * A mapping has joined a merged page. ksmd still holds what it scanned, which
 * may be that very page, if a fork shared it: it cannot be moved now.
 */
static void nuksm_ask_later(struct ksm_rmap_item *rmap_item)
{
	if (nuksm_places() && nuksm_worth_asking(rmap_item->head))
		nuksm_asked = rmap_item->head;
}

/* ksmd holds no page: where does the one that was joined belong now? */
static void nuksm_place_joined(void)
{
	struct ksm_stable_node *stable_node = nuksm_asked;
	struct ksm_rmap_item *sharer;
	struct folio *folio;
	unsigned long kpfn;
	int nid;

	if (!stable_node)
		return;
	nuksm_asked = NULL;
	nuksm_window(NUKSM_WINDOW_JOINED);
	kpfn = READ_ONCE(stable_node->kpfn);
	nuksm_ballot_open(&nuksm_ballot, READ_ONCE(nuksm_placement));
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		nuksm_add_sharer(sharer, nuksm_own_heat(sharer));
		cond_resched();
	}
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
 * content, each gets one that depends on how many there are.
 */
static void nuksm_give_lot(struct ksm_stable_node *stable_node,
			   struct ksm_stable_node *chain)
{
	struct ksm_stable_node *dup;
	u16 lot = nuksm_lot(stable_node->checksum);

	if (chain && is_stable_node_chain(chain)) {
		hlist_for_each_entry(dup, &chain->hlist, hlist_dup)
			lot = nuksm_next_lot(lot);
	} else if (chain) {
		lot = nuksm_next_lot(lot);
	}
	stable_node->lot = lot;
}

#else /* !CONFIG_NUKSM_PLACEMENT */

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

static inline void nuksm_hold(struct page *kpage)
{
}

static inline void nuksm_release(struct page *kpage)
{
}

static inline void nuksm_changed(struct ksm_rmap_item *rmap_item)
{
}

static inline void nuksm_ask_later(struct ksm_rmap_item *rmap_item)
{
}

static inline void nuksm_place_joined(void)
{
}

static inline void nuksm_give_lot(struct ksm_stable_node *stable_node,
				  struct ksm_stable_node *chain)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_SHARERS_H */
