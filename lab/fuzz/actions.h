/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef FUZZ_ACTIONS_H
#define FUZZ_ACTIONS_H

#include "fuzzer.h"

#define PROFILES 4

/**
 * struct action - one kind of thing to do
 * @name: for people
 * @weight: how often it is chosen, by profile
 * @act: does it
 */
struct action {
	const char *name;
	unsigned int weight[PROFILES];
	int (*act)(struct fuzzer *fuzzer, struct lot *lot);
};

extern const char *const profile_name[PROFILES];
extern const struct action actions[];
extern const size_t action_count;

/* The generator is left where the action itself begins to draw. */
const struct action *choose_action(int profile, struct lot *lot);

/* Is this an answer that a sound kernel may give to a request that was odd? */
bool may_refuse(int error);

#endif
