// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of what nuKSM computes, apart from any page: which tree a checksum
 * belongs to, and which node a merged page.
 */

#include <kunit/test.h>
#include <linux/prandom.h>

#include "nuksm.h"

#define PAGES		10000
#define MOST_SHARERS	8
#define MOST_NODES	4

static void all_pages_of_a_checksum_are_in_one_tree(struct kunit *test)
{
	struct nuksm_index before = nuksm_index;
	u32 checksum = 0;
	int i, nid;

	/* No page is tracked while KUnit runs, at boot. */
	nuksm_index.trees = 97;
	for (i = 0; i < 1000; i++) {
		for (nid = 0; nid < MOST_NODES; nid++) {
			unsigned int root = nuksm_root(nid, checksum, 0);

			KUNIT_EXPECT_EQ(test, root / 97, nid);
			KUNIT_EXPECT_EQ(test, root % 97, checksum % 97);
			KUNIT_EXPECT_LT(test, root, nuksm_nr_roots(MOST_NODES));
		}
		checksum += 0x9e3779b9;
	}
	nuksm_index = before;
}

static void order_is_that_of_checksums(struct kunit *test)
{
	struct nuksm_index before = nuksm_index;

	nuksm_index.by_checksum = true;
	KUNIT_EXPECT_EQ(test, nuksm_compare(7, 7), 0);
	KUNIT_EXPECT_LT(test, nuksm_compare(7, 8), 0);
	KUNIT_EXPECT_GT(test, nuksm_compare(U32_MAX, 0), 0);
	nuksm_index.by_checksum = false;
	KUNIT_EXPECT_EQ(test, nuksm_compare(7, 8), 0);
	nuksm_index = before;
}

static void order_of_contents_is_total(struct kunit *test)
{
	struct page *a = alloc_page(GFP_KERNEL | __GFP_ZERO);
	struct page *b = alloc_page(GFP_KERNEL | __GFP_ZERO);
	u8 *last;

	KUNIT_ASSERT_NOT_NULL(test, a);
	KUNIT_ASSERT_NOT_NULL(test, b);
	KUNIT_EXPECT_EQ(test, nuksm_compare_contents(a, b, 0, 1), 0);
	last = (u8 *)page_address(b) + PAGE_SIZE - 1;
	*last = 1;
	KUNIT_EXPECT_LT(test, nuksm_compare_contents(a, b, 0, 1), 0);
	KUNIT_EXPECT_GT(test, nuksm_compare_contents(b, a, 0, 1), 0);
	__free_page(b);
	__free_page(a);
}

static struct nuksm_ballot *open_ballot(struct kunit *test,
					enum nuksm_placement placement)
{
	struct nuksm_ballot *ballot = kunit_kzalloc(test, sizeof(*ballot),
						    GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, ballot);
	nuksm_ballot_open(ballot, placement);
	return ballot;
}

static const unsigned long nothing_barred[NUKSM_NODE_LONGS];

/* Expects @pages pages to belong on nodes in the proportions of @wanted. */
static void expect_shares(struct kunit *test, const struct nuksm_sharer *sharers,
			  int count, enum nuksm_placement placement,
			  const int *wanted)
{
	struct nuksm_ballot *ballot = open_ballot(test, placement);
	int found[MOST_NODES] = {}, sum = 0, page, nid, i;

	for (i = 0; i < count; i++) {
		/* The number of another test's ballot may be the same */
		if (sharers[i].voter)
			sharers[i].voter->ballot = 0;
	}
	for (i = 0; i < count; i++)
		nuksm_ballot_add(ballot, &sharers[i]);
	for (page = 0; page < PAGES; page++)
		found[nuksm_ballot_pick(ballot, page, nothing_barred)]++;
	for (nid = 0; nid < MOST_NODES; nid++)
		sum += wanted[nid];
	for (nid = 0; nid < MOST_NODES; nid++)
		KUNIT_EXPECT_LE_MSG(test,
				    abs(found[nid] - PAGES * wanted[nid] / sum),
				    PAGES / 100,
				    "node %d has %d of %d pages, for %d/%d", nid,
				    found[nid], PAGES, wanted[nid], sum);
}

/* A process for each sharer, unless it has one. */
static void give_voters(struct nuksm_sharer *sharers, int count,
			struct nuksm_voter *voters)
{
	int i;

	for (i = 0; i < count; i++)
		if (!sharers[i].voter)
			sharers[i].voter = &voters[i];
}

static void two_nodes_get_half_each(struct kunit *test)
{
	const struct nuksm_sharer sharers[] = { { .nid = 0 }, { .nid = 1 } };

	expect_shares(test, sharers, 2, NUKSM_FAIR, (int []){ 1, 1, 0, 0 });
}

/* Section IV-E: 1/K, where K counts nodes and not sharers. */
static void nodes_count_once_however_many_share_there(struct kunit *test)
{
	struct nuksm_sharer sharers[MOST_SHARERS] = {};
	const int nids[] = { 0, 0, 0, 1, 0, 2, 0, 1 };
	int i;

	for (i = 0; i < MOST_SHARERS; i++)
		sharers[i].nid = nids[i];
	expect_shares(test, sharers, MOST_SHARERS, NUKSM_FAIR,
		      (int []){ 1, 1, 1, 0 });
}

/* Table III: shares in proportion to 1/(nice + 21). */
static void two_processes_get_the_papers_shares(struct kunit *test)
{
	struct nuksm_voter voters[2] = {};
	struct nuksm_sharer sharers[] = {
		{ .nid = 0, .nice = -20 },
		{ .nid = 1, .nice = -11 },
	};

	give_voters(sharers, 2, voters);
	expect_shares(test, sharers, 2, NUKSM_PRIORITY, (int []){ 10, 1, 0, 0 });
}

/* snice 1, 2, 3, 4, 6, 12, 1, 2: weights 12, 6, 4, 3, 2, 1, 12, 6. */
static void eight_processes_get_theirs(struct kunit *test)
{
	const s8 nices[] = { -20, -19, -18, -17, -15, -9, -20, -19 };
	struct nuksm_sharer sharers[MOST_SHARERS] = {};
	struct nuksm_voter voters[MOST_SHARERS] = {};
	int i;

	for (i = 0; i < MOST_SHARERS; i++) {
		sharers[i].nid = i % MOST_NODES;
		sharers[i].nice = nices[i];
	}
	give_voters(sharers, MOST_SHARERS, voters);
	expect_shares(test, sharers, MOST_SHARERS, NUKSM_PRIORITY,
		      (int []){ 14, 7, 16, 9 });
}

/* In whatever order they come, leave and come back. */
static void order_and_history_do_not_matter(struct kunit *test)
{
	const enum nuksm_placement placements[] = { NUKSM_FAIR, NUKSM_PRIORITY };
	struct nuksm_sharer sharers[MOST_SHARERS] = {};
	struct nuksm_voter voters[MOST_SHARERS] = {};
	struct rnd_state state;
	int i, p, round;

	prandom_seed_state(&state, 1);
	for (i = 0; i < MOST_SHARERS; i++) {
		sharers[i].nid = i * 3 % MOST_NODES;
		sharers[i].nice = i;
		sharers[i].heat = i % 3 ? NUKSM_COLD : NUKSM_TOUCHED;
		/* Some have several mappings, on several nodes */
		sharers[i].voter = &voters[i / 2];
	}
	for (p = 0; p < ARRAY_SIZE(placements); p++) {
		struct nuksm_ballot *ballot = open_ballot(test, placements[p]);
		u32 lot = prandom_u32_state(&state);
		int wanted = NUMA_NO_NODE;

		for (round = 0; round < 1000; round++) {
			int a = prandom_u32_state(&state) % MOST_SHARERS;
			int b = prandom_u32_state(&state) % MOST_SHARERS;
			int nid;

			swap(sharers[a], sharers[b]);
			nuksm_ballot_open(ballot, placements[p]);
			for (i = 0; i < MOST_SHARERS; i++)
				nuksm_ballot_add(ballot, &sharers[i]);
			nid = nuksm_ballot_pick(ballot, lot, nothing_barred);
			if (wanted == NUMA_NO_NODE)
				wanted = nid;
			KUNIT_ASSERT_EQ(test, nid, wanted);
		}
	}
}

/* As neighbours, and taking turns. */
static void a_process_counts_once_however_often_it_maps(struct kunit *test)
{
	const int count = 256;
	struct nuksm_sharer *sharers = kunit_kcalloc(test, count, sizeof(*sharers),
						     GFP_KERNEL);
	struct nuksm_voter voters[3] = {};
	int i;

	KUNIT_ASSERT_NOT_NULL(test, sharers);
	for (i = 0; i < count; i++) {
		sharers[i].nid = i ? 0 : 1;
		sharers[i].voter = &voters[i ? 1 + i % 2 : 0];
	}
	expect_shares(test, sharers, count, NUKSM_PRIORITY,
		      (int []){ 2, 1, 0, 0 });
	for (i = 1; i < count; i++)
		sharers[i].voter = &voters[1];
	expect_shares(test, sharers, count, NUKSM_PRIORITY,
		      (int []){ 1, 1, 0, 0 });
}

/* Their weights add up to more than 32 bits. */
static void ten_thousand_processes_do_not_overflow(struct kunit *test)
{
	const int count = 10000;
	struct nuksm_ballot *ballot = open_ballot(test, NUKSM_PRIORITY);
	struct nuksm_voter *voters = kunit_kcalloc(test, count, sizeof(*voters),
						   GFP_KERNEL);
	int second = 0, i;

	KUNIT_ASSERT_NOT_NULL(test, voters);
	for (i = 0; i < count; i++) {
		struct nuksm_sharer sharer = {
			.nid = i % 2, .nice = -20, .voter = &voters[i],
		};

		nuksm_ballot_add(ballot, &sharer);
	}
	for (i = 0; i < PAGES; i++)
		second += nuksm_ballot_pick(ballot, i, nothing_barred);
	KUNIT_EXPECT_LE(test, abs(second - PAGES / 2), PAGES / 100);
}

static void only_the_hottest_count(struct kunit *test)
{
	struct nuksm_sharer sharers[] = {
		{ .nid = 0, .heat = NUKSM_COLD },
		{ .nid = 1, .heat = NUKSM_TOUCHED },
		{ .nid = 2, .heat = NUKSM_TOUCHED },
		{ .nid = 3, .heat = NUKSM_LISTED },
	};

	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
	swap(sharers[0], sharers[2]);
	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
	swap(sharers[1], sharers[3]);
	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
}

static void what_cannot_be_on_a_node_goes_to_the_others(struct kunit *test)
{
	const struct nuksm_sharer sharers[] = {
		{ .nid = 0, .heat = NUKSM_TOUCHED },
		{ .nid = 1, .heat = NUKSM_TOUCHED },
		{ .nid = 2, .heat = NUKSM_COLD },
	};
	struct nuksm_ballot *ballot = open_ballot(test, NUKSM_FAIR);
	unsigned long barred[NUKSM_NODE_LONGS] = {};
	int first, i;

	for (i = 0; i < ARRAY_SIZE(sharers); i++)
		nuksm_ballot_add(ballot, &sharers[i]);
	first = nuksm_ballot_pick(ballot, 0, barred);
	KUNIT_EXPECT_NE(test, first, 2);
	__set_bit(first, barred);
	KUNIT_EXPECT_EQ(test, nuksm_ballot_pick(ballot, 0, barred), !first);
	__set_bit(!first, barred);
	KUNIT_EXPECT_EQ(test, nuksm_ballot_pick(ballot, 0, barred), 2);
	__set_bit(2, barred);
	KUNIT_EXPECT_EQ(test, nuksm_ballot_pick(ballot, 0, barred), NUMA_NO_NODE);
}

/* An accomplice on a third node moves no page from one of the others to another. */
static void who_comes_takes_and_moves_nothing_else(struct kunit *test)
{
	const enum nuksm_placement placements[] = { NUKSM_FAIR, NUKSM_PRIORITY };
	struct nuksm_voter voters[MOST_NODES] = {};
	int p, page, i;

	for (p = 0; p < ARRAY_SIZE(placements); p++) {
		struct nuksm_ballot *ballot = open_ballot(test, placements[p]);
		int on_first = 0, moved = 0;

		for (page = 0; page < PAGES; page++) {
			int nid = NUMA_NO_NODE;

			nuksm_ballot_open(ballot, placements[p]);
			for (i = 0; i < MOST_NODES; i++) {
				struct nuksm_sharer sharer = {
					.nid = (i + 2) % MOST_NODES,
					.nice = i * 4,
					.voter = &voters[i],
				};
				int then;

				nuksm_ballot_add(ballot, &sharer);
				then = nuksm_ballot_pick(ballot, page,
							 nothing_barred);
				if (nid != NUMA_NO_NODE && then != nid) {
					KUNIT_EXPECT_EQ(test, then, sharer.nid);
					moved++;
				}
				nid = then;
			}
			on_first += nid == 2;
		}
		KUNIT_EXPECT_GT(test, moved, PAGES / 2);
		KUNIT_EXPECT_GT(test, on_first, PAGES / 8);
	}
}

/* Looks at a mapping, newest bit last, from which it was @before. */
static u8 heat_after(const char *looks, u8 before)
{
	u8 seen = before == NUKSM_TOUCHED ? 0xff : 0;

	for (; *looks; looks++) {
		seen = seen << 1 | (*looks == '1');
		before = nuksm_heat_of_looks(seen, before);
	}
	return before;
}

static void heat_follows_use_and_keeps_from_changing(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, heat_after("11111", NUKSM_COLD), NUKSM_COLD);
	KUNIT_EXPECT_EQ(test, heat_after("111111", NUKSM_COLD), NUKSM_TOUCHED);
	KUNIT_EXPECT_EQ(test, heat_after("10101111", NUKSM_COLD), NUKSM_TOUCHED);
	KUNIT_EXPECT_EQ(test, heat_after("0000000", NUKSM_TOUCHED), NUKSM_TOUCHED);
	KUNIT_EXPECT_EQ(test, heat_after("00000000", NUKSM_TOUCHED), NUKSM_COLD);
	/* What is used now and then stays what it is */
	KUNIT_EXPECT_EQ(test, heat_after("0010000100001000", NUKSM_TOUCHED),
			NUKSM_TOUCHED);
	KUNIT_EXPECT_EQ(test, heat_after("0010000100001000", NUKSM_COLD),
			NUKSM_COLD);
}

static void replicas_take_what_they_may(struct kunit *test)
{
	KUNIT_EXPECT_TRUE(test, nuksm_may_replicate(0, 0, 0));
	KUNIT_EXPECT_FALSE(test, nuksm_may_replicate(1, 0, 100));
	KUNIT_EXPECT_FALSE(test, nuksm_may_replicate(1, 1000, 0));
	KUNIT_EXPECT_TRUE(test, nuksm_may_replicate(50, 1000, 5));
	KUNIT_EXPECT_FALSE(test, nuksm_may_replicate(51, 1000, 5));
	KUNIT_EXPECT_TRUE(test, nuksm_may_replicate(1000, 1000, 100));
	/* 16 TiB */
	KUNIT_EXPECT_FALSE(test, nuksm_may_replicate(U32_MAX, U32_MAX, 99));
}

static void replicas_far_over_the_budget_go_at_once(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(0, 0, 0), 0);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(50, 1000, 5), 0);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(58, 1000, 5), 0);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(59, 1000, 5), 9);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(112, 2000, 5), 0);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(113, 2000, 5), 13);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(512, 512, 10), 461);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(9, 1000, 0), 9);
	/* 16 TiB */
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(U32_MAX, U32_MAX, 100), 0);
	KUNIT_EXPECT_EQ(test, nuksm_replicas_over(U32_MAX, U32_MAX, 50),
			U32_MAX - U32_MAX / 2);
}

static void use_counts_by_weight(struct kunit *test)
{
	struct rnd_state rnd;
	int i, counted = 0;

	prandom_seed_state(&rnd, 18);
	for (i = 0; i < PAGES; i++)
		counted += nuksm_weighs(1ULL << 33, 1ULL << 35, prandom_u32_state(&rnd));
	/* Five standard deviations off a quarter */
	KUNIT_EXPECT_GE(test, counted, PAGES / 4 - 217);
	KUNIT_EXPECT_LE(test, counted, PAGES / 4 + 217);
	KUNIT_EXPECT_TRUE(test, nuksm_weighs(1, 1, U32_MAX));
	KUNIT_EXPECT_TRUE(test, nuksm_weighs(1, 0, U32_MAX));
	KUNIT_EXPECT_FALSE(test, nuksm_weighs(0, 1ULL << 35, 0));
}

static void rank_is_use_in_several_looks(struct kunit *test)
{
	u8 rank = 0;
	int look;

	for (look = 1; look <= NUKSM_RANK_COPIED; look++) {
		KUNIT_EXPECT_LT(test, rank, NUKSM_RANK_COPIED);
		rank = nuksm_next_rank(rank, true);
	}
	KUNIT_EXPECT_EQ(test, rank, NUKSM_RANK_COPIED);
	for (look = 0; look < 10; look++)
		rank = nuksm_next_rank(rank, true);
	KUNIT_EXPECT_EQ(test, rank, NUKSM_RANK_MOST);
	for (look = 1; look <= NUKSM_RANK_MOST; look++) {
		KUNIT_EXPECT_GT(test, rank, 0);
		rank = nuksm_next_rank(rank, false);
	}
	KUNIT_EXPECT_EQ(test, rank, 0);
	KUNIT_EXPECT_EQ(test, nuksm_next_rank(rank, false), 0);
}

static void glances_are_as_short_as_the_budget_asks_for(struct kunit *test)
{
	unsigned long ms;

	/* A budget of 50 */
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(0, 0, 0, 1000, 5), 0);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(0, 50, 50, 1000, 5), 0);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(0, 51, 51, 1000, 5), NUKSM_GLANCE_MOST_MS);
	for (ms = NUKSM_GLANCE_MOST_MS; ms > NUKSM_GLANCE_LEAST_MS; ms /= 2)
		KUNIT_EXPECT_EQ(test, nuksm_next_glance(ms, 51, 51, 1000, 5), ms / 2);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(NUKSM_GLANCE_LEAST_MS, 51, 51, 1000, 5),
			NUKSM_GLANCE_LEAST_MS);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(8, 50, 50, 1000, 5), 8);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(8, 13, 13, 1000, 5), 8);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(8, 12, 12, 1000, 5), 16);
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(NUKSM_GLANCE_MOST_MS, 12, 12, 1000, 5), 0);
	/* Much is used by those that weigh little */
	KUNIT_EXPECT_EQ(test, nuksm_next_glance(NUKSM_GLANCE_MOST_MS, 12, 51, 1000, 5),
			NUKSM_GLANCE_MOST_MS);
}

/* Pages of which there may be replicas, as used by the model below: most of them seldom. */
#define MODEL_HOT	500UL
#define MODEL_WARM	5000UL
#define MODEL_BUDGET	1000UL

/* Is a page used within a glance, if it is used once in so many ms, at any moment? */
static bool model_use(struct rnd_state *rnd, unsigned long glance_ms, u32 every_ms)
{
	return prandom_u32_state(rnd) % (every_ms * 1000) <
	       (glance_ms ?: 100) * 1000;
}

/*
 * Of rounds of looks at pages, which have replicas or want them. Each is used once in so many ms,
 * or never, if that is 0. One glance of each round may be @late.
 */
struct model {
	struct rnd_state rnd;
	unsigned long pages;
	bool late;
	u16 *every_ms;
	u8 *ranks;
	bool *copied;
	struct nuksm_rules rules;
};

static void model_open(struct kunit *test, struct model *model, unsigned long pages)
{
	*model = (struct model){ .pages = pages };
	model->every_ms = kunit_kzalloc(test, pages * sizeof(*model->every_ms), GFP_KERNEL);
	model->ranks = kunit_kzalloc(test, pages, GFP_KERNEL);
	model->copied = kunit_kzalloc(test, pages * sizeof(*model->copied), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, model->every_ms);
	KUNIT_ASSERT_NOT_NULL(test, model->ranks);
	KUNIT_ASSERT_NOT_NULL(test, model->copied);
	prandom_seed_state(&model->rnd, 17);
}

/* From now on. */
static void model_use_each(struct model *model, unsigned long first, unsigned long n,
			   u16 every_ms)
{
	unsigned long i;

	for (i = first; i < first + n; i++)
		model->every_ms[i] = every_ms;
}

static unsigned long model_copies(const struct model *model, unsigned long first,
				  unsigned long n)
{
	unsigned long i, copies = 0;

	for (i = first; i < first + n; i++)
		copies += model->copied[i];
	return copies;
}

/* What a round of looks sees of use, as nuksm_rank() and nuksm_affords() count it. */
static void model_see(const struct model *model, unsigned long i, bool use, bool room,
		      struct nuksm_round *round)
{
	struct nuksm_compared *compared = &round->compared;
	bool idle = model->copied[i] && !model->ranks[i];
	bool wanted = !model->copied[i] && !room;
	bool eager = wanted && model->ranks[i] >= NUKSM_RANK_COPIED;

	round->used += use;
	round->counted += use;
	compared->idle += idle;
	compared->idle_used += idle && use;
	compared->wanted += wanted;
	compared->wanted_used += wanted && use;
	compared->eager += eager;
	compared->eager_used += eager && use;
}

/* Does the replica go, see nuksm_is_outranked()? */
static bool model_folds(struct model *model, unsigned long i, unsigned long copies)
{
	const struct nuksm_rules *rules = &model->rules;

	return !model->ranks[i] && rules->outranked &&
	       copies + rules->outranked > MODEL_BUDGET &&
	       prandom_u32_state(&model->rnd) % rules->idle < rules->chosen;
}

/*
 * One round, see nuksm_tend(); those that come first get replicas first. Returns how many
 * were made and folded.
 */
static unsigned long model_round(struct model *model)
{
	unsigned long copies = model_copies(model, 0, model->pages), changes = 0, i;
	unsigned long before = model->rules.glance_ms;
	struct nuksm_round round = { .in_time = 300, .late = model->late && before };
	u8 *ranks = model->ranks;
	bool *copied = model->copied;

	for (i = 0; i < model->pages; i++) {
		u16 every_ms = model->every_ms[i];
		bool use = every_ms && model_use(&model->rnd, before, every_ms);

		model_see(model, i, use, copies < MODEL_BUDGET, &round);
		ranks[i] = nuksm_next_rank(ranks[i], use);
		if (copied[i] && model_folds(model, i, copies)) {
			copied[i] = false;
			copies--;
			changes++;
		} else if (!copied[i] && use && copies < MODEL_BUDGET &&
			   (ranks[i] >= NUKSM_RANK_COPIED || model->rules.leaves)) {
			copied[i] = true;
			ranks[i] = NUKSM_RANK_COPIED;
			copies++;
			changes++;
			model->rules.outranked -= min(model->rules.outranked, 1UL);
		}
	}
	nuksm_end_round(&model->rules, &round, MODEL_BUDGET, 100);
	return changes;
}

static unsigned long model_rounds(struct model *model, int rounds)
{
	unsigned long changes = 0;

	while (rounds--)
		changes += model_round(model);
	return changes;
}

/* Pages used every 5 ms, behind ten times as many used every 50 ms: all have replicas. */
static void budget_is_for_the_hottest(struct kunit *test)
{
	struct model model;

	model_open(test, &model, MODEL_WARM + MODEL_HOT);
	model_use_each(&model, 0, MODEL_WARM, 50);
	model_use_each(&model, MODEL_WARM, MODEL_HOT, 5);
	model_rounds(&model, 40);
	KUNIT_EXPECT_LE(test, model_rounds(&model, 40), MODEL_BUDGET / 10);
	KUNIT_EXPECT_GE(test, model_copies(&model, MODEL_WARM, MODEL_HOT), MODEL_HOT * 99 / 100);
	/* What was taken from one is another's in the next round */
	KUNIT_EXPECT_GE(test, model_copies(&model, 0, model.pages), MODEL_BUDGET * 99 / 100);
	KUNIT_EXPECT_LE(test, model_copies(&model, 0, model.pages), MODEL_BUDGET);
	KUNIT_EXPECT_GE(test, model.rules.glance_ms, 2);
	KUNIT_EXPECT_LE(test, model.rules.glance_ms, 8);
}

/* However many they are, so that a glance sees more of them, or fewer. */
static void pages_that_are_equally_hot_keep_their_replicas(struct kunit *test)
{
	unsigned long n;

	for (n = MODEL_BUDGET * 11 / 10; n <= 5 * MODEL_BUDGET; n += n / 5) {
		struct model model;

		model_open(test, &model, n);
		model_use_each(&model, 0, n, 50);
		model_rounds(&model, 40);
		KUNIT_EXPECT_LE(test, model_rounds(&model, 40), MODEL_BUDGET / 20);
	}
}

/* From 4 to 400 ms. What is used most has most of it. */
static void pages_of_any_use_keep_their_replicas(struct kunit *test)
{
	unsigned long n, i;

	for (n = 2 * MODEL_BUDGET; n <= 8 * MODEL_BUDGET; n *= 2) {
		struct model model;

		model_open(test, &model, n);
		for (i = 0; i < n; i++)
			model_use_each(&model, i, 1, 4 + 396 * i / n);
		model_rounds(&model, 100);
		KUNIT_EXPECT_LE(test, model_rounds(&model, 40), MODEL_BUDGET / 50);
		KUNIT_EXPECT_GE(test, model_copies(&model, 0, MODEL_BUDGET / 2),
				MODEL_BUDGET * 4 / 10);
	}
}

/* They come when all of the budget is spent, as many as it is enough for, or some few. */
static void hotter_pages_get_the_budget_of_warm_ones(struct kunit *test)
{
	unsigned long hot;

	for (hot = MODEL_BUDGET / 10; hot <= MODEL_BUDGET / 2; hot *= 2) {
		struct model model;

		model_open(test, &model, 3 * MODEL_BUDGET + hot);
		model_use_each(&model, 0, 3 * MODEL_BUDGET, 50);
		model_rounds(&model, 60);
		model_use_each(&model, 3 * MODEL_BUDGET, hot, 5);
		model_rounds(&model, 20);
		KUNIT_EXPECT_GE(test, model_copies(&model, 3 * MODEL_BUDGET, hot),
				hot * 9 / 10);
	}
}

/*
 * Those that had all of it, and are used in hardly any glance, lose most of it to who uses his
 * at random, be these looked at before them or behind them, however many, and if glances are late.
 */
static void who_had_the_budget_first_does_not_keep_it(struct kunit *test)
{
	unsigned long honest;
	int way;

	for (honest = MODEL_BUDGET * 3 / 2; honest <= 8 * MODEL_BUDGET; honest *= 2) {
		for (way = 0; way < 4; way++) {
			bool last = way & 1;
			unsigned long first = last ? honest : 0;
			struct model model;

			model_open(test, &model, MODEL_BUDGET + honest);
			model.late = way & 2;
			model_use_each(&model, first, MODEL_BUDGET, 5);
			model_rounds(&model, 40);
			KUNIT_EXPECT_EQ(test, model_copies(&model, first, MODEL_BUDGET),
					MODEL_BUDGET);
			model_use_each(&model, first, MODEL_BUDGET, 750);
			model_use_each(&model, last ? 0 : MODEL_BUDGET, honest, 50);
			model_rounds(&model, 60);
			KUNIT_EXPECT_LE(test, model_copies(&model, first, MODEL_BUDGET),
					MODEL_BUDGET * (model.late ? 6 : 4) / 10);
			KUNIT_EXPECT_LE(test, model_rounds(&model, 40), MODEL_BUDGET / 20);
		}
	}
}

/* Of hundreds of glances some are late, and what they would have seen is not known. */
static void a_round_with_late_glances_is_the_least_that_there_is(struct kunit *test)
{
	struct nuksm_round much = {
		60, 51, { .idle = 30, .eager = 20, .eager_used = 20 }, .in_time = 300, .late = 1,
	};
	struct nuksm_round little = { 12, 12, .in_time = 300, .late = 1 };
	struct nuksm_round nothing = { .late = 5 };
	struct nuksm_rules rules = { .glance_ms = 8, .leaves = true };

	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &much, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 4);
	KUNIT_EXPECT_EQ(test, rules.outranked, 20);
	KUNIT_EXPECT_FALSE(test, rules.leaves);

	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &little, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 4);
	KUNIT_EXPECT_EQ(test, rules.outranked, 0);
	KUNIT_EXPECT_FALSE(test, rules.leaves);
	little.late = 0;
	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &little, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 8);
	KUNIT_EXPECT_TRUE(test, rules.leaves);

	rules.outranked = 3;
	KUNIT_EXPECT_FALSE(test, nuksm_end_round(&rules, &nothing, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 16);
	KUNIT_EXPECT_EQ(test, rules.outranked, 3);
	KUNIT_EXPECT_TRUE(test, rules.leaves);
}

#ifdef CONFIG_NUKSM_PLACEMENT
/* What is known of one lot says nothing of the next. */
static void lots_follow_from_the_whole_content(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	u32 *words, lot, same = 0;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, page);
	words = page_address(page);
	lot = nuksm_lot(page);
	KUNIT_EXPECT_EQ(test, nuksm_lot(page), lot);
	for (i = 0; i < PAGE_SIZE / sizeof(*words); i++) {
		words[i] ^= BIT(31);
		same += nuksm_lot(page) == lot;
		KUNIT_EXPECT_LT(test, nuksm_lot(page), BIT(NUKSM_LOT_BITS));
		words[i] ^= BIT(31);
	}
	/* One in a million each, by chance */
	KUNIT_EXPECT_LE(test, same, 1);
	__free_page(page);
}
#endif

static struct kunit_case nuksm_cases[] = {
	KUNIT_CASE(all_pages_of_a_checksum_are_in_one_tree),
	KUNIT_CASE(order_is_that_of_checksums),
	KUNIT_CASE(order_of_contents_is_total),
	KUNIT_CASE(two_nodes_get_half_each),
	KUNIT_CASE(nodes_count_once_however_many_share_there),
	KUNIT_CASE(two_processes_get_the_papers_shares),
	KUNIT_CASE(eight_processes_get_theirs),
	KUNIT_CASE(order_and_history_do_not_matter),
	KUNIT_CASE(a_process_counts_once_however_often_it_maps),
	KUNIT_CASE(ten_thousand_processes_do_not_overflow),
	KUNIT_CASE(only_the_hottest_count),
	KUNIT_CASE(what_cannot_be_on_a_node_goes_to_the_others),
	KUNIT_CASE(who_comes_takes_and_moves_nothing_else),
	KUNIT_CASE(heat_follows_use_and_keeps_from_changing),
	KUNIT_CASE(replicas_take_what_they_may),
	KUNIT_CASE(replicas_far_over_the_budget_go_at_once),
	KUNIT_CASE(use_counts_by_weight),
	KUNIT_CASE(rank_is_use_in_several_looks),
	KUNIT_CASE(glances_are_as_short_as_the_budget_asks_for),
	KUNIT_CASE(budget_is_for_the_hottest),
	KUNIT_CASE(pages_that_are_equally_hot_keep_their_replicas),
	KUNIT_CASE(pages_of_any_use_keep_their_replicas),
	KUNIT_CASE(hotter_pages_get_the_budget_of_warm_ones),
	KUNIT_CASE(who_had_the_budget_first_does_not_keep_it),
	KUNIT_CASE(a_round_with_late_glances_is_the_least_that_there_is),
#ifdef CONFIG_NUKSM_PLACEMENT
	KUNIT_CASE(lots_follow_from_the_whole_content),
#endif
	{}
};

static struct kunit_suite nuksm_suite = {
	.name = "nuksm",
	.test_cases = nuksm_cases,
};

kunit_test_suite(nuksm_suite);

MODULE_DESCRIPTION("KUnit tests of nuKSM's index and policy");
MODULE_LICENSE("GPL");
