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
			unsigned int root = nuksm_root(nid, checksum);

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

static struct nuksm_credits *credits(struct kunit *test)
{
	struct nuksm_credits *credits = kunit_kzalloc(test, sizeof(*credits),
						      GFP_KERNEL);
	struct rnd_state state;

	KUNIT_ASSERT_NOT_NULL(test, credits);
	prandom_seed_state(&state, 1);
	prandom_bytes_state(&state, credits, sizeof(*credits));
	return credits;
}

/* One page, to which all sharers come one after the other: where it ends. */
static int place(const struct nuksm_sharer *sharers, int count,
		 enum nuksm_placement placement, struct nuksm_credits *credits)
{
	struct nuksm_ballot ballot;
	enum nuksm_reason reason;
	int nid = sharers[0].nid;
	int i, j;

	for (i = 1; i < count; i++) {
		if (sharers[i].nid == nid)
			continue;
		nuksm_ballot_init(&ballot, placement, nid, &sharers[i]);
		for (j = i - 1; j >= 0; j--)
			if (!nuksm_ballot_add(&ballot, &sharers[j]))
				break;
		if (nuksm_newcomer_wins(&ballot, credits, &reason))
			nid = sharers[i].nid;
	}
	return nid;
}

/* Expects @pages pages to end on nodes in the proportions of @wanted. */
static void expect_shares(struct kunit *test, const struct nuksm_sharer *sharers,
			  int count, enum nuksm_placement placement,
			  const int *wanted)
{
	struct nuksm_credits *all = credits(test);
	int found[MOST_NODES] = {}, sum = 0, page, nid;

	for (page = 0; page < PAGES; page++)
		found[place(sharers, count, placement, all)]++;
	for (nid = 0; nid < MOST_NODES; nid++)
		sum += wanted[nid];
	/* Less than a page per kind: sharers to come times nodes to come from. */
	for (nid = 0; nid < MOST_NODES; nid++)
		KUNIT_EXPECT_LE_MSG(test,
				    abs(found[nid] - PAGES * wanted[nid] / sum),
				    MOST_SHARERS * MOST_NODES,
				    "node %d has %d of %d pages, for %d/%d", nid,
				    found[nid], PAGES, wanted[nid], sum);
}

static void two_nodes_get_half_each(struct kunit *test)
{
	const struct nuksm_sharer sharers[] = {
		{ .owner = 1, .nid = 0 }, { .owner = 2, .nid = 1 },
	};

	expect_shares(test, sharers, 2, NUKSM_FAIR, (int []){ 1, 1, 0, 0 });
}

/* Section IV-E: 1/K, where K counts nodes and not sharers. */
static void nodes_count_once_however_many_share_there(struct kunit *test)
{
	struct nuksm_sharer sharers[MOST_SHARERS] = {};
	const int nids[] = { 0, 0, 0, 1, 0, 2, 0, 1 };
	int i;

	for (i = 0; i < MOST_SHARERS; i++) {
		sharers[i].owner = i + 1;
		sharers[i].nid = nids[i];
	}
	expect_shares(test, sharers, MOST_SHARERS, NUKSM_FAIR,
		      (int []){ 1, 1, 1, 0 });
}

/* Table III: shares in proportion to 1/(nice + 21). */
static void two_processes_get_the_papers_shares(struct kunit *test)
{
	const struct nuksm_sharer sharers[] = {
		{ .owner = 1, .nid = 0, .nice = -20 },
		{ .owner = 2, .nid = 1, .nice = -11 },
	};

	expect_shares(test, sharers, 2, NUKSM_PRIORITY, (int []){ 10, 1, 0, 0 });
}

/* snice 1, 2, 3, 4, 6, 12, 1, 2: weights 12, 6, 4, 3, 2, 1, 12, 6. */
static void any_order_of_any_processes_gives_the_same(struct kunit *test)
{
	const s8 nices[] = { -20, -19, -18, -17, -15, -9, -20, -19 };
	struct nuksm_sharer sharers[MOST_SHARERS] = {};
	int order, i;

	for (order = 0; order < MOST_SHARERS; order++) {
		for (i = 0; i < MOST_SHARERS; i++) {
			/* 3 and 5 are coprime to 8: all come, in another order */
			int who = (i * (order & 1 ? 3 : 5) + order) % MOST_SHARERS;

			sharers[i].owner = who + 1;
			sharers[i].nid = who % MOST_NODES;
			sharers[i].nice = nices[who];
		}
		expect_shares(test, sharers, MOST_SHARERS, NUKSM_PRIORITY,
			      (int []){ 14, 7, 16, 9 });
	}
}

static void a_process_counts_once_however_often_it_maps(struct kunit *test)
{
	const struct nuksm_sharer sharers[] = {
		{ .owner = 1, .nid = 0 }, { .owner = 1, .nid = 0 },
		{ .owner = 1, .nid = 0 }, { .owner = 2, .nid = 1 },
	};

	expect_shares(test, sharers, 4, NUKSM_PRIORITY, (int []){ 1, 1, 0, 0 });
}

static void only_the_hottest_count(struct kunit *test)
{
	struct nuksm_sharer sharers[] = {
		{ .owner = 1, .nid = 0, .heat = NUKSM_COLD },
		{ .owner = 2, .nid = 1, .heat = NUKSM_TOUCHED },
		{ .owner = 3, .nid = 2, .heat = NUKSM_TOUCHED },
		{ .owner = 4, .nid = 3, .heat = NUKSM_LISTED },
	};

	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
	swap(sharers[0], sharers[2]);
	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
	swap(sharers[1], sharers[3]);
	expect_shares(test, sharers, 4, NUKSM_FAIR, (int []){ 0, 1, 1, 0 });
}

static void many_sets_of_few_pages_are_fair_together(struct kunit *test)
{
	struct nuksm_credits *all = credits(test);
	int found[2] = {}, set;

	for (set = 0; set < PAGES; set++) {
		const struct nuksm_sharer sharers[] = {
			{ .owner = 2 * set + 1, .nid = 0 },
			{ .owner = 2 * set + 2, .nid = 1 },
		};

		found[place(sharers, 2, NUKSM_FAIR, all)]++;
	}
	/* Here chance has a part: four standard deviations */
	KUNIT_EXPECT_LE(test, abs(found[0] - PAGES / 2), 200);
}

static struct kunit_case nuksm_cases[] = {
	KUNIT_CASE(all_pages_of_a_checksum_are_in_one_tree),
	KUNIT_CASE(order_is_that_of_checksums),
	KUNIT_CASE(order_of_contents_is_total),
	KUNIT_CASE(two_nodes_get_half_each),
	KUNIT_CASE(nodes_count_once_however_many_share_there),
	KUNIT_CASE(two_processes_get_the_papers_shares),
	KUNIT_CASE(any_order_of_any_processes_gives_the_same),
	KUNIT_CASE(a_process_counts_once_however_often_it_maps),
	KUNIT_CASE(only_the_hottest_count),
	KUNIT_CASE(many_sets_of_few_pages_are_fair_together),
	{}
};

static struct kunit_suite nuksm_suite = {
	.name = "nuksm",
	.test_cases = nuksm_cases,
};

kunit_test_suite(nuksm_suite);

MODULE_DESCRIPTION("KUnit tests of nuKSM's index and policy");
MODULE_LICENSE("GPL");
