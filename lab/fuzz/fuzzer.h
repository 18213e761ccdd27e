/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process that does to its memory whatever the kernel lets it, at random,
 * and knows at any time what every page has to hold.
 */
#ifndef FUZZ_FUZZER_H
#define FUZZ_FUZZER_H

#include <linux/io_uring.h>
#include <sys/types.h>

#include "lot.h"
#include "shadow.h"

#define NODES_MAX 16
#define CHILDREN_MAX 3

/**
 * struct child - a forked process that has not ended yet
 * @pid: or 0
 */
struct child {
	pid_t pid;
};

/**
 * struct pins - what holds pages besides mappings
 * @pipe: with pages that vmsplice() put there; both below 0 without
 * @ring: an io_uring's descriptor, or below 0
 * @parameters: of the ring
 * @range: what is registered with it
 * @base: where that was then
 */
struct pins {
	int pipe[2];
	int ring;
	struct io_uring_params parameters;
	struct range range;
	uintptr_t base;
};

/**
 * struct fuzzer - the process
 * @shadow: its memory
 * @nodes: NUMA nodes that have memory
 * @node_count: how many; 0 without NUMA
 * @node: where its own memory comes from, unless told otherwise
 * @children: those that live
 * @pins: what it holds
 */
struct fuzzer {
	struct shadow shadow;
	int nodes[NODES_MAX];
	size_t node_count;
	int node;
	struct child children[CHILDREN_MAX];
	struct pins pins;
};

/* A few pages mostly, sometimes very many. */
struct range choose_range(const struct fuzzer *fuzzer, struct lot *lot);
uint64_t choose_key(struct lot *lot);
void *range_start(const struct fuzzer *fuzzer, const struct range *range);
void nap(unsigned long microseconds);

/* Actions return 0, or -1 and errno as system calls do. */
int act_fork(struct fuzzer *fuzzer, struct lot *lot);
int act_kill(struct fuzzer *fuzzer, struct lot *lot);
int act_reap(struct fuzzer *fuzzer, struct lot *lot);
int act_splice(struct fuzzer *fuzzer, struct lot *lot);
int act_drain(struct fuzzer *fuzzer, struct lot *lot);
int act_pin(struct fuzzer *fuzzer, struct lot *lot);
int act_unpin(struct fuzzer *fuzzer, struct lot *lot);
int act_pairs(struct fuzzer *fuzzer, struct lot *lot);
int act_protect(struct fuzzer *fuzzer, struct lot *lot);
int act_lock(struct fuzzer *fuzzer, struct lot *lot);
int act_unlock(struct fuzzer *fuzzer, struct lot *lot);
int act_bind(struct fuzzer *fuzzer, struct lot *lot);
int act_move(struct fuzzer *fuzzer, struct lot *lot);
int act_map(struct fuzzer *fuzzer, struct lot *lot);
int act_remap(struct fuzzer *fuzzer, struct lot *lot);
int act_write_protect(struct fuzzer *fuzzer, struct lot *lot);
int act_fill(struct fuzzer *fuzzer, struct lot *lot);

void children_end(struct fuzzer *fuzzer);
void pins_init(struct pins *pins);

#endif
