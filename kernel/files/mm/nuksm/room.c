// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's room for copies: is there memory for what a process needs to leave its domain?
 *
 * It copies what it shares, at its cgroup's expense; what is paged out is read for that, and
 * who had it in memory pays. ksmd reclaims nothing for this, and tries nothing where it would
 * be in vain: a worker makes room, and the next scan tries again. Nobody is ended for want of
 * the page that is read at his expense: it is lent to him.
 */

#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/workqueue.h>

#include "../internal.h"
#include "../memcontrol-v1.h" /* drain_all_stock() */
#include "nuksm.h"
#include "compat.h"

/* Of pages: freed at once, and how far who pays for another one may be over its limit. */
#define NUKSM_ROOM		512

/* Of pages: one that is read from swap, and its copy. */
#define NUKSM_READ_AND_COPY	2

/* One cgroup at a time: a tenant can make many, and no cgroup pays for this. */
static struct workqueue_struct *nuksm_room;

static bool is_at_limit(struct page_counter *counter, long pages)
{
	return (long)page_counter_read(counter) + pages > (long)READ_ONCE(counter->max);
}

/* Has it no room for so many pages more? Fewer than none: where it may be over its limit. */
static bool is_full(struct mem_cgroup *memcg, long pages)
{
	return is_at_limit(&memcg->memory, pages) ||
	       (do_memsw_account() && is_at_limit(&memcg->memsw, pages));
}

/*
 * How many pages have to fit into @memcg: one for a copy, or what it takes to read for @reader.
 * Who pays for another one's reading may be over its limit by NUKSM_ROOM pages: else who was left
 * could keep others from leaving, by being full. Where both pay, the copy has to fit, too.
 */
static long pages_wanted(struct mem_cgroup *memcg, struct mem_cgroup *reader)
{
	if (!reader)
		return 1;
	return mem_cgroup_is_descendant(reader, memcg) ? NUKSM_READ_AND_COPY : 1 - NUKSM_ROOM;
}

/*
 * One page that is left is none: it is read into, finds no memory for a copy, and is free again
 * before this comes.
 */
static void make_room(struct work_struct *work)
{
	struct mem_cgroup *memcg = container_of(work, struct mem_cgroup, nuksm.room);
	bool swaps = is_at_limit(&memcg->memory, NUKSM_READ_AND_COPY);

	drain_all_stock(memcg);
	if (is_full(memcg, NUKSM_READ_AND_COPY))
		try_to_free_mem_cgroup_pages(memcg, NUKSM_ROOM, GFP_KERNEL,
					     swaps ? MEMCG_RECLAIM_MAY_SWAP : 0, NULL);
	css_put(&memcg->css);
}

/* Context: ksm_thread_mutex; RCU, or a reference to the cgroup. */
static void ask_for_room(struct mem_cgroup *memcg)
{
	if (!nuksm_room || !css_tryget(&memcg->css))
		return;
	if (!memcg->nuksm.room.func)
		INIT_WORK(&memcg->nuksm.room, make_room);
	if (!queue_work(nuksm_room, &memcg->nuksm.room))
		css_put(&memcg->css);
}

/*
 * The cgroup that was found full for the process that is visited, with a reference: tenants
 * make theirs as deep as they like, and each page would look for it. Under ksm_thread_mutex.
 */
static struct mem_cgroup *nuksm_full;

/* Likewise, for who would pay for reading what is paged out. */
static struct mem_cgroup *nuksm_full_for_payer;

/* Takes over the reference to @full. */
static void remember_full(struct mem_cgroup **remembered, struct mem_cgroup *full)
{
	if (*remembered)
		css_put(&(*remembered)->css);
	*remembered = full;
}

/**
 * nuksm_forget_full - another process is visited
 */
void nuksm_forget_full(void)
{
	remember_full(&nuksm_full, NULL);
	remember_full(&nuksm_full_for_payer, NULL);
}

/**
 * nuksm_has_room - may there be memory for a page of a process's own?
 * @mm: of the process
 *
 * Context: ksm_thread_mutex.
 *
 * Return: whether there may; not where a cgroup was full and still is, nor where the last
 * thread has ended, and nobody would pay.
 */
bool nuksm_has_room(struct mm_struct *mm)
{
	struct task_struct *owner;
	bool full;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	full = owner && nuksm_full && is_full(nuksm_full, 1) &&
	       mem_cgroup_is_descendant(mem_cgroup_from_task(owner), nuksm_full);
	rcu_read_unlock();
	if (full)
		ask_for_room(nuksm_full);
	return owner && !full;
}

/* The first cgroup from @memcg on without room for pages_wanted(), with a reference. */
static struct mem_cgroup *get_full(struct mem_cgroup *memcg, struct mem_cgroup *reader)
{
	while (memcg && !is_full(memcg, pages_wanted(memcg, reader)))
		memcg = parent_mem_cgroup(memcg);
	return memcg && css_tryget(&memcg->css) ? memcg : NULL;
}

/**
 * nuksm_look_for_room - has a process's cgroup, or one above it, no room?
 * @mm: of the process, for which nuksm_has_room() says that from now on
 *
 * Context: ksm_thread_mutex.
 */
void nuksm_look_for_room(struct mm_struct *mm)
{
	struct mem_cgroup *memcg = NULL;
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner)
		memcg = mem_cgroup_from_task(owner);
	remember_full(&nuksm_full, get_full(memcg, NULL));
	rcu_read_unlock();
}

/**
 * nuksm_want_room - there was no memory for a page of a process's own
 * @mm: of the process
 *
 * If a cgroup is full, something is reclaimed there for the next try. ksmd does not do that
 * itself: it may take long, and be in vain, in as many cgroups as somebody can make.
 *
 * Context: ksm_thread_mutex.
 */
void nuksm_want_room(struct mm_struct *mm)
{
	nuksm_look_for_room(mm);
	if (nuksm_full)
		ask_for_room(nuksm_full);
}

/*
 * Whose limit is a page higher while a page is read at its expense, with references: perhaps
 * nothing can be reclaimed there, and its processes need all that they may have. Under
 * ksm_thread_mutex.
 */
static struct nuksm_loan {
	struct mem_cgroup *memcg;
	unsigned long max;
} nuksm_loans[64];

/* So many began; of more than there is place for, the outermost are left. */
static unsigned int nuksm_lent;

static void take_back(struct nuksm_loan *loan)
{
	if (!loan->memcg)
		return;
	cmpxchg(&loan->memcg->memory.max, loan->max + 1, loan->max);
	css_put(&loan->memcg->css);
	loan->memcg = NULL;
}

/*
 * To all that have a limit, from the one that pays on. Whether it is near does not matter: that
 * changes while the page is read. Who is far over it is perhaps just being limited, and what is
 * lent ends the reclaim for that. Version 1 sets limits in more than one step, so not there.
 */
static void lend_page(struct mem_cgroup *memcg)
{
	struct nuksm_loan *loan;
	unsigned long max;

	if (do_memsw_account())
		return;
	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		max = READ_ONCE(memcg->memory.max);
		if (max == PAGE_COUNTER_MAX ||
		    (long)page_counter_read(&memcg->memory) > (long)max + NUKSM_ROOM ||
		    !css_tryget(&memcg->css))
			continue;
		if (cmpxchg(&memcg->memory.max, max, max + 1) != max) {
			css_put(&memcg->css);
			continue;
		}
		loan = &nuksm_loans[nuksm_lent++ % ARRAY_SIZE(nuksm_loans)];
		take_back(loan);
		loan->memcg = memcg;
		loan->max = max;
	}
}

/**
 * nuksm_take_back - what was read at another one's expense is gone, or is that one's
 *
 * Limits are what they were before nuksm_payer_has_room(), or what they were set to meanwhile
 * (but for the page: who sets just the limit that was lent gets a page less, and who has read
 * it, and sets it later, a page more).
 *
 * Context: ksm_thread_mutex.
 */
void nuksm_take_back(void)
{
	unsigned int i;

	for (i = 0; i < min(nuksm_lent, ARRAY_SIZE(nuksm_loans)); i++)
		take_back(&nuksm_loans[i]);
	nuksm_lent = 0;
}

/**
 * nuksm_payer_has_room - may there be memory to read what is paged out?
 * @id: of the cgroup that is to pay for it
 * @mm: of the process that it is read for, whose cgroup pays if that one is gone
 *
 * If not, something is reclaimed there for the next try, see nuksm_want_room(). If there may,
 * it has a page more until nuksm_take_back().
 *
 * Context: ksm_thread_mutex.
 *
 * Return: whether there may; not where nobody would pay.
 */
bool nuksm_payer_has_room(unsigned short id, struct mm_struct *mm)
{
	struct mem_cgroup *own, *payer, *full = nuksm_full_for_payer;
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	own = owner ? mem_cgroup_from_task(owner) : NULL;
	payer = nuksm_cgroup_of_id(id);
	/* As who charges it decides: a cgroup that is being removed does not pay */
	if (payer && css_tryget_online(&payer->css))
		css_put(&payer->css);
	else
		payer = own;
	if (own && (!full || !is_full(full, pages_wanted(full, own)) ||
		    !mem_cgroup_is_descendant(payer, full))) {
		full = get_full(payer, own);
		if (full)
			remember_full(&nuksm_full_for_payer, full);
	}
	if (full)
		ask_for_room(full);
	else if (own)
		lend_page(payer);
	rcu_read_unlock();
	return own && !full;
}

static int __init nuksm_room_init(void)
{
	nuksm_room = alloc_ordered_workqueue("nuksm_room", WQ_FREEZABLE);
	if (!nuksm_room)
		pr_err("ksm: no worker for full cgroups\n");
	return 0;
}
late_initcall(nuksm_room_init);
