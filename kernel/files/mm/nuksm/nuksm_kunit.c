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

/* A mapping that was used in so many of the last eight looks. */
static u8 so_many(unsigned int looks)
{
	return GENMASK(7, 0) >> (8 - looks);
}

static void to_be_used_alike_is_no_less_often_and_not_by_chance(struct kunit *test)
{
	unsigned int there, here;

	for (there = 0; there <= 8; there++) {
		for (here = 0; here <= 8; here++)
			KUNIT_EXPECT_EQ(test, nuksm_is_alike(so_many(there), so_many(here)),
					there >= 3 && there >= here);
	}
	KUNIT_EXPECT_TRUE(test, nuksm_is_alike(0x29, 0x94));
}

/* Four nodes; the sharer on @nid is as hot as that. */
static struct nuksm_ballot *fill(struct kunit *test, int hot_nid, u8 hottest)
{
	struct nuksm_ballot *ballot = open_ballot(test, NUKSM_FAIR);
	int nid;

	for (nid = 0; nid < 4; nid++)
		nuksm_ballot_add(ballot, &(struct nuksm_sharer){
			.nid = nid,
			.heat = nid == hot_nid ? hottest : NUKSM_COLD,
		});
	return ballot;
}

static void nodes_that_use_a_page_alike_share_it(struct kunit *test)
{
	u8 *looks = kunit_kzalloc(test, NUKSM_MOST_NODES, GFP_KERNEL);
	const u8 hottest[] = { NUKSM_COLD, NUKSM_TOUCHED };
	unsigned int lot, i, on[4];
	struct nuksm_ballot *ballot;

	KUNIT_ASSERT_NOT_NULL(test, looks);
	for (i = 0; i < ARRAY_SIZE(hottest); i++) {
		memcpy(looks, (u8 []){ 0x94, 0x29, 0x23, 0x03 }, 4);
		memset(on, 0, sizeof(on));
		ballot = fill(test, 0, hottest[i]);
		KUNIT_EXPECT_TRUE(test, nuksm_ballot_add_alike(ballot, looks, 0));
		for (lot = 0; lot < PAGES; lot++)
			on[nuksm_ballot_pick(ballot, lot, nothing_barred)]++;
		KUNIT_EXPECT_GT(test, on[0], PAGES / 4);
		KUNIT_EXPECT_GT(test, on[1], PAGES / 4);
		KUNIT_EXPECT_GT(test, on[2], PAGES / 4);
		KUNIT_EXPECT_EQ(test, on[3], 0);
		KUNIT_EXPECT_FALSE(test, nuksm_ballot_add_alike(ballot, looks, 0));

		/* Who uses it less than those where it is changes nothing */
		looks[0] = so_many(4);
		ballot = fill(test, 0, hottest[i]);
		KUNIT_EXPECT_FALSE(test, nuksm_ballot_add_alike(ballot, looks, 0));
		KUNIT_EXPECT_EQ(test, ballot->hottest, hottest[i]);
	}

	/* Who is hot, on a node that cannot have it, keeps nobody from it */
	looks[0] = 0x94;
	ballot = fill(test, 3, NUKSM_TOUCHED);
	KUNIT_EXPECT_TRUE(test, nuksm_ballot_add_alike(ballot, looks, 0));
	KUNIT_EXPECT_EQ(test, ballot->hot_nodes[0], GENMASK(3, 0));
}

static void a_page_follows_the_slower_the_less_it_is_used(struct kunit *test)
{
	unsigned int looks;

	KUNIT_EXPECT_EQ(test, 2 * nuksm_says_elsewhere(8), NUKSM_FOLLOWS_AT);
	KUNIT_EXPECT_EQ(test, 4 * nuksm_says_elsewhere(7), NUKSM_FOLLOWS_AT);
	KUNIT_EXPECT_LT(test, 2 * NUKSM_SAYS_ALIKE, NUKSM_FOLLOWS_AT);
	KUNIT_EXPECT_GE(test, 3 * NUKSM_SAYS_ALIKE, NUKSM_FOLLOWS_AT);
	for (looks = 0; looks < 8; looks++) {
		KUNIT_EXPECT_GE(test, nuksm_says_elsewhere(looks), 1);
		KUNIT_EXPECT_LE(test, nuksm_says_elsewhere(looks),
				nuksm_says_elsewhere(looks + 1));
	}
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
	KUNIT_CASE(to_be_used_alike_is_no_less_often_and_not_by_chance),
	KUNIT_CASE(nodes_that_use_a_page_alike_share_it),
	KUNIT_CASE(a_page_follows_the_slower_the_less_it_is_used),
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
