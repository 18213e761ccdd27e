/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The homes of mappings, by which it is said where merged pages belong, and where they are to be
 * when a process's memory has to be elsewhere.
 *
 * Included by unmerge.h. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_HOMES_H
#define _MM_NUKSM_HOMES_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include <linux/memory-tiers.h>

/* Where the memory of the process that ksmd is at may be. */
static nodemask_t nuksm_scanned_memory;

/*
 * A mapping's home is where its process has no memory any more, but on these nodes. Which one is
 * it to be? As many behind the first one as its home was behind the first node of all, as homes
 * that were on several are to stay apart; if that is slow, has no room, or the area's policy names
 * others, one of those behind it.
 */
static int nuksm_home_among(const struct ksm_rmap_item *item, struct mempolicy *policy,
			    const nodemask_t *memory)
{
	unsigned int n, weight = nodes_weight(*memory);
	int nid = first_node(*memory), best = NUMA_NO_NODE, most = -1;

	for (n = item->home % weight; n; n--)
		nid = next_node(nid, *memory);
	for (n = 0; n < weight; n++, nid = next_node_in(nid, *memory)) {
		int suits = 4 * nuksm_allows(policy, nid) + 2 * node_is_toptier(nid) +
			    nuksm_node_has_room(nid);

		if (suits > most) {
			most = suits;
			best = nid;
		}
	}
	return best;
}

/*
 * Where a mapping's home is to be: where its process has moved to, unless the area's memory
 * shall be elsewhere; or where it is. If the process's memory may not be there any more, where the
 * page is, if nobody else has it, or else anywhere where it may be. A preferred node of the area's
 * stays what it is if a cpuset changes, and counts less. The area's policy alone, which anybody may
 * change all the time, moves no home.
 */
static int nuksm_home_for(const struct ksm_rmap_item *item, struct mempolicy *policy, int here,
			  const nodemask_t *memory)
{
	int nid = nuksm_settled_on(item->mm);

	if (nid != NUMA_NO_NODE && node_isset(nid, *memory) && nuksm_allows(policy, nid))
		return nid;
	if (node_isset(item->home, *memory))
		return item->home;
	if (item->head->rmap_hlist_len == 1 && node_isset(here, *memory) &&
	    nuksm_allows(policy, here) && node_is_toptier(here))
		return here;
	return nuksm_home_among(item, policy, memory);
}

/* May the process that ksmd is at have memory where this mapping's home is? */
static bool nuksm_is_at_home(const struct ksm_rmap_item *item)
{
	return node_isset(item->home, nuksm_scanned_memory);
}

/* A page of the sharer's own is to be at his home, or where his memory may be by now. */
static void nuksm_prefer_home(const struct ksm_rmap_item *sharer)
{
	static nodemask_t memory;

	nuksm_memory_of(sharer->mm, &memory);
	nuksm_prefer_node(node_isset(sharer->home, memory) ?
				  sharer->home :
				  nuksm_home_among(sharer, NULL, &memory));
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_HOMES_H */
