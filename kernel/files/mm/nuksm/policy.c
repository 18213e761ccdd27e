// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's policy (PACT 2021, sections IV-A, IV-B and IV-E).
 *
 * Sharers join a merged page one after the other, and each time there is one
 * question: does the page stay where it is, or go to the newcomer's node? The
 * newcomer wins with its share of the whole, newcomer included. By induction
 * every sharer then ends up with its share, in whatever order they came: who
 * was there keeps its part of what the newcomer leaves (a weighted reservoir).
 *
 *  - fair: only the hottest sharers count, and each node that has one weighs
 *    the same, 1/K for K nodes (IV-A, IV-E).
 *  - priority: each process weighs 1/snice, with snice = nice + 21. For two
 *    processes that is the paper's nuShare, 1 - snice / (sum of snice). For
 *    more, the paper's formula does not add up to 1; shares in proportion to
 *    1/snice do (IV-B).
 */

#include <linux/bitops.h>
#include <linux/hash.h>
#include <linux/math64.h>
#include <linux/string.h>

#include "policy.h"

/* Weight of a process with nice -20, the highest priority. */
#define NUKSM_TOP_WEIGHT	BIT(20)

/* 256 sharers, KSM's default limit, of top weight do not overflow. */
static u32 weight_of(const struct nuksm_sharer *sharer)
{
	return NUKSM_TOP_WEIGHT / (sharer->nice + 21);
}

/**
 * nuksm_ballot_init - begin a decision
 * @ballot: to be filled
 * @placement: NUKSM_FAIR or NUKSM_PRIORITY
 * @page_nid: the node that the page is on
 * @newcomer: the sharer that joins
 */
void nuksm_ballot_init(struct nuksm_ballot *ballot,
		       enum nuksm_placement placement, int page_nid,
		       const struct nuksm_sharer *newcomer)
{
	memset(ballot, 0, sizeof(*ballot));
	ballot->placement = placement;
	ballot->page_nid = page_nid;
	ballot->newcomer = *newcomer;
}

/* Counts a sharer's node, once, unless the newcomer is hotter. */
static void add_node(struct nuksm_ballot *ballot,
		     const struct nuksm_sharer *sharer)
{
	if (sharer->heat > ballot->newcomer.heat)
		ballot->outdone = true;
	if (sharer->heat != ballot->newcomer.heat)
		return;
	if (!__test_and_set_bit(sharer->nid, ballot->nodes))
		ballot->weight++;
	ballot->set += hash_long(sharer->owner, 32);
	ballot->present = sharer->nid == ballot->newcomer.nid;
}

/*
 * Counts a sharer's process, once: ksmd goes through one process after the
 * other, so that all mappings by a process are usually next to each other.
 */
static void add_process(struct nuksm_ballot *ballot,
			const struct nuksm_sharer *sharer)
{
	if (sharer->owner == ballot->last_owner)
		return;
	ballot->last_owner = sharer->owner;
	ballot->weight += weight_of(sharer);
	ballot->set += hash_long(sharer->owner, 32);
	ballot->present = sharer->owner == ballot->newcomer.owner;
}

/**
 * nuksm_ballot_add - count one of those who share the page already
 * @ballot: the decision
 * @sharer: one of them
 *
 * Return: whether adding more of them can matter.
 */
bool nuksm_ballot_add(struct nuksm_ballot *ballot,
		      const struct nuksm_sharer *sharer)
{
	if (ballot->placement == NUKSM_PRIORITY)
		add_process(ballot, sharer);
	else
		add_node(ballot, sharer);
	return !ballot->present && !ballot->outdone;
}

/* Adds @share, in units of 2^-32, to the credit of this kind of decision. */
static bool draw(const struct nuksm_ballot *ballot,
		 struct nuksm_credits *credits, u32 share)
{
	u32 kind = ballot->set + hash_long(ballot->newcomer.owner, 32) +
		   hash_32(ballot->page_nid, 32);
	u32 *credit = &credits->credit[hash_32(kind, NUKSM_CREDIT_BITS)];

	*credit += share;
	return *credit < share;
}

/**
 * nuksm_newcomer_wins - decide
 * @ballot: with all sharers added
 * @credits: what earlier decisions left over
 * @reason: set to what decided
 *
 * Return: whether the page belongs on the newcomer's node, and not where it is.
 */
bool nuksm_newcomer_wins(const struct nuksm_ballot *ballot,
			 struct nuksm_credits *credits,
			 enum nuksm_reason *reason)
{
	bool by_priority = ballot->placement == NUKSM_PRIORITY;
	u32 weight = by_priority ? weight_of(&ballot->newcomer) : 1;

	*reason = by_priority ? NUKSM_BY_PRIORITY : NUKSM_BY_SPREAD;
	if (ballot->outdone || !ballot->weight)
		*reason = NUKSM_BY_HEAT;

	if (ballot->outdone || ballot->present)
		return false;
	if (!ballot->weight)
		return true;
	return draw(ballot, credits,
		    div_u64((u64)weight << 32, weight + ballot->weight));
}
