/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM: what KSM (mm/ksm.c) sees of it.
 *
 * Without CONFIG_NUKSM everything here folds away: one tree, ordered by
 * content.
 */
#ifndef _MM_NUKSM_H
#define _MM_NUKSM_H

#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/nuksm.h>
#include <linux/sysfs.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "areas.h"
#include "compat.h"
#include "policy.h"
#include "windows.h"

struct mempolicy;

#ifdef CONFIG_NUKSM

/* For fields that exist with CONFIG_NUKSM only, as mm/ksm.c has NUMA(). */
#define NUKSM(x)	(x)
#define DO_NUKSM(x)	(x)

/* For what stock's does where nuKSM does something else. */
#define DO_STOCK(...)	((void)0)

/* For members that are never used at once, where KSM has room for each of them. */
#define NUKSM_UNION	union

/**
 * struct nuksm_index - how the stable and unstable trees are organised
 * @kib_per_tree: KiB of memory per tree of each kind; 0 for one tree
 * @trees: number of trees of each kind, for each node that has its own
 * @by_checksum: order inside a tree is by (checksum, content), not by content
 * @checksum_mask: the bits of a checksum that are used; all but in tests
 *
 * Locking: written under ksm_thread_mutex while nothing is filed in a tree; read
 * by whoever walks a tree, which holds that mutex as well. Files in sysfs read
 * single members without it.
 */
struct nuksm_index {
	unsigned int kib_per_tree;
	unsigned int trees;
	bool by_checksum;
	u32 checksum_mask;
};

/**
 * enum nuksm_setting - what of the index can be set
 * @NUKSM_SET_ORDER: &struct nuksm_index.by_checksum
 * @NUKSM_SET_KIB_PER_TREE: &struct nuksm_index.kib_per_tree
 * @NUKSM_SET_CHECKSUM_MASK: &struct nuksm_index.checksum_mask
 */
enum nuksm_setting {
	NUKSM_SET_ORDER,
	NUKSM_SET_KIB_PER_TREE,
	NUKSM_SET_CHECKSUM_MASK,
};

/**
 * struct nuksm_stats - what searching costs, counted under ksm_thread_mutex
 * @checksum_compares: levels passed by comparing two integers
 * @content_compares: levels at which two pages were compared
 * @compared_bytes: that these looked at, of each page
 * @collisions: pages of equal checksum that differed
 * @replaced: pages gone or rewritten, that were taken out of the unstable tree
 * @summed: pages read to make their checksums
 * @last_scan_ms: duration of the last full scan
 * @last_scan_cpu_ms: CPU time that ksmd took for it
 */
struct nuksm_stats {
	unsigned long checksum_compares;
	unsigned long content_compares;
	unsigned long compared_bytes;
	unsigned long collisions;
	unsigned long replaced;
	unsigned long summed;
	unsigned long last_scan_ms;
	unsigned long last_scan_cpu_ms;
};

extern struct nuksm_index nuksm_index;
extern struct nuksm_stats nuksm_stats;

/* For tests and comparison: read every page in every scan, whether written to or not. */
extern bool nuksm_read_all;

/* Chosen at random when KSM is first started, so that nobody foresees checksums. */
extern u64 nuksm_seed;

extern const struct attribute_group nuksm_index_attr_group;
extern const struct attribute_group nuksm_cost_attr_group;

/* For a counter that is written under ksm_thread_mutex, and that anybody reads. */
static inline void nuksm_count(unsigned long *counter, unsigned long n)
{
	WRITE_ONCE(*counter, *counter + n);
}

/* Of more pages with the same content the others are not looked for: that takes too long. */
#define NUKSM_MOST_DUPS		64

/* Does anybody but its mappings hold the page, and the caller, who has so many references? */
static inline bool nuksm_is_held_besides(struct folio *folio, int refs)
{
	int cached = folio_test_swapcache(folio) ? folio_nr_pages(folio) : 0;

	return folio_ref_count(folio) > folio_mapcount(folio) + cached + refs;
}

/* The same, for ksmd, which has one reference. Such a page cannot be merged. */
static inline bool nuksm_is_held(struct folio *folio)
{
	return nuksm_is_held_besides(folio, 1);
}

/* The number of roots that trees of one kind take for @nids nodes. */
static inline unsigned int nuksm_nr_roots(unsigned int nids)
{
	return nids * nuksm_index.trees;
}

/*
 * The root, among those of its kind, of node @nid's pages with @checksum in merge domain
 * @domain: equal pages of many domains do not make one tree deep.
 */
static inline unsigned int nuksm_root(int nid, u32 checksum, u64 domain)
{
	u32 key = checksum + hash_64(domain, 32);

	return nid * nuksm_index.trees + key % nuksm_index.trees;
}

static inline bool nuksm_by_checksum(void)
{
	return nuksm_index.by_checksum;
}

/*
 * Which way to go from a tree's node whose page has checksum @there, looking
 * for one with checksum @here: below 0 left, above 0 right, 0 for the contents
 * to decide.
 */
static inline int nuksm_compare(u32 here, u32 there)
{
	if (!nuksm_index.by_checksum)
		return 0;
	if (here == there)
		return 0;
	nuksm_count(&nuksm_stats.checksum_compares, 1);
	return here < there ? -1 : 1;
}

/* The same of two merge domains, where checksums are equal. */
static inline int nuksm_compare_domains(u64 here, u64 there)
{
	return here < there ? -1 : here > there;
}

/*
 * Where checksums decide, what is filed in an unstable tree stays from scan to scan;
 * elsewhere an item is there if it was filed @age scans ago, and that is 0.
 */
static inline unsigned char nuksm_unstable_age(unsigned char age)
{
	return nuksm_index.by_checksum ? 0 : age;
}

/* The part of a checksum that is used. */
static inline u32 nuksm_narrow(u32 checksum)
{
	return checksum & nuksm_index.checksum_mask;
}

/**
 * struct nuksm_counter - a file in /sys/kernel/mm/ksm that shows a counter
 * @attr: the file, read by nuksm_counter_show()
 * @counter: what it shows
 */
struct nuksm_counter {
	struct kobj_attribute attr;
	unsigned long *counter;
};

/*
 * For root: they tell of single pages, those of other users included, to
 * whoever arranges that nothing else happens meanwhile.
 */
#define NUKSM_COUNTER(_name, _what)					\
	struct nuksm_counter _name##_counter = {			\
		.attr = __ATTR(_name, 0400, nuksm_counter_show, NULL),	\
		.counter = &(_what),					\
	}

ssize_t nuksm_counter_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf);

unsigned int nuksm_trees_wanted(unsigned int kib_per_tree);
int nuksm_compare_contents(struct page *page, struct page *other, u32 here,
			   u32 there);
void nuksm_scan_begins(void);
void nuksm_scan_ends(void);
void nuksm_was_used(struct folio *folio);
void nuksm_promote(struct folio *folio);

/* Implemented by mm/ksm.c, which owns the trees and their lock. */
int ksm_reindex(enum nuksm_setting setting, u32 value);

#else /* !CONFIG_NUKSM */

#define NUKSM(...)	(0)
#define DO_NUKSM(...)	((void)0)
#define DO_STOCK(x)	(x)
#define NUKSM_UNION	struct

static inline int nuksm_nr_roots(int nids)
{
	return nids;
}

static inline int nuksm_root(int nid, u32 checksum, u64 domain)
{
	return nid;
}

static inline bool nuksm_by_checksum(void)
{
	return false;
}

static inline int nuksm_compare(u32 here, u32 there)
{
	return 0;
}

static inline int nuksm_compare_domains(u64 here, u64 there)
{
	return 0;
}

static inline unsigned char nuksm_unstable_age(unsigned char age)
{
	return age;
}

static inline u32 nuksm_narrow(u32 checksum)
{
	return checksum;
}

static inline int nuksm_compare_contents(struct page *page, struct page *other,
					 u32 here, u32 there)
{
	return memcmp_pages(page, other);
}

static inline void nuksm_scan_begins(void)
{
}

static inline void nuksm_scan_ends(void)
{
}

#endif /* CONFIG_NUKSM */

#ifdef CONFIG_NUKSM_DOMAINS

/**
 * enum nuksm_asked_domain - what was written to a cgroup's memory.ksm_domain
 * @NUKSM_ASKED_NONE: nothing, or "inherit": its parent's, if that has one
 * @NUKSM_ASKED_OWN: "own", for it and its descendants
 * @NUKSM_ASKED_NUMBER: 0, and others by as much more
 */
enum nuksm_asked_domain {
	NUKSM_ASKED_NONE,
	NUKSM_ASKED_OWN,
	NUKSM_ASKED_NUMBER,
};

/*
 * Numbers that no domain has: that of a process whose last thread has ended, though others
 * hold its memory, and that of one that is being forked.
 */
#define NUKSM_NO_DOMAIN		(BIT_ULL(NUKSM_DOMAIN_BITS) - 2)
#define NUKSM_UNBORN		(BIT_ULL(NUKSM_DOMAIN_BITS) - 1)

/* Mappings un-merged, as their pages were another domain's; counted under ksm_thread_mutex */
extern unsigned long nuksm_domain_unmerged;

extern bool nuksm_has_domains;
extern const struct attribute_group nuksm_domains_attr_group;

u64 nuksm_domain_of(struct mm_struct *mm);
bool nuksm_is_settled(struct mm_struct *mm, u64 domain);
bool nuksm_has_room(struct mm_struct *mm);
void nuksm_want_room(struct mm_struct *mm);
bool nuksm_payer_has_room(unsigned short id, struct mm_struct *mm);
void nuksm_take_back(void);
void nuksm_look_for_room(struct mm_struct *mm);
void nuksm_forget_full(void);
/* Most of a page that may be looked at to learn who maps it */
#define NUKSM_PAGE_AREAS	4096

extern bool nuksm_gives_way;
bool nuksm_has_outsiders(struct folio *folio, struct mm_struct *mm, u64 domain);
void nuksm_has_asked(void);
void nuksm_stop_merging(struct vm_area_struct *vma);

/* The domain under which a process's pages are filed. */
static inline u64 nuksm_filed_domain(const struct mm_struct *mm)
{
	return mm->nuksm_membership.domain;
}

#else /* !CONFIG_NUKSM_DOMAINS */

static inline u64 nuksm_filed_domain(const struct mm_struct *mm)
{
	return 0;
}

/* No function: to find the folio is to read the page. */
#define nuksm_has_outsiders(...)	false

static inline bool nuksm_is_settled(struct mm_struct *mm, u64 domain)
{
	return true;
}

static inline bool nuksm_has_room(struct mm_struct *mm)
{
	return true;
}

static inline void nuksm_want_room(struct mm_struct *mm)
{
}

static inline void nuksm_has_asked(void)
{
}

static inline void nuksm_stop_merging(struct vm_area_struct *vma)
{
}

#endif /* CONFIG_NUKSM_DOMAINS */

#ifdef CONFIG_NUKSM_PLACEMENT

/*
 * What struct ksm_rmap_item says of a mapping while its page is merged and while it
 * is not shares the same bytes, and leaves two of eight for nuKSM.
 */
#define NUKSM_ITEM_ALIGN	2
#define NUKSM_INDEX_BITS	MIN(48, BITS_PER_LONG)

/**
 * struct nuksm_placement_stats - counted under ksm_thread_mutex
 * @placed: decisions where a merged page belongs, by enum nuksm_reason
 * @migrated: merged pages moved to where they belong
 * @migrate_refused: those that could not be moved
 * @unshared: mappings of those that took too long to find, un-merged
 */
struct nuksm_placement_stats {
	unsigned long placed[NR_NUKSM_REASONS];
	unsigned long migrated;
	unsigned long migrate_refused;
	unsigned long unshared;
};

/**
 * enum nuksm_asker - why it is asked where a page belongs
 * @NUKSM_MERGES: two pages are about to be merged
 * @NUKSM_SCANNED: ksmd came by a merged page, whose sharers are others now
 * @NUKSM_LOOKED: a merged page was looked at
 */
enum nuksm_asker {
	NUKSM_MERGES,
	NUKSM_SCANNED,
	NUKSM_LOOKED,
};

/**
 * struct nuksm_look_stats - counted by nuksmd alone
 * @looks: how many there were
 * @cpu_us: CPU time that they took, with the moves they made
 * @round_ms: how long it took, the last time, until all mappings had been looked at
 * @used_local: mappings that a look saw used, whose page was on their process's node
 * @used_remote: those whose page was not
 */
struct nuksm_look_stats {
	unsigned long looks;
	unsigned long cpu_us;
	unsigned long round_ms;
	unsigned long used_local;
	unsigned long used_remote;
};

/**
 * struct nuksm_node_count - merged pages on a node
 * @shared: pages, as in pages_shared
 * @sharing: mappings beyond each page's first, as in pages_sharing
 * @replicas: those of @shared that are copies for this node
 * @unwanted: so many of these are to be given back, as memory is short
 * @urgent: number of the last one who was about to be killed and waits for them, see nuksm_dying
 * @none_until: when new ones may be made, in seconds since boot
 * @folded: how many replicas were, so that their memory is free; by nuksmd alone
 * @folded_before: how many were when somebody was about to be killed; under oom_lock
 * @folded_noted: how many were when the last one who waited had; under oom_lock
 * @in_vain_until: until then nobody waits for them, as the last one who did got too few; in
 *	seconds since boot, under oom_lock
 *
 * Others change under the lock of the page concerned.
 */
struct nuksm_node_count {
	atomic_long_t shared;
	atomic_long_t sharing;
	atomic_long_t replicas;
	atomic_long_t unwanted;
	int urgent;
	time64_t none_until;
	unsigned long folded;
	unsigned long folded_before;
	unsigned long folded_noted;
	time64_t in_vain_until;
};

/**
 * struct nuksm_replica_stats - counted by nuksmd alone
 * @made: copies of merged pages made for a node
 * @folded: those whose sharers went back to another page
 * @refused: how many more pages hot enough for them would have had in the last round of looks,
 *	but for the budget
 * @glance_ms: the time within which a page has to be used in each look to be hot enough, or
 *	0: as long as looks
 */
struct nuksm_replica_stats {
	unsigned long made;
	unsigned long folded;
	unsigned long refused;
	unsigned long glance_ms;
};

/* Bits of the number of a node in struct ksm_rmap_item. */
#define NUKSM_HOME_BITS	10

/**
 * struct nuksm_memory - on which nodes a process may have memory, as ksmd has seen it
 * @now: these
 * @before: and those before that was changed
 */
struct nuksm_memory {
	nodemask_t now;
	nodemask_t before;
};

/*
 * Bits of a scan's number in struct ksm_stable_node, of moves within it, and of the
 * scans in which they were in vain.
 */
#define NUKSM_SCAN_BITS		2
#define NUKSM_MOVES_BITS	3
#define NUKSM_VAIN_BITS		2

/* Bits of its rank in struct ksm_stable_node, and of the round of looks that it is of. */
#define NUKSM_RANK_BITS		3
#define NUKSM_ROUND_BITS	5

extern enum nuksm_placement nuksm_placement;
extern struct nuksm_placement_stats nuksm_placement_stats;
extern struct nuksm_look_stats nuksm_look_stats;
/* Of a CPU's time, for looks */
extern unsigned int nuksm_look_permille;
/* Set when the rule has changed: for the next round of looks */
extern int nuksm_replaces;
extern struct nuksm_replica_stats nuksm_replica_stats;
/* Of what merging saves, for replicas */
extern unsigned int nuksm_replica_percent;
/* Where nuksmd waits for its next look, or for another setting */
extern wait_queue_head_t nuksm_look_wait;
extern struct nuksm_node_count nuksm_node_counts[MAX_NUMNODES];
extern const struct attribute_group nuksm_placement_attr_group;

void nuksm_draw_secret(void);
u32 nuksm_lot(struct page *page);
u8 nuksm_heat(struct folio *folio, bool touched, bool young);
int nuksm_belongs(const struct nuksm_ballot *ballot, u32 lot,
		  unsigned long kpfn, enum nuksm_asker asker, int *wanted);
bool nuksm_node_has_room(int nid);
bool nuksm_takes_replica(int nid);
bool nuksm_is_tight(int nid);
bool nuksm_is_out(int nid);
bool nuksm_payer_is_limited(struct folio *folio);

/**
 * struct nuksm_payers - who was asked to pay for a copy of one page
 * @limited: the last cgroup found to have a limit, with a reference, or NULL
 * @asked: for how many processes that had to be looked for
 */
struct nuksm_payers {
	struct mem_cgroup *limited;
	unsigned int asked;
};

bool nuksm_may_pay(struct mm_struct *mm, struct nuksm_payers *payers);
bool nuksm_pays_for(struct mm_struct *mm, struct folio *folio);
unsigned long nuksm_replicas(void);
void nuksm_trace_replica(const struct folio *from, const struct folio *to,
			 unsigned int sharers);
bool nuksm_can_be_moved(struct folio *folio);
bool nuksm_all_are_found(struct folio *folio);
int nuksm_migrate(struct folio *folio, int nid);
void nuksm_prefer_node(int nid);
bool nuksm_allows(struct mempolicy *policy, int nid);
void nuksm_settle(struct mm_struct *mm);
void nuksm_memory_of(struct mm_struct *mm, nodemask_t *nodes);
bool nuksm_may_have_memory(struct mm_struct *mm, int nid);
int nuksm_settled_on(const struct mm_struct *mm);

#else /* !CONFIG_NUKSM_PLACEMENT */

#ifdef CONFIG_NUKSM
/* One byte of eight: S390 needs more than 48 bits. */
#define NUKSM_ITEM_ALIGN	1
#define NUKSM_INDEX_BITS	MIN(56, BITS_PER_LONG)
#else
#define NUKSM_ITEM_ALIGN	sizeof(long)
#define NUKSM_INDEX_BITS	BITS_PER_LONG
#endif

static inline void nuksm_draw_secret(void)
{
}

static inline void nuksm_prefer_node(int nid)
{
}

static inline int nuksm_settled_on(const struct mm_struct *mm)
{
	return NUMA_NO_NODE;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_H */
