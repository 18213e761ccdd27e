/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's budget for replicas, see replicas.h: which pages get it, if more are hot than it is
 * enough for. Each has a rank, by how short a time it is used within; see nuksm_glance() for
 * how that is seen, and policy.c for what follows from it.
 *
 * Included by replicas.h. All of it runs under ksm_thread_mutex, and is done by nuksmd.
 */
#ifndef _MM_NUKSM_BUDGET_H
#define _MM_NUKSM_BUDGET_H

#include <linux/random.h>

/**
 * struct nuksm_ranking - which pages get the budget, in one round of looks
 * @number: of the round, see nuksm_rank()
 * @used: replicas that were used within the glance, and those that pages want for such use
 * @counted: those of them whose use counts, see nuksm_counts()
 * @refused: pages that always had rank, but got none, as the budget was spent
 * @heaviest: what a process weighs at most that used a page, by priority
 * @in_time: so many looks of the round had a glance in time
 * @late: and so many had not
 * @outranked: so many replicas without rank have to go, for those of the round before
 * @over: the round before ended with more than the budget has
 * @leaves: it left something of the budget to pages without rank
 * @most_weight: its @heaviest
 * @chance: of the page that is looked at, see nuksm_counts()
 */
static struct nuksm_ranking {
	u8 number;
	unsigned long used;
	unsigned long counted;
	unsigned long refused;
	u32 heaviest;
	unsigned long in_time;
	unsigned long late;
	unsigned long outranked;
	bool over;
	bool leaves;
	u32 most_weight;
	u32 chance;
} nuksm_ranking;

/* Do so many replicas more fit into the budget? Without replicas merging would save more. */
static bool nuksm_fits_budget(unsigned long more)
{
	unsigned long replicas = nuksm_replicas();

	return nuksm_may_replicate(replicas + more, ksm_pages_sharing + replicas,
				   READ_ONCE(nuksm_replica_percent));
}

/* A look had a glance, in time or not. */
static void nuksm_count_glance(bool in_time)
{
	if (in_time)
		nuksm_ranking.in_time++;
	else
		nuksm_ranking.late++;
}

/* Was no glance of a round in time? */
static bool nuksm_sees_nothing(const struct nuksm_ranking *round)
{
	return round->late && !round->in_time;
}

/* How long glances are in the next round. */
static unsigned long nuksm_choose_glance(unsigned long before)
{
	unsigned int percent = READ_ONCE(nuksm_replica_percent);
	unsigned long next;

	if (!percent)
		return 0;
	/* Those that came too late saw nothing: perhaps longer ones do */
	if (nuksm_sees_nothing(&nuksm_ranking))
		return min(2 * before, NUKSM_GLANCE_MOST_MS);
	next = nuksm_next_glance(before, nuksm_ranking.counted, nuksm_ranking.used,
				 ksm_pages_sharing + nuksm_replicas(), percent);
	/* What the late ones did not see may be too many for longer ones, not for shorter ones */
	return nuksm_ranking.late && (!next || next > before) ? before : next;
}

/*
 * A round of looks is over. Pages are ranked anew by how short a time they are used within,
 * as long as there are too many for the budget. What a round saw is the least that there is, as
 * some of its glances may have been late, on a large machine in each round: whoever keeps ksmd
 * for a moment is not to keep his replicas, too.
 */
static void nuksm_end_ranking(void)
{
	struct nuksm_ranking ended = nuksm_ranking;
	struct nuksm_replica_stats *stats = &nuksm_replica_stats;
	unsigned long before = stats->glance_ms, glance_ms = nuksm_choose_glance(before);

	WRITE_ONCE(stats->glance_ms, glance_ms);
	nuksm_ranking = (struct nuksm_ranking){
		.number = ended.number + 1,
		.outranked = ended.outranked,
		.over = !nuksm_fits_budget(0),
		.leaves = ended.leaves,
		.most_weight = max(ended.heaviest, ended.late ? ended.most_weight : 0),
	};
	if (nuksm_sees_nothing(&ended))
		return;
	WRITE_ONCE(stats->refused, ended.refused);
	nuksm_ranking.outranked = ended.refused;
	nuksm_ranking.leaves = (!ended.late || ended.leaves) && !ended.refused &&
			       !(glance_ms && (!before || glance_ms < before));
}

/*
 * Does the mapping's use of the page that the ballot is about count, as it is for the budget? By
 * priority as likely as the process weighs, of the heaviest: half the weight is as good as half
 * the use. The chance is one for all who use a page.
 */
static bool nuksm_counts(const struct ksm_rmap_item *item)
{
	const struct nuksm_voter *voter = &item->mm->nuksm.voter;

	if (nuksm_ballot.placement != NUKSM_PRIORITY)
		return true;
	if (voter->ballot != nuksm_ballot.number) /* it is about to end */
		return false;
	nuksm_ranking.heaviest = max(nuksm_ranking.heaviest, voter->weight);
	return !nuksm_replica_stats.glance_ms ||
	       nuksm_weighs(voter->weight, nuksm_ranking.most_weight, nuksm_ranking.chance);
}

/*
 * The page was looked at once more. A replica has rank by the use of those who share it, another
 * page by that of who might share replicas. Returns whether that is so for the first time in
 * this round: then it counts.
 */
static bool nuksm_rank(struct ksm_stable_node *stable_node, int here)
{
	u8 round = nuksm_ranking.number % BIT(NUKSM_ROUND_BITS);
	const struct ksm_rmap_item *item;
	bool used = false, counts = false;

	nuksm_ranking.chance = get_random_u32();
	if (!nuksm_looks.ranks || !READ_ONCE(nuksm_replica_percent) ||
	    stable_node->ranked == round)
		return false;
	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		if (nuksm_is_glanced(item) && (stable_node->replica || item->home != here)) {
			used = true;
			counts = nuksm_counts(item);
		}
		if (counts)
			break;
		cond_resched();
	}
	stable_node->ranked = round;
	stable_node->rank = nuksm_next_rank(stable_node->rank, counts);
	if (stable_node->replica) {
		nuksm_ranking.used += used;
		nuksm_ranking.counted += counts;
	}
	return true;
}

/* Of the cgroups that are asked for one page so many may be gone through up to the root. */
#define NUKSM_PAYERS_ASKED	256

/*
 * Of those who use the page and whose home is @nid, one who may pay for a copy: one whose use
 * *@counts, if there is.
 */
static struct mm_struct *nuksm_payer(const struct ksm_stable_node *stable_node, int nid,
				     bool *counts)
{
	const struct ksm_rmap_item *item;
	struct nuksm_payers payers = {};
	struct mm_struct *payer = NULL;

	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		if (item->home == nid && nuksm_own_heat(item) == NUKSM_TOUCHED &&
		    nuksm_is_glanced(item) && !ksm_test_exit(item->mm) &&
		    nuksm_is_settled(item->mm, stable_node->domain) &&
		    nuksm_may_pay(item->mm, &payers)) {
			payer = item->mm;
			*counts = nuksm_counts(item);
		}
		if (*counts || payers.asked == NUKSM_PAYERS_ASKED)
			break;
		cond_resched();
	}
	mem_cgroup_put(payers.limited);
	return payer;
}

/* Is a replica to go, for the sake of pages that are used more often, and have no room? */
static bool nuksm_is_outranked(const struct ksm_stable_node *stable_node)
{
	return !stable_node->rank && nuksm_looks.ranks && nuksm_ranking.outranked &&
	       !nuksm_fits_budget(nuksm_ranking.outranked);
}

/* Has the budget room for a replica that there is? If not, those without rank go first. */
static bool nuksm_has_room_for(const struct ksm_stable_node *stable_node)
{
	return nuksm_fits_budget(0) || (stable_node->rank && !nuksm_ranking.over);
}

/*
 * The page would have one more replica, on node @nid: who of those who use it there pays for
 * that, or NULL? The budget is for pages that have rank, and what these leave for any that are
 * used; if it is spent, those that always have rank wait for others to lose theirs. @first: that
 * is asked for the first time in this round.
 */
static struct mm_struct *nuksm_affords(const struct ksm_stable_node *stable_node, int nid,
				       bool first)
{
	struct mm_struct *payer = NULL;
	bool counts = false;

	if (nuksm_takes_replica(nid))
		payer = nuksm_payer(stable_node, nid, &counts);
	if (!payer)
		return NULL;
	nuksm_ranking.used += first;
	nuksm_ranking.counted += first && counts;
	if (!counts)
		return NULL;
	if (nuksm_fits_budget(1))
		return stable_node->rank >= NUKSM_RANK_COPIED || nuksm_ranking.leaves ?
			       payer : NULL;
	/* Those that are as hot as what there is would go to and fro */
	nuksm_ranking.refused += first && stable_node->rank == NUKSM_RANK_MOST;
	return NULL;
}

#endif /* _MM_NUKSM_BUDGET_H */
