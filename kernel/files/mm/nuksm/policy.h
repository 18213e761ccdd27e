/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's policy: on which node a merged page belongs. No KSM, no pages, no
 * locks: numbers in, a decision out.
 */
#ifndef _MM_NUKSM_POLICY_H
#define _MM_NUKSM_POLICY_H

#include <linux/bits.h>
#include <linux/nuksm.h>
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
 * @NUKSM_UNSEEN: ksmd did not look yet; counts as cold
 * @NUKSM_COLD: neither of the below
 * @NUKSM_LISTED: reclaim counts the page as used: it is on the active list, in
 *	one of the youngest generations, or marked as young
 * @NUKSM_TOUCHED: accessed since ksmd came by the last time; of a merged page, in
 *	several of the last looks
 */
enum nuksm_heat {
	NUKSM_UNSEEN,
	NUKSM_COLD,
	NUKSM_LISTED,
	NUKSM_TOUCHED,
};

/**
 * enum nuksm_reason - what decided
 * @NUKSM_BY_HEAT: some nodes have hotter sharers than others
 * @NUKSM_BY_SPREAD: equally hot: every node gets its part
 * @NUKSM_BY_PRIORITY: the weights of the processes
 * @NUKSM_NO_ROOM: the node that it should have been takes no page
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
 * @voter: of the process that maps it
 * @nid: node of the page that the process had there before merging, or of the process
 * @heat: enum nuksm_heat, from NUKSM_COLD on
 * @nice: of the process, -20 to 19
 */
struct nuksm_sharer {
	struct nuksm_voter *voter;
	int nid;
	u8 heat;
	s8 nice;
};

/* Whole words of bits: a kernel with one node is tested with several, too. */
#define NUKSM_NODE_LONGS	BITS_TO_LONGS(MAX_NUMNODES)
#define NUKSM_MOST_NODES	(NUKSM_NODE_LONGS * BITS_PER_LONG)

/**
 * struct nuksm_ballot - all who share one page, and draw it to where they are
 * @placement: the rule, NUKSM_FAIR or NUKSM_PRIORITY
 * @number: tells this ballot from those before
 * @hottest: enum nuksm_heat, of the hottest sharer
 * @must_leave: the page is where no sharer may have memory, and all are on slow nodes
 * @nodes: that have a sharer
 * @hot_nodes: that have a sharer which is as hot as the hottest, or counts as if it was
 * @weight: of each of @nodes, by priority; of others it is left over from
 *	earlier ballots
 */
struct nuksm_ballot {
	enum nuksm_placement placement;
	unsigned long number;
	u8 hottest;
	bool must_leave;
	unsigned long nodes[NUKSM_NODE_LONGS];
	unsigned long hot_nodes[NUKSM_NODE_LONGS];
	u64 weight[NUKSM_MOST_NODES];
};

/* A mapping remembers so many looks. */
#define NUKSM_ALL_LOOKS		8

/* In so many of the last eight looks a mapping is used that becomes hot. */
#define NUKSM_HOT_LOOKS		6

/* In so many, one that is used now and then, and not by chance only. */
#define NUKSM_LATELY_LOOKS	2

/* In so many at least, on each node, one that is used alike on several, see nuksm_is_alike(). */
#define NUKSM_ALIKE_LOOKS	3

/* Replicas may be over their budget by this part of it, or so many, until looks come to them. */
#define NUKSM_OVER_PART		8
#define NUKSM_OVER_FEW		8UL

/* So much has to be seen of use elsewhere, from look to look, before a page follows it. */
#define NUKSM_ELSEWHERE_BITS	4
#define NUKSM_FOLLOWS_AT	BIT(NUKSM_ELSEWHERE_BITS)

/* A look says so much at most; and so much of a page that is used alike: three in a row. */
#define NUKSM_SAYS_MOST		(NUKSM_FOLLOWS_AT / 2)
#define NUKSM_SAYS_ALIKE	DIV_ROUND_UP(NUKSM_FOLLOWS_AT, 3)

/* A lot has so many bits. */
#define NUKSM_LOT_BITS		15

/*
 * A page's rank among those that are hot on several nodes goes from 0 to the first of
 * these; from the second on it may have replicas. Up to the third, replicas are idle: who uses
 * his in one look of three, all at once, is to be seen in each.
 */
#define NUKSM_RANK_MOST		4
#define NUKSM_RANK_COPIED	3
#define NUKSM_RANK_IDLE		1

/* A glance, the shortest time in which use is seen, has at least and most so many ms. */
#define NUKSM_GLANCE_LEAST_MS	1UL
#define NUKSM_GLANCE_MOST_MS	64UL

/*
 * Uses of replicas and of copies that are wanted are compared as of about so many rounds, and in
 * parts of so many bits. The latter have to be used so many times as often. Of idle replicas no
 * more than this part goes at once for pages without rank.
 */
#define NUKSM_COMPARED_ROUNDS	8
#define NUKSM_COMPARED_BITS	8
#define NUKSM_COMPARED_TIMES	2
#define NUKSM_COMPARED_PART	4

void nuksm_ballot_open(struct nuksm_ballot *ballot,
		       enum nuksm_placement placement);
void nuksm_ballot_add(struct nuksm_ballot *ballot,
		      const struct nuksm_sharer *sharer);
int nuksm_ballot_pick(const struct nuksm_ballot *ballot, u32 lot,
		      const unsigned long *barred);
enum nuksm_reason nuksm_ballot_reason(const struct nuksm_ballot *ballot);
bool nuksm_is_alike(u8 looks, u8 here);
bool nuksm_ballot_add_alike(struct nuksm_ballot *ballot, const u8 *looks, int here);
u8 nuksm_heat_of_looks(u8 looks, u8 before);

unsigned int nuksm_says_elsewhere(unsigned int looks);
bool nuksm_may_replicate(unsigned long replicas, unsigned long saved,
			 unsigned int percent);
unsigned long nuksm_replicas_over(unsigned long replicas, unsigned long saved,
				  unsigned int percent);
bool nuksm_weighs(u64 weight, u64 most, u32 chance);
u8 nuksm_next_rank(u8 rank, bool used);
unsigned long nuksm_next_glance(unsigned long glance_ms, unsigned long counted,
				unsigned long used, unsigned long saved,
				unsigned int percent);

/**
 * struct nuksm_compared - idle replicas, and copies that there is no budget for
 * @idle: such replicas, by the rank they had before they were looked at
 * @idle_used: those of them that were used, as far as it counts
 * @wanted: copies of pages that might have them, if there were budget for them
 * @wanted_used: those of them that were used
 * @eager: such copies of pages that had rank before they were looked at
 * @eager_used: those of them that were used
 */
struct nuksm_compared {
	unsigned long idle;
	unsigned long idle_used;
	unsigned long wanted;
	unsigned long wanted_used;
	unsigned long eager;
	unsigned long eager_used;
};

/* By what use pages are compared: within glances that were in time, and within looks. */
enum nuksm_by {
	NUKSM_BY_GLANCE,
	NUKSM_BY_LOOK,
	NUKSM_BY_EITHER, /* so many there are */
};

/**
 * struct nuksm_contest - copies that are wanted, compared with idle replicas
 * @used: so many of the former were used, and
 * @alike: so many of them would have been, if they were used as the latter are; of both, each
 *	round's by how much it says
 * @variance: what may be chance of the difference, squared
 *
 * Sums of about %NUKSM_COMPARED_ROUNDS rounds, the last ones counting most, with
 * %NUKSM_COMPARED_BITS bits for parts.
 */
struct nuksm_contest {
	u64 used;
	u64 alike;
	u64 variance;
};

/**
 * struct nuksm_round - what a round of looks saw of use that replicas are for
 * @used: replicas that were used within the glance, and those that pages want for such use
 * @counted: those of them whose use counts
 * @compared: what is compared of idle replicas, and of copies that are wanted
 * @refused: pages that always had rank, but got none, as the budget was spent
 * @in_time: so many looks had a glance in time
 * @late: and so many had not
 */
struct nuksm_round {
	unsigned long used;
	unsigned long counted;
	struct nuksm_compared compared[NUKSM_BY_EITHER];
	unsigned long refused;
	unsigned long in_time;
	unsigned long late;
};

/**
 * struct nuksm_rules - by what pages get replicas in a round
 * @glance_ms: how long a glance is, or 0: as long as a look
 * @outranked: so many replicas without rank still have to go, for pages that are used more often
 * @chosen: so many of @idle: which, is chance
 * @idle: idle replicas, in the round before
 * @leaves: pages without rank may have some of the budget
 * @of_rank: what copies are to replicas, if pages of rank want them
 * @of_any: and if any do
 */
struct nuksm_rules {
	unsigned long glance_ms;
	unsigned long outranked;
	unsigned long chosen;
	unsigned long idle;
	bool leaves;
	struct nuksm_contest of_rank[NUKSM_BY_EITHER];
	struct nuksm_contest of_any[NUKSM_BY_EITHER];
};

bool nuksm_end_round(struct nuksm_rules *rules, const struct nuksm_round *round,
		     unsigned long saved, unsigned int percent);

#endif /* _MM_NUKSM_POLICY_H */
