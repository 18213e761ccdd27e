// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's placement: on which of two nodes the pages are that two processes,
 * one on each, share.
 */
#define _GNU_SOURCE
#include "../kselftest_harness.h"
#include "nuksm_util.h"

#define NODES		2

/* Pages by which a share may differ from what it should be: 1 %. */
#define TOLERANCE	(PAGES / 100)

/*
 * Each page has a lot of its own, and a node's share is what comes out of PAGES of
 * them: five standard deviations, which are at most half the square root of PAGES.
 */
#define LUCK		(5 * 16)

static const char * const decisions[] = {
	"placed_hot", "placed_spread", "placed_priority", "placed_no_room",
};

FIXTURE(placement)
{
	int nodes[NODES];
	struct tenant tenants[NODES];
};

/* The first nodes that have memory. Returns how many were found, up to NODES. */
static int find_nodes(int *nodes)
{
	FILE *list = fopen("/sys/devices/system/node/has_memory", "r");
	int first, last, count = 0;
	char separator = ',';

	if (!list)
		return 0;
	while (count < NODES && separator == ',' &&
	       fscanf(list, "%d%c", &first, &separator) == 2) {
		last = first;
		if (separator == '-' &&
		    fscanf(list, "%d%c", &last, &separator) != 2)
			break;
		while (count < NODES && first <= last)
			nodes[count++] = first++;
	}
	fclose(list);
	return count;
}

FIXTURE_SETUP(placement)
{
	ASSERT_EQ(NODES, find_nodes(self->nodes));
	ksm_prepare();
}

FIXTURE_TEARDOWN(placement)
{
	int i;

	for (i = 0; i < NODES; i++)
		tenant_stop(self->tenants + i);
	ksm_write("run", "2");
}

static long decided(void)
{
	long sum = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(decisions); i++)
		sum += ksm_number(decisions[i]);
	return sum;
}

static void start(struct tenant *tenants, const int *nodes, int nice0, int nice1)
{
	tenant_start(tenants, nodes[0], nice0);
	tenant_start(tenants + 1, nodes[1], nice1);
}

/* All pages are merged and intact, @wanted of them on the first node. */
static void check(struct __test_metadata *_metadata, struct tenant *tenants,
		  const int *nodes, long wanted)
{
	long off = wanted && wanted < PAGES ? LUCK : TOLERANCE;
	long local;
	int i;

	for (i = 0; i < NODES; i++) {
		long here = tenant_pages_on(tenants + i, nodes[0]);

		EXPECT_LE(wanted - off, here);
		EXPECT_GE(wanted + off, here);
		EXPECT_EQ(PAGES, here + tenant_pages_on(tenants + i, nodes[1]));

		local = tenant_pages_on(tenants + i, nodes[i]);
		EXPECT_EQ(local, tenant_stat(tenants + i, "ksm_merged_local"));
		EXPECT_EQ(PAGES - local,
			  tenant_stat(tenants + i, "ksm_merged_remote"));
		EXPECT_EQ(0, tenant_bad_pages(tenants + i));
	}
}

TEST_F_TIMEOUT(placement, first_decides_nothing, TIMEOUT)
{
	long before = decided();

	ASSERT_EQ(0, ksm_write("placement", "first"));
	start(self->tenants, self->nodes, 0, 0);
	tenants_merge(self->tenants, NODES);
	EXPECT_EQ(before, decided());
	EXPECT_EQ(0, tenant_bad_pages(self->tenants));
	EXPECT_EQ(0, tenant_bad_pages(self->tenants + 1));
}

TEST_F_TIMEOUT(placement, fair_gives_each_node_half, TIMEOUT)
{
	long before = ksm_number("placed_spread");

	ASSERT_EQ(0, ksm_write("placement", "fair"));
	/* Whose priorities do not matter */
	start(self->tenants, self->nodes, -20, 19);
	tenants_merge(self->tenants, NODES);
	check(_metadata, self->tenants, self->nodes, PAGES / 2);
	EXPECT_LE(before + PAGES - TOLERANCE, ksm_number("placed_spread"));
}

TEST_F_TIMEOUT(placement, priority_follows_nice_values, TIMEOUT)
{
	long before = ksm_number("placed_priority");

	ASSERT_EQ(0, ksm_write("placement", "priority"));
	/* Weights of 1/1 and 1/10 */
	start(self->tenants, self->nodes, -20, -11);
	tenants_merge(self->tenants, NODES);
	check(_metadata, self->tenants, self->nodes, PAGES * 10 / 11);
	EXPECT_LE(before + PAGES - TOLERANCE, ksm_number("placed_priority"));
}

TEST_F_TIMEOUT(placement, pages_stay_where_they_are_used, TIMEOUT)
{
	long before = ksm_number("placed_hot");

	ASSERT_EQ(0, ksm_write("placement", "fair"));
	start(self->tenants, self->nodes, 0, 0);
	/* One scan, which clears the accessed bits, and then none for long */
	ASSERT_EQ(0, ksm_write("pages_to_scan", "10000000"));
	ASSERT_EQ(0, ksm_write("sleep_millisecs", "600000"));
	ASSERT_EQ(0, ksm_write("run", "1"));
	ksm_wait_scans(1);
	EXPECT_EQ(0, tenant_bad_pages(self->tenants + 1));
	ASSERT_EQ(0, ksm_write("sleep_millisecs", "10"));
	tenants_merge(self->tenants, NODES);
	check(_metadata, self->tenants, self->nodes, 0);
	EXPECT_LE(before + PAGES - TOLERANCE, ksm_number("placed_hot"));
}

TEST_F_TIMEOUT(placement, changes_while_pages_are_merged, TIMEOUT)
{
	static const char * const placements[] = { "first", "fair", "priority" };
	char chosen[16];
	size_t i;

	ASSERT_EQ(0, ksm_write("placement", "fair"));
	start(self->tenants, self->nodes, 0, 0);
	tenants_merge(self->tenants, NODES);
	for (i = 0; i < ARRAY_SIZE(placements); i++) {
		EXPECT_EQ(0, ksm_write("placement", placements[i]));
		ksm_choice("placement", chosen, sizeof(chosen));
		EXPECT_STREQ(placements[i], chosen);
		ksm_wait_scans(2);
		/* What was merged before stays where it is */
		check(_metadata, self->tenants, self->nodes, PAGES / 2);
	}
	EXPECT_EQ(-EINVAL, ksm_write("placement", "hottest"));
	EXPECT_EQ(-EINVAL, ksm_write("placement", "fair priority"));
	ksm_choice("placement", chosen, sizeof(chosen));
	EXPECT_STREQ("priority", chosen);
}

TEST_F_TIMEOUT(placement, nothing_to_place_without_merging_across, TIMEOUT)
{
	struct tenant others[NODES];
	long before = decided();
	int i;

	ASSERT_EQ(0, ksm_write("placement", "fair"));
	ASSERT_EQ(0, ksm_write("merge_across_nodes", "0"));
	start(self->tenants, self->nodes, 0, 0);
	start(others, self->nodes, 0, 0);
	tenants_merge(self->tenants, NODES);
	tenants_merge(others, NODES);
	for (i = 0; i < NODES; i++) {
		EXPECT_EQ(PAGES, tenant_pages_on(self->tenants + i,
						 self->nodes[i]));
		EXPECT_EQ(0, tenant_bad_pages(self->tenants + i));
		EXPECT_EQ(0, tenant_bad_pages(others + i));
		tenant_stop(others + i);
	}
	EXPECT_EQ(before, decided());
}

int main(int argc, char **argv)
{
	int nodes[NODES];

	skip_without_nuksm();
	if (access("/sys/kernel/mm/ksm/placement", F_OK))
		ksft_exit_skip("this kernel is built without placement\n");
	if (find_nodes(nodes) < NODES)
		ksft_exit_skip("needs two nodes with memory\n");
	return test_harness_run(argc, argv);
}
