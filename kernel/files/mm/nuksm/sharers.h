/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's view of who shares a merged page: as ksmd comes by, as pages are merged, and as one that
 * waits is asked where it belongs.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. Unless it says
 * otherwise, all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_SHARERS_H
#define _MM_NUKSM_SHARERS_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include "ballots.h"
#include "chains.h"
#include "moving.h"
#include "walks.h"

/*
 * Remembers how hot @folio is behind @rmap_item. How hot a merged page is, looks tell.
 *
 * A page that is new here was touched by whoever wrote it; one that was written
 * to, and so left a merged page, by whoever wants it to look used. Neither is a
 * use of the merged page: who rewrites such pages again and again would else
 * have them to himself.
 */
static void nuksm_note_use(struct ksm_rmap_item *rmap_item, struct folio *folio,
			   bool touched)
{
	bool young = folio_test_young(folio) && !rmap_item->gave;

	if (!nuksm_places() || (rmap_item->address & STABLE_FLAG))
		return;
	if (rmap_item->left || (touched && rmap_item->heat == NUKSM_UNSEEN))
		rmap_item->heat = NUKSM_COLD;
	else
		rmap_item->heat = nuksm_heat(folio, touched, young);
	rmap_item->gave = folio_test_young(folio) && (touched || rmap_item->gave);
}

/* A mapping's home is @nid from now on, if nobody has the page's lock. Returns whether it is. */
static bool nuksm_rehome(struct ksm_rmap_item *item, struct folio *folio, int nid)
{
	bool moved = false;

	if (nid == item->home || !folio_trylock(folio))
		return false;
	if (folio_stable_node(folio) == item->head) {
		nuksm_count_local(item, folio_nid(folio), -1);
		item->home = nid;
		nuksm_count_local(item, folio_nid(folio), 1);
		moved = true;
	}
	folio_unlock(folio);
	return moved;
}

/*
 * May the process that ksmd is at have memory where this mapping's home is? But if the page is
 * where it may have none, and nobody's home is, for want of room at this one, that is no home. To
 * ask that for each of many sharers takes too long: one home is enough.
 */
static bool nuksm_is_housed(const struct ksm_rmap_item *item, int here)
{
	return nuksm_is_at_home(item) &&
	       (node_isset(here, ksm_scan.mm_slot->memory.now) ||
		nuksm_node_has_room(item->home) ||
		item->head->hlist.first != &item->hlist || nuksm_has_sharer_on(item->head, here));
}

/*
 * If that is no home any more, there is another one: where the page is, if nobody else has that, it
 * may be there, and that is not slow; or see nuksm_home_among(). Then all sharers are asked.
 */
static void nuksm_house(struct ksm_rmap_item *item, struct folio *folio,
			struct vm_area_struct *vma)
{
	struct nuksm_memory *memory = &ksm_scan.mm_slot->memory;
	int nid, here = folio_nid(folio);

	/* ksmd may have come to the process long ago */
	nuksm_see_memory(ksm_scan.mm_slot);
	if (nuksm_is_housed(item, here))
		return;
	if (item->head->rmap_hlist_len == 1 && node_isset(here, memory->now) &&
	    node_is_toptier(here))
		nid = here;
	else
		nid = nuksm_home_among(item, vma->vm_policy, &memory->before, &memory->now);
	if (nuksm_rehome(item, folio, nid))
		nuksm_want_asked(item->head);
}

/* ksmd has found @folio behind @rmap_item: remember what placement asks for. */
static void nuksm_visit(struct ksm_rmap_item *rmap_item, struct folio *folio,
			struct vm_area_struct *vma, bool touched)
{
	BUILD_BUG_ON(BIT(NUKSM_HOME_BITS) < MAX_NUMNODES);
	/* There is one for each page that is scanned */
	BUILD_BUG_ON(IS_ENABLED(CONFIG_64BIT) && sizeof(*rmap_item) > 64);

	nuksm_window(NUKSM_WINDOW_VISIT);
	if ((rmap_item->address & STABLE_FLAG) &&
	    !nuksm_is_found(rmap_item, vma))
		remove_rmap_item_from_tree(rmap_item);
	if (!(rmap_item->address & STABLE_FLAG))
		rmap_item->home = folio_nid(folio);
	else if (nuksm_places() && !nuksm_is_housed(rmap_item, folio_nid(folio)))
		nuksm_house(rmap_item, folio, vma);
	nuksm_note_use(rmap_item, folio, touched);
}

/* Is there nothing to remember and nothing to ask about the merged page? */
static bool nuksm_stays(const struct ksm_rmap_item *rmap_item,
			struct vm_area_struct *vma)
{
	return nuksm_is_found(rmap_item, vma) &&
	       !(nuksm_places() && (READ_ONCE(rmap_item->head->again) ||
				    !nuksm_is_at_home(rmap_item)));
}

/* Its content is another one now: it has nothing to do with the page it left. */
static void nuksm_changed(struct ksm_rmap_item *rmap_item)
{
	rmap_item->left = false;
}

/*
 * The lot by which was chosen which of two pages stays. They could still be
 * written to then. One that was chosen for another reason is asked again.
 */
#define NUKSM_NOT_CHOSEN	U32_MAX
#define NUKSM_CHOSEN_FOR_NOW	(U32_MAX - 1)
static u32 nuksm_chosen_lot = NUKSM_NOT_CHOSEN;

/* A huge page that is to be merged is split. Is @page a part of none now? */
static bool nuksm_is_small(const struct ksm_rmap_item *rmap_item, struct page *page)
{
	bool is_small;

	if (!folio_test_large(page_folio(page)))
		return true;
	if (!trylock_page(page))
		return false;
	is_small = !folio_test_large(page_folio(page)) ||
		   !nuksm_split(page, rmap_item->mm);
	unlock_page(page);
	return is_small;
}

/*
 * Two pages are about to become one. That takes both, so neither becomes a merged page if the
 * other cannot be split, nor is split if it is held. Of two parts of one huge page stock finds
 * out.
 */
static bool nuksm_are_small(const struct ksm_rmap_item *rmap_item, struct page *page,
			    const struct ksm_rmap_item *tree_rmap_item,
			    struct page *tree_page)
{
	if (page_folio(page) == page_folio(tree_page))
		return true;
	if (!folio_test_large(page_folio(page)) && !folio_test_large(page_folio(tree_page)))
		return true;
	return !nuksm_is_held(page_folio(page)) && !nuksm_is_held(page_folio(tree_page)) &&
	       nuksm_is_small(tree_rmap_item, tree_page) && nuksm_is_small(rmap_item, page);
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
	int nid = page_to_nid(page), wanted;
	u32 lot;

	nuksm_chosen_lot = NUKSM_NOT_CHOSEN;
	if (folio_test_ksm(page_folio(page)) ||
	    folio_test_ksm(page_folio(tree_page)))
		return true;
	/* One that cannot be merged is tried first, and the other is left alone */
	if (nuksm_is_held(page_folio(tree_page)) && page_folio(page) != page_folio(tree_page)) {
		nuksm_chosen_lot = NUKSM_CHOSEN_FOR_NOW;
		return false;
	}
	if (!nuksm_places())
		return true;
	if (nuksm_is_held(page_folio(page))) {
		nuksm_chosen_lot = NUKSM_CHOSEN_FOR_NOW;
		return true;
	}

	/* Both may have been moved since they were looked at */
	rmap_item->home = nid;
	tree_rmap_item->home = page_to_nid(tree_page);
	if (nid == page_to_nid(tree_page))
		return true;
	nuksm_ballot_open(&nuksm_ballot, READ_ONCE(nuksm_placement));
	nuksm_add_sharer(rmap_item, rmap_item->heat);
	nuksm_add_sharer(tree_rmap_item, tree_rmap_item->heat);
	lot = nuksm_lot(page);
	nid = nuksm_belongs(&nuksm_ballot, lot, page_to_pfn(page), NUKSM_MERGES,
			    &wanted);
	nuksm_chosen_lot = nid == wanted && nid != NUMA_NO_NODE ? lot : NUKSM_CHOSEN_FOR_NOW;
	return nid != page_to_nid(tree_page);
}

/*
 * The one that was to stay may not: its process was forked, and a relative of it is elsewhere.
 * May it be the other one? Else who has such pages would keep all others apart who meet it.
 */
static bool nuksm_keeps_other(void)
{
	if (!nuksm_gives_way)
		return false;
	if (nuksm_chosen_lot != NUKSM_NOT_CHOSEN)
		nuksm_chosen_lot = NUKSM_CHOSEN_FOR_NOW;
	return true;
}

/* Merges two pages, so that the one stays that belongs where it is, if it may. */
#define nuksm_merge_two_pages(item, scanned, tree_item, filed)			\
({										\
	struct ksm_rmap_item *_item = (item), *_tree_item = (tree_item);	\
	struct page *_scanned = (scanned), *_filed = (filed);			\
	typeof(try_to_merge_two_pages(_item, _scanned, _tree_item, _filed)) _kept = NULL; \
	bool _small = nuksm_are_small(_item, _scanned, _tree_item, _filed);	\
	bool _keeps = nuksm_keeps_scanned(_item, _scanned, _tree_item, _filed);	\
										\
	nuksm_gives_way = false;						\
	nuksm_window(NUKSM_WINDOW_CHOOSE);					\
	if (_small)								\
		_kept = _keeps ?						\
		try_to_merge_two_pages(_item, _scanned, _tree_item, _filed) :	\
		try_to_merge_two_pages(_tree_item, _filed, _item, _scanned);	\
	if (!_kept && nuksm_keeps_other())					\
		_kept = _keeps ?						\
		try_to_merge_two_pages(_tree_item, _filed, _item, _scanned) :	\
		try_to_merge_two_pages(_item, _scanned, _tree_item, _filed);	\
	_kept;									\
})

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

/* The page that is to be asked where it belongs, when ksmd holds no page. */
static struct ksm_stable_node *nuksm_asked;

/* Of more sharers than these, one more can wait for the next scan to be asked. */
#define NUKSM_ALWAYS_ASK	64

static bool nuksm_worth_asking(const struct ksm_stable_node *stable_node)
{
	return stable_node->rmap_hlist_len <= NUKSM_ALWAYS_ASK ||
	       is_power_of_2(stable_node->rmap_hlist_len);
}

/* The number of the scan that is going on, as far as a page remembers it. */
static unsigned int nuksm_this_scan(void)
{
	return ksm_scan.seqnr & (BIT(NUKSM_SCAN_BITS) - 1);
}

/*
 * A mapping has joined a merged page. ksmd still holds what it scanned, which
 * may be that very page, if a fork shared it: it cannot be moved now.
 */
static void nuksm_ask_later(struct ksm_rmap_item *rmap_item)
{
	if (!nuksm_places())
		return;
	if (nuksm_worth_asking(rmap_item->head))
		nuksm_asked = rmap_item->head;
	else
		nuksm_want_asked(rmap_item->head);
}

/*
 * ksmd came by a merged page. Is there a reason to ask it again? Somebody left
 * it, it could not be moved, others moved it, or nobody asked when the last one
 * joined. Once per scan, however many share it; but if it was to be moved and
 * somebody held it, whenever ksmd comes by, as who holds it may know when that is.
 */
static void nuksm_ask_again(struct ksm_stable_node *stable_node)
{
	bool asked = stable_node->scan == nuksm_this_scan();

	if (!nuksm_places() || !READ_ONCE(stable_node->again))
		return;
	if (!asked ||
	    (stable_node->moves && stable_node->moves < NUKSM_MOST_MOVES))
		nuksm_asked = stable_node;
}

/*
 * The sharers of a page that was given up, those that are elsewhere, get pages of their own.
 * One that stays stops no other, and is tried again.
 */
static void nuksm_let_go(struct ksm_stable_node *stable_node)
{
	struct folio *folio = nuksm_take_hold(stable_node);
	struct ksm_rmap_item *sharer;
	struct hlist_node *next;
	bool stays = false;
	int nid;

	if (!folio)
		return;
	if (IS_ERR(folio)) {
		nuksm_want_asked(stable_node);
		return;
	}
	/* Nobody moves it from now on */
	nid = folio_nid(folio);
	hlist_for_each_entry_safe(sharer, next, &stable_node->hlist, hlist) {
		cond_resched();
		if (sharer->home != nid &&
		    nuksm_unshare(sharer, &nuksm_placement_stats.unshared) < 0)
			stays = true;
	}
	WRITE_ONCE(stable_node->again, stays ? NUKSM_ASK : 0);
	folio_put(folio);
}

/*
 * Not if many with the same content are held already: each is paid for by whoever paid for it, and
 * the next one would be, too. They may be so many that its own chain is not found by it. In the
 * order of contents these are not found at all: there it is given up if it is the only one.
 */
static bool nuksm_may_be_given_up(struct ksm_stable_node *stable_node)
{
	if (!is_stable_node_dup(stable_node))
		return true;
	return nuksm_by_checksum() && !nuksm_find_filed(stable_node, nuksm_has_many_left);
}

/*
 * The page was where it does not belong in one more scan, as it could not be moved. Who keeps
 * it there shall not keep it from those who are elsewhere: at last they get pages of their own,
 * which they may merge without this one.
 */
static void nuksm_in_vain(struct ksm_stable_node *stable_node)
{
	/* Who made it dear to move may have been all who shared it: then it is gone */
	if (hlist_empty(&stable_node->hlist))
		return;
	if (stable_node->vain == NUKSM_GIVEN_UP - 1 && !nuksm_may_be_given_up(stable_node)) {
		/* It goes on being asked, once in a scan */
		stable_node->moves = NUKSM_MOST_MOVES;
		return;
	}
	stable_node->vain++;
	if (nuksm_is_given_up(stable_node))
		nuksm_let_go(stable_node);
}

/*
 * A look found that the page belongs elsewhere, and so much is that. Has it been said often enough
 * in a row?
 */
static bool nuksm_follows(struct ksm_stable_node *stable_node, unsigned int says)
{
	unsigned int said = stable_node->elsewhere + says;

	stable_node->elsewhere = said < NUKSM_FOLLOWS_AT ? said : 0;
	return said >= NUKSM_FOLLOWS_AT;
}

/*
 * The page was asked, and belongs where it is: it was not tried in vain. But those who use it alike
 * may not do so just now, by chance, and whoever holds it may ask as often as he likes: one scan in
 * which it is so makes up for one in which it was tried.
 */
static void nuksm_belongs_here(struct ksm_stable_node *stable_node, u8 why, bool first)
{
	if (first && stable_node->vain)
		stable_node->vain--;
	if ((why & NUKSM_IS_ALIKE) && (stable_node->vain || !first))
		nuksm_want_asked_as(stable_node, why);
}

/*
 * A page could not be moved, as nuksm_move() says, nor how much it took to find that: why is it to
 * be asked again? If it was too dear, and is no more, whoever made it so keeps no looks from it.
 */
static u8 nuksm_why_not(int err, unsigned int cost, bool alike)
{
	if (err == -EAGAIN)
		return NUKSM_ASK;
	return (cost > 1 ? NUKSM_IS_DEAR : NUKSM_NOT_MOVED) | (alike ? NUKSM_IS_ALIKE : 0);
}

/* A look has tried to move the page: if it could, that it could not be moved holds no more. */
static void nuksm_tried(struct ksm_stable_node *stable_node, int err, unsigned int cost, bool alike)
{
	if (err == -ENOENT)
		return;
	if (err)
		nuksm_want_asked_as(stable_node, nuksm_why_not(err, cost, alike));
	else if (READ_ONCE(stable_node->again) > NUKSM_ASK)
		WRITE_ONCE(stable_node->again, NUKSM_ASK);
}

/* ksmd holds no page: where does the one that is to be asked belong now? */
static void nuksm_place_asked(void)
{
	struct ksm_stable_node *stable_node = nuksm_asked;
	unsigned long kpfn;
	unsigned int cost;
	int nid, wanted, err;
	bool first, alike;
	u8 why, again;

	nuksm_asked = NULL;
	if (!stable_node)
		return;
	first = stable_node->scan != nuksm_this_scan();
	/* A fork may still join a page that was given up, and does not bring it back */
	if (nuksm_is_given_up(stable_node)) {
		stable_node->scan = nuksm_this_scan();
		if (first)
			nuksm_let_go(stable_node);
		return;
	}
	nuksm_window(NUKSM_WINDOW_JOINED);
	why = READ_ONCE(stable_node->again);
	/* Who moves the page from now on asks for it to be asked again */
	smp_store_mb(stable_node->again, 0);
	kpfn = READ_ONCE(stable_node->kpfn);
	/* ksmd asks when somebody joins or leaves: that is not to move it to and fro by chance */
	nuksm_ask_sharers(stable_node, 1);
	/* By now it may be scan order that decides */
	if (nuksm_ballot.placement == NUKSM_FIRST)
		return;
	nid = pfn_to_nid(kpfn);
	wanted = nid;
	if (!(why & NUKSM_IS_ALIKE) || !nuksm_stays_unused(nid))
		nid = nuksm_belongs(&nuksm_ballot, stable_node->lot, kpfn, NUKSM_SCANNED,
				    &wanted);
	if (first) {
		stable_node->scan = nuksm_this_scan();
		stable_node->moves = 0;
	}
	/* Nobody draws it now, which may be different in the next scan */
	if (nid == NUMA_NO_NODE) {
		if (stable_node->moves)
			stable_node->moves = NUKSM_MOST_MOVES;
		nuksm_want_asked_as(stable_node, why | NUKSM_ASK);
		return;
	}
	/* Who holds it does not keep it from those whom looks found */
	alike = (why & NUKSM_IS_ALIKE) && nid == wanted && nid == pfn_to_nid(kpfn) &&
		nuksm_belongs_alike(stable_node, kpfn, &nid, &wanted);
	again = alike ? NUKSM_IS_ALIKE : NUKSM_ASK;
	if (nid != wanted)
		nuksm_want_asked_as(stable_node, again);
	if (nid == pfn_to_nid(kpfn)) {
		/*
		 * No room elsewhere: there will be none for the next sharer either. And what is
		 * asked as each of its sharers comes by is not asked without end.
		 */
		if (stable_node->moves)
			stable_node->moves = nid != wanted ?
				NUKSM_MOST_MOVES : min(stable_node->moves + 1U, NUKSM_MOST_MOVES);
		nuksm_belongs_here(stable_node, why, first);
		return;
	}
	/* Who makes it go to and fro gets no more of ksmd's time than this */
	if (stable_node->moves == NUKSM_MOST_MOVES) {
		again |= why & (NUKSM_NOT_MOVED | NUKSM_IS_DEAR);
		nuksm_want_asked_as(stable_node, again);
		return;
	}
	nuksm_window(NUKSM_WINDOW_MOVE);
	err = nuksm_move(stable_node, nid, &cost);
	if (err == -ENOENT)
		return;
	stable_node->moves = min(stable_node->moves + cost, NUKSM_MOST_MOVES);
	if (err)
		nuksm_want_asked_as(stable_node, nuksm_why_not(err, cost, alike));
	else
		stable_node->vain = 0;
	if (first && err && err != -EAGAIN)
		nuksm_in_vain(stable_node);
}

/* It is asked for the first time. */
static void nuksm_begin_asking(struct ksm_stable_node *stable_node)
{
	stable_node->again = 0;
	stable_node->scan = nuksm_this_scan();
	stable_node->moves = 0;
	stable_node->vain = 0;
	stable_node->elsewhere = 0;
	stable_node->rank = 0;
	stable_node->ranked = 0;
}

/*
 * A new page in the stable tree gets its lot. Of several pages with the same
 * content, each gets one that depends on how many there are, but for those that were
 * given up: nobody shall get another lot by having a page given up. Nobody can write to
 * the page any more: if its content is not what it was when it was chosen to
 * stay, or there was no room where it belongs, it is asked again.
 */
static void nuksm_give_lot(struct ksm_stable_node *stable_node,
			   struct page *page, struct ksm_stable_node *chain)
{
	struct ksm_stable_node *dup;
	u32 lot;

	/* There is one for each merged page */
	BUILD_BUG_ON(IS_ENABLED(CONFIG_64BIT) && sizeof(*stable_node) > 64);

	nuksm_begin_asking(stable_node);
	stable_node->replica = false;
	stable_node->lot = 0;
	if (nr_node_ids < 2)
		return;
	lot = nuksm_lot(page);
	if (chain && is_stable_node_chain(chain)) {
		hlist_for_each_entry(dup, &chain->hlist, hlist_dup) {
			lot += !dup->replica && !nuksm_is_given_up(dup);
			cond_resched();
		}
	} else if (chain) {
		lot += !chain->replica && !nuksm_is_given_up(chain);
	}
	stable_node->lot = lot;
	if (nuksm_chosen_lot != NUKSM_NOT_CHOSEN &&
	    nuksm_chosen_lot != stable_node->lot)
		nuksm_want_asked(stable_node);
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline bool nuksm_walk_filed(const struct ksm_stable_node *stable_node,
				    struct folio *folio, struct rmap_walk_control *rwc,
				    int *search_new_forks)
{
	return false;
}

static inline void nuksm_note_use(struct ksm_rmap_item *rmap_item,
				  struct folio *folio, bool touched)
{
}

static inline bool nuksm_stays(const struct ksm_rmap_item *rmap_item,
			       struct vm_area_struct *vma)
{
	return true;
}

static inline void nuksm_visit(struct ksm_rmap_item *rmap_item,
			       struct folio *folio, struct vm_area_struct *vma,
			       bool touched)
{
}

/* One call, as in stock: the compiler would make other code of two. */
#define nuksm_merge_two_pages(...)	try_to_merge_two_pages(__VA_ARGS__)

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

static inline void nuksm_ask_again(struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_place_asked(void)
{
}

static inline void nuksm_give_lot(struct ksm_stable_node *stable_node,
				  struct page *page,
				  struct ksm_stable_node *chain)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_SHARERS_H */
