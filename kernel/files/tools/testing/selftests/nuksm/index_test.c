// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's index: whatever the order and the number of trees, the same pages are
 * merged and keep their contents, also where checksums collide.
 */
#define _GNU_SOURCE
#include "../kselftest_harness.h"
#include "nuksm_util.h"

#define TENANTS		2

struct knob {
	const char *name;
	const char *value;
	int answer;
};

FIXTURE(index)
{
	struct tenant tenants[TENANTS];
};

FIXTURE_VARIANT(index)
{
	const char *order;
	const char *kib_per_tree;
};

/* KSM's own algorithm. */
FIXTURE_VARIANT_ADD(index, content_one_tree)
{
	.order = "content",
	.kib_per_tree = "0",
};

/* That of the paper (nuKSM, PACT 2021), but of many trees on any machine. */
FIXTURE_VARIANT_ADD(index, content_forest)
{
	.order = "content",
	.kib_per_tree = "1024",
};

FIXTURE_VARIANT_ADD(index, checksum_one_tree)
{
	.order = "checksum",
	.kib_per_tree = "0",
};

FIXTURE_VARIANT_ADD(index, checksum_forest)
{
	.order = "checksum",
	.kib_per_tree = "16",
};

FIXTURE_SETUP(index)
{
	int i;

	ksm_prepare();
	ASSERT_EQ(0, ksm_write("index", variant->order));
	ASSERT_EQ(0, ksm_write("kib_per_tree", variant->kib_per_tree));
	for (i = 0; i < TENANTS; i++)
		tenant_start(self->tenants + i, ANYWHERE, 0);
}

FIXTURE_TEARDOWN(index)
{
	int i;

	for (i = 0; i < TENANTS; i++)
		tenant_stop(self->tenants + i);
	ksm_write("run", "2");
}

static void merge_and_check(struct __test_metadata *_metadata,
			    struct tenant *tenants)
{
	int i;

	tenants_merge(tenants, TENANTS);
	for (i = 0; i < TENANTS; i++) {
		EXPECT_EQ(PAGES, tenant_stat(tenants + i, "ksm_merging_pages"));
		EXPECT_EQ(0, tenant_bad_pages(tenants + i));
	}
	/* What one writes, the others do not see. */
	tenant_rewrite(tenants);
	for (i = 0; i < TENANTS; i++)
		EXPECT_EQ(0, tenant_bad_pages(tenants + i));
}

TEST_F_TIMEOUT(index, merges_and_keeps_contents, TIMEOUT)
{
	merge_and_check(_metadata, self->tenants);
}

TEST_F_TIMEOUT(index, collisions_do_no_harm, TIMEOUT)
{
	long before = ksm_number("collisions");

	if (access(CHECKSUM_BITS, F_OK))
		SKIP(return, "no %s: is debugfs mounted?", CHECKSUM_BITS);
	/* 1024 different pages of 16 checksums */
	ASSERT_EQ(0, file_write(CHECKSUM_BITS, "4"));
	merge_and_check(_metadata, self->tenants);
	EXPECT_LT(before, ksm_number("collisions"));
}

TEST_F_TIMEOUT(index, does_not_change_under_tracked_pages, TIMEOUT)
{
	static const struct knob others[] = {
		{ "index", "content" },
		{ "index", "checksum" },
		{ "kib_per_tree", "0" },
		{ "kib_per_tree", "512" },
	};
	char before[64], after[64];
	size_t i;

	tenants_merge(self->tenants, TENANTS);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		ksm_choice(others[i].name, before, sizeof(before));
		EXPECT_EQ(strcmp(before, others[i].value) ? -EBUSY : 0,
			  ksm_write(others[i].name, others[i].value));
		ksm_choice(others[i].name, after, sizeof(after));
		EXPECT_STREQ(before, after);
	}
	if (!access(CHECKSUM_BITS, F_OK))
		EXPECT_EQ(-EBUSY, file_write(CHECKSUM_BITS, "4"));

	/* Forgotten, though they are still there */
	ASSERT_EQ(0, ksm_write("run", "2"));
	for (i = 0; i < ARRAY_SIZE(others); i++)
		EXPECT_EQ(0, ksm_write(others[i].name, others[i].value));
	merge_and_check(_metadata, self->tenants);
}

FIXTURE(knobs)
{
};

FIXTURE_SETUP(knobs)
{
	ksm_prepare();
}

FIXTURE_TEARDOWN(knobs)
{
}

TEST_F(knobs, trees_follow_the_memory)
{
	long trees;

	ASSERT_EQ(0, ksm_write("kib_per_tree", "0"));
	EXPECT_EQ(1, ksm_number("trees"));
	ASSERT_EQ(0, ksm_write("kib_per_tree", "1024"));
	trees = ksm_number("trees");
	EXPECT_LT(1, trees);
	ASSERT_EQ(0, ksm_write("kib_per_tree", "2048"));
	EXPECT_EQ(trees / 2, ksm_number("trees"));
	ASSERT_EQ(0, ksm_write("kib_per_tree", "4294967295"));
	EXPECT_EQ(1, ksm_number("trees"));
}

TEST_F(knobs, nonsense_is_refused)
{
	static const struct knob wrong[] = {
		{ "index", "\n", -EINVAL },
		{ "index", "hash", -EINVAL },
		{ "index", "content checksum", -EINVAL },
		{ "kib_per_tree", "-1", -EINVAL },
		{ "kib_per_tree", "many", -EINVAL },
		{ "kib_per_tree", "4294967296", -ERANGE },
		{ "trees", "1", -EACCES },
	};
	char before[64], after[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		ksm_choice(wrong[i].name, before, sizeof(before));
		EXPECT_EQ(wrong[i].answer,
			  ksm_write(wrong[i].name, wrong[i].value));
		ksm_choice(wrong[i].name, after, sizeof(after));
		EXPECT_STREQ(before, after);
	}
	if (!access(CHECKSUM_BITS, F_OK))
		EXPECT_EQ(-EINVAL, file_write(CHECKSUM_BITS, "33"));
}

int main(int argc, char **argv)
{
	skip_without_nuksm();
	return test_harness_run(argc, argv);
}
