// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM and the locks of areas: to split a page, and to give an anon_vma back.
 */
#include <linux/llist.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "areas.h"
#include "compat.h"

/* Who splits a page for nuksm_split(), under ksm_thread_mutex. */
static struct task_struct *nuksm_splitter;

/* The areas that it took to learn whether there are too many. */
static unsigned int nuksm_counted;

/*
 * Who has the page pays for that, as nuksm_has_outsiders() says: each part of a huge page that
 * is not split is tried again.
 */
static bool may_count(const struct mm_struct *mm)
{
#ifdef CONFIG_NUKSM_DOMAINS
	return mm->nuksm_membership.areas > 0;
#else
	return true;
#endif
}

static void pay(struct mm_struct *mm)
{
#ifdef CONFIG_NUKSM_DOMAINS
	mm->nuksm_membership.areas -= nuksm_counted;
#endif
	nuksm_counted = 0;
}

/**
 * nuksm_split - split a huge page that is to be merged
 * @page: a part of it
 * @mm: of a process that has it
 *
 * Context: its folio is locked; under ksm_thread_mutex.
 *
 * Return: 0 if it is split; -EBUSY if somebody holds it or has the lock of its areas, for which
 * it is not waited, or if there are too many of them, or were too often; or another error.
 */
int nuksm_split(struct page *page, struct mm_struct *mm)
{
	/* So that who splits has not the last reference to it */
	struct anon_vma *anon_vma = folio_get_anon_vma(page_folio(page));
	int err = -EBUSY;

	if (!anon_vma)
		return -EBUSY;
	if (may_count(mm)) {
		WRITE_ONCE(nuksm_splitter, current);
		err = split_huge_page(page);
		WRITE_ONCE(nuksm_splitter, NULL);
		pay(mm);
	}
	nuksm_put_anon_vma(anon_vma);
	return err;
}

/* All of them are gone through twice, whether they have the page or not. */
static bool has_many_areas(struct anon_vma *anon_vma, struct folio *folio)
{
	unsigned long first = folio_pgoff(folio);
	struct anon_vma_chain *vmac;

	anon_rmap_tree_foreach(vmac, anon_vma, first, first + folio_nr_pages(folio) - 1) {
		if (++nuksm_counted > NUKSM_MOST_AREAS)
			return true;
	}
	return false;
}

/**
 * nuksm_lock_to_split - lock the areas of a huge page that is about to be split
 * @anon_vma: of the folio
 * @folio: the huge page, which is locked
 *
 * Waits for the lock, but not for nuksm_split().
 *
 * Return: whether they are locked, for writing.
 */
bool nuksm_lock_to_split(struct anon_vma *anon_vma, struct folio *folio)
{
	if (READ_ONCE(nuksm_splitter) != current) {
		anon_vma_lock_write(anon_vma);
		return true;
	}
	if (!anon_vma_trylock_write(anon_vma))
		return false;
	if (!has_many_areas(anon_vma, folio))
		return true;
	anon_vma_unlock_write(anon_vma);
	return false;
}

/**
 * struct nuksm_last - the last reference to an anon_vma
 * @node: in nuksm_last_ones
 * @anon_vma: nobody else has it any more
 */
struct nuksm_last {
	struct llist_node node;
	struct anon_vma *anon_vma;
};

static LLIST_HEAD(nuksm_last_ones);

static void put_last_ones(struct work_struct *work);
static DECLARE_DELAYED_WORK(nuksm_put_last_ones, put_last_ones);

/* One whose lock somebody has is not waited for, as others wait behind it: later. */
static void put_last_ones(struct work_struct *work)
{
	struct llist_node *all = llist_del_all(&nuksm_last_ones);
	struct nuksm_last *last, *next;
	bool stays = false;

	llist_for_each_entry_safe(last, next, all, node) {
		if (rwsem_is_locked(&last->anon_vma->root->rwsem)) {
			llist_add(&last->node, &nuksm_last_ones);
			stays = true;
		} else {
			put_anon_vma(last->anon_vma);
			kfree(last);
		}
		cond_resched();
	}
	if (stays)
		queue_delayed_work(system_dfl_wq, &nuksm_put_last_ones, HZ);
}

/**
 * nuksm_put_anon_vma - let go of an anon_vma
 * @anon_vma: the anon_vma
 *
 * To free it waits for who has the lock of its root: that is left to a worker. Only if there is
 * no memory to tell him of it, it is done here.
 *
 * Context: under ksm_thread_mutex.
 */
void nuksm_put_anon_vma(struct anon_vma *anon_vma)
{
	struct nuksm_last *last;

	if (atomic_add_unless(&anon_vma->refcount, -1, 1))
		return;
	last = kmalloc_obj(*last, GFP_NOWAIT | __GFP_NOWARN);
	if (!last) {
		put_anon_vma(anon_vma);
		return;
	}
	last->anon_vma = anon_vma;
	llist_add(&last->node, &nuksm_last_ones);
	queue_delayed_work(system_dfl_wq, &nuksm_put_last_ones, 0);
}
