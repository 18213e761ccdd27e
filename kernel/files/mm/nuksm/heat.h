/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM: how hot a merged page is, for each mapping of it, and what ksmd has to know of
 * looks; see looks.h.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_HEAT_H
#define _MM_NUKSM_HEAT_H

#ifdef CONFIG_NUKSM_PLACEMENT

/*
 * In &ksm_rmap_item.address of a mapping of a merged page, beside mm/ksm.c's flags: its
 * accessed bit was cleared for the look that is going on; and what the last looks saw,
 * where others have the number of a scan.
 */
#define NUKSM_LOOKED_FLAG	0x800
#define NUKSM_LOOKS_MASK	SEQNR_MASK

/*
 * And where the others have NUKSM_SUMMED_FLAG: the mapping was used within the last glance,
 * see nuksm_glance().
 */
#define NUKSM_GLANCED_FLAG	0x400

/**
 * struct nuksm_looks - where looks are in the lists of all mappings
 * @mm: of the mapping that is next, or NULL for the first process of the bucket
 * @item: the mapping that is next, or NULL for the first one of the next process
 * @bucket: of mm/ksm.c's hash table, where that process is
 * @anew: the bucket was begun a second time
 * @goes_on: the round has begun
 * @replaces: in this round, pages that nobody uses are asked, too
 * @round_began: when it has, in jiffies
 * @began: when the look has that is going on, in jiffies
 * @over_at: when it is over, in ns of CPU time of nuksmd
 * @moves: how many pages it may still move
 * @in_time: its glance was, if any
 */
struct nuksm_looks {
	struct mm_struct *mm;
	struct ksm_rmap_item *item;
	unsigned int bucket;
	bool anew;
	bool goes_on;
	bool replaces;
	unsigned long round_began;
	unsigned long began;
	u64 over_at;
	unsigned int moves;
	bool in_time;
};

static struct nuksm_looks nuksm_looks;

/* What was used when a look took longer than this may have been so at any time: not noted. */
#define NUKSM_LOOK_MOST_MS	1000

/* Is what the look sees noted, or did it take too long to come back to it? */
static bool nuksm_is_noted(void)
{
	return !time_after(jiffies, nuksm_looks.began + msecs_to_jiffies(NUKSM_LOOK_MOST_MS));
}

/* KSM's lock is held for so long at once, in CPU time; to fold replicas, by the clock. */
#define NUKSM_HOLDS_MS		100

/* So many mappings are gone through before those who wait for the mmap_lock have their turn. */
#define NUKSM_LOOKED_AT_ONCE	64

/**
 * struct nuksm_question - a page that is to be asked where it belongs
 * @stable_node: of the page
 * @strictly: even if nobody uses it, and at once
 */
struct nuksm_question {
	struct ksm_stable_node *stable_node;
	bool strictly;
};

/* Those that one process's mappings have led to, until they are asked. */
static struct nuksm_question nuksm_questions[NUKSM_LOOKED_AT_ONCE];
static unsigned int nuksm_asked_now;

/* @stable_node is about to be freed: nobody asks it. */
static void nuksm_ask_no_more(const struct ksm_stable_node *stable_node)
{
	unsigned int i;

	for (i = 0; i < nuksm_asked_now; i++) {
		if (nuksm_questions[i].stable_node == stable_node)
			nuksm_questions[i].stable_node = NULL;
	}
}

/* nuksmd waits for ksm_thread_mutex, and ksmd for nuksmd to have got it. */
static bool nuksm_wants_turn;
static DECLARE_WAIT_QUEUE_HEAD(nuksm_turn);

/*
 * ksmd holds no page. What it does at once may take minutes; looks, which are short, have
 * their turn meanwhile. Returns whether ksmd has to go on then.
 */
static bool nuksm_give_turn(void)
{
	if (!READ_ONCE(nuksm_wants_turn))
		return true;
	mutex_unlock(&ksm_thread_mutex);
	wait_event_idle_timeout(nuksm_turn, !READ_ONCE(nuksm_wants_turn), 2);
	/* If nuksmd could not run until now, it asks again */
	WRITE_ONCE(nuksm_wants_turn, false);
	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	return ksm_run & KSM_RUN_MERGE;
}

/* KSM begins with a process, which may be the copy of another one. */
static void nuksm_enter(struct mm_struct *mm)
{
	mm->nuksm.seen = 0;
	mm->nuksm.seen_on = NUMA_NO_NODE;
	atomic_long_set(&mm->nuksm.replicas, 0);
}

/* @item is about to be freed: looks go on behind it. */
static void nuksm_look_past(const struct ksm_rmap_item *item)
{
	if (nuksm_looks.item == item)
		nuksm_looks.item = item->rmap_list;
}

/*
 * The mapping joined a merged page: until it was looked at often enough, what ksmd knew
 * before counts.
 */
static void nuksm_begin_looks(struct ksm_rmap_item *item)
{
	item->address &= ~(NUKSM_LOOKED_FLAG | NUKSM_GLANCED_FLAG | NUKSM_LOOKS_MASK);
	if (item->heat == NUKSM_TOUCHED)
		item->address |= NUKSM_LOOKS_MASK;
}

/* Notes what a look saw. */
static void nuksm_note_look(struct ksm_rmap_item *item, bool touched)
{
	u8 looks = (item->address & NUKSM_LOOKS_MASK) << 1 | touched;

	/* Who looks for mappings reads it, too */
	WRITE_ONCE(item->address, (item->address & ~NUKSM_LOOKS_MASK) | looks);
	item->heat = nuksm_heat_of_looks(looks, item->heat);
}

/* Was the mapping used within the last look? */
static bool nuksm_is_used_now(const struct ksm_rmap_item *item)
{
	return item->address & 1;
}

/*
 * Was it, within the glance, if that was in time and there are any? Those who share a page may be
 * looked at in several looks: for him whose glance was late it is the one before that tells.
 */
static bool nuksm_is_glanced(const struct ksm_rmap_item *item)
{
	bool glances = nuksm_replica_stats.glance_ms && nuksm_looks.in_time;

	return nuksm_is_used_now(item) && (!glances || item->address & NUKSM_GLANCED_FLAG);
}

#else /* !CONFIG_NUKSM_PLACEMENT */

static inline bool nuksm_give_turn(void)
{
	return true;
}

static inline void nuksm_enter(struct mm_struct *mm)
{
}

static inline void nuksm_look_past(const struct ksm_rmap_item *item)
{
}

#endif /* CONFIG_NUKSM_PLACEMENT */
#endif /* _MM_NUKSM_HEAT_H */
