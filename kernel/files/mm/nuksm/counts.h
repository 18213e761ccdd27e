/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's counters of merged pages, by node and by process.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under the
 * lock of the page concerned, or when the page is gone: its node stays, nobody
 * else joins or leaves, and so the counters are exact. Reading them takes no
 * lock.
 */
#ifndef _MM_NUKSM_COUNTS_H
#define _MM_NUKSM_COUNTS_H

#ifdef CONFIG_NUKSM

#include <linux/capability.h>

/* Pages of the stable trees that have lost their last sharer since these were pruned. */
static unsigned long nuksm_orphans;

/* What a chain has of nuKSM is that of its pages. */
static void nuksm_begin_chain(struct ksm_stable_node *chain,
			      const struct ksm_stable_node *dup)
{
	chain->checksum = dup->checksum;
	chain->domain = dup->domain;
#ifdef CONFIG_NUKSM_PLACEMENT
	chain->replica = dup->replica;
#endif
}

static void nuksm_count_orphan(const struct ksm_stable_node *stable_node)
{
	nuksm_orphans += hlist_empty(&stable_node->hlist);
}

/* A page that is gone was one of a chain, which may be empty now. */
static void nuksm_count_gone(struct ksm_stable_node *stable_node)
{
	nuksm_orphans += is_stable_node_dup(stable_node);
}

#else

static inline void nuksm_count_orphan(const struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_count_gone(struct ksm_stable_node *stable_node)
{
}

#endif /* CONFIG_NUKSM */

#ifdef CONFIG_NUKSM_PLACEMENT

/* Of a mapping whose page is on node @nid. */
static void nuksm_count_local(const struct ksm_rmap_item *rmap_item, int nid,
			      int n)
{
	/* Who holds ksm_thread_mutex may change the other bits of this word, but not these */
	if (data_race((int)rmap_item->home) == nid)
		atomic_long_add(n, &rmap_item->mm->nuksm.local);
}

static void nuksm_count_sharer(const struct ksm_rmap_item *rmap_item, int nid,
			       bool first, int n)
{
	struct nuksm_node_count *count = &nuksm_node_counts[nid];

	atomic_long_add(n, first ? &count->shared : &count->sharing);
	/* data_race() as who holds ksm_thread_mutex may change the bits beside it */
	if (data_race((bool)rmap_item->head->replica)) {
		if (first)
			atomic_long_add(n, &count->replicas);
		atomic_long_add(n, &rmap_item->mm->nuksm.replicas);
	}
	nuksm_count_local(rmap_item, nid, n);
}

/* @rmap_item was added to those who share @stable_node's page. */
static void nuksm_joined(struct ksm_rmap_item *rmap_item,
			 const struct ksm_stable_node *stable_node)
{
	rmap_item->left = false;
	nuksm_begin_looks(rmap_item);
	nuksm_count_sharer(rmap_item, pfn_to_nid(stable_node->kpfn),
			   !rmap_item->hlist.next, 1);
}

/*
 * Where in its anon_vma a mapping of a merged page is. Who looks for all mappings
 * need not go through all areas of all sharers then, and a process may have 65,530
 * of them. It is kept where a page that is not merged has its checksum and age, in
 * so many bits. What needs more, as only files have, is not merged; newer kernels go by
 * addresses there, too, and nothing needs more.
 */
#define NUKSM_MOST_INDEX	GENMASK(NUKSM_INDEX_BITS - 1, 0)

static unsigned long nuksm_index_in(struct vm_area_struct *vma,
				    const struct ksm_rmap_item *rmap_item)
{
	return linear_anon_page_index(vma, rmap_item->address);
}

/*
 * Would a merged page be found there? What would not is not scanned.
 *
 * Context: the mmap_lock of the process.
 */
static bool __maybe_unused nuksm_has_index(struct vm_area_struct *vma, unsigned long address)
{
	return linear_anon_page_index(vma, address) <= NUKSM_MOST_INDEX;
}

/*
 * Newer kernels keep it themselves.
 *
 * Context: the mmap_lock of the process.
 */
static void __maybe_unused nuksm_keep_index(struct ksm_rmap_item *rmap_item,
					    struct vm_area_struct *vma)
{
	rmap_item->linear_page_index = nuksm_index_in(vma, rmap_item);
}

/* It is not merged any more: its content has @checksum, as far as is known. */
static void nuksm_forget_index(struct ksm_rmap_item *rmap_item, u32 checksum)
{
	rmap_item->oldchecksum = checksum;
	rmap_item->age = 0;
	rmap_item->remaining_skips = 0;
}

/*
 * Would who looks for all mappings of the merged page find this one? Not if what is
 * mapped there was moved there while the page was paged out.
 *
 * Context: the mmap_lock of the process.
 */
static bool nuksm_is_found(const struct ksm_rmap_item *rmap_item,
			   struct vm_area_struct *vma)
{
	return rmap_item->anon_vma == vma->anon_vma &&
	       rmap_item->linear_page_index == nuksm_index_in(vma, rmap_item);
}

/* From where to where in an anon_vma to look for a mapping. */
static unsigned long nuksm_first_index(const struct ksm_rmap_item *rmap_item)
{
	return rmap_item->linear_page_index;
}

static unsigned long nuksm_last_index(const struct ksm_rmap_item *rmap_item)
{
	return rmap_item->linear_page_index;
}

/*
 * Where a mapping of the item's page is in @vma, if it is there. Not by the item's address, even
 * in its own process: what was paged out may have been moved since, and who looks twice, to take
 * mappings away and to give them back, has to look for forks where they have them from.
 */
static unsigned long __maybe_unused
nuksm_address_in(const struct ksm_rmap_item *rmap_item, const struct vm_area_struct *vma)
{
	return linear_anon_page_address(vma, rmap_item->linear_page_index);
}

/* What it shows of use from now on, it shows of a page of its own. */
static void nuksm_mark_left(struct ksm_rmap_item *rmap_item)
{
	rmap_item->left = true;
	rmap_item->gave = false;
	rmap_item->heat = NUKSM_COLD;
}

/*
 * What the again of struct ksm_stable_node consists of. The page is to be asked, as somebody joined
 * or left it, moved it, or has another home, or there was no room: any sharer can bring that about,
 * and it keeps no looks from the page. It could not be moved, which looks try again by chance; or
 * to find that took long, and looks leave it to ksmd. It belongs elsewhere as it is used alike,
 * which looks say, or ksmd, and could not be moved: not who joins or leaves.
 */
#define NUKSM_ASK	BIT(0)
#define NUKSM_NOT_MOVED	BIT(1)
#define NUKSM_IS_DEAR	BIT(2)
#define NUKSM_IS_ALIKE	BIT(3)

/* It is to be asked where it belongs in the next scan, as ksmd comes by. */
static void nuksm_want_asked_as(struct ksm_stable_node *stable_node, u8 why)
{
	u8 again = READ_ONCE(stable_node->again);

	if (nuksm_places() && (again & why) != why)
		WRITE_ONCE(stable_node->again, again | why);
}

static void nuksm_want_asked(struct ksm_stable_node *stable_node)
{
	nuksm_want_asked_as(stable_node, NUKSM_ASK);
}

/* A page that was to be moved in vain in so many scans is given up: nobody joins it any more. */
#define NUKSM_GIVEN_UP		(BIT(NUKSM_VAIN_BITS) - 1)

static bool nuksm_is_given_up(const struct ksm_stable_node *stable_node)
{
	return stable_node->vain == NUKSM_GIVEN_UP;
}

/* @rmap_item is about to be taken from them. */
static void nuksm_left(struct ksm_rmap_item *rmap_item,
		       struct ksm_stable_node *stable_node)
{
	nuksm_count_sharer(rmap_item, pfn_to_nid(stable_node->kpfn),
			   hlist_is_singular_node(&rmap_item->hlist,
						  &stable_node->hlist), -1);
	nuksm_mark_left(rmap_item);
	nuksm_want_asked(stable_node);
}

/* Its page is gone: all of them are about to be taken from it. */
static void nuksm_all_left(const struct ksm_stable_node *stable_node)
{
	int nid = pfn_to_nid(stable_node->kpfn);
	struct ksm_rmap_item *rmap_item;

	nuksm_ask_no_more(stable_node);
	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist) {
		nuksm_count_sharer(rmap_item, nid, !rmap_item->hlist.next, -1);
		nuksm_mark_left(rmap_item);
		/* What is there next is not taken for the page that it has */
		rmap_item->head = NULL;
		cond_resched();
	}
}

/* ksmd or nuksmd, while it moves the page of this node, and has all of its areas locked. */
static struct task_struct *nuksm_mover;
static const struct ksm_stable_node *nuksm_moved_node;

/*
 * Has the current task the locks of all areas where the page may be? Then nobody takes them
 * who looks for its mappings. See nuksm_lock_areas().
 */
static bool nuksm_has_areas(const struct ksm_stable_node *stable_node)
{
	return READ_ONCE(nuksm_mover) == current && nuksm_moved_node == stable_node;
}

/*
 * The page of @stable_node was moved, by ksmd or by anybody else, from @kpfn to
 * where the node says. If several share it, it is asked again where it belongs: who moved it may
 * be one of them, whose mapping was the only one for a moment, or a thread of the kernel on behalf
 * of a cgroup's owner, while ksmd rested (see nuksm_stays_put()). It is not if reclaim moved it to
 * a slower tier, or somebody who has the right to.
 *
 * Context: the locks of both folios, but perhaps not ksm_thread_mutex.
 */
static void nuksm_moved(struct ksm_stable_node *stable_node, unsigned long kpfn)
{
	int from = pfn_to_nid(kpfn), to = pfn_to_nid(stable_node->kpfn);
	const struct ksm_rmap_item *rmap_item;

	if (from == to)
		return;
	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist) {
		bool last = !rmap_item->hlist.next;

		nuksm_count_sharer(rmap_item, from, last, -1);
		nuksm_count_sharer(rmap_item, to, last, 1);
		cond_resched();
	}
	if (hlist_empty(&stable_node->hlist) || !stable_node->hlist.first->next ||
	    nuksm_has_areas(stable_node) || (current->flags & PF_MEMALLOC) ||
	    (!(current->flags & PF_KTHREAD) && has_capability_noaudit(current, CAP_SYS_NICE)))
		return;
	/* After the new place can be seen: ksmd clears it before it looks there */
	smp_mb();
	/* ksmd may write to it, too, what says more */
	cmpxchg(&stable_node->again, 0, NUKSM_ASK);
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline void nuksm_joined(struct ksm_rmap_item *rmap_item,
				const struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_left(struct ksm_rmap_item *rmap_item,
			      struct ksm_stable_node *stable_node)
{
}

static inline void nuksm_all_left(const struct ksm_stable_node *stable_node)
{
	struct ksm_rmap_item *rmap_item;

	if (!IS_ENABLED(CONFIG_NUKSM))
		return;
	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist)
		rmap_item->head = NULL;
}

static inline bool nuksm_has_areas(const struct ksm_stable_node *stable_node)
{
	return false;
}

static inline void nuksm_moved(struct ksm_stable_node *stable_node,
			       unsigned long kpfn)
{
}

static inline bool nuksm_is_given_up(const struct ksm_stable_node *stable_node)
{
	return false;
}

static inline void nuksm_keep_index(struct ksm_rmap_item *rmap_item,
				    struct vm_area_struct *vma)
{
}

static inline bool nuksm_has_index(struct vm_area_struct *vma, unsigned long address)
{
	return true;
}

static inline void nuksm_forget_index(struct ksm_rmap_item *rmap_item,
				      u32 checksum)
{
}

static inline unsigned long nuksm_first_index(const struct ksm_rmap_item *rmap_item)
{
	return 0;
}

static inline unsigned long nuksm_last_index(const struct ksm_rmap_item *rmap_item)
{
	return ULONG_MAX;
}

static inline unsigned long nuksm_address_in(const struct ksm_rmap_item *rmap_item,
					     const struct vm_area_struct *vma)
{
	return READ_ONCE(rmap_item->address) & PAGE_MASK;
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_COUNTS_H */
