// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of which pages get the budget for replicas: by rank, by comparison, and over many rounds
 * of looks at a model of pages that are used as often as a test says.
 */

#include <kunit/test.h>
#include <linux/prandom.h>

#include "nuksm.h"

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
	int i, n = 10000, counted = 0;

	prandom_seed_state(&rnd, 18);
	for (i = 0; i < n; i++)
		counted += nuksm_weighs(1ULL << 33, 1ULL << 35, prandom_u32_state(&rnd));
	/* Five standard deviations off a quarter */
	KUNIT_EXPECT_GE(test, counted, n / 4 - 217);
	KUNIT_EXPECT_LE(test, counted, n / 4 + 217);
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
 * or never, if that is 0. So many in a hundred glances are @late: at all, or the first @late_pages.
 */
struct model {
	struct rnd_state rnd;
	unsigned long pages;
	unsigned int late;
	unsigned long late_pages;
	u16 *every_ms;
	u8 *ranks;
	bool *copied;
	struct nuksm_rules rules;
};

static void model_open(struct kunit *test, struct model *model, unsigned long pages)
{
	*model = (struct model){ .pages = pages, .late_pages = pages };
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

/* What is compared of a page, as nuksm_rank() and nuksm_affords() count it. */
static void model_compare(const struct model *model, unsigned long i, bool use, bool room,
			  struct nuksm_compared *compared)
{
	bool idle = model->copied[i] && model->ranks[i] <= NUKSM_RANK_IDLE;
	bool wanted = !model->copied[i] && !room;
	bool eager = wanted && model->ranks[i] >= NUKSM_RANK_COPIED;

	compared->idle += idle;
	compared->idle_used += idle && use;
	compared->wanted += wanted;
	compared->wanted_used += wanted && use;
	compared->eager += eager;
	compared->eager_used += eager && use;
}

/* A look at a page: was it used within the glance, or, if that is late, within the look? */
static bool model_look(struct model *model, unsigned long i, bool late, bool room,
		       struct nuksm_round *round)
{
	u32 every_ms = model->every_ms[i];
	bool glanced, use;

	glanced = every_ms && model_use(&model->rnd, model->rules.glance_ms, every_ms);
	use = glanced || (every_ms && model_use(&model->rnd, 0, every_ms));
	model_compare(model, i, use, room, &round->compared[NUKSM_BY_LOOK]);
	if (!late) {
		model_compare(model, i, glanced, room, &round->compared[NUKSM_BY_GLANCE]);
		round->used += glanced;
		round->counted += glanced;
	}
	if (!late || !use)
		model->ranks[i] = nuksm_next_rank(model->ranks[i], glanced && !late);
	return late ? use : glanced;
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
	unsigned int late = model->rules.glance_ms ? model->late : 0;
	struct nuksm_round round = {
		.in_time = model->late_pages < model->pages ? 100 : 100 - late, .late = late,
	};
	u8 *ranks = model->ranks;
	bool *copied = model->copied;

	for (i = 0; i < model->pages; i++) {
		bool is_late = i < model->late_pages &&
			       prandom_u32_state(&model->rnd) % 100 < late;
		bool use = model_look(model, i, is_late, copies < MODEL_BUDGET, &round);

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

/*
 * They come when all of the budget is spent, as many as it is enough for, or some few, and however
 * many glances are late.
 */
static void hotter_pages_get_the_budget_of_warm_ones(struct kunit *test)
{
	unsigned long hot;
	int way;

	for (way = 0; way < 6; way++) {
		struct model model;

		hot = MODEL_BUDGET / 10 << way / 2;
		model_open(test, &model, 3 * MODEL_BUDGET + hot);
		model.late = way % 2 ? 50 : 0;
		model_use_each(&model, 0, 3 * MODEL_BUDGET, 50);
		model_rounds(&model, 60);
		model_use_each(&model, 3 * MODEL_BUDGET, hot, 5);
		model_rounds(&model, 40);
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
			model.late = way & 2 ? 50 : 0;
			model_use_each(&model, first, MODEL_BUDGET, 5);
			model_rounds(&model, 40);
			KUNIT_EXPECT_EQ(test, model_copies(&model, first, MODEL_BUDGET),
					MODEL_BUDGET);
			model_use_each(&model, first, MODEL_BUDGET, 750);
			model_use_each(&model, last ? 0 : MODEL_BUDGET, honest, 50);
			model_rounds(&model, 60);
			KUNIT_EXPECT_LE(test, model_copies(&model, first, MODEL_BUDGET),
					MODEL_BUDGET * 4 / 10);
			KUNIT_EXPECT_LE(test, model_rounds(&model, 40), MODEL_BUDGET / 20);
		}
	}
}

/*
 * Who has all of it, and uses all of his in one look of three, leaves what they need to some few;
 * what is seen of a single one that is left over may be chance.
 */
static void who_uses_his_by_turns_leaves_room_for_few(struct kunit *test)
{
	unsigned long few, all = MODEL_BUDGET * 5 / 4;
	int round;

	for (few = 3; few <= 48; few *= 2) {
		struct model model;

		model_open(test, &model, all + few);
		model_use_each(&model, 0, all, 1);
		model_rounds(&model, 40);
		model_use_each(&model, all, few, 1);
		for (round = 0; round < 60; round++) {
			model_use_each(&model, 0, all, round % 3 ? 0 : 1);
			model_round(&model);
		}
		KUNIT_EXPECT_GE(test, model_copies(&model, all, few), few - 1);
		KUNIT_EXPECT_GE(test, model_copies(&model, 0, all), MODEL_BUDGET * 9 / 10);
	}
}

/* Who has all of it, and has those glances come late that see his pages, gives it to others. */
static void who_has_his_pages_seen_late_does_not_keep_it(struct kunit *test)
{
	struct model model;

	model_open(test, &model, 5 * MODEL_BUDGET);
	model_use_each(&model, 0, MODEL_BUDGET, 1);
	model_rounds(&model, 40);
	model.late = 100;
	model.late_pages = MODEL_BUDGET;
	model_use_each(&model, 0, MODEL_BUDGET, 0);
	model_use_each(&model, MODEL_BUDGET, 4 * MODEL_BUDGET, 1);
	model_rounds(&model, 40);
	KUNIT_EXPECT_LE(test, model_copies(&model, 0, MODEL_BUDGET), MODEL_BUDGET / 10);
}

/*
 * Who has all of it, uses all of his now and then, and has all glances come late whenever he does
 * not, gives it to who uses his always.
 */
static void who_makes_glances_late_does_not_keep_it(struct kunit *test)
{
	struct model model;
	int round;

	model_open(test, &model, MODEL_BUDGET + MODEL_HOT);
	model_use_each(&model, 0, MODEL_BUDGET, 1);
	model_rounds(&model, 40);
	model_use_each(&model, MODEL_BUDGET, MODEL_HOT, 1);
	for (round = 0; round < 40; round++) {
		model.late = round % 5 ? 100 : 0;
		model_use_each(&model, 0, MODEL_BUDGET, round % 5 ? 0 : 1);
		model_round(&model);
	}
	KUNIT_EXPECT_GE(test, model_copies(&model, MODEL_BUDGET, MODEL_HOT), MODEL_HOT * 9 / 10);
}

/*
 * A glance that is late says little. If they are short, as there was no budget before, hardly any
 * page has rank, however many are used: what is free is spent all the same; and when most are
 * used no more, glances become longer again.
 */
static void late_glances_keep_no_budget_from_all(struct kunit *test)
{
	unsigned int late;

	for (late = 1; late <= 81; late += 40) {
		struct model model;

		model_open(test, &model, 20 * MODEL_BUDGET);
		model.late = late;
		model.rules.glance_ms = 2;
		model_use_each(&model, 0, model.pages, 50);
		model_rounds(&model, 20);
		KUNIT_EXPECT_GE(test, model_copies(&model, 0, model.pages),
				MODEL_BUDGET * 99 / 100);
		KUNIT_EXPECT_GT(test, model.rules.glance_ms, 0);
		model_use_each(&model, 0, model.pages, 0);
		model_use_each(&model, 0, MODEL_BUDGET / 5, 50);
		model_rounds(&model, 40);
		KUNIT_EXPECT_EQ(test, model.rules.glance_ms, 0);
	}
}

/* What few wanted copies say in one round may be chance, however much is said by idle replicas. */
static void one_round_of_few_is_not_enough(struct kunit *test)
{
	struct nuksm_round round = {
		104, 104, { { 1000, 100, 4, 4, 4, 4 } }, .in_time = 300,
	};
	struct nuksm_rules rules = { .glance_ms = 8 };

	nuksm_end_round(&rules, &round, 100, 100);
	KUNIT_EXPECT_EQ(test, rules.outranked, 0);
	nuksm_end_round(&rules, &round, 100, 100);
	KUNIT_EXPECT_EQ(test, rules.outranked, 4);
}

/* Of hundreds of glances some are late, and what they would have seen is not known. */
static void a_round_with_late_glances_says_something(struct kunit *test)
{
	struct nuksm_round much = {
		60, 51, { { 30, 0, 20, 20, 20, 20 } }, .in_time = 300, .late = 1,
	};
	struct nuksm_round little = { 12, 12, .in_time = 300, .late = 30 };
	struct nuksm_round nothing = { .late = 5 };
	struct nuksm_rules rules = { .glance_ms = 8, .leaves = true };

	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &much, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 4);
	KUNIT_EXPECT_EQ(test, rules.outranked, 20);
	KUNIT_EXPECT_FALSE(test, rules.leaves);

	/* In time it would have been 13, four times which is too much */
	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &little, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 4);
	KUNIT_EXPECT_EQ(test, rules.outranked, 0);
	KUNIT_EXPECT_TRUE(test, rules.leaves);
	little.late = 1;
	KUNIT_EXPECT_TRUE(test, nuksm_end_round(&rules, &little, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 8);
	KUNIT_EXPECT_TRUE(test, rules.leaves);

	rules.outranked = 3;
	KUNIT_EXPECT_FALSE(test, nuksm_end_round(&rules, &nothing, 1000, 5));
	KUNIT_EXPECT_EQ(test, rules.glance_ms, 16);
	KUNIT_EXPECT_EQ(test, rules.outranked, 3);
	KUNIT_EXPECT_TRUE(test, rules.leaves);
}

static struct kunit_case nuksm_budget_cases[] = {
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
	KUNIT_CASE(who_uses_his_by_turns_leaves_room_for_few),
	KUNIT_CASE(who_has_his_pages_seen_late_does_not_keep_it),
	KUNIT_CASE(who_makes_glances_late_does_not_keep_it),
	KUNIT_CASE(late_glances_keep_no_budget_from_all),
	KUNIT_CASE(one_round_of_few_is_not_enough),
	KUNIT_CASE(a_round_with_late_glances_says_something),
	{}
};

static struct kunit_suite nuksm_budget_suite = {
	.name = "nuksm_budget",
	.test_cases = nuksm_budget_cases,
};

kunit_test_suite(nuksm_budget_suite);

MODULE_DESCRIPTION("KUnit tests of nuKSM's budget for replicas");
MODULE_LICENSE("GPL");
