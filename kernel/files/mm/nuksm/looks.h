/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's looks: who uses merged pages now, and are they still where they belong?
 *
 * That a page was used since ksmd came by says little, as that may be minutes ago, in
 * which everything was used. A look is short, and as short on a large machine: a thread
 * of its own clears the accessed bits of some mappings of merged pages, waits for a
 * moment, and sees which are set again. Each mapping remembers its last eight looks, and
 * is hot or cold by these, see nuksm_heat_of_looks().
 *
 * Then each of these pages is asked where it belongs, when its first sharer's turn comes.
 * It is moved because of sharers that use it elsewhere, because their process runs on
 * another node by now, or by the weights of processes. One that nobody uses stays where it
 * is, unless its process has moved, or the rule is another one.
 *
 * Looks take so much of a CPU's time and no more: what one look took, moves included,
 * puts off the next one, and each goes on where the one before had to stop. When the next
 * one is, nobody can foresee.
 *
 * Included by mm/ksm.c, whose types and locks are private to it. Unless it says
 * otherwise, all of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_LOOKS_H
#define _MM_NUKSM_LOOKS_H

#ifdef CONFIG_NUKSM_PLACEMENT

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/mmu_notifier.h>
#include <linux/random.h>
#include <linux/sched/cputime.h>
#include <linux/swap.h>

#include "folding.h"
#include "one_look.h"

/* How long pages are given to be used, and how often that is done at most. */
#define NUKSM_LOOK_MS		100
#define NUKSM_LOOK_EVERY_MS	1000
#define NUKSM_LOOK_CHANCE_MS	500

/*
 * What a glance saw is noted if it took no more than so many times as long, and so many ms: a
 * turn is waited for in ticks. The first half of its look takes no more than half of these.
 */
#define NUKSM_GLANCE_TIMES	2
#define NUKSM_GLANCE_LATE_MS	max(10, 3 * MSEC_PER_SEC / HZ)

/* Between two parts of folding replicas. */
#define NUKSM_FOLD_PAUSE_MS	10

/*
 * From one folding to the next, in jiffies, and in times as long as it took; and after several in
 * vain, while those of others wait that are not busy.
 */
#define NUKSM_FOLD_EVERY	((unsigned long)HZ)
#define NUKSM_FOLD_TIMES	10
#define NUKSM_FOLD_IN_VAIN_EVERY	(8UL * HZ)
#define NUKSM_FOLD_IN_VAIN_TIMES	64
#define NUKSM_FOLD_IN_VAIN_MOST	(64UL * HZ)

/*
 * One look moves no more pages than these, fewer of those that are dear; and its second
 * half may take so many times as long as looks should.
 */
#define NUKSM_MOVED_BY_LOOK	1024
#define NUKSM_MOVES_COST	4

/*
 * Goes on to the next process that has mappings to look at. Returns false behind the last
 * one.
 *
 * In the order of KSM's hash table, as in its list processes change their places when
 * they end. If the one where looks were has ended, its bucket is begun anew; if that
 * happens again, who is left of it has to wait for the next round.
 */
static bool nuksm_next_process(struct nuksm_looks *at)
{
	while (at->bucket < HASH_SIZE(mm_slots_hash)) {
		bool behind = !at->mm;
		struct mm_slot *slot;

		at->item = NULL;
		spin_lock(&ksm_mmlist_lock);
		hlist_for_each_entry(slot, &mm_slots_hash[at->bucket], hash) {
			struct ksm_mm_slot *mm_slot =
				mm_slot_entry(slot, struct ksm_mm_slot, slot);

			/* Who has mappings is not forgotten without ksm_thread_mutex */
			if (behind)
				at->item = READ_ONCE(mm_slot->rmap_list);
			behind |= slot->mm == at->mm;
			if (at->item) {
				at->mm = slot->mm;
				break;
			}
		}
		spin_unlock(&ksm_mmlist_lock);
		if (at->item)
			return true;
		at->mm = NULL;
		if (behind || at->anew)
			at->bucket++;
		at->anew = !behind && !at->anew;
		cond_resched();
	}
	return false;
}

/*
 * Clears the bits of some mappings of one process, and goes on to what is behind them.
 * *@stale: the address of one whose bit was set, and flags.
 */
static unsigned int nuksm_begin_some(struct nuksm_looks *at, unsigned long *stale)
{
	struct mm_struct *mm = at->mm;
	/*
	 * Not waited for: who keeps it, does so at his own cost. Who reads what /proc has of a
	 * process that waits for it itself keeps it, too, and has its pages look unused.
	 */
	bool locked = mmap_read_trylock(mm);
	unsigned int n;

	migrate_disable();
	for (n = 0; at->item && n < NUKSM_LOOKED_AT_ONCE; n++) {
		struct ksm_rmap_item *item = at->item;

		at->item = item->rmap_list;
		prefetch(at->item);
		if ((item->address & STABLE_FLAG) && nuksm_begin_look(item, locked))
			*stale = item->address;
	}
	lru_add_drain(); /* what waits to be promoted is held, and not moved */
	migrate_enable();
	if (locked)
		mmap_read_unlock(mm);
	return n;
}

/* In one of so many looks it is asked whether what could not be moved is to be tried once more. */
#define NUKSM_TRIES_IN	8

/* Looks at what was given up and is not held any more until it is folded, on average. */
#define NUKSM_GONE_IN	32

/*
 * A page that was given up, and that nobody holds any more, is folded into another one of its
 * content, which has those who were elsewhere: else those of a content that may be given up at all,
 * see nuksm_has_many_left(), would be used up for good. Until then nobody joins it, so that holding
 * it again is of no use. By chance, as nobody then foresees when. Where it belongs then, ksmd asks.
 * Returns whether that was tried: @stable_node may be gone then.
 */
static bool nuksm_fold_given_up(struct ksm_stable_node *stable_node)
{
	struct rb_root *root = nuksm_root_of(stable_node);
	struct ksm_stable_node *chain, *target;
	struct folio *folio;
	bool held;

	if (get_random_u32_below(NUKSM_GONE_IN) || !nuksm_by_checksum() ||
	    !is_stable_node_dup(stable_node))
		return false;
	chain = nuksm_filed_as(stable_node);
	target = nuksm_dup_for(chain, stable_node);
	if (!target)
		return false;
	folio = nuksm_take_hold(stable_node);
	if (IS_ERR(folio))
		return false;
	if (folio) {
		held = nuksm_is_held(folio);
		folio_put(folio);
		if (held)
			return false;
		/* If not, @target may be gone */
		if (nuksm_fold_into(stable_node, target, nuksm_most_to_fold(), true))
			nuksm_want_asked(target);
	}
	nuksm_collapse(chain, root);
	return true;
}

/* Is the page left to ksmd, who asks it again for this reason? */
static bool nuksm_waits(u8 again)
{
	return (again & NUKSM_IS_DEAR) ||
	       (again > NUKSM_ASK && get_random_u32_below(NUKSM_TRIES_IN));
}

/*
 * The page was looked at: does it belong where it is? One that nobody uses stays on any
 * node of its sharers, unless it is asked @strictly; if there is no room then, ksmd asks
 * again. Otherwise it has to belong elsewhere two times in a row: until the second time all
 * of its sharers have been looked at, who may have begun or stopped to use it together. More
 * often, if those who are elsewhere do not use it always, see nuksm_says_elsewhere(). One that
 * would stay goes to the node that its lot says of those where it is used alike, if that is said
 * three times in a row.
 *
 * One that could not be moved is left to ksmd, who asks it again, but for a chance, if trying is
 * cheap: who holds it would else choose when. It is ksmd, too, that counts how often a page is
 * asked and moved in a scan; looks are too rare for that to matter, as it takes several of them to
 * see that use has changed. But whether a replica is needed is asked all the same: by holding a
 * page nobody shall keep it, or others from having copies.
 *
 * Returns what trying to move it cost, in moves of pages that are easy to find.
 *
 * Context: no mmap_lock and no folio lock held. @stable_node may be gone then.
 */
static unsigned int nuksm_place_looked_at(struct ksm_stable_node *stable_node,
					  bool strictly)
{
	unsigned long kpfn = READ_ONCE(stable_node->kpfn);
	int here = pfn_to_nid(kpfn), nid, wanted, err;
	bool given_up = nuksm_is_given_up(stable_node), waits, alike;
	unsigned int elsewhere, says, cost;

	if (given_up) {
		/* ksmd gives those who are elsewhere now pages of their own */
		if (strictly)
			nuksm_want_asked(stable_node);
		if (nuksm_fold_given_up(stable_node))
			return 1;
		if (!stable_node->replica)
			return 0;
	}
	waits = given_up || nuksm_waits(READ_ONCE(stable_node->again));
	nuksm_ask_sharers(stable_node, strictly ? 1 : NUKSM_LATELY_LOOKS);
	/* By now it may be scan order that decides */
	if (nuksm_ballot.placement == NUKSM_FIRST)
		return 0;
	if (nuksm_tend(stable_node, waits))
		return 1;
	if (waits)
		return 0;
	elsewhere = stable_node->elsewhere;
	stable_node->elsewhere = 0;
	nid = here;
	wanted = here;
	if (strictly || !nuksm_stays_unused(here))
		nid = nuksm_belongs(&nuksm_ballot, stable_node->lot, kpfn, NUKSM_LOOKED,
				    &wanted);
	alike = !strictly && nid == here && nid == wanted &&
		nuksm_belongs_alike(stable_node, kpfn, &nid, &wanted);
	if (nid == NUMA_NO_NODE)
		return 0;
	if (nid == here && nid != wanted && strictly)
		nuksm_want_asked(stable_node);
	/* Where it belongs may have no room for now */
	if (nid != here || nid != wanted)
		stable_node->elsewhere = elsewhere;
	if (nid == here)
		return 0;
	says = alike ? NUKSM_SAYS_ALIKE :
		       nuksm_says_elsewhere(nuksm_looks_behind(stable_node, here));
	if (!strictly && ((says < NUKSM_SAYS_MOST && !nuksm_is_noted()) ||
			  !nuksm_follows(stable_node, says)))
		return 0;
	nuksm_window(NUKSM_WINDOW_MOVE);
	err = nuksm_move(stable_node, nid, &cost);
	nuksm_tried(stable_node, err, cost, alike);
	return cost;
}

/* What two mappings ask is asked once: by then there may be no such page. */
static void nuksm_add_question(struct nuksm_question question)
{
	unsigned int i;

	for (i = 0; i < nuksm_asked_now; i++) {
		if (nuksm_questions[i].stable_node == question.stable_node) {
			nuksm_questions[i].strictly |= question.strictly;
			return;
		}
	}
	nuksm_questions[nuksm_asked_now++] = question;
}

/* Has the second half moved enough, or taken long enough? Or does somebody need memory? */
static bool nuksm_look_is_over(const struct nuksm_looks *at)
{
	return !at->moves || freezing(current) || nuksm_is_urgent() ||
	       task_sched_runtime(current) > at->over_at;
}

/* Looks at their bits again, and asks the pages where they belong. */
static unsigned int nuksm_end_some(struct nuksm_looks *at)
{
	struct mm_struct *mm = at->mm;
	bool locked = mmap_read_trylock(mm);
	struct nuksm_question question;
	unsigned int n, i;

	nuksm_memory_of(mm, &nuksm_looked_memory);
	for (n = 0; at->item && n < NUKSM_LOOKED_AT_ONCE; n++) {
		struct ksm_rmap_item *item = at->item;

		at->item = item->rmap_list;
		prefetch(at->item);
		if ((item->address & STABLE_FLAG) &&
		    nuksm_end_look(item, locked, &question))
			nuksm_add_question(question);
	}
	if (locked)
		mmap_read_unlock(mm);
	for (i = 0; i < nuksm_asked_now; i++) {
		question = nuksm_questions[i];
		if (!question.stable_node) /* gone, as another one was asked */
			continue;
		if (!nuksm_look_is_over(at))
			at->moves -= min(at->moves,
					 nuksm_place_looked_at(question.stable_node,
							       question.strictly));
		else if (question.strictly)
			nuksm_want_asked(question.stable_node);
	}
	nuksm_asked_now = 0;
	return n;
}

/* nuksmd's, without the lock. */
static int nuksm_usual_nice;

/*
 * Waits until ksmd, or who writes to sysfs, lets go of KSM's lock. Not as a mutex does:
 * that takes a CPU's time for as long as they hold it. Then others wait for it, and perhaps for
 * memory, so that it is not kept by who merely keeps processors busy: what nuksmd takes of these is
 * bounded. If they wait for memory, it begins with the waiting. nuksm_end_turn() ends it.
 *
 * Returns false if everybody is to be frozen.
 */
static bool nuksm_take_turn(void)
{
	bool taken, first = false;

	for (;;) {
		if (!first) {
			nuksm_usual_nice = task_nice(current);
			first = nuksm_folding.urgent || nuksm_is_urgent();
			if (first)
				set_user_nice(current, MIN_NICE);
		}
		WRITE_ONCE(nuksm_wants_turn, true);
		taken = mutex_trylock(&ksm_thread_mutex);
		if (taken || freezing(current))
			break;
		schedule_timeout_idle(1);
	}
	WRITE_ONCE(nuksm_wants_turn, false);
	wake_up(&nuksm_turn);
	set_user_nice(current, taken ? MIN_NICE : nuksm_usual_nice);
	if (taken)
		wait_while_offlining();
	return taken;
}

static void nuksm_end_turn(void)
{
	mutex_unlock(&ksm_thread_mutex);
	set_user_nice(current, nuksm_usual_nice);
}

/* The first half of a look. Returns how many mappings it went through. */
static unsigned long nuksm_look_begins(u64 most_ns)
{
	u64 over_at = task_sched_runtime(current) + most_ns;
	unsigned long n = 0;
	unsigned long stale = 0;
	struct nuksm_looks at;

	nuksm_looks.began = jiffies;
	if (!nuksm_looks.goes_on) {
		nuksm_looks.goes_on = true;
		nuksm_looks.round_began = jiffies;
		nuksm_looks.replaces = xchg(&nuksm_replaces, 0);
	}
	at = nuksm_looks;
	if (at.item)
		nuksm_settle(at.mm);
	do {
		if (at.item) {
			n += nuksm_begin_some(&at, &stale);
			cond_resched();
			continue;
		}
		if (stale)
			nuksm_flush(at.mm, stale & PAGE_MASK);
		stale = 0;
		if (!nuksm_next_process(&at))
			break;
		nuksm_settle(at.mm);
	} while (task_sched_runtime(current) < over_at);
	if (stale)
		nuksm_flush(at.mm, stale & PAGE_MASK);
	return n;
}

/* Notes which of some mappings have been used since their bits were cleared. */
static unsigned int nuksm_glance_at_some(struct nuksm_looks *at)
{
	struct mm_struct *mm = at->mm;
	bool locked = mmap_read_trylock(mm);
	unsigned int n;

	for (n = 0; at->item && n < NUKSM_LOOKED_AT_ONCE; n++) {
		struct ksm_rmap_item *item = at->item;

		at->item = item->rmap_list;
		prefetch(at->item);
		if (item->address & NUKSM_LOOKED_FLAG)
			nuksm_glance_at_one(item, locked);
	}
	if (locked)
		mmap_read_unlock(mm);
	return n;
}

/*
 * Glances at as many mappings as the look began with, in the same order. Returns whether that
 * was done by @until, in ns.
 */
static bool nuksm_glance_at(unsigned long n, u64 until)
{
	struct nuksm_looks at = nuksm_looks;

	while (n && (at.item || nuksm_next_process(&at))) {
		n -= min(n, nuksm_glance_at_some(&at));
		cond_resched();
		if (ktime_get_ns() > until)
			return false;
	}
	return true;
}

/* Part of the second half. Returns whether there is more of it. */
static bool nuksm_look_goes_on(unsigned long *n)
{
	u64 until = ktime_get_ns() + NUKSM_HOLDS_MS * NSEC_PER_MSEC;

	do {
		if (!nuksm_looks.item && !nuksm_next_process(&nuksm_looks)) {
			WRITE_ONCE(nuksm_look_stats.round_ms,
				   jiffies_to_msecs(jiffies - nuksm_looks.round_began));
			nuksm_looks = (struct nuksm_looks){};
			nuksm_end_ranking();
			return false;
		}
		if (!*n || nuksm_look_is_over(&nuksm_looks))
			return false;
		*n -= min(*n, nuksm_end_some(&nuksm_looks));
		cond_resched();
	} while (ktime_get_ns() < until);
	return true;
}

/* Is there anything to look for? */
static bool nuksm_looks_now(void)
{
	return (ksm_run & KSM_RUN_MERGE) && nuksm_places() &&
	       READ_ONCE(nuksm_look_permille);
}

/*
 * Between the halves of a look, if more pages are hot than there may be replicas: which of
 * them are used within a short time? Those are hotter than the others. One that took too long
 * would tell nothing.
 *
 * Context: ksm_thread_mutex, which is not held while nuksmd sleeps; it is not held afterwards.
 */
static void nuksm_glance(unsigned long n, u64 began)
{
	unsigned long ms = nuksm_replica_stats.glance_ms;
	u64 until = began + (NUKSM_GLANCE_TIMES * ms + NUKSM_GLANCE_LATE_MS) * NSEC_PER_MSEC;

	nuksm_looks.in_time = false;
	nuksm_end_turn();
	usleep_range_state(ms * USEC_PER_MSEC, ms * USEC_PER_MSEC * 9 / 8, TASK_IDLE);
	nuksm_window(NUKSM_WINDOW_GLANCE);
	if (!nuksm_take_turn())
		return;
	if (nuksm_looks_now() && ktime_get_ns() <= until)
		nuksm_looks.in_time = nuksm_glance_at(n, until);
	nuksm_count_glance(nuksm_looks.in_time);
	nuksm_end_turn();
}

/*
 * The second half, of as many mappings, as far as time and moves reach: where it stops,
 * the next look begins.
 */
static void nuksm_look_ends(unsigned long n, u64 most_ns)
{
	bool more;

	nuksm_looks.over_at = task_sched_runtime(current) + most_ns;
	nuksm_looks.moves = NUKSM_MOVED_BY_LOOK;
	do {
		if (!nuksm_take_turn())
			return;
		more = nuksm_looks_now() && nuksm_look_goes_on(&n);
		nuksm_end_turn();
		if (more)
			schedule_timeout_idle(1);
	} while (more);
	nuksm_count(&nuksm_look_stats.looks, 1);
}

static void nuksm_look(u64 most_ns)
{
	unsigned long n, until, glance_ms, holds_ms;
	long left;

	if (!nuksm_take_turn())
		return;
	if (!nuksm_looks_now()) {
		nuksm_end_turn();
		return;
	}
	until = jiffies + msecs_to_jiffies(NUKSM_LOOK_MS);
	glance_ms = nuksm_replica_stats.glance_ms;
	holds_ms = glance_ms ? glance_ms + NUKSM_GLANCE_LATE_MS / 2 : NUKSM_HOLDS_MS;
	n = nuksm_look_begins(min(most_ns / 2, holds_ms * NSEC_PER_MSEC));
	nuksm_looks.in_time = true;
	if (glance_ms)
		nuksm_glance(n, ktime_get_ns());
	else
		nuksm_end_turn();

	nuksm_window(NUKSM_WINDOW_LOOK);
	while ((left = until - jiffies) > 0)
		schedule_timeout_idle(left);
	nuksm_look_ends(n, NUKSM_MOVES_COST * most_ns);
}

/* How long nobody looks after a look that took so much of a CPU's time: it is paid for then. */
static unsigned long nuksm_look_pause(u64 took, unsigned int permille)
{
	u64 ms = max_t(u64, div_u64(took, permille * NSEC_PER_USEC),
		       NUKSM_LOOK_EVERY_MS);

	return msecs_to_jiffies(min_t(u64, ms, INT_MAX)) +
	       get_random_u32_below(msecs_to_jiffies(NUKSM_LOOK_CHANCE_MS));
}

/*
 * Folds the replicas that have to be, and tells those who wait for their memory. If somebody is
 * about to be killed meanwhile, it ends, and begins anew for him; it ends, too, if who waited has
 * gone. What is left is left alone until *@next, in jiffies: for a *@pause by how long it took;
 * and, if that was in vain, each time twice as long, up to a limit. What was folded for somebody
 * who waited changes neither, for the others.
 */
static void nuksm_fold(unsigned long *pause, unsigned long *next)
{
	unsigned long before = nuksm_replicas(), took;
	u64 began = task_sched_runtime(current);
	bool more = true, gave_way = false, urgent;

	nuksm_begin_folding();
	urgent = nuksm_folding.urgent;
	while (more && nuksm_replicas() && !freezing(current) && nuksm_take_turn()) {
		gave_way = nuksm_is_urgent() || nuksm_is_too_late();
		more = !gave_way && nuksm_fold_some();
		if (!gave_way)
			WRITE_ONCE(nuksm_worked, nuksm_begun);
		nuksm_end_turn();
		if (more)
			schedule_timeout_idle(msecs_to_jiffies(NUKSM_FOLD_PAUSE_MS));
	}
	/* Who waited has got some, others of these take longer; or all is to be frozen */
	if (gave_way || ((urgent || freezing(current)) && nuksm_folds_more()))
		nuksm_give_way();
	nuksm_end_folding();
	if (gave_way || urgent)
		return;
	took = nsecs_to_jiffies(task_sched_runtime(current) - began);
	if (nuksm_folding.again && nuksm_replicas() >= before)
		*pause = min(2 * *pause, max(NUKSM_FOLD_IN_VAIN_EVERY,
					     NUKSM_FOLD_IN_VAIN_TIMES * took));
	else
		*pause = NUKSM_FOLD_EVERY;
	*pause = max(NUKSM_FOLD_TIMES * took, min(*pause, NUKSM_FOLD_IN_VAIN_MOST));
	*next = jiffies + *pause;
}

/* Is it time to fold some? Who is about to be killed does not wait for that. */
static bool nuksm_must_fold(unsigned long from)
{
	if (nuksm_is_urgent())
		return true;
	return time_after_eq(jiffies, from) &&
	       (nuksm_is_short() ||
		(nuksm_replicas() && (nuksm_folds_all() || nuksm_over_budget())));
}

/* How long nuksmd sleeps until @end, in jiffies: replicas may have to go meanwhile. */
static long nuksm_sleeps(unsigned long end)
{
	long left = max_t(long, 1, end - jiffies);

	return nuksm_replicas() ?
		       min_t(long, left, msecs_to_jiffies(NUKSM_LOOK_EVERY_MS)) : left;
}

/* Looks, and sleeps for as long as that has to last. */
static int nuksm_look_thread(void *unused)
{
	unsigned long ended = jiffies, pause;
	unsigned long fold_pause = NUKSM_FOLD_EVERY, folds_next = jiffies;
	unsigned int allowed = 1; /* when the last look was */
	u64 took = 0;

	set_freezable();
	set_user_nice(current, 5);

	while (!kthread_should_stop()) {
		unsigned int permille = READ_ONCE(nuksm_look_permille);

		/* If there is to be less of them now, that one was none too many */
		pause = nuksm_look_pause(took, max(permille, allowed));
		wait_event_freezable_timeout(nuksm_look_wait,
					     kthread_should_stop() ||
					     nuksm_must_fold(folds_next) ||
					     permille != READ_ONCE(nuksm_look_permille),
					     nuksm_sleeps(ended + pause));
		if (nuksm_must_fold(folds_next))
			nuksm_fold(&fold_pause, &folds_next);
		if (permille != READ_ONCE(nuksm_look_permille) ||
		    time_before(jiffies, ended + pause))
			continue;
		took = 0;
		/*
		 * Where processors set no accessed bits, each that is cleared would cost a
		 * fault. data_race() as it is asked again with ksm_thread_mutex.
		 */
		if (permille && arch_has_hw_pte_young() && data_race(nuksm_places())) {
			u64 began = task_sched_runtime(current);

			nuksm_look(permille * NUKSM_LOOK_EVERY_MS *
				   (NSEC_PER_MSEC / 1000));
			took = task_sched_runtime(current) - began;
			allowed = permille;
			nuksm_count(&nuksm_look_stats.cpu_us,
				    div_u64(took, NSEC_PER_USEC));
		}
		ended = jiffies;
		wait_event_freezable(ksm_thread_wait,
				     ksmd_should_run() || nuksm_replicas() ||
				     nuksm_is_urgent() || nuksm_is_short() ||
				     kthread_should_stop());
	}
	return 0;
}

static void __init nuksm_looks_init(void)
{
	if (nr_node_ids < 2)
		return;
	nuksm_replicas_init();
	if (IS_ERR(kthread_run(nuksm_look_thread, NULL, "nuksmd")))
		pr_err("ksm: creating nuksm's kthread failed: nothing is looked at\n");
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline void nuksm_looks_init(void)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_LOOKS_H */
