/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The homes of mappings, by which it is said where merged pages belong, and where they are to be
 * when a process's memory has to be elsewhere. ksmd finds that out, which comes by all mappings.
 *
 * Included by unmerge.h. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_HOMES_H
#define _MM_NUKSM_HOMES_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include <linux/memory-tiers.h>

/* ksmd is at this process, or a mapping of its that is not at home: where may its memory be? */
static void nuksm_see_memory(struct ksm_mm_slot *mm_slot)
{
	struct nuksm_memory *memory = &mm_slot->memory;
	static nodemask_t now;

	nuksm_memory_of(mm_slot->slot.mm, &now);
	if (nodes_equal(now, memory->now))
		return;
	memory->before = memory->now;
	memory->now = now;
}

/* May the process that ksmd is at have memory where this mapping's home is? */
static bool nuksm_is_at_home(const struct ksm_rmap_item *item)
{
	return node_isset(item->home, ksm_scan.mm_slot->memory.now);
}

/*
 * A process may have memory on the nodes @now. Where is a mapping's home to be, if it may not be
 * where it is? Nodes that the process has lost become those that it has got, or, if these are none,
 * those that it has, as homes that are on several are to stay apart; one becomes the next. If that
 * one is slow, has no room, or the area's policy names others, it is one behind it.
 */
static int nuksm_home_among(const struct ksm_rmap_item *item, struct mempolicy *policy,
			    const nodemask_t *before, const nodemask_t *now)
{
	unsigned int n, weight = nodes_weight(*now);
	static nodemask_t lost, got;
	int nid, best = NUMA_NO_NODE, most = -1;

	nodes_andnot(lost, *before, *now);
	nodes_andnot(got, *now, *before);
	/* The home is of another time: who knows which nodes there were then */
	if (!node_isset(item->home, lost))
		nodes_andnot(lost, node_states[N_MEMORY], *now);
	node_set(item->home, lost);
	if (nodes_empty(got) && nodes_weight(lost) > 1)
		got = *now;
	if (node_isset(item->home, *now))
		nid = item->home;
	else if (nodes_empty(got))
		nid = next_node_in(item->home, *now);
	else
		nid = node_remap(item->home, lost, got);
	for (n = 0; n < weight; n++, nid = next_node_in(nid, *now)) {
		int suits = 4 * nuksm_allows(policy, nid) + 2 * node_is_toptier(nid) +
			    nuksm_node_has_room(nid);

		if (suits > most) {
			most = suits;
			best = nid;
		}
	}
	return best;
}

/* A page of the sharer's own is to be at his home, or where his memory may be by now. */
static void nuksm_prefer_home(const struct ksm_rmap_item *sharer)
{
	static nodemask_t now;

	nuksm_memory_of(sharer->mm, &now);
	nuksm_prefer_node(node_isset(sharer->home, now) ?
				  sharer->home :
				  nuksm_home_among(sharer, NULL, &NODE_MASK_NONE, &now));
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_HOMES_H */
