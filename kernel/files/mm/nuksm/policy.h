/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's policy: on which node a merged page belongs. No KSM, no pages, no
 * locks: numbers in, a decision out.
 */
#ifndef _MM_NUKSM_POLICY_H
#define _MM_NUKSM_POLICY_H

#include <linux/bits.h>
#include <linux/numa.h>
#include <linux/types.h>

/**
 * enum nuksm_placement - which copy of a page stays when two are merged
 * @NUKSM_FIRST: what stock KSM does: the order of scanning decides
 * @NUKSM_FAIR: the hottest copies; among these, all nodes alike
 * @NUKSM_PRIORITY: all copies, in the proportions of their processes' weights
 * @NR_NUKSM_PLACEMENTS: how many there are
 */
enum nuksm_placement {
	NUKSM_FIRST,
	NUKSM_FAIR,
	NUKSM_PRIORITY,
	NR_NUKSM_PLACEMENTS,
};

/**
 * enum nuksm_heat - how recently a page was used through one mapping
 * @NUKSM_COLD: neither of the below
 * @NUKSM_LISTED: reclaim has the page on its active list, or in one of its
 *	youngest generations
 * @NUKSM_TOUCHED: accessed since ksmd came by the last time
 */
enum nuksm_heat {
	NUKSM_COLD,
	NUKSM_LISTED,
	NUKSM_TOUCHED,
};

/**
 * enum nuksm_reason - what decided
 * @NUKSM_BY_HEAT: one was hotter than the other
 * @NUKSM_BY_SPREAD: equally hot: every node gets its turn
 * @NUKSM_BY_PRIORITY: the weights of the processes
 * @NUKSM_NO_ROOM: the node that should have won has no room
 * @NR_NUKSM_REASONS: how many there are
 */
enum nuksm_reason {
	NUKSM_BY_HEAT,
	NUKSM_BY_SPREAD,
	NUKSM_BY_PRIORITY,
	NUKSM_NO_ROOM,
	NR_NUKSM_REASONS,
};

/**
 * struct nuksm_sharer - one mapping of a page that is, or will be, merged
 * @owner: tells processes apart
 * @nid: node of the page that the process had there before merging
 * @heat: enum nuksm_heat
 * @nice: of the process, -20 to 19
 */
struct nuksm_sharer {
	unsigned long owner;
	int nid;
	u8 heat;
	s8 nice;
};

/**
 * struct nuksm_ballot - one decision: does the page go to the newcomer's node?
 * @placement: the rule, NUKSM_FAIR or NUKSM_PRIORITY
 * @page_nid: the node that the page is on
 * @newcomer: the sharer that is about to join the others
 * @weight: of the sharers that count
 * @set: identifies the processes that count, in any order
 * @present: the newcomer adds nothing: its node or, by priority, its process
 *	has a sharer that counts already
 * @outdone: a sharer is hotter than the newcomer
 * @last_owner: of the sharer added last
 * @nodes: that have a sharer which counts
 */
struct nuksm_ballot {
	enum nuksm_placement placement;
	int page_nid;
	struct nuksm_sharer newcomer;
	u32 weight;
	u32 set;
	bool present;
	bool outdone;
	unsigned long last_owner;
	unsigned long nodes[BITS_TO_LONGS(MAX_NUMNODES)];
};

/**
 * struct nuksm_credits - what decisions of the same kind leave over
 * @credit: of each kind, in units of 2^-32 of a win
 *
 * A newcomer with a share of 0.3 wins the fourth time, the seventh, the tenth:
 * each decision adds the share, in units of 2^-32, to the credit of its kind,
 * and the carry is a win. So the shares that come out differ from those wanted
 * by less than a page per kind of decision, where random numbers would differ
 * by the square root of the number of pages. Credits start at random, lest
 * kinds that have a page or two all decide in favour of the page's own node.
 *
 * Kinds that hash to the same credit share it, which keeps their common
 * average right.
 */
struct nuksm_credits {
#define NUKSM_CREDIT_BITS	10
	u32 credit[1 << NUKSM_CREDIT_BITS];
};

void nuksm_ballot_init(struct nuksm_ballot *ballot,
		       enum nuksm_placement placement, int page_nid,
		       const struct nuksm_sharer *newcomer);
bool nuksm_ballot_add(struct nuksm_ballot *ballot,
		      const struct nuksm_sharer *sharer);
bool nuksm_newcomer_wins(const struct nuksm_ballot *ballot,
			 struct nuksm_credits *credits,
			 enum nuksm_reason *reason);

#endif /* _MM_NUKSM_POLICY_H */
