// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's placement: the knob, what the policy asks about pages and nodes, and
 * how a merged page gets to another node.
 */

#include <linux/memcontrol.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/page_idle.h>
#include <linux/random.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "nuksm.h"

#define CREATE_TRACE_POINTS
#include <trace/events/nuksm.h>

/* Written by sysfs, read by ksmd at each decision. */
enum nuksm_placement nuksm_placement = NUKSM_FAIR;

struct nuksm_placement_stats nuksm_placement_stats;

/* Used by ksmd alone. */
static struct nuksm_credits nuksm_credits;

#ifdef CONFIG_LRU_GEN
static bool folio_is_young_generation(struct folio *folio)
{
	int gen = folio_lru_gen(folio);
	bool young;

	if (gen < 0)
		return false;
	rcu_read_lock(); /* keeps the page's memcg */
	young = lru_gen_is_active(folio_lruvec(folio), gen);
	rcu_read_unlock();
	return young;
}
#else
static bool folio_is_young_generation(struct folio *folio)
{
	return false;
}
#endif

/**
 * nuksm_heat - how recently a page was used through a mapping
 * @folio: of the page
 * @touched: what the mapping's accessed bit said, see nuksm_test_touched()
 *
 * The lists say nothing of a merged page's sharers: KSM itself marks the page as
 * accessed when it merges it.
 *
 * New anonymous pages start in a youngest generation or on the inactive list,
 * and without memory pressure stay there: what the hardware saw goes first.
 *
 * Return: enum nuksm_heat
 */
u8 nuksm_heat(struct folio *folio, bool touched)
{
	if (touched) {
		/* Taken from the page table, given back to reclaim. */
		folio_set_young(folio);
		return NUKSM_TOUCHED;
	}
	if (!folio_test_ksm(folio) &&
	    (folio_test_active(folio) || folio_is_young_generation(folio)))
		return NUKSM_LISTED;
	return NUKSM_COLD;
}

/* Could this node take a page without anybody having to reclaim for it? */
static bool has_room(int nid)
{
	int z;

	if (!node_state(nid, N_MEMORY))
		return false;
	for (z = 0; z < MAX_NR_ZONES; z++) {
		struct zone *zone = NODE_DATA(nid)->node_zones + z;

		if (managed_zone(zone) &&
		    zone_watermark_ok(zone, 0, high_wmark_pages(zone) + 1,
				      ZONE_MOVABLE, 0))
			return true;
	}
	return false;
}

/**
 * nuksm_decide - does a page belong on the newcomer's node?
 * @ballot: with all sharers added
 * @kpfn: page frame number of the page, for the trace
 * @merging: the newcomer's page is still there, and may stay instead of the
 *	page
 *
 * A node without room does not win. Counts and traces what was decided.
 *
 * Return: whether the page belongs there, and not where it is.
 */
bool nuksm_decide(const struct nuksm_ballot *ballot, unsigned long kpfn,
		  bool merging)
{
	enum nuksm_reason reason;
	bool wins;

	if (ballot->present)
		return false;
	wins = nuksm_newcomer_wins(ballot, &nuksm_credits, &reason);
	if (wins ? !has_room(ballot->newcomer.nid) :
	    merging && !has_room(ballot->page_nid)) {
		wins = !wins;
		reason = NUKSM_NO_ROOM;
	}
	nuksm_placement_stats.placed[reason]++;
	trace_nuksm_place(kpfn, ballot, reason, wins);
	return wins;
}

/**
 * nuksm_migrate - move a merged page to another node
 * @folio: the page; the caller's reference to it is given up
 * @nid: the node to move it to
 *
 * All who share the page follow. Neither reclaims nor waits: a page that is
 * busy, or finds no room, stays where it is.
 *
 * Context: ksm_thread_mutex held, but no mmap_lock and no folio lock.
 */
void nuksm_migrate(struct folio *folio, int nid)
{
	struct migration_target_control target = {
		.nid = nid,
		.gfp_mask = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) |
			    __GFP_THISNODE | __GFP_NOWARN | __GFP_NOMEMALLOC,
		.reason = MR_NUMA_MISPLACED,
	};
	unsigned long pfn = folio_pfn(folio);
	int from = folio_nid(folio);
	LIST_HEAD(folios);
	int err = -EBUSY;

	if (folio_isolate_lru(folio)) {
		node_stat_add_folio(folio, NR_ISOLATED_ANON +
				    folio_is_file_lru(folio));
		list_add(&folio->lru, &folios);
	}
	folio_put(folio);
	if (!list_empty(&folios)) {
		err = migrate_pages(&folios, alloc_migration_target, NULL,
				    (unsigned long)&target, MIGRATE_ASYNC,
				    MR_NUMA_MISPLACED, NULL);
		if (err)
			putback_movable_pages(&folios);
	}
	if (err)
		nuksm_placement_stats.migrate_refused++;
	else
		nuksm_placement_stats.migrated++;
	trace_nuksm_migrate(pfn, from, nid, err);
}

static int __init nuksm_placement_init(void)
{
	get_random_bytes(&nuksm_credits, sizeof(nuksm_credits));
	return 0;
}
subsys_initcall(nuksm_placement_init);

static const char * const placement_names[NR_NUKSM_PLACEMENTS] = {
	[NUKSM_FIRST]		= "first",
	[NUKSM_FAIR]		= "fair",
	[NUKSM_PRIORITY]	= "priority",
};

static ssize_t placement_show(struct kobject *kobj,
			      struct kobj_attribute *attr, char *buf)
{
	enum nuksm_placement current_placement = READ_ONCE(nuksm_placement);
	ssize_t len = 0;
	int i;

	for (i = 0; i < NR_NUKSM_PLACEMENTS; i++)
		len += sysfs_emit_at(buf, len,
				     i == current_placement ? "%s[%s]" : "%s%s",
				     i ? " " : "", placement_names[i]);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t placement_store(struct kobject *kobj,
			       struct kobj_attribute *attr,
			       const char *buf, size_t count)
{
	int placement = sysfs_match_string(placement_names, buf);

	if (placement < 0)
		return placement;
	WRITE_ONCE(nuksm_placement, placement);
	return count;
}

#define STATS	nuksm_placement_stats

static NUKSM_COUNTER(placed_hot, STATS.placed[NUKSM_BY_HEAT]);
static NUKSM_COUNTER(placed_spread, STATS.placed[NUKSM_BY_SPREAD]);
static NUKSM_COUNTER(placed_priority, STATS.placed[NUKSM_BY_PRIORITY]);
static NUKSM_COUNTER(placed_no_room, STATS.placed[NUKSM_NO_ROOM]);
static NUKSM_COUNTER(migrated, STATS.migrated);
static NUKSM_COUNTER(migrate_refused, STATS.migrate_refused);

/* The nodes that have any, as in numa_maps: N0=123 N1=456 */
static ssize_t show_by_node(char *buf, size_t offset)
{
	struct ksm_node_count *counts;
	ssize_t len = 0;
	int nid;

	counts = kcalloc(nr_node_ids, sizeof(*counts), GFP_KERNEL);
	if (!counts)
		return -ENOMEM;
	ksm_count_by_node(counts);
	for (nid = 0; nid < nr_node_ids; nid++) {
		unsigned long *count = (void *)&counts[nid] + offset;

		if (*count)
			len += sysfs_emit_at(buf, len, "%sN%d=%lu",
					     len ? " " : "", nid, *count);
	}
	kfree(counts);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t pages_shared_by_node_show(struct kobject *kobj,
					 struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct ksm_node_count, shared));
}

static ssize_t pages_sharing_by_node_show(struct kobject *kobj,
					  struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct ksm_node_count, sharing));
}

static struct kobj_attribute placement_attr = __ATTR_RW(placement);
static struct kobj_attribute pages_shared_by_node_attr =
	__ATTR_RO(pages_shared_by_node);
static struct kobj_attribute pages_sharing_by_node_attr =
	__ATTR_RO(pages_sharing_by_node);

static struct attribute *placement_attrs[] = {
	&placement_attr.attr,
	&placed_hot_counter.attr.attr,
	&placed_spread_counter.attr.attr,
	&placed_priority_counter.attr.attr,
	&placed_no_room_counter.attr.attr,
	&migrated_counter.attr.attr,
	&migrate_refused_counter.attr.attr,
	&pages_shared_by_node_attr.attr,
	&pages_sharing_by_node_attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_placement_attr_group = {
	.name = "ksm",
	.attrs = placement_attrs,
};
