// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's policy (PACT 2021, sections IV-A, IV-B and IV-E).
 *
 * Where a page belongs follows from two things: who shares it now, and a lot,
 * which follows from its content and a secret. Each node of its sharers draws a
 * number that follows from the lot and the node, and the page belongs to the one
 * whose number is the best, by the proportions that the policy wants. So each
 * page belongs to a node as likely as the policy says, and of many pages each
 * node has its share, as evenly as with random numbers: of n pages two nodes
 * have half each, give or take half the square root of n (standard deviation).
 *
 *  - fair: only the nodes of the hottest sharers count, each the same, 1/K for K
 *    nodes (IV-A, IV-E); and those that looks add, see nuksm_ballot_add_alike().
 *  - priority: each process weighs 1/snice, with snice = nice + 21. For two
 *    processes that is the paper's nuShare, 1 - snice / (sum of snice). For
 *    more, the paper's formula does not add up to 1; shares in proportion to
 *    1/snice do (IV-B).
 *
 * The order in which sharers came does not matter, nor how often one left and
 * came back, nor how often it is asked. Nobody can choose a lot, and nobody
 * can foresee it. And a node that sharers come to takes pages from the others,
 * but moves none among those: no accomplice can help two nodes to each other's
 * pages.
 */

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/int_log.h>
#include <linux/jhash.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/minmax.h>

#include "policy.h"

/* Weight of a process with nice -20, the highest priority. */
#define NUKSM_TOP_WEIGHT	BIT(20)

/* What intlog2() gives for 2, and how many of these there are in 32 bits. */
#define NUKSM_LOG2		BIT(24)
#define NUKSM_DRAW_BITS		32

static u32 weight_of(const struct nuksm_sharer *sharer)
{
	return NUKSM_TOP_WEIGHT / (sharer->nice + 21);
}

/**
 * nuksm_ballot_open - begin to ask who shares a page
 * @ballot: to be filled; only its number is kept
 * @placement: NUKSM_FAIR or NUKSM_PRIORITY
 */
void nuksm_ballot_open(struct nuksm_ballot *ballot,
		       enum nuksm_placement placement)
{
	ballot->placement = placement;
	ballot->number++;
	ballot->hottest = NUKSM_COLD;
	ballot->must_leave = false;
	bitmap_zero(ballot->nodes, NUKSM_MOST_NODES);
	bitmap_zero(ballot->hot_nodes, NUKSM_MOST_NODES);
}

/*
 * A process counts once, however many of its mappings share the page. If these
 * have several nodes, it counts for the first of them in the order of numbers,
 * which does not depend on the order in which they came.
 */
static void add_weight(struct nuksm_ballot *ballot,
		       const struct nuksm_sharer *sharer)
{
	struct nuksm_voter *voter = sharer->voter;
	u32 weight = weight_of(sharer);

	if (voter->ballot == ballot->number) {
		if (voter->nid <= sharer->nid)
			return;
		/* Its nice value may be another one by now */
		weight = voter->weight;
		ballot->weight[voter->nid] -= weight;
	}
	voter->ballot = ballot->number;
	voter->nid = sharer->nid;
	voter->weight = weight;
	ballot->weight[sharer->nid] += weight;
}

/**
 * nuksm_ballot_add - count one of those who share the page
 * @ballot: an open one
 * @sharer: one of them
 */
void nuksm_ballot_add(struct nuksm_ballot *ballot,
		      const struct nuksm_sharer *sharer)
{
	if (!test_bit(sharer->nid, ballot->nodes)) {
		__set_bit(sharer->nid, ballot->nodes);
		ballot->weight[sharer->nid] = 0;
	}
	if (sharer->heat > ballot->hottest) {
		ballot->hottest = sharer->heat;
		bitmap_zero(ballot->hot_nodes, NUKSM_MOST_NODES);
	}
	if (sharer->heat == ballot->hottest)
		__set_bit(sharer->nid, ballot->hot_nodes);
	if (ballot->placement == NUKSM_PRIORITY)
		add_weight(ballot, sharer);
}

static u64 weight_on(const struct nuksm_ballot *ballot, int nid)
{
	return ballot->placement == NUKSM_PRIORITY ? ballot->weight[nid] : 1;
}

/*
 * What node @nid draws for a page: the logarithm of a number that is anything
 * between 0 and 1 with equal chances, times -1. Divided by the node's weight, it
 * is the least of all nodes' with a chance in proportion to that weight
 * (weighted rendezvous hashing).
 */
static u64 draw(u32 lot, int nid)
{
	return NUKSM_DRAW_BITS * NUKSM_LOG2 - intlog2(jhash_2words(lot, nid, 0) | 1);
}

/* One of @nodes, but for those that are @barred. */
static int pick(const struct nuksm_ballot *ballot, const unsigned long *nodes,
		const unsigned long *barred, u32 lot)
{
	u64 best_draw = 0, best_weight = 0;
	int nid, best = NUMA_NO_NODE;

	for_each_andnot_bit(nid, nodes, barred, NUKSM_MOST_NODES) {
		u64 drawn = draw(lot, nid), weight = weight_on(ballot, nid);

		/* Below 2^29 times the weights of 2^15 processes */
		if (best != NUMA_NO_NODE &&
		    drawn * best_weight >= best_draw * weight)
			continue;
		best = nid;
		best_draw = drawn;
		best_weight = weight;
	}
	return best;
}

/**
 * nuksm_ballot_pick - where does the page belong?
 * @ballot: with all who share it added
 * @lot: the page's
 * @barred: nodes that cannot have it, a bitmap of NUKSM_MOST_NODES
 *
 * Return: a node, or NUMA_NO_NODE if all of them are barred.
 */
int nuksm_ballot_pick(const struct nuksm_ballot *ballot, u32 lot,
		      const unsigned long *barred)
{
	int nid = NUMA_NO_NODE;

	if (ballot->placement == NUKSM_FAIR)
		nid = pick(ballot, ballot->hot_nodes, barred, lot);
	if (nid == NUMA_NO_NODE)
		nid = pick(ballot, ballot->nodes, barred, lot);
	return nid;
}

/**
 * nuksm_ballot_reason - what decides where the page belongs?
 * @ballot: with all who share it added, from several nodes
 *
 * Return: enum nuksm_reason, as long as no node is barred.
 */
enum nuksm_reason nuksm_ballot_reason(const struct nuksm_ballot *ballot)
{
	if (ballot->placement == NUKSM_PRIORITY)
		return NUKSM_BY_PRIORITY;
	return bitmap_equal(ballot->nodes, ballot->hot_nodes, NUKSM_MOST_NODES) ?
	       NUKSM_BY_SPREAD : NUKSM_BY_HEAT;
}

/**
 * nuksm_is_alike - is a page used on a node no less than where it is?
 * @looks: a bit for each of the last eight looks, set if it was used there then
 * @here: likewise, where it is
 *
 * Return: whether it was, and not by chance only.
 */
bool nuksm_is_alike(u8 looks, u8 here)
{
	return hweight8(looks) >= max(NUKSM_ALIKE_LOOKS, hweight8(here));
}

/**
 * nuksm_ballot_add_alike - who uses a page no less than those where it is may have it, too
 * @ballot: with all who share it added, by which it would stay
 * @looks: of each node with a sharer, as for nuksm_is_alike()
 * @here: where it is, a node with a sharer
 *
 * To be hot takes use in nearly each look, as replicas come by that. Of pages that several use
 * alike, but less, merging may have found one's use only: he is not to have all of them.
 *
 * Return: whether there is one that was not in the lot. The lot says then which has it, of those
 * nodes, of those that are hot, and of @here, where it is, used or not.
 */
bool nuksm_ballot_add_alike(struct nuksm_ballot *ballot, const u8 *looks, int here)
{
	bool found = false;
	int nid;

	for_each_set_bit(nid, ballot->nodes, NUKSM_MOST_NODES) {
		if (nid == here || !nuksm_is_alike(looks[nid], looks[here]))
			continue;
		if (ballot->hottest == NUKSM_TOUCHED && test_bit(nid, ballot->hot_nodes))
			continue;
		if (ballot->hottest != NUKSM_TOUCHED) {
			ballot->hottest = NUKSM_TOUCHED;
			bitmap_zero(ballot->hot_nodes, NUKSM_MOST_NODES);
		}
		/* Those that are hot may be on nodes that cannot have it */
		__set_bit(here, ballot->hot_nodes);
		__set_bit(nid, ballot->hot_nodes);
		found = true;
	}
	return found;
}

/**
 * nuksm_heat_of_looks - how hot is a mapping of a merged page?
 * @looks: a bit for each of the last eight looks, set if it was used then
 * @before: how hot it was before the last one, enum nuksm_heat
 *
 * It is hot once it was used in several of them, and stays so until it was used in none:
 * what is used now and then does not change from look to look.
 *
 * Return: enum nuksm_heat
 */
u8 nuksm_heat_of_looks(u8 looks, u8 before)
{
	if (hweight8(looks) >= NUKSM_HOT_LOOKS)
		return NUKSM_TOUCHED;
	return looks ? before : NUKSM_COLD;
}

/**
 * nuksm_says_elsewhere - a look found a page where it does not belong: how much does that say?
 * @looks: in so many of the last eight those used it who are elsewhere, NUKSM_ALL_LOOKS at most
 *
 * Two that use a page alike, but not always, are seen to use it by chance: after a while one of
 * them was not, for eight looks. The less the other one uses it, too, the less that says.
 *
 * Return: a part of NUKSM_FOLLOWS_AT. Of eight looks it is half of that, each one less halves it.
 */
unsigned int nuksm_says_elsewhere(unsigned int looks)
{
	return max(NUKSM_SAYS_MOST >> (NUKSM_ALL_LOOKS - looks), 1UL);
}

/**
 * nuksm_may_replicate - may there be so many replicas?
 * @replicas: how many, in pages
 * @saved: what merging would save without them, in pages
 * @percent: of that which they may take
 *
 * Return: whether they fit into the budget.
 */
bool nuksm_may_replicate(unsigned long replicas, unsigned long saved,
			 unsigned int percent)
{
	return (u64)replicas * 100 <= (u64)saved * percent;
}

/**
 * nuksm_replicas_over - how many replicas are to be folded at once?
 * @replicas: how many there are, in pages
 * @saved: what merging would save without them, in pages
 * @percent: of that which they may take
 *
 * Looks fold the coldest if there are a few more than the budget has, as what is saved goes up
 * and down. If there are many, as who shared much has left, it may be long until they come
 * to them.
 *
 * Return: 0 if they are over the budget by a part of it at most, or by a few.
 */
unsigned long nuksm_replicas_over(unsigned long replicas, unsigned long saved,
				  unsigned int percent)
{
	unsigned long most = div_u64((u64)saved * percent, 100);

	return replicas > most + max(most / NUKSM_OVER_PART, NUKSM_OVER_FEW) ? replicas - most : 0;
}

/**
 * nuksm_weighs - does a use count, by the weight of who uses?
 * @weight: of those
 * @most: of the heaviest
 * @chance: a random number
 *
 * Return: true with a chance of @weight / @most.
 */
bool nuksm_weighs(u64 weight, u64 most, u32 chance)
{
	return weight >= most || mul_u64_u32_shr(most, chance, 32) < weight;
}

/**
 * nuksm_next_rank - a page was looked at once more: which rank has it?
 * @rank: before
 * @used: within a glance, by those for whom a replica is, or would be
 *
 * Return: its rank.
 */
u8 nuksm_next_rank(u8 rank, bool used)
{
	if (used)
		return min(rank + 1, NUKSM_RANK_MOST);
	return rank ? rank - 1 : 0;
}

/**
 * nuksm_next_glance - how short is the time in which a page has to be used to have rank?
 * @glance_ms: how long it was in the last round of looks, or 0: as long as a look
 * @counted: so many replicas, and pages that want one, were used within that, as far as it counts
 * @used: and so many altogether
 * @saved: what merging would save without replicas, in pages
 * @percent: of that which they may take
 *
 * As long as what counts is more than there may be, it becomes shorter: those that are left
 * are the hottest. In twice the time at most twice as many are used; it becomes longer if four
 * times as many may be, so that it does not go to and fro by chance.
 *
 * Return: how long it is in the next round, or 0.
 */
unsigned long nuksm_next_glance(unsigned long glance_ms, unsigned long counted,
				unsigned long used, unsigned long saved,
				unsigned int percent)
{
	if (!nuksm_may_replicate(counted, saved, percent))
		return glance_ms ? max(glance_ms / 2, NUKSM_GLANCE_LEAST_MS) :
				   NUKSM_GLANCE_MOST_MS;
	if (nuksm_may_replicate(4 * used, saved, percent))
		return glance_ms == NUKSM_GLANCE_MOST_MS ? 0 : glance_ms * 2;
	return glance_ms;
}

/*
 * One round more: of so many copies that were @wanted some were @used, and so were some idle
 * replicas. Rounds are weighed by how many there were of both (Mantel and Haenszel), so that it
 * does not matter that in one of them glances are shorter, and few are used of either.
 *
 * Return: whether the former are used more often. They may be what they are by chance: it is what
 * was seen since that is compared. And by more than what may be chance of that: one standard
 * deviation of the difference.
 */
static bool is_outranked(struct nuksm_contest *contest, const struct nuksm_compared *round,
			 unsigned long wanted, unsigned long used)
{
	u64 were, alike, all = max(round->idle + wanted, 1UL);

	were = mul_u64_u64_div_u64((u64)used << NUKSM_COMPARED_BITS, round->idle, all);
	alike = mul_u64_u64_div_u64((u64)round->idle_used << NUKSM_COMPARED_BITS, wanted, all);
	contest->used += were;
	contest->alike += alike;
	contest->variance += mul_u64_u64_div_u64(were, round->idle, all) +
			     mul_u64_u64_div_u64(NUKSM_COMPARED_TIMES * NUKSM_COMPARED_TIMES *
						 alike, wanted, all);
	contest->used -= contest->used / NUKSM_COMPARED_ROUNDS;
	contest->alike -= contest->alike / NUKSM_COMPARED_ROUNDS;
	contest->variance -= contest->variance / NUKSM_COMPARED_ROUNDS;
	were = contest->used >> NUKSM_COMPARED_BITS;
	alike = contest->alike >> NUKSM_COMPARED_BITS;
	return were > NUKSM_COMPARED_TIMES * (alike + 1) +
		      int_sqrt64(contest->variance >> NUKSM_COMPARED_BITS);
}

/*
 * How many idle replicas go, at most? As many as pages of rank were used that want copies, if
 * these are used more often, within glances or within looks: the former tell hot from warm, but
 * are late for some. If those of any rank are used more often, some replicas, and these may have
 * the budget: where hot pages are many times as many as it is enough for, hardly any has rank.
 *
 * Return: whether it is for pages of rank only.
 */
static bool compare(struct nuksm_rules *rules, const struct nuksm_compared *compared)
{
	unsigned long idle = 0, by_rank = 0, by_any = 0;
	enum nuksm_by by;

	for (by = 0; by < NUKSM_BY_EITHER; by++) {
		const struct nuksm_compared *round = &compared[by];

		idle = max(idle, round->idle);
		if (is_outranked(&rules->of_rank[by], round, round->eager, round->eager_used))
			by_rank = max(by_rank, round->eager_used);
		if (is_outranked(&rules->of_any[by], round, round->wanted, round->wanted_used))
			by_any = max(by_any, round->wanted_used);
	}
	by_rank = min(idle, by_rank);
	by_any = min3(idle, max(idle / NUKSM_COMPARED_PART, 1UL), by_any);
	rules->outranked = max(by_rank, by_any);
	rules->chosen = rules->outranked;
	rules->idle = idle;
	return by_rank && by_rank >= by_any;
}

/* How much would have been @seen in the round, if all of its glances had been in time? */
static unsigned long if_in_time(const struct nuksm_round *round, unsigned long seen)
{
	return round->in_time ? mult_frac(seen, round->in_time + round->late, round->in_time) :
				seen;
}

/**
 * nuksm_end_round - what follows from a round of looks
 * @rules: of this round; afterwards those of the next
 * @round: what it saw
 * @saved: what merging would save without replicas, in pages
 * @percent: of that which they may take
 *
 * Some of its glances may have been late, on a large machine in each round: whoever keeps ksmd
 * for a moment is not to keep his replicas, nor the budget from all, too. So what these would
 * have seen is reckoned up; and pages are compared by use in all of the look, too.
 *
 * Return: whether a glance was in time, or none was needed.
 */
bool nuksm_end_round(struct nuksm_rules *rules, const struct nuksm_round *round,
		     unsigned long saved, unsigned int percent)
{
	unsigned long before = rules->glance_ms, next = 0;
	bool saw = round->in_time || !round->late;
	bool compared = round->compared[NUKSM_BY_LOOK].idle ||
			round->compared[NUKSM_BY_LOOK].wanted;

	/* All came too late: perhaps longer ones do not */
	if (percent && !saw)
		next = min(2 * before, NUKSM_GLANCE_MOST_MS);
	else if (percent)
		next = nuksm_next_glance(before, if_in_time(round, round->counted),
					 if_in_time(round, round->used), saved, percent);
	rules->glance_ms = next;
	if (saw || compared) {
		bool by_rank = compare(rules, round->compared);

		rules->leaves = !by_rank && !(next && (!before || next < before));
	}
	return saw;
}
