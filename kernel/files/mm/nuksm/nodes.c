// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM: memory of nodes. Is there a page to spare, or is it short?
 */

#include <linux/cpuset.h>
#include <linux/memory-tiers.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/timekeeping.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "nuksm.h"

/* Has the node so many pages of files that they are enough to be given up? */
static bool has_cache(int nid)
{
	struct pglist_data *pgdat = NODE_DATA(nid);
	unsigned long clean = node_page_state(pgdat, NR_INACTIVE_FILE);
	unsigned long dirty = node_page_state(pgdat, NR_FILE_DIRTY) +
			      node_page_state(pgdat, NR_WRITEBACK);
	unsigned long wanted = 0;
	int z;

	for (z = 0; z < MAX_NR_ZONES; z++)
		wanted += high_wmark_pages(pgdat->node_zones + z);
	return clean > dirty && clean - dirty > wanted;
}

/* Is there more than a watermark in one of the node's zones, for who may have up to @highest? */
static bool is_above(int nid, enum zone_watermarks mark, enum zone_type highest)
{
	enum zone_type z;

	for (z = 0; z <= highest; z++) {
		struct zone *zone = NODE_DATA(nid)->node_zones + z;

		if (managed_zone(zone) &&
		    zone_watermark_ok(zone, 0, wmark_pages(zone, mark) + 1, highest, 0))
			return true;
	}
	return false;
}

/**
 * nuksm_node_has_room - could a node take a page without anybody having to wait for it?
 * @nid: the node
 *
 * It could if it has one to spare. One that is full of files hardly ever has, as these take
 * all there is; it could while kswapd keeps up, which then makes room.
 *
 * Return: whether it could.
 */
bool nuksm_node_has_room(int nid)
{
	return node_state(nid, N_MEMORY) &&
	       is_above(nid, has_cache(nid) ? WMARK_LOW : WMARK_HIGH, ZONE_MOVABLE);
}

/**
 * nuksm_is_tight - is memory short on a node?
 * @nid: the node, which has some
 *
 * If there are files, kswapd gives these up. If it has given up itself, as there was nothing
 * else that it could have, it asks for no replicas, either.
 *
 * Return: whether kswapd would have to make room there, and has no files for that.
 */
bool nuksm_is_tight(int nid)
{
	return !has_cache(nid) && !is_above(nid, WMARK_LOW, ZONE_MOVABLE);
}

/**
 * nuksm_is_out - may current be about to kill somebody as there is no memory on a node?
 * @nid: the node
 *
 * Who may have memory of some nodes only, by his cpuset or policy, has found none there; others
 * may have enough. Pages of the kernel's own are not in ZONE_MOVABLE, and may be of nodes that the
 * cpuset does not have; on these, files may be about to be given up.
 *
 * Return: whether so little is free there for somebody.
 */
bool nuksm_is_out(int nid)
{
	if (!node_state(nid, N_MEMORY) ||
	    (is_above(nid, WMARK_LOW, ZONE_MOVABLE) &&
	     (!node_state(nid, N_NORMAL_MEMORY) || is_above(nid, WMARK_LOW, ZONE_NORMAL))))
		return false;
	return node_isset(nid, cpuset_current_mems_allowed) || nuksm_is_tight(nid);
}

/**
 * nuksm_takes_replica - could this node take a copy of a merged page?
 * @nid: the node
 *
 * Return: whether it has room for it, memory was not short there lately, and it is fast
 * enough to be worth it.
 */
bool nuksm_takes_replica(int nid)
{
	return node_is_toptier(nid) && nuksm_node_has_room(nid) &&
	       ktime_get_seconds() >= READ_ONCE(nuksm_node_counts[nid].none_until);
}
