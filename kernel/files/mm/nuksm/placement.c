// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's placement: what the policy asks about pages and who pays for them, and
 * how a merged page gets to another node.
 */

#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/memory-tiers.h>
#include <linux/mempolicy.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/random.h>
#include <linux/rmap.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/siphash.h>
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

/**
 * nuksm_belongs - where does a page belong?
 * @ballot: with all added who draw it
 * @lot: of the page
 * @kpfn: page frame number of the page; if it is not merged yet, of one of two
 * @asker: why it is asked; a page that is merged would have to be moved
 * @wanted: where it belonged if every node took pages
 *
 * Nothing belongs on a slow tier, from which nothing would bring a merged page back, unless all
 * who share it are there, and, if it is merged, it has to leave. Nodes that have no room are passed
 * over; if there is no other, a merged page belongs where it is. Counts and traces
 * what was decided, but not that a page which was looked at stays.
 *
 * Context: ksm_thread_mutex held.
 *
 * Return: the node, or NUMA_NO_NODE if nobody draws the page.
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
		if (merged && !ballot->must_leave && !bitmap_empty(barred, NUKSM_MOST_NODES))
			return *wanted = here;
		bitmap_zero(barred, NUKSM_MOST_NODES);
	}
	first = nuksm_ballot_pick(ballot, lot, barred);
	*wanted = first;
	if (first == NUMA_NO_NODE)
		return first;
	reason = nuksm_ballot_reason(ballot);
	for (nid = first; nid != NUMA_NO_NODE && nid != here && !nuksm_node_has_room(nid);
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
 * nuksm_pays_for - does the memory cgroup of a process pay for a page?
 * @mm: the process
 * @folio: the page, locked
 *
 * Return: whether it does.
 */
bool nuksm_pays_for(struct mm_struct *mm, struct folio *folio)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(mm);
	bool pays;

	rcu_read_lock();
	pays = memcg == folio_memcg(folio);
	rcu_read_unlock();
	mem_cgroup_put(memcg);
	return pays;
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
