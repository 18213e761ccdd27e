/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's ballots: all who share a merged page say where it belongs, by where their homes are, and
 * by who uses it. See policy.h for what follows from that.
 *
 * Included by sharers.h. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_BALLOTS_H
#define _MM_NUKSM_BALLOTS_H

#include <linux/memory-tiers.h>

static struct nuksm_ballot nuksm_ballot;

/* Has the process ended, though somebody may hold its memory? */
static bool nuksm_is_over(struct mm_struct *mm)
{
	return ksm_test_exit(mm) || !rcu_access_pointer(mm->owner);
}

/*
 * Does the process of a mapping draw its page home? A cpuset may have changed since ksmd, who gives
 * it another home then, came by: until it does, it draws the page nowhere.
 */
static bool nuksm_draws(const struct ksm_rmap_item *rmap_item)
{
	return !nuksm_is_over(rmap_item->mm) &&
	       nuksm_may_have_memory(rmap_item->mm, rmap_item->home);
}

/* Counts a sharer, if it draws the page. */
static void nuksm_add_sharer(const struct ksm_rmap_item *rmap_item, u8 heat)
{
	struct mm_struct *mm = rmap_item->mm;
	struct nuksm_sharer sharer = {
		.voter = &mm->nuksm.voter,
		.nid = rmap_item->home,
		.heat = max_t(u8, heat, NUKSM_COLD),
	};
	struct task_struct *owner;

	if (!nuksm_draws(rmap_item))
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
 * What reclaim's lists say of a merged page, they say of none of its sharers; and if
 * nobody looks, what was seen once is no use of today.
 */
static u8 nuksm_own_heat(const struct ksm_rmap_item *rmap_item)
{
	return rmap_item->heat == NUKSM_LISTED || !READ_ONCE(nuksm_look_permille) ?
		       NUKSM_COLD : rmap_item->heat;
}

/*
 * In how many of their last eight looks was the page used by any of those who draw it to @nid, or
 * not @on that? With NUMA_NO_NODE, who does not draw it counts, too.
 */
static unsigned int nuksm_used_in_looks(const struct ksm_stable_node *stable_node, bool on,
					int nid)
{
	const struct ksm_rmap_item *sharer;
	u8 looks = 0;

	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		bool there = sharer->home == nid;
		u8 used = sharer->address & NUKSM_LOOKS_MASK;

		if (used && there == on && (nid == NUMA_NO_NODE ? !nuksm_is_over(sharer->mm) :
								  nuksm_draws(sharer)))
			looks |= used;
		cond_resched();
	}
	return hweight8(looks);
}

/*
 * By heat a page belongs to those who are hot. Do they use it more often than those on whose node
 * it is, or did looks come to see that of them first? Who uses it there in @least of the last looks
 * counts as if he were hot: then it is the lot that decides, and not chance.
 */
static void nuksm_add_here(const struct ksm_stable_node *stable_node, unsigned int least)
{
	int here = pfn_to_nid(READ_ONCE(stable_node->kpfn));

	if (nuksm_ballot.placement == NUKSM_FAIR && nuksm_ballot.hottest != NUKSM_COLD &&
	    test_bit(here, nuksm_ballot.nodes) && !test_bit(here, nuksm_ballot.hot_nodes) &&
	    nuksm_used_in_looks(stable_node, true, here) >= least)
		__set_bit(here, nuksm_ballot.hot_nodes);
}

/*
 * By heat the page would stay, or nobody is hot. Do others use it no less than those where it is?
 * Who makes ksmd ask, by joining and leaving, is not to have what chance says followed each time:
 * it asks only if looks have found that, and could not move the page.
 */
static bool nuksm_add_alike(const struct ksm_stable_node *stable_node, int here)
{
	static u8 looks[NUKSM_MOST_NODES];
	const struct ksm_rmap_item *sharer;

	if (nuksm_ballot.placement != NUKSM_FAIR || !test_bit(here, nuksm_ballot.nodes))
		return false;
	/* There is nobody to ask */
	if (bitmap_weight(nuksm_ballot.nodes, NUKSM_MOST_NODES) < 2 ||
	    (nuksm_ballot.hottest == NUKSM_TOUCHED &&
	     bitmap_equal(nuksm_ballot.nodes, nuksm_ballot.hot_nodes, NUKSM_MOST_NODES)))
		return false;
	memset(looks, 0, nr_node_ids);
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		if ((sharer->address & NUKSM_LOOKS_MASK) && nuksm_draws(sharer))
			looks[sharer->home] |= sharer->address & NUKSM_LOOKS_MASK;
		cond_resched();
	}
	return nuksm_ballot_add_alike(&nuksm_ballot, looks, here);
}

/*
 * The ballot has all who draw the page. Are they on slow nodes alone, is there nobody else, and may
 * none of them have memory where it is any more?
 */
static bool nuksm_must_leave(const struct ksm_stable_node *stable_node)
{
	int nid, here = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	const struct ksm_rmap_item *sharer;

	if (bitmap_empty(nuksm_ballot.nodes, NUKSM_MOST_NODES))
		return false;
	for_each_set_bit(nid, nuksm_ballot.nodes, NUKSM_MOST_NODES) {
		if (nid == here || node_is_toptier(nid))
			return false;
	}
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		/* Who does not draw it has another home soon: who knows which */
		if (!nuksm_is_over(sharer->mm) &&
		    (nuksm_may_have_memory(sharer->mm, here) || !nuksm_draws(sharer)))
			return false;
		cond_resched();
	}
	return true;
}

/* Fills the ballot with all who draw the page. @least: as for nuksm_add_here(). */
static void nuksm_ask_sharers(const struct ksm_stable_node *stable_node, unsigned int least)
{
	const struct ksm_rmap_item *sharer;

	nuksm_ballot_open(&nuksm_ballot, READ_ONCE(nuksm_placement));
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		nuksm_add_sharer(sharer, nuksm_own_heat(sharer));
		cond_resched();
	}
	nuksm_add_here(stable_node, least);
	nuksm_ballot.must_leave = nuksm_must_leave(stable_node);
}

/* Nobody uses the page: on any node of those who share it looks leave it where it is. */
static bool nuksm_stays_unused(int here)
{
	return nuksm_ballot.placement == NUKSM_FAIR && nuksm_ballot.hottest == NUKSM_COLD &&
	       test_bit(here, nuksm_ballot.nodes);
}

/*
 * By heat the page would stay. If others use it alike, where does it belong by their lot? A
 * replica stays for those who are there. *@nid and *@wanted: see nuksm_belongs().
 */
static bool nuksm_belongs_alike(const struct ksm_stable_node *stable_node, unsigned long kpfn,
				int *nid, int *wanted)
{
	if (stable_node->replica || !nuksm_add_alike(stable_node, pfn_to_nid(kpfn)))
		return false;
	*nid = nuksm_belongs(&nuksm_ballot, stable_node->lot, kpfn, NUKSM_LOOKED, wanted);
	return true;
}

/*
 * The page belongs elsewhere: in how many looks was seen why? By priority, and by lot, it does so
 * whoever uses it.
 */
static unsigned int nuksm_looks_behind(const struct ksm_stable_node *stable_node, int here)
{
	if (nuksm_ballot.placement == NUKSM_FAIR && nuksm_ballot.hottest != NUKSM_COLD &&
	    test_bit(here, nuksm_ballot.nodes) && !test_bit(here, nuksm_ballot.hot_nodes))
		return nuksm_used_in_looks(stable_node, false, here);
	return NUKSM_ALL_LOOKS;
}

#endif /* _MM_NUKSM_BALLOTS_H */
