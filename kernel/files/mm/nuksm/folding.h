/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's replicas when they have to go, see replicas.h: as memory is short, or nobody is to
 * have any. Who reclaims memory, or is about to kill for it, asks for them; nuksmd folds them,
 * as that takes locks which who asks may hold.
 *
 * Included by looks.h. Unless it says otherwise, all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_FOLDING_H
#define _MM_NUKSM_FOLDING_H

#include <linux/oom.h>
#include <linux/shrinker.h>

/* Some node's memory is short: see the unwanted of &struct nuksm_node_count. */
static bool nuksm_short;

/* Somebody is about to be killed for memory, and waits for that of replicas. */
static bool nuksm_urgent;

/* Where memory was short, no replica is made for so many seconds; or nobody was to be killed. */
#define NUKSM_AFTER_SHRINK_S	10
#define NUKSM_AFTER_OOM_S	60

/* Who finds no memory waits here until replicas have been folded, for so long at most. */
static DECLARE_WAIT_QUEUE_HEAD(nuksm_folded);
#define NUKSM_FOLDED_IN		(2 * HZ)

/* Until then nobody waits for them: the last one who did got nothing. In seconds since boot. */
static time64_t nuksm_in_vain_until;

/* How often replicas were folded because they had to be. */
static unsigned long nuksm_folds;

/* Is memory short on some node? */
static bool nuksm_is_short(void)
{
	return READ_ONCE(nuksm_short);
}

/* So many of a node's pages are replicas. */
static unsigned long nuksm_replicas_on(int nid)
{
	return max(atomic_long_read(&nuksm_node_counts[nid].replicas), 0L);
}

/* Is nobody to have replicas any more? */
static bool nuksm_folds_all(void)
{
	bool off = !READ_ONCE(nuksm_replica_percent) || !READ_ONCE(nuksm_look_permille);

	/* data_race() as what is folded in vain is made again */
	return off || data_race(!nuksm_places());
}

/* How many of them are there beyond the budget? */
static unsigned long nuksm_over_budget(void)
{
	unsigned long replicas = nuksm_replicas();

	/* data_race() as it is asked again, and ksmd merges meanwhile */
	return nuksm_replicas_over(replicas, data_race(ksm_pages_sharing) + replicas,
				   READ_ONCE(nuksm_replica_percent));
}

/**
 * struct nuksm_folding - which replicas are to be folded
 * @tree: number of the tree that is next
 * @checksum: of the page that is next there, or one before it
 * @passed: so many pages without replicas were passed
 * @folded: since the time was last asked for there was one that had some
 * @all: they are all to be folded
 * @over: so many are, wherever they are, as there are more than the budget has
 * @urgent: as many as are wanted, wherever they are, and at once
 * @wanted: so many on each node, otherwise
 */
static struct nuksm_folding {
	unsigned int tree;
	u32 checksum;
	unsigned int passed;
	bool folded;
	bool all;
	unsigned long over;
	bool urgent;
	long wanted[MAX_NUMNODES];
} nuksm_folding;

static bool nuksm_is_to_fold(const struct ksm_stable_node *stable_node)
{
	int nid = pfn_to_nid(READ_ONCE(stable_node->kpfn));

	if (hlist_empty(&stable_node->hlist))
		return false;
	return stable_node->replica &&
	       (nuksm_folding.all || nuksm_folding.over || nuksm_folding.wanted[nid] > 0);
}

/*
 * Folds a replica of @chain, if there is one behind the first *@passed of those that are to
 * be. Returns whether there was.
 */
static bool nuksm_fold_next(struct ksm_stable_node *chain, unsigned int *passed)
{
	struct ksm_stable_node *dup, *target;
	bool dear, done, unshare;
	unsigned int n = 0;
	int nid;

	/* So many are busy: they are left alone */
	if (*passed == NUKSM_MOST_DUPS)
		return false;
	hlist_for_each_entry(dup, &chain->hlist, hlist_dup) {
		cond_resched();
		if (!nuksm_is_to_fold(dup) || n++ < *passed)
			continue;
		nid = pfn_to_nid(READ_ONCE(dup->kpfn));
		target = nuksm_dup_for(chain, dup);
		/* A page of one's own is none for who needs memory */
		unshare = !nuksm_folding.urgent && nuksm_folding.wanted[nid] <= 0;
		/* One that no other has room for is a page as any other, if it is not busy */
		done = target ?
		       nuksm_fold_into(dup, target, NUKSM_MOST_TO_FOLD, unshare,
				       NUKSM_LOCK_TRIES) == -ENOENT :
		       nuksm_find_out(dup, chain, &dear) != -EBUSY;
		if (!done)
			*passed += nuksm_is_to_fold(dup);
		else if (target)
			nuksm_folding.wanted[nid]--;
		if (done && nuksm_folding.over)
			nuksm_folding.over--;
		return true;
	}
	return false;
}

/* The first of a tree's nodes that has this checksum, or a greater one. */
static struct rb_node *nuksm_first_from(struct rb_root *root, u32 checksum)
{
	struct rb_node *node = root->rb_node, *first = NULL;

	while (node) {
		if (rb_entry(node, struct ksm_stable_node, node)->checksum >= checksum) {
			first = node;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return first;
}

/* Asking for the time takes longer than passing a page without replicas. */
#define NUKSM_PASSED_AT_ONCE	64

/* Is it @until, in ns? */
static bool nuksm_is_fold_over(u64 until)
{
	if (!nuksm_folding.folded && ++nuksm_folding.passed % NUKSM_PASSED_AT_ONCE)
		return false;
	nuksm_folding.folded = false;
	return ktime_get_ns() > until;
}

/* Folds replicas in one tree, until then. Returns if it is through. */
static bool nuksm_fold_tree(struct rb_root *root, u64 until)
{
	struct rb_node *node, *next;

	for (node = nuksm_first_from(root, nuksm_folding.checksum); node; node = next) {
		struct ksm_stable_node *tree_node =
			rb_entry(node, struct ksm_stable_node, node);
		bool is_next = tree_node->checksum != nuksm_folding.checksum;
		unsigned int passed = 0;
		bool dear;

		cond_resched();
		nuksm_folding.checksum = tree_node->checksum;
		/* Those of one checksum are gone through at once, as they are found by it */
		if (is_next && nuksm_is_fold_over(until))
			return false;
		/* A chain may become a page, but stays in its place, or go */
		next = rb_next(node);
		if (!tree_node->replica)
			continue;
		nuksm_folding.folded = true;
		/* The last one of its chain is a page as any other */
		if (!is_stable_node_chain(tree_node)) {
			nuksm_find_out(tree_node, NULL, &dear);
			continue;
		}
		while (nuksm_fold_next(tree_node, &passed))
			cond_resched();
		nuksm_collapse(tree_node, root);
	}
	nuksm_folding.checksum = 0;
	return true;
}

/* Which are to be folded now? Who asked for that is answered once. */
static void nuksm_begin_folding(void)
{
	int nid;

	WRITE_ONCE(nuksm_short, false);
	/* Before what is wanted: who asks says that first */
	nuksm_folding.urgent = xchg(&nuksm_urgent, false);
	nuksm_folding.all = nuksm_folds_all();
	nuksm_folding.over = nuksm_over_budget();
	for_each_node(nid)
		nuksm_folding.wanted[nid] =
			atomic_long_xchg(&nuksm_node_counts[nid].unwanted, 0);
	if (nuksm_folding.all || nuksm_folding.over || nuksm_folding.urgent) {
		nuksm_folding.tree = 0;
		nuksm_folding.checksum = 0;
	}
}

/* What was folded for somebody is not to be left in the lists of this CPU, or others. */
static void nuksm_end_folding(void)
{
	if (nuksm_folding.urgent)
		drain_all_pages(NULL);
	nuksm_folding.urgent = false;
	WRITE_ONCE(nuksm_folds, nuksm_folds + 1);
	wake_up(&nuksm_folded);
}

static bool nuksm_folds_more(void)
{
	int nid;

	for_each_online_node(nid) {
		if (nuksm_folding.wanted[nid] > 0)
			return true;
	}
	return nuksm_folding.all || nuksm_folding.over;
}

/*
 * Folds replicas, from where it ended the last time, for as long as KSM's lock is held at once:
 * not only in CPU time, as who has locks of areas gets the CPU between two tries for them. What
 * is busy stays, until it is asked for again. Returns whether there is more.
 */
static bool nuksm_fold_some(void)
{
	u64 until = ktime_get_ns() + NUKSM_HOLDS_MS * NSEC_PER_MSEC;
	unsigned int nr = nuksm_nr_roots(ksm_nr_node_ids), tree = nuksm_folding.tree;

	for (tree = nuksm_next_used(0, tree); tree < nr && nuksm_folds_more();
	     tree = nuksm_next_used(0, tree + 1)) {
		if (tree != nuksm_folding.tree)
			nuksm_folding.checksum = 0;
		nuksm_folding.tree = tree;
		if (!nuksm_fold_tree(root_stable_tree + tree, until))
			return true;
	}
	if (tree >= nr) {
		nuksm_folding.tree = 0;
		nuksm_folding.checksum = 0;
	}
	return false;
}

static unsigned long nuksm_count_replicas(struct shrinker *shrinker,
					  struct shrink_control *sc)
{
	return nuksm_replicas_on(sc->nid) ?: SHRINK_EMPTY;
}

/* Asks for so many of a node's replicas, and that there are no new ones for some time. */
static void nuksm_ask_back(int nid, unsigned long replicas, unsigned int seconds)
{
	struct nuksm_node_count *count = &nuksm_node_counts[nid];

	atomic_long_add(replicas, &count->unwanted);
	WRITE_ONCE(count->none_until, ktime_get_seconds() + seconds);
	/* Who sees this sees what is wanted, too */
	smp_store_release(&nuksm_short, true);
}

/* They are folded by nuksmd, as that takes locks. */
static unsigned long nuksm_shrink(struct shrinker *shrinker, struct shrink_control *sc)
{
	nuksm_ask_back(sc->nid, sc->nr_to_scan, NUKSM_AFTER_SHRINK_S);
	wake_up_interruptible(&nuksm_look_wait);
	return SHRINK_STOP;
}

/*
 * Before somebody is killed for his memory, replicas go. Whoever has ksm_thread_mutex does
 * not wait for that: threads of the kernel, and who un-merges.
 */
static int nuksm_out_of_memory(struct notifier_block *self, unsigned long unused,
			       void *freed)
{
	unsigned long before = READ_ONCE(nuksm_replica_stats.folded);
	unsigned long folds = READ_ONCE(nuksm_folds), replicas = nuksm_replicas();
	bool waits;
	int nid;

	if (!replicas || current->flags & PF_KTHREAD || oom_task_origin(current))
		return NOTIFY_OK;
	for_each_online_node(nid)
		nuksm_ask_back(nid, nuksm_replicas_on(nid), NUKSM_AFTER_OOM_S);
	/* Replicas that are left are busy: each kill would wait for them anew */
	waits = ktime_get_seconds() >= READ_ONCE(nuksm_in_vain_until);
	if (waits)
		smp_store_release(&nuksm_urgent, true); /* likewise */
	wake_up_interruptible(&nuksm_look_wait);
	if (!waits)
		return NOTIFY_OK;
	/* One that has begun already may end first */
	wait_event_timeout(nuksm_folded,
			   !READ_ONCE(nuksm_urgent) && READ_ONCE(nuksm_folds) != folds,
			   NUKSM_FOLDED_IN);
	if (nuksm_replicas() >= replicas)
		WRITE_ONCE(nuksm_in_vain_until, ktime_get_seconds() + NUKSM_AFTER_OOM_S);
	*(unsigned long *)freed += READ_ONCE(nuksm_replica_stats.folded) - before;
	return NOTIFY_OK;
}

static struct notifier_block nuksm_oom_notifier = {
	.notifier_call = nuksm_out_of_memory,
};

static void __init nuksm_replicas_init(void)
{
	struct shrinker *shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "nuksm-replicas");

	if (!shrinker) {
		pr_err("ksm: nuksm's replicas are not asked for memory\n");
		return;
	}
	shrinker->count_objects = nuksm_count_replicas;
	shrinker->scan_objects = nuksm_shrink;
	shrinker_register(shrinker);
	if (register_oom_notifier(&nuksm_oom_notifier))
		pr_err("ksm: nuksm's replicas are not asked for memory before OOM kills\n");
}

#endif /* _MM_NUKSM_FOLDING_H */
