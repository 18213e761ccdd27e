// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's policy (PACT 2021, sections IV-A, IV-B and IV-E).
 *
 * Where a page belongs follows from two things: who shares it now, and a lot,
 * which the page keeps for life. The nodes of its sharers divide the range of
 * lots among themselves, in the proportions that the policy wants, and the page
 * belongs to the one in whose part its lot is.
 *
 *  - fair: only the nodes of the hottest sharers count, each the same, 1/K for K
 *    nodes (IV-A, IV-E).
 *  - priority: each process weighs 1/snice, with snice = nice + 21. For two
 *    processes that is the paper's nuShare, 1 - snice / (sum of snice). For
 *    more, the paper's formula does not add up to 1; shares in proportion to
 *    1/snice do (IV-B).
 *
 * The order in which sharers came does not matter, nor how often one left and
 * came back, nor how often it is asked. Nobody can choose a lot, and nobody
 * can foresee it: see nuksm_deal().
 */

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/random.h>

#include "policy.h"

/* Weight of a process with nice -20, the highest priority. */
#define NUKSM_TOP_WEIGHT	BIT(20)

#define NUKSM_LOT_BITS		16

/* A row divides the range of lots into parts of this width. */
#define NUKSM_PART		(BIT(NUKSM_LOT_BITS) / NUKSM_ROW)

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

/* Divides the range of lots among @nodes, but for those that are @barred. */
static int pick(const struct nuksm_ballot *ballot, const unsigned long *nodes,
		const unsigned long *barred, u16 lot)
{
	int nid, last = NUMA_NO_NODE;
	u64 at, sum = 0;

	for_each_andnot_bit(nid, nodes, barred, NUKSM_MOST_NODES)
		sum += weight_on(ballot, nid);
	at = mul_u64_u32_shr(sum, lot, NUKSM_LOT_BITS);
	for_each_andnot_bit(nid, nodes, barred, NUKSM_MOST_NODES) {
		u64 weight = weight_on(ballot, nid);

		last = nid;
		if (at < weight)
			break;
		at -= weight;
	}
	return last;
}

/**
 * nuksm_ballot_pick - where does the page belong?
 * @ballot: with all who share it added
 * @lot: the page's
 * @barred: nodes that cannot have it, a bitmap of NUKSM_MOST_NODES
 *
 * Return: a node, or NUMA_NO_NODE if all of them are barred.
 */
int nuksm_ballot_pick(const struct nuksm_ballot *ballot, u16 lot,
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
 * nuksm_next_lot - a lot that is far from this one and its predecessors
 * @lot: a lot
 *
 * The golden ratio spreads any number of lots in a row evenly.
 *
 * Return: another lot.
 */
u16 nuksm_next_lot(u16 lot)
{
	return lot + 0x9e37;
}

/* Shuffles the parts of the range anew. */
static void begin_row(struct nuksm_dealer *dealer)
{
	unsigned int i;

	dealer->offset = get_random_u32_below(NUKSM_PART);
	for (i = 0; i < NUKSM_ROW; i++) {
		unsigned int j = get_random_u32_below(i + 1);

		dealer->parts[i] = dealer->parts[j];
		dealer->parts[j] = i;
	}
	dealer->left = NUKSM_ROW;
}

/**
 * nuksm_deal - a lot for a new page
 * @dealer: nobody else's at the moment; with @left at 0 it begins anew
 *
 * Lots come in rows. A row has one lot of each part of the range, all at the same
 * random place in it, in random order: so of a row each node gets its share,
 * rounded up or down at random, and shares of n pages in whole rows differ from
 * those wanted by half the square root of n / NUKSM_ROW at most, where random lots
 * would make it half the square root of n (standard deviations). Each lot by itself is as likely
 * as any other, and who sees where the pages of earlier rows went knows nothing of
 * those to come. The caller ends a row when somebody is likely to have had the
 * time to look. Who looks all the same after each page of a row, and acts before
 * the next, may guess a bit better than by chance.
 *
 * Return: the lot.
 */
u16 nuksm_deal(struct nuksm_dealer *dealer)
{
	if (!dealer->left)
		begin_row(dealer);
	dealer->left--;
	return dealer->parts[dealer->left] * NUKSM_PART + dealer->offset;
}
