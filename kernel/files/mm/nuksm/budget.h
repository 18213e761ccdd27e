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
 * @seen: of use, see nuksm_counts() for what counts
 * @heaviest: what a process weighs at most that used a page, by priority
 * @rules: that follow from the round before
 * @over: it ended with more than the budget has
 * @most_weight: its @heaviest
 * @chance: of the page that is looked at, see nuksm_counts()
 * @eager: that page had rank enough for a replica before it was looked at
 */
static struct nuksm_ranking {
	u8 number;
	struct nuksm_round seen;
	u32 heaviest;
	struct nuksm_rules rules;
	bool over;
	u32 most_weight;
	u32 chance;
	bool eager;
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
		nuksm_ranking.seen.in_time++;
	else
		nuksm_ranking.seen.late++;
}

/*
 * A round of looks is over. Pages are ranked anew by how short a time they are used within,
 * as long as there are too many for the budget.
 */
static void nuksm_end_ranking(void)
{
	struct nuksm_ranking ended = nuksm_ranking;
	struct nuksm_replica_stats *stats = &nuksm_replica_stats;

	ended.rules.glance_ms = stats->glance_ms;
	if (nuksm_end_round(&ended.rules, &ended.seen, ksm_pages_sharing + nuksm_replicas(),
			    READ_ONCE(nuksm_replica_percent)))
		WRITE_ONCE(stats->refused, ended.seen.refused);
	WRITE_ONCE(stats->glance_ms, ended.rules.glance_ms);
	nuksm_ranking = (struct nuksm_ranking){
		.number = ended.number + 1,
		.rules = ended.rules,
		.over = !nuksm_fits_budget(0),
		.most_weight = ended.heaviest,
	};
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
	if (voter->ballot != nuksm_ballot.number) /* it does not draw the page */
		return false;
	if (nuksm_is_glanced(item))
		nuksm_ranking.heaviest = max(nuksm_ranking.heaviest, voter->weight);
	return !nuksm_replica_stats.glance_ms ||
	       nuksm_weighs(voter->weight, nuksm_ranking.most_weight, nuksm_ranking.chance);
}

/* Of the cgroups that are asked for one page so many may be gone through up to the root. */
#define NUKSM_PAYERS_ASKED	256

/*
 * Has a fork mapped the page, unknown to ksmd yet? That mapping is found by an item of the parent,
 * who cannot be taken from the page. Asked without a reference, it may be any page by now: a
 * mapping that is about to share another one is asked once more.
 */
static bool nuksm_is_forked(const struct ksm_stable_node *stable_node)
{
	const struct page *page = pfn_to_page(READ_ONCE(stable_node->kpfn));

	return atomic_read(&page->_mapcount) + 1 > (int)stable_node->rmap_hlist_len;
}

/* Can he who has the mapping be taken from the page, as none of a fork is found by it? */
static bool nuksm_may_leave(const struct ksm_rmap_item *item)
{
	return !nuksm_is_forked(item->head) || !nuksm_is_dear(item, 1);
}

/* May the process pay? That is what it counts as for the rest of the look. */
static bool nuksm_ask_to_pay(struct mm_struct *mm, struct nuksm_payers *payers)
{
	mm->nuksm.may_pay = nuksm_may_pay(mm, payers);
	mm->nuksm.asked = nuksm_looks.began;
	return mm->nuksm.may_pay;
}

/*
 * Might the process pay? It is asked once in a look: its cgroup may be as deep as it likes, and
 * it may share many pages. Who is drawn is asked again, see nuksm_payer().
 */
static bool nuksm_is_solvent(struct mm_struct *mm, struct nuksm_payers *payers)
{
	if (mm->nuksm.asked == nuksm_looks.began)
		return mm->nuksm.may_pay;
	return nuksm_ask_to_pay(mm, payers);
}

/* Might he who has the mapping pay for a copy where his home is? */
static bool nuksm_might_pay(const struct ksm_stable_node *stable_node,
			    const struct ksm_rmap_item *item, struct nuksm_payers *payers)
{
	return nuksm_draws(item) && nuksm_is_settled(item->mm, stable_node->domain) &&
	       nuksm_may_leave(item) && nuksm_is_solvent(item->mm, payers);
}

/**
 * struct nuksm_use - use of a page by those for whom a replica is, or would be
 * @glanced: within the glance, or, if that was late, the look
 * @counts: likewise, by one whose use counts
 * @in_look: within the look, by one whose use counts
 */
struct nuksm_use {
	bool glanced;
	bool counts;
	bool in_look;
};

/*
 * The mapping, whose use is asked for, was used within the look. Returns whether that is what
 * @use->counts is of.
 */
static bool nuksm_add_use(struct nuksm_use *use, const struct ksm_rmap_item *item)
{
	bool counts = nuksm_counts(item);

	use->in_look |= counts;
	if (!nuksm_is_glanced(item))
		return false;
	use->glanced = true;
	use->counts |= counts;
	return counts;
}

/*
 * The page was looked at once more. A replica has rank by the use of those who share it, another
 * page by that of who might share replicas, and pay for them. Returns whether that is so for the
 * first time in this round: then it counts.
 */
static bool nuksm_rank(struct ksm_stable_node *stable_node, int here)
{
	u8 round = nuksm_ranking.number % BIT(NUKSM_ROUND_BITS);
	const struct ksm_rmap_item *item;
	struct nuksm_compared *compared = nuksm_ranking.seen.compared;
	struct nuksm_payers payers = {};
	struct nuksm_use use = {};

	nuksm_ranking.chance = get_random_u32();
	if (!READ_ONCE(nuksm_replica_percent) || stable_node->ranked == round)
		return false;
	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		if ((nuksm_is_glanced(item) || (nuksm_is_used_now(item) && !use.in_look)) &&
		    (stable_node->replica ||
		     (item->home != here && nuksm_might_pay(stable_node, item, &payers))))
			nuksm_add_use(&use, item);
		if (use.counts || payers.asked == NUKSM_PAYERS_ASKED)
			break;
		cond_resched();
	}
	mem_cgroup_put(payers.limited);
	if (stable_node->replica && stable_node->rank <= NUKSM_RANK_IDLE) {
		compared[NUKSM_BY_LOOK].idle++;
		compared[NUKSM_BY_LOOK].idle_used += use.in_look;
		compared[NUKSM_BY_GLANCE].idle += nuksm_looks.in_time;
		compared[NUKSM_BY_GLANCE].idle_used += nuksm_looks.in_time && use.counts;
	}
	nuksm_ranking.eager = stable_node->rank >= NUKSM_RANK_COPIED;
	stable_node->ranked = round;
	/* Was it used within the glance? What was not in all of the look, was not */
	if (nuksm_looks.in_time || !use.in_look)
		stable_node->rank = nuksm_next_rank(stable_node->rank, use.counts);
	if (stable_node->replica && nuksm_looks.in_time) {
		nuksm_ranking.seen.used += use.glanced;
		nuksm_ranking.seen.counted += use.counts;
	}
	return true;
}

/* Is the page hot for him who has the mapping, and his home @nid? */
static bool nuksm_is_hot_on(const struct ksm_rmap_item *item, int nid)
{
	return item->home == nid && nuksm_own_heat(item) == NUKSM_TOUCHED;
}

/**
 * struct nuksm_draw - who pays for a copy
 * @any: one who did not use the page may be asked, too
 * @first: the first one whose use counts is enough: nobody is to pay yet
 * @payer: who was drawn; if nobody's use counts, one who might pay
 * @number: of the draw
 * @drawn: of how many processes whose use counts
 * @payers: who was asked
 */
struct nuksm_draw {
	bool any;
	bool first;
	struct mm_struct *payer;
	unsigned long number;
	unsigned int drawn;
	struct nuksm_payers payers;
};

/* The use of the process counts: is it drawn, as likely as each one before? */
static bool nuksm_is_drawn(struct nuksm_draw *draw, struct mm_struct *mm)
{
	if (mm->nuksm.drawn == draw->number)
		return false;
	mm->nuksm.drawn = draw->number;
	return !get_random_u32_below(++draw->drawn);
}

/*
 * Of those for whom the page is hot and whose home is @nid, the ones from number @first to the one
 * before number @end are asked whether they may pay for a copy. Each process whose use counts is
 * drawn as likely as those before, however often it maps the page. *@use: theirs.
 */
static void nuksm_draw_among(const struct ksm_stable_node *stable_node, int nid,
			     unsigned int first, unsigned int end,
			     struct nuksm_draw *draw, struct nuksm_use *use)
{
	const struct ksm_rmap_item *item;
	unsigned int number = 0;

	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		if (draw->payers.asked >= NUKSM_PAYERS_ASKED || number == end ||
		    (draw->first && draw->drawn))
			break;
		cond_resched();
		if (!nuksm_is_hot_on(item, nid) || number++ < first)
			continue;
		if ((nuksm_is_glanced(item) || (nuksm_is_used_now(item) && !use->in_look) ||
		     (draw->any && !draw->payer)) &&
		    nuksm_might_pay(stable_node, item, &draw->payers)) {
			bool counts = nuksm_is_used_now(item) && nuksm_add_use(use, item);

			if (counts ? nuksm_is_drawn(draw, item->mm) : !draw->payer)
				draw->payer = item->mm;
		}
	}
}

/*
 * One draw of who pays for a copy on @nid, where the page is hot for so many mappings. Chance says
 * who is asked first, too, as not all may be.
 */
static struct mm_struct *nuksm_draw_payer(const struct ksm_stable_node *stable_node, int nid,
					  unsigned int hot, struct nuksm_draw *draw,
					  struct nuksm_use *use)
{
	static unsigned long number;
	unsigned int first = get_random_u32_below(hot);

	draw->payer = NULL;
	draw->number = ++number;
	draw->drawn = 0;
	nuksm_draw_among(stable_node, nid, first, hot, draw, use);
	nuksm_draw_among(stable_node, nid, 0, first, draw, use);
	return draw->payer;
}

/* Of those who are drawn for one page so many may have got a limit since they were asked. */
#define NUKSM_PAYERS_DRAWN	8

/*
 * Who pays for a copy on @nid. Chance says, evenly among the processes that might and whose use
 * counts: otherwise one might be drawn more often than others, and have them lose the copy by
 * getting a limit then. Nor is it lost for who got one within the look: somebody else is drawn.
 * @draw: what is wanted.
 */
static struct mm_struct *nuksm_payer(const struct ksm_stable_node *stable_node, int nid,
				     struct nuksm_draw draw, struct nuksm_use *use)
{
	unsigned int hot = 0, tries = NUKSM_PAYERS_DRAWN;
	const struct ksm_rmap_item *item;
	struct mm_struct *payer;

	hlist_for_each_entry(item, &stable_node->hlist, hlist) {
		hot += nuksm_is_hot_on(item, nid);
		cond_resched();
	}
	if (!hot)
		return NULL;
	do {
		*use = (struct nuksm_use){};
		payer = nuksm_draw_payer(stable_node, nid, hot, &draw, use);
		if (!payer || draw.first || nuksm_ask_to_pay(payer, &draw.payers))
			break;
		payer = NULL;
	} while (--tries);
	mem_cgroup_put(draw.payers.limited);
	return payer;
}

/*
 * Is a replica to go, for the sake of pages that are used more often, and have no room? Of those
 * without rank it is chance which do: otherwise those that are looked at first would.
 */
static bool nuksm_is_outranked(const struct ksm_stable_node *stable_node)
{
	const struct nuksm_rules *rules = &nuksm_ranking.rules;

	return !stable_node->rank && rules->outranked &&
	       !nuksm_fits_budget(rules->outranked) &&
	       get_random_u32_below(rules->idle) < rules->chosen;
}

/* Has the budget room for a replica that there is? If not, those without rank go first. */
static bool nuksm_has_room_for(const struct ksm_stable_node *stable_node)
{
	return nuksm_fits_budget(0) || (stable_node->rank && !nuksm_ranking.over);
}

/* A copy of the page that is looked at is wanted, and there is no budget for it. */
static void nuksm_compare_wanted(struct nuksm_compared *compared, bool used)
{
	compared->wanted++;
	compared->wanted_used += used;
	compared->eager += nuksm_ranking.eager;
	compared->eager_used += nuksm_ranking.eager && used;
}

/*
 * The page would have one more replica, on node @nid: who of those who use it there pays for
 * that, or NULL? The budget is for pages that have rank, and what these leave for any that are
 * used; if it is spent, they wait until it is seen that they are used more often than replicas
 * without rank. Nothing is kept from others for what cannot be copied. @first: that is asked for
 * the first time in this round.
 */
static struct mm_struct *nuksm_affords(const struct ksm_stable_node *stable_node, int nid,
				       bool first)
{
	struct nuksm_round *seen = &nuksm_ranking.seen;
	bool fits = nuksm_fits_budget(1), in_time = nuksm_looks.in_time;
	bool pays = fits && (stable_node->rank >= NUKSM_RANK_COPIED ||
			     nuksm_ranking.rules.leaves);
	struct nuksm_draw draw = { .any = first && !fits, .first = !pays };
	struct mm_struct *payer = NULL;
	struct nuksm_use use = {};

	if ((fits || first) && nuksm_takes_replica(nid))
		payer = nuksm_payer(stable_node, nid, draw, &use);
	if (!payer)
		return NULL;
	if (first && in_time) {
		seen->used += use.glanced;
		seen->counted += use.counts;
		seen->refused += !fits && use.counts && stable_node->rank == NUKSM_RANK_MOST;
	}
	if (first && !fits) {
		nuksm_compare_wanted(&seen->compared[NUKSM_BY_LOOK], use.in_look);
		if (in_time)
			nuksm_compare_wanted(&seen->compared[NUKSM_BY_GLANCE], use.counts);
	}
	return pays && use.counts ? payer : NULL;
}

#endif /* _MM_NUKSM_BUDGET_H */
