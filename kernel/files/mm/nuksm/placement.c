// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's placement: the knob, what the policy asks about pages and nodes, and
 * how a merged page gets to another node.
 */

#include <linux/cpuset.h>
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mempolicy.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/page_idle.h>
#include <linux/random.h>
#include <linux/rmap.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/siphash.h>
#include <linux/sysfs.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "nuksm.h"

#define CREATE_TRACE_POINTS
#include <trace/events/nuksm.h>

/* Written by sysfs, read by ksmd at each decision. */
enum nuksm_placement nuksm_placement = NUKSM_FAIR;

struct nuksm_placement_stats nuksm_placement_stats;

unsigned int nuksm_look_permille = 5;

unsigned int nuksm_replica_percent;

struct nuksm_replica_stats nuksm_replica_stats;

int nuksm_replaces;

DECLARE_WAIT_QUEUE_HEAD(nuksm_look_wait);

struct nuksm_look_stats nuksm_look_stats;

struct nuksm_node_count nuksm_node_counts[MAX_NUMNODES];

/* What lots follow from, besides contents. Drawn once, under ksm_thread_mutex. */
static siphash_key_t nuksm_secret;

/**
 * nuksm_draw_secret - draw what nobody shall know
 *
 * Context: ksm_thread_mutex held; no page was merged yet.
 */
void nuksm_draw_secret(void)
{
	get_random_bytes(&nuksm_secret, sizeof(nuksm_secret));
}

/**
 * nuksm_lot - the lot of a page
 * @page: the page
 *
 * Not its checksum: that is quick to make, and who sees which contents collide
 * learns its seed.
 *
 * Return: a number of NUKSM_LOT_BITS, the same whenever the content is.
 */
u32 nuksm_lot(struct page *page)
{
	void *addr = kmap_local_page(page);
	u64 lot = siphash(addr, PAGE_SIZE, &nuksm_secret);

	kunmap_local(addr);
	return lot >> (64 - NUKSM_LOT_BITS);
}

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
 * @young: somebody else found an accessed bit set since then
 *
 * The lists say nothing of a merged page's sharers: KSM itself marks the page as
 * accessed when it merges it.
 *
 * New anonymous pages start in a youngest generation or on the inactive list,
 * and without memory pressure stay there: what the hardware saw goes first. If
 * somebody else took that from the page table, young has it.
 *
 * Return: enum nuksm_heat
 */
u8 nuksm_heat(struct folio *folio, bool touched, bool young)
{
	if (touched)
		return NUKSM_TOUCHED;
	if (!folio_test_ksm(folio) &&
	    (young || folio_test_active(folio) ||
	     folio_is_young_generation(folio)))
		return NUKSM_LISTED;
	return NUKSM_COLD;
}

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

/*
 * Could this node take a page without anybody having to wait for it? It could if
 * it has one to spare. One that is full of files hardly ever has, as these take
 * all there is; it could while kswapd keeps up, which then makes room.
 */
static bool has_room(int nid)
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
 * nuksm_belongs - where does a page belong?
 * @ballot: with all who share it added
 * @lot: of the page
 * @kpfn: page frame number of the page; if it is not merged yet, of one of two
 * @asker: why it is asked; a page that is merged would have to be moved
 * @wanted: where it belonged if every node took pages
 *
 * Nothing belongs on a slow tier, from which nothing would bring a merged page
 * back, unless all who share it are there. Nodes that have no room are passed
 * over; if there is no other, a merged page belongs where it is. Counts and traces
 * what was decided, but not that a page which was looked at stays.
 *
 * Context: ksm_thread_mutex held.
 *
 * Return: the node, or NUMA_NO_NODE if nobody shares the page.
 */
int nuksm_belongs(const struct nuksm_ballot *ballot, u32 lot,
		  unsigned long kpfn, enum nuksm_asker asker, int *wanted)
{
	static unsigned long barred[NUKSM_NODE_LONGS];
	bool merged = asker != NUKSM_MERGES;
	int here = merged ? pfn_to_nid(kpfn) : NUMA_NO_NODE;
	enum nuksm_reason reason;
	int first, nid;

	bitmap_zero(barred, NUKSM_MOST_NODES);
	for_each_set_bit(nid, ballot->nodes, NUKSM_MOST_NODES) {
		if (!node_is_toptier(nid))
			__set_bit(nid, barred);
	}
	if (bitmap_equal(barred, ballot->nodes, NUKSM_MOST_NODES)) {
		if (merged && !bitmap_empty(barred, NUKSM_MOST_NODES))
			return *wanted = here;
		bitmap_zero(barred, NUKSM_MOST_NODES);
	}
	first = nuksm_ballot_pick(ballot, lot, barred);
	*wanted = first;
	if (first == NUMA_NO_NODE)
		return first;
	reason = nuksm_ballot_reason(ballot);
	for (nid = first; nid != NUMA_NO_NODE && nid != here && !has_room(nid);
	     nid = nuksm_ballot_pick(ballot, lot, barred))
		__set_bit(nid, barred);
	if (nid == NUMA_NO_NODE)
		nid = merged ? here : first;
	if (nid != first)
		reason = NUKSM_NO_ROOM;
	if (bitmap_weight(ballot->nodes, NUKSM_MOST_NODES) > 1 &&
	    !(asker == NUKSM_LOOKED && nid == here)) {
		nuksm_count(&nuksm_placement_stats.placed[reason], 1);
		trace_nuksm_place(kpfn, ballot, reason, nid);
	}
	return nid;
}

/* Nobody but its mappings, and the caller, holds the page. */
static bool is_held_by_nobody(struct folio *folio)
{
	return folio_ref_count(folio) ==
	       folio_mapcount(folio) + folio_test_swapcache(folio) + 1;
}

/**
 * nuksm_can_be_moved - is it worth trying to move a merged page?
 * @folio: the page, of which the caller has a reference
 *
 * It is not if somebody else holds it. That it waits on this CPU to be put on a
 * list, as it may if it is new, is mended.
 *
 * Return: whether nobody holds it but its mappings and the caller.
 */
bool nuksm_can_be_moved(struct folio *folio)
{
	if (is_held_by_nobody(folio))
		return true;
	lru_add_drain();
	return is_held_by_nobody(folio);
}

static bool count_mapping(struct folio *folio, struct vm_area_struct *vma,
			  unsigned long addr, void *arg)
{
	DEFINE_FOLIO_VMA_WALK(pvmw, folio, vma, addr, 0);
	int *found = arg;

	while (page_vma_mapped_walk(&pvmw))
		++*found;
	return true;
}

/**
 * nuksm_all_are_found - are all mappings of a merged page to be found?
 * @folio: the page, of which the caller has a reference
 *
 * Those are not which a fork made since ksmd came by, of a process that has ended.
 * The page would be unmapped from all others, again and again, and stay where it is.
 *
 * Context: the locks of all areas where it may be, nuksm_lock_areas().
 *
 * Return: whether they are; if somebody has the page's lock, they are not.
 */
bool nuksm_all_are_found(struct folio *folio)
{
	int found = 0;
	struct rmap_walk_control walk = {
		.rmap_one = count_mapping,
		.arg = &found,
	};

	if (!folio_trylock(folio))
		return false;
	rmap_walk(folio, &walk);
	folio_unlock(folio);
	return found >= folio_mapcount(folio);
}

/**
 * nuksm_migrate - move a merged page to another node
 * @folio: the page; the caller's reference to it is given up
 * @nid: the node to move it to
 *
 * All who share the page follow. Nobody waits for memory: a page that is busy,
 * or finds no room, stays where it is; and one that somebody holds is not even
 * tried, as it would be unmapped from all who share it in vain.
 *
 * Context: ksm_thread_mutex held, and the locks of all areas where the page may be, see
 * nuksm_lock_areas(), but no mmap_lock and no folio lock.
 *
 * Return: 0 if it was moved, else an error or the number of pages that were not.
 */
int nuksm_migrate(struct folio *folio, int nid)
{
	struct migration_target_control target = {
		.nid = nid,
		.gfp_mask = (GFP_HIGHUSER_MOVABLE & ~__GFP_DIRECT_RECLAIM) |
			    __GFP_THISNODE | __GFP_NOWARN | __GFP_NOMEMALLOC,
		.reason = MR_NUMA_MISPLACED,
	};
	unsigned long pfn = folio_pfn(folio);
	int from = folio_nid(folio);
	LIST_HEAD(folios);
	int err = -EBUSY;

	if (nuksm_can_be_moved(folio) && folio_isolate_lru(folio)) {
		node_stat_add_folio(folio, NR_ISOLATED_ANON +
				    folio_is_file_lru(folio));
		list_add(&folio->lru, &folios);
	}
	folio_put(folio);
	nuksm_window(NUKSM_WINDOW_ISOLATED);
	if (!list_empty(&folios)) {
		err = migrate_pages(&folios, alloc_migration_target, NULL,
				    (unsigned long)&target, MIGRATE_ASYNC,
				    MR_NUMA_MISPLACED, NULL);
		if (err)
			putback_movable_pages(&folios);
	}
	if (err)
		nuksm_count(&nuksm_placement_stats.migrate_refused, 1);
	else
		nuksm_count(&nuksm_placement_stats.migrated, 1);
	trace_nuksm_migrate(pfn, from, nid, err);
	return err;
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
	return node_is_toptier(nid) && has_room(nid) &&
	       ktime_get_seconds() >= READ_ONCE(nuksm_node_counts[nid].none_until);
}

static bool has_limit(struct mem_cgroup *memcg)
{
	return READ_ONCE(memcg->memory.max) < PAGE_COUNTER_MAX ||
	       READ_ONCE(memcg->memory.high) < PAGE_COUNTER_MAX;
}

/* The first cgroup from @memcg on that has a limit, or NULL. */
static struct mem_cgroup *find_limited(struct mem_cgroup *memcg)
{
	while (memcg && !has_limit(memcg))
		memcg = parent_mem_cgroup(memcg);
	return memcg;
}

/**
 * nuksm_may_pay - may a process's memory cgroup pay for a copy of a merged page?
 * @mm: of the process; the caller keeps the structure
 * @payers: who was asked before for the same page; the caller puts what it refers to
 *
 * Return: whether it has no limit, which it might reach because of that. One that has
 * ended has no cgroup any more.
 */
bool nuksm_may_pay(struct mm_struct *mm, struct nuksm_payers *payers)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(mm), *limited = payers->limited;

	/* Tenants make their cgroups as deep as they like, and many processes there */
	if (!limited || !has_limit(limited) || !mem_cgroup_is_descendant(memcg, limited)) {
		limited = find_limited(memcg);
		payers->asked++;
		if (limited) {
			css_get(&limited->css);
			mem_cgroup_put(payers->limited);
			payers->limited = limited;
		}
	}
	mem_cgroup_put(memcg);
	return !limited && rcu_access_pointer(mm->owner);
}

/**
 * nuksm_payer_is_limited - has the memory cgroup that pays for a page a limit?
 * @folio: the page, locked
 *
 * Return: whether it or one above it has.
 */
bool nuksm_payer_is_limited(struct folio *folio)
{
	bool limited;

	rcu_read_lock();
	limited = find_limited(folio_memcg(folio));
	rcu_read_unlock();
	return limited;
}

/**
 * nuksm_replicas - how many replicas there are
 *
 * Return: their number, on all nodes.
 */
unsigned long nuksm_replicas(void)
{
	long replicas = 0;
	int nid;

	for_each_online_node(nid)
		replicas += atomic_long_read(&nuksm_node_counts[nid].replicas);
	return max(replicas, 0L);
}

/**
 * nuksm_trace_replica - tell that sharers of one page share another one now
 * @from: the page
 * @to: the other one, of the same content
 * @sharers: how many
 */
void nuksm_trace_replica(const struct folio *from, const struct folio *to,
			 unsigned int sharers)
{
	trace_nuksm_replica(folio_pfn((struct folio *)from), folio_nid(from),
			    folio_pfn((struct folio *)to), folio_nid(to), sharers);
}

/**
 * nuksm_prefer_node - where memory for the current task's faults comes from
 * @nid: the node to prefer, or NUMA_NO_NODE for what the task itself wants
 *
 * For pages that it is about to fault in on behalf of another process, see
 * nuksm_unmerge(). A policy of that process's mapping goes first.
 *
 * Context: ksm_thread_mutex held; the last call before it is given up has
 * NUMA_NO_NODE.
 */
void nuksm_prefer_node(int nid)
{
#ifdef CONFIG_TMPFS	/* has what makes policies of names */
	static struct mempolicy *own;
	static int preferred = NUMA_NO_NODE;
	struct mempolicy *policy = own, *before;
	char name[24];

	scnprintf(name, sizeof(name), "prefer:%d", nid);
	if (nid != preferred && nid != NUMA_NO_NODE &&
	    mpol_parse_str(name, &policy))
		nid = NUMA_NO_NODE;
	if (nid == preferred)
		return;

	task_lock(current);
	before = current->mempolicy;
	current->mempolicy = policy;
	task_unlock(current);

	if (preferred == NUMA_NO_NODE)
		own = before;
	else
		mpol_put(before);
	preferred = nid;
#endif
}

/**
 * nuksm_show_process - show where a process's merged pages are
 * @m: the process's ksm_stat
 * @mm: of the process; the caller keeps it in use
 *
 * Local are those on the node where the process had its own copy of the page, and
 * replicas those that others share elsewhere.
 * Takes no lock: while pages are merged, these numbers may be of different
 * moments.
 */
void nuksm_show_process(struct seq_file *m, struct mm_struct *mm)
{
	/* Written by ksmd, plainly */
	long merged = data_race(mm->ksm_merging_pages);
	long local = clamp(atomic_long_read(&mm->nuksm.local), 0L, merged);
	long replicas = clamp(atomic_long_read(&mm->nuksm.replicas), 0L, merged);

	seq_printf(m, "ksm_merged_local %ld\n", local);
	seq_printf(m, "ksm_merged_remote %ld\n", merged - local);
	/* Others use these pages elsewhere now: nothing that a process should know */
	if (!security_capable(m->file->f_cred, &init_user_ns, CAP_SYS_ADMIN, CAP_OPT_NOAUDIT))
		seq_printf(m, "ksm_merged_replicas %ld\n", replicas);
}

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
	if (placement == READ_ONCE(nuksm_placement))
		return count;
	WRITE_ONCE(nuksm_placement, placement);
	WRITE_ONCE(nuksm_replaces, 1);
	return count;
}

static ssize_t look_cpu_permille_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_look_permille));
}

/* A number up to @most. */
static int parse(const char *buf, unsigned int most, unsigned int *value)
{
	int err = kstrtouint(buf, 10, value);

	return err ?: *value > most ? -EINVAL : 0;
}

static ssize_t look_cpu_permille_store(struct kobject *kobj,
				       struct kobj_attribute *attr,
				       const char *buf, size_t count)
{
	unsigned int permille;
	int err = parse(buf, 1000, &permille);

	if (err)
		return err;
	WRITE_ONCE(nuksm_look_permille, permille);
	wake_up_interruptible(&nuksm_look_wait);
	return count;
}

static ssize_t replica_percent_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_replica_percent));
}

static ssize_t replica_percent_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	unsigned int percent;
	int err = parse(buf, 100, &percent);

	if (err)
		return err;
	WRITE_ONCE(nuksm_replica_percent, percent);
	return count;
}

#define STATS	nuksm_placement_stats

static NUKSM_COUNTER(placed_hot, STATS.placed[NUKSM_BY_HEAT]);
static NUKSM_COUNTER(placed_spread, STATS.placed[NUKSM_BY_SPREAD]);
static NUKSM_COUNTER(placed_priority, STATS.placed[NUKSM_BY_PRIORITY]);
static NUKSM_COUNTER(placed_no_room, STATS.placed[NUKSM_NO_ROOM]);
static NUKSM_COUNTER(migrated, STATS.migrated);
static NUKSM_COUNTER(migrate_refused, STATS.migrate_refused);
static NUKSM_COUNTER(migrate_unshared, STATS.unshared);
static NUKSM_COUNTER(looks, nuksm_look_stats.looks);
static NUKSM_COUNTER(look_cpu_us, nuksm_look_stats.cpu_us);
static NUKSM_COUNTER(look_round_ms, nuksm_look_stats.round_ms);
static NUKSM_COUNTER(used_local, nuksm_look_stats.used_local);
static NUKSM_COUNTER(used_remote, nuksm_look_stats.used_remote);
static NUKSM_COUNTER(replicas_made, nuksm_replica_stats.made);
static NUKSM_COUNTER(replicas_folded, nuksm_replica_stats.folded);
static NUKSM_COUNTER(replicas_refused, nuksm_replica_stats.refused);
static NUKSM_COUNTER(replica_glance_ms, nuksm_replica_stats.glance_ms);

/* The nodes that have any, as in numa_maps: N0=123 N1=456 */
static ssize_t show_by_node(char *buf, size_t offset)
{
	ssize_t len = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++) {
		atomic_long_t *counter = (void *)&nuksm_node_counts[nid] + offset;
		long count = atomic_long_read(counter);

		if (count > 0)
			len += sysfs_emit_at(buf, len, "%sN%d=%ld",
					     len ? " " : "", nid, count);
	}
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t pages_shared_by_node_show(struct kobject *kobj,
					 struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, shared));
}

static ssize_t pages_sharing_by_node_show(struct kobject *kobj,
					  struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, sharing));
}

static ssize_t replicas_by_node_show(struct kobject *kobj,
				     struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, replicas));
}

static struct kobj_attribute placement_attr = __ATTR_RW(placement);
static struct kobj_attribute replica_percent_attr = __ATTR_RW(replica_percent);
/* For root, as counters are */
static struct kobj_attribute replicas_by_node_attr =
	__ATTR(replicas_by_node, 0400, replicas_by_node_show, NULL);
static struct kobj_attribute look_cpu_permille_attr = __ATTR_RW(look_cpu_permille);
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
	&migrate_unshared_counter.attr.attr,
	&look_cpu_permille_attr.attr,
	&looks_counter.attr.attr,
	&look_cpu_us_counter.attr.attr,
	&look_round_ms_counter.attr.attr,
	&used_local_counter.attr.attr,
	&used_remote_counter.attr.attr,
	&replica_percent_attr.attr,
	&replicas_made_counter.attr.attr,
	&replicas_folded_counter.attr.attr,
	&replicas_refused_counter.attr.attr,
	&replica_glance_ms_counter.attr.attr,
	&replicas_by_node_attr.attr,
	&pages_shared_by_node_attr.attr,
	&pages_sharing_by_node_attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_placement_attr_group = {
	.name = "ksm",
	.attrs = placement_attrs,
};
