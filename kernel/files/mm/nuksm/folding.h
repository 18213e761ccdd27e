/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's replicas when they have to go, see replicas.h: as memory is short, or nobody is to
 * have any. Who reclaims memory, or is about to kill for it, asks for them; nuksmd folds them,
 * as that takes locks which who asks may hold.
 *
 * Included by looks.h. Unless it says otherwise, all of it runs under ksm_thread_mutex.
 * &struct nuksm_folding is nuksmd's: it begins and ends a folding, and gives way, without that.
 */
#ifndef _MM_NUKSM_FOLDING_H
#define _MM_NUKSM_FOLDING_H

#include <linux/oom.h>
#include <linux/shrinker.h>

/* Some node's memory is short: see the unwanted of &struct nuksm_node_count. */
static bool nuksm_short;

/*
 * How many who were about to be killed for memory have asked for that of replicas so far, and
 * wait; how many had when the last folding began, the last one that came to do something, and the
 * last one that has ended. They wrap.
 */
static atomic_t nuksm_dying;
static int nuksm_begun, nuksm_worked, nuksm_ended;

/* Where memory was short, no replica is made for so many seconds; or nobody was to be killed. */
#define NUKSM_AFTER_SHRINK_S	10
#define NUKSM_AFTER_OOM_S	60

/*
 * Who forks all the time has the lock of his areas most of it: what is busy is asked again for so
 * long, by going through all trees again and again. With pauses, as who has it needs time, and
 * perhaps this CPU, for which nobody else is to wait.
 */
#define NUKSM_SWEEPS_FOR	((unsigned long)HZ)

/* Nobody waits until then, as nuksmd came too late. In seconds since boot; under oom_lock. */
static time64_t nuksm_unserved_until;

/*
 * Those are folded first for him that are looked for in so many areas at most, if they do not have
 * as many sharers; others when all these have been asked, or after so long, in jiffies.
 */
#define NUKSM_MOST_AT_FIRST	(NUKSM_MOST_AREAS / 16)
#define NUKSM_FIRST_FOR		(HZ / 2)

/* Who finds no memory waits here until replicas have been folded, for so long at most. */
static DECLARE_WAIT_QUEUE_HEAD(nuksm_folded);
#define NUKSM_FOLDED_IN		(2 * HZ)

/*
 * If replicas are left, he has got so many, or else they are too busy to be worth that. Those that
 * are found at once are folded faster than so many in a second: if it is many, his own wait tells
 * that, as whatever he gets keeps others from waiting; if not, with the time since the one before.
 * For others, as those who have them have thousands of areas, or have these busy, he and all others
 * wait for so long in all.
 */
#define NUKSM_WORTH_IT		SWAP_CLUSTER_MAX
#define NUKSM_FAST		2048
#define NUKSM_MANY		(NUKSM_FAST / 8)
#define NUKSM_SLOW_FOR		(2 * MSEC_PER_SEC)

/*
 * When the last one who waited had; for how long it was slow, with what was done between, and when
 * that counts from new on. In ms since boot; under oom_lock.
 */
static u64 nuksm_waited_at, nuksm_slow, nuksm_slow_until;

/* Is memory short on some node? */
static bool nuksm_is_short(void)
{
	return READ_ONCE(nuksm_short);
}

/* Does somebody wait who is about to be killed, and for whom no folding has begun? */
static bool nuksm_is_urgent(void)
{
	return atomic_read(&nuksm_dying) != READ_ONCE(nuksm_begun);
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
 * @gone_through: so many pages with that checksum, or chains, are not to be asked again
 * @busy: so many replicas of the next one are not, either
 * @passed: so many pages without replicas were passed
 * @began: when, in jiffies
 * @whole: all trees are gone through from the first one on, not from where folding ended before
 * @again: some were busy
 * @folded: what nuksm_replica_stats had of it when folding began
 * @all: they are all to be folded
 * @over: so many are, wherever they are, as there are more than the budget has
 * @wanted: so many on each node, otherwise
 * @urgent: somebody waits for these
 * @dear: those are asked, too, which are in so many areas that it takes long; others come first
 * @dear_all_along: they were since all trees were begun with
 * @has_begun: KSM's lock was had once, from when on these are counted:
 * @first_until: until then others come first, in jiffies
 * @sweeps_until: until then what is busy is asked again, in jiffies
 */
static struct nuksm_folding {
	unsigned int tree;
	u32 checksum;
	unsigned int gone_through;
	unsigned int busy;
	unsigned int passed;
	unsigned long began;
	bool whole;
	bool again;
	unsigned long folded;
	bool all;
	unsigned long over;
	long wanted[MAX_NUMNODES];
	bool urgent;
	bool dear;
	bool dear_all_along;
	bool has_begun;
	unsigned long first_until;
	unsigned long sweeps_until;
} nuksm_folding;

static bool nuksm_folds_more(void)
{
	int nid;

	for_each_online_node(nid) {
		if (nuksm_folding.wanted[nid] > 0 && nuksm_replicas_on(nid))
			return true;
	}
	return nuksm_folding.all || nuksm_folding.over;
}

static bool nuksm_is_to_fold(const struct ksm_stable_node *stable_node)
{
	int nid = pfn_to_nid(READ_ONCE(stable_node->kpfn));

	if (hlist_empty(&stable_node->hlist))
		return false;
	return stable_node->replica &&
	       (nuksm_folding.all || nuksm_folding.over || nuksm_folding.wanted[nid] > 0);
}

/* The next page to be asked is the first one with that checksum. */
static void nuksm_fold_from(u32 checksum)
{
	nuksm_folding.checksum = checksum;
	nuksm_folding.gone_through = 0;
	nuksm_folding.busy = 0;
}

/* Each sharer has an area of a page, or some; those that are in many more take long. */
static unsigned int nuksm_most_at_first(const struct ksm_stable_node *dup)
{
	return clamp(2 * dup->rmap_hlist_len, NUKSM_MOST_AT_FIRST, NUKSM_MOST_AREAS);
}

/*
 * Folds the next replica of @chain, of those that are to be and not known to be busy. Returns
 * whether there was one.
 */
static bool nuksm_fold_next(struct ksm_stable_node *chain)
{
	struct ksm_stable_node *dup, *target;
	bool dear, done, unshare;
	unsigned int n = 0, most;
	int nid;

	/* So many are busy: they are left alone */
	if (nuksm_folding.busy >= NUKSM_MOST_DUPS)
		return false;
	hlist_for_each_entry(dup, &chain->hlist, hlist_dup) {
		cond_resched();
		if (!nuksm_is_to_fold(dup) || n++ < nuksm_folding.busy)
			continue;
		nid = pfn_to_nid(READ_ONCE(dup->kpfn));
		target = nuksm_dup_for(chain, dup);
		most = nuksm_folding.dear ? NUKSM_MOST_TO_FOLD : nuksm_most_at_first(dup);
		/* A page of one's own is none for who needs memory */
		unshare = !nuksm_folding.urgent && nuksm_folding.wanted[nid] <= 0;
		/* One that no other has room for is a page as any other, if it is not busy */
		done = target ?
		       nuksm_fold_into(dup, target, most, unshare) == -ENOENT :
		       nuksm_find_out(dup, chain, &dear) != -EBUSY;
		if (!done) {
			nuksm_folding.busy += nuksm_is_to_fold(dup);
			nuksm_folding.again = true;
		} else if (target) {
			nuksm_folding.wanted[nid]--;
		}
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

/* The next one to be asked in a tree. Others may have come or gone: these have to wait. */
static struct rb_node *nuksm_next_to_fold(struct rb_root *root)
{
	struct rb_node *node = nuksm_first_from(root, nuksm_folding.checksum);
	unsigned int n;

	for (n = 0; node && n < nuksm_folding.gone_through; n++) {
		if (rb_entry(node, struct ksm_stable_node, node)->checksum !=
		    nuksm_folding.checksum)
			break;
		node = rb_next(node);
		cond_resched();
	}
	return node;
}

/*
 * Folds the replicas of a page that has some, or is the last one of its chain, and then a page as
 * any other. @tree_node may be gone then. Returns whether that was done by @until, in ns, and
 * before there was nothing more to fold; if not, that page is the next one.
 */
static bool nuksm_fold_page(struct ksm_stable_node *tree_node, struct rb_root *root, u64 until)
{
	bool in_time = true, dear;

	if (!is_stable_node_chain(tree_node)) {
		nuksm_folding.again |= nuksm_find_out(tree_node, NULL, &dear) == -EBUSY;
		return true;
	}
	while (in_time && nuksm_fold_next(tree_node)) {
		cond_resched();
		in_time = nuksm_folds_more() && ktime_get_ns() <= until;
	}
	nuksm_collapse(tree_node, root);
	return in_time;
}

/* Asking for the time takes longer than passing a page without replicas. */
#define NUKSM_PASSED_AT_ONCE	64

/* Folds replicas in one tree, until then, or until no more are to be. Returns if it is through. */
static bool nuksm_fold_tree(struct rb_root *root, u64 until)
{
	struct rb_node *node, *next;
	bool asks;

	for (node = nuksm_next_to_fold(root); node; node = next) {
		struct ksm_stable_node *tree_node =
			rb_entry(node, struct ksm_stable_node, node);

		cond_resched();
		if (tree_node->checksum != nuksm_folding.checksum)
			nuksm_fold_from(tree_node->checksum);
		/* A chain may become a page, but stays in its place, or go */
		next = rb_next(node);
		asks = tree_node->replica || !(++nuksm_folding.passed % NUKSM_PASSED_AT_ONCE);
		if (tree_node->replica && !nuksm_fold_page(tree_node, root, until))
			return false;
		nuksm_folding.gone_through++;
		nuksm_folding.busy = 0;
		if (asks && ktime_get_ns() > until)
			return false;
	}
	nuksm_fold_from(0);
	return true;
}

/* Which are to be folded now? Who asked for that is answered once. */
static void nuksm_begin_folding(void)
{
	int nid;

	WRITE_ONCE(nuksm_short, false);
	smp_mb(); /* before what is wanted is read, or taken: see nuksm_ask_back() */
	/* Before what is wanted: who waits has said that first */
	WRITE_ONCE(nuksm_begun, atomic_read_acquire(&nuksm_dying));
	nuksm_folding.urgent = nuksm_begun != nuksm_ended;
	nuksm_folding.dear = !nuksm_folding.urgent;
	nuksm_folding.dear_all_along = nuksm_folding.dear;
	nuksm_folding.has_begun = false;
	nuksm_folding.whole = !nuksm_folding.tree && !nuksm_folding.checksum &&
			      !nuksm_folding.gone_through;
	nuksm_folding.busy = 0;
	nuksm_folding.began = jiffies;
	nuksm_folding.again = false;
	nuksm_folding.folded = nuksm_replica_stats.folded;
	nuksm_folding.all = !nuksm_folding.urgent && nuksm_folds_all();
	nuksm_folding.over = nuksm_folding.urgent ? 0 : nuksm_over_budget();
	for_each_node(nid) {
		struct nuksm_node_count *count = &nuksm_node_counts[nid];

		/* Who waits does not wait for those of other nodes */
		if (!nuksm_folding.urgent || READ_ONCE(count->urgent) == nuksm_begun)
			nuksm_folding.wanted[nid] = atomic_long_xchg(&count->unwanted, 0);
		else if (atomic_long_read(&count->unwanted))
			WRITE_ONCE(nuksm_short, true);
	}
}

/*
 * Folding gives way: what was wanted is wanted by the next one. Who waited for it does not any
 * more, or another could not have asked.
 */
static void nuksm_give_way(void)
{
	int nid;

	for_each_node(nid) {
		struct nuksm_node_count *count = &nuksm_node_counts[nid];

		if (nuksm_folding.wanted[nid] > 0)
			atomic_long_add(min_t(unsigned long, nuksm_folding.wanted[nid],
					      nuksm_replicas_on(nid)), &count->unwanted);
	}
	WRITE_ONCE(nuksm_short, true);
}

/* What was folded for somebody is not to be left in the lists of this CPU, or others. */
static void nuksm_end_folding(void)
{
	memset(nuksm_folding.wanted, 0, sizeof(nuksm_folding.wanted));
	if (nuksm_folding.urgent)
		drain_all_pages(NULL);
	nuksm_folding.urgent = false;
	smp_store_release(&nuksm_ended, nuksm_begun); /* what was folded is seen */
	wake_up(&nuksm_folded);
}

/* Has so much been folded by now that it was worth waiting for? */
static bool nuksm_folded_some(void)
{
	return nuksm_replica_stats.folded - nuksm_folding.folded >= NUKSM_WORTH_IT;
}

/* Has who waited for it gone? */
static bool nuksm_is_too_late(void)
{
	return nuksm_folding.urgent && time_after(jiffies, nuksm_folding.began + NUKSM_FOLDED_IN);
}

/*
 * Folds replicas, from where it ended the last time, for as long as KSM's lock is held at once:
 * not only in CPU time, as others may have the CPU meanwhile. What is busy is asked again when all
 * others have been; if it is so each time, it stays until somebody asks for it again. Returns
 * whether there is more.
 */
static bool nuksm_fold_some(void)
{
	u64 until = ktime_get_ns() + NUKSM_HOLDS_MS * NSEC_PER_MSEC;
	unsigned int nr = nuksm_nr_roots(ksm_nr_node_ids), tree = nuksm_folding.tree;

	if (!nuksm_folding.has_begun) {
		nuksm_folding.has_begun = true;
		nuksm_folding.first_until = jiffies + NUKSM_FIRST_FOR;
		nuksm_folding.sweeps_until = jiffies + NUKSM_SWEEPS_FOR;
	}
	nuksm_folding.dear |= time_after(jiffies, nuksm_folding.first_until);
	for (tree = nuksm_next_used(0, tree); tree < nr && nuksm_folds_more();
	     tree = nuksm_next_used(0, tree + 1)) {
		if (tree != nuksm_folding.tree)
			nuksm_fold_from(0);
		nuksm_folding.tree = tree;
		if (!nuksm_fold_tree(root_stable_tree + tree, until))
			return nuksm_folds_more();
	}
	if (tree < nr)
		return false;
	nuksm_folding.tree = 0;
	nuksm_fold_from(0);
	if (!nuksm_folds_more())
		return false;
	if (nuksm_folding.whole &&
	    (!nuksm_folding.again ||
	     (nuksm_folding.urgent && nuksm_folded_some()) ||
	     (nuksm_folding.dear_all_along && time_after(jiffies, nuksm_folding.sweeps_until))))
		return false;
	nuksm_folding.dear |= nuksm_folding.whole;
	nuksm_folding.dear_all_along = nuksm_folding.dear;
	nuksm_folding.whole = true;
	nuksm_folding.again = false;
	return true;
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
	time64_t until = ktime_get_seconds() + seconds;

	atomic_long_add(replicas, &count->unwanted);
	if (until > READ_ONCE(count->none_until))
		WRITE_ONCE(count->none_until, until);
	/* Who sees this sees what is wanted, too; who does not takes what is wanted after that */
	smp_mb__after_atomic();
	WRITE_ONCE(nuksm_short, true);
}

/* If the last one is being moved, nuksmd may have seen none, and sleep as ksmd does. */
static void nuksm_wake(void)
{
	wake_up_interruptible(&nuksm_look_wait);
	wake_up_interruptible(&ksm_thread_wait);
}

/* They are folded by nuksmd, as that takes locks. */
static unsigned long nuksm_shrink(struct shrinker *shrinker, struct shrink_control *sc)
{
	nuksm_ask_back(sc->nid, sc->nr_to_scan, NUKSM_AFTER_SHRINK_S);
	nuksm_wake();
	return SHRINK_STOP;
}

/* Has folding ended that had begun after somebody asked? */
static bool nuksm_is_served(int ticket)
{
	/* What was folded by then is seen */
	return smp_load_acquire(&nuksm_ended) - ticket >= 0;
}

/*
 * Asks for the replicas of the nodes whose memory current is short of. Adds to @nodes those of
 * which it may be worth waiting for them.
 *
 * Context: oom_lock, as all that is asked for before somebody is killed.
 */
static void nuksm_ask_for_all(nodemask_t *nodes)
{
	time64_t now = ktime_get_seconds();
	int nid;

	for_each_online_node(nid) {
		struct nuksm_node_count *count = &nuksm_node_counts[nid];

		if (!nuksm_replicas_on(nid) || !nuksm_is_out(nid))
			continue;
		if (now >= max(count->in_vain_until, nuksm_unserved_until))
			node_set(nid, *nodes);
		count->folded_before = READ_ONCE(count->folded);
		nuksm_ask_back(nid, nuksm_replicas_on(nid), NUKSM_AFTER_OOM_S);
	}
}

/*
 * Waits for them. The ticket comes last: who sees it sees what is wanted, and by whom. There is
 * one who waits, as oom_lock is held. Who is killed meanwhile waits, too, as he could have all
 * others wait again and again otherwise. Returns whether nuksmd came to do something for him.
 */
static bool nuksm_wait_for_all(const nodemask_t *nodes)
{
	int nid, ticket;

	for_each_node_mask(nid, *nodes)
		WRITE_ONCE(nuksm_node_counts[nid].urgent, atomic_read(&nuksm_dying) + 1);
	ticket = atomic_inc_return(&nuksm_dying);
	nuksm_wake();
	wait_event_timeout(nuksm_folded, nuksm_is_served(ticket), NUKSM_FOLDED_IN);
	return READ_ONCE(nuksm_worked) - ticket >= 0;
}

/*
 * How many replicas of these nodes have been folded since that was noted the last time. Notes it
 * for all nodes. Context: oom_lock.
 */
static unsigned long nuksm_folded_between(const nodemask_t *nodes)
{
	unsigned long folded = 0;
	int nid;

	for_each_online_node(nid) {
		struct nuksm_node_count *count = &nuksm_node_counts[nid];
		unsigned long now = READ_ONCE(count->folded);

		if (node_isset(nid, *nodes))
			folded += now - count->folded_noted;
		count->folded_noted = now;
	}
	return folded;
}

/* Were they folded as fast as those are that are found at once? */
static bool nuksm_is_fast(unsigned long folded, u64 ms)
{
	return (u64)folded * MSEC_PER_SEC >= ms * NUKSM_FAST;
}

/*
 * Has waiting for replicas of these nodes, since a time in ms, not taken too long? If the one
 * before was just over, what was done since then counts, as whoever has got a few comes back at
 * once. @folded: by this one alone. Context: oom_lock.
 */
static bool nuksm_was_quick(const nodemask_t *nodes, unsigned long folded, u64 since)
{
	u64 now = ktime_to_ms(ktime_get());
	unsigned long between = nuksm_folded_between(nodes);
	bool fast = folded >= NUKSM_MANY && nuksm_is_fast(folded, now - since);

	if (since - nuksm_waited_at < jiffies_to_msecs(NUKSM_FOLDED_IN)) {
		since = nuksm_waited_at;
		folded = between;
	}
	nuksm_waited_at = now;
	if (now >= nuksm_slow_until)
		nuksm_slow = 0;
	if (fast || nuksm_is_fast(folded, now - since))
		return true;
	nuksm_slow += now - since;
	nuksm_slow_until = now + NUKSM_AFTER_OOM_S * MSEC_PER_SEC;
	return nuksm_slow < NUKSM_SLOW_FOR;
}

/*
 * How many have been folded on these nodes since. If that was all that nuksmd could, replicas that
 * are left are busy: each kill would wait for them anew. If it did not come to it in time, somebody
 * may have had ksm_thread_mutex, or still has.
 *
 * Context: oom_lock.
 */
static unsigned long nuksm_folded_since(const nodemask_t *nodes, u64 since, bool worked)
{
	time64_t now = ktime_get_seconds();
	unsigned long folded = 0, left = 0;
	int nid;

	for_each_node_mask(nid, *nodes) {
		folded += READ_ONCE(nuksm_node_counts[nid].folded) -
			  nuksm_node_counts[nid].folded_before;
		left += nuksm_replicas_on(nid);
	}
	if (!worked) {
		if (left)
			nuksm_unserved_until = now + NUKSM_AFTER_SHRINK_S;
		return folded;
	}
	/* Also if none is left: the last one may have been busy, and others may become replicas */
	if (nuksm_was_quick(nodes, folded, since) && (!left || folded >= NUKSM_WORTH_IT))
		return folded;
	for_each_node_mask(nid, *nodes)
		nuksm_node_counts[nid].in_vain_until = now + NUKSM_AFTER_OOM_S;
	/* These have had their time, others have their own */
	nuksm_slow = 0;
	return folded;
}

/*
 * Before somebody is killed for his memory, replicas go from where there is none: who may have
 * that of some nodes only takes nobody's on others. Whoever has ksm_thread_mutex does not wait
 * for that: threads of the kernel, and who un-merges; nor does who exits or is being killed.
 */
static int nuksm_out_of_memory(struct notifier_block *self, unsigned long unused,
			       void *data)
{
	unsigned long *freed = data;
	nodemask_t nodes = NODE_MASK_NONE;
	u64 since = ktime_to_ms(ktime_get());
	bool worked;

	if (*freed)
		return NOTIFY_OK;
	nuksm_ask_for_all(&nodes);
	if (nodes_empty(nodes) || current->flags & (PF_KTHREAD | PF_EXITING) ||
	    oom_task_origin(current) || tsk_is_oom_victim(current) ||
	    fatal_signal_pending(current)) {
		nuksm_wake();
		return NOTIFY_OK;
	}
	worked = nuksm_wait_for_all(&nodes);
	*freed += nuksm_folded_since(&nodes, since, worked);
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
