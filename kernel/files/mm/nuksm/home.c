// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM: on which node a process runs, and may have its memory.
 */

#include <linux/cpuset.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/topology.h>

#include "nuksm.h"

/* A process with more threads is not asked where it runs. */
#define NUKSM_ASKED_THREADS	256

/*
 * A process has moved to a node when it was found to run there by looks in a row that count so
 * much together: one that sees it running, and one before which it ran, but not when it came.
 * Neither sees where else a thread ran between two looks: one that is woken on either of two
 * nodes by half is found on one of them so often once in 1,000 looks if it is never seen
 * running, in 90 if it is by half of them, and in 30 if by all (a model).
 */
#define NUKSM_SETTLED		8
#define NUKSM_SEEN_RUNNING	2
#define NUKSM_SEEN_RESTING	1

/**
 * nuksm_allows - may memory be on a node?
 * @policy: that says where it may be, or NULL
 * @nid: the node
 *
 * Return: whether it may: a policy that names nodes has to name this one.
 */
bool nuksm_allows(struct mempolicy *policy, int nid)
{
	return !policy || policy->mode == MPOL_LOCAL ||
	       node_isset(nid, policy->nodes);
}

/**
 * struct nuksm_seen - what a look finds out about a process's threads
 * @nid: where those are that run now; if none does, where all of them ran last, or, if that
 *	was on several nodes, where the process was seen the last time
 * @runs: one runs now
 * @here: changes when one that is on @nid has run
 * @elsewhere: changes when one that is on another node has run
 */
struct nuksm_seen {
	int nid;
	bool runs;
	u32 here;
	u32 elsewhere;
};

/* Finds out where the process runs. Returns whether that is one node, and known. */
static bool runs_on(struct task_struct *owner, struct nuksm_seen *seen)
{
	int now = NUMA_NO_NODE, last = NUMA_NO_NODE;
	struct task_struct *thread;
	unsigned int asked = 0;
	bool apart = false;

	for_each_thread(owner, thread) {
		int on = cpu_to_node(task_cpu(thread));

		if (++asked > NUKSM_ASKED_THREADS)
			return false;
		if (READ_ONCE(thread->exit_state))
			continue;
		apart |= last != NUMA_NO_NODE && on != last;
		last = on;
		if (!task_is_running(thread))
			continue;
		if (now != NUMA_NO_NODE && on != now)
			return false;
		now = on;
	}
	seen->runs = now != NUMA_NO_NODE;
	if (seen->runs)
		seen->nid = now;
	else if (!apart)
		seen->nid = last;
	return seen->nid != NUMA_NO_NODE;
}

/* May a thread's memory be on the node, as far as its own policy says? */
static bool wants_memory_on(struct task_struct *thread, int nid)
{
	bool wants;

	if (!READ_ONCE(thread->mempolicy))
		return true;
	task_lock(thread);
	wants = nuksm_allows(thread->mempolicy, nid);
	task_unlock(thread);
	return wants;
}

/* May all threads run where they were seen, and the process's memory be there? */
static bool may_live_there(struct task_struct *owner, struct nuksm_seen *seen)
{
	const struct cpumask *cpus = cpumask_of_node(seen->nid);
	struct task_struct *thread;
	unsigned int asked = 0;

	for_each_thread(owner, thread) {
		u32 *ran;

		if (++asked > NUKSM_ASKED_THREADS)
			return false;
		if (READ_ONCE(thread->exit_state))
			continue;
		if (!cpumask_intersects(READ_ONCE(thread->cpus_ptr), cpus) ||
		    !wants_memory_on(thread, seen->nid))
			return false;
		ran = cpu_to_node(task_cpu(thread)) == seen->nid ? &seen->here :
								   &seen->elsewhere;
		/* data_race() as one that runs now counts the next time */
		*ran += data_race(thread->nvcsw + thread->nivcsw) + 1;
	}
	return node_isset(seen->nid, cpuset_mems_allowed(owner));
}

/**
 * nuksm_settle - looks have come to a process: has it moved?
 * @mm: of the process
 *
 * It has if all that ran of it since they were there the last time did so on one node, so
 * often in a row. If one of its threads has ended since, or a child that it waited for, that
 * one may have run anywhere: the row begins anew. Who has the same memory, and is no
 * thread of its owner, is not seen: mm_users also counts devices that use it (vhost), and does
 * not say who they are.
 *
 * Context: ksm_thread_mutex held.
 */
void nuksm_settle(struct mm_struct *mm)
{
	struct nuksm_mm *process = &mm->nuksm;
	struct nuksm_seen seen = { .nid = process->seen_on };
	struct task_struct *owner;
	bool lives = false, stays;
	u32 ended = 0;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner && runs_on(owner, &seen))
		lives = may_live_there(owner, &seen);
	/* What an ended thread has run may be less than a tick, and nowhere counted */
	if (lives)
		ended = READ_ONCE(owner->signal->stats_lock.seqcount.seqcount.sequence);
	rcu_read_unlock();

	if (!lives) {
		process->seen = 0;
		process->seen_on = NUMA_NO_NODE;
		return;
	}
	stays = seen.nid == process->seen_on && seen.elsewhere == process->elsewhere &&
		ended == process->ended;
	if (!stays)
		process->seen = 0;
	if (seen.runs)
		process->seen += NUKSM_SEEN_RUNNING;
	else if (stays && seen.here != process->here)
		process->seen += NUKSM_SEEN_RESTING;
	process->seen_on = seen.nid;
	process->here = seen.here;
	process->elsewhere = seen.elsewhere;
	process->ended = ended;
	process->seen = min_t(u8, process->seen, NUKSM_SETTLED);
}

/**
 * nuksm_memory_of - where a process's memory may be
 * @mm: of the process
 * @nodes: set to those with memory that its cpuset allows, or all with memory if it allows none
 */
void nuksm_memory_of(struct mm_struct *mm, nodemask_t *nodes)
{
	nodemask_t allowed = NODE_MASK_ALL;
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner)
		allowed = cpuset_mems_allowed(owner);
	rcu_read_unlock();
	nodes_and(*nodes, allowed, node_states[N_MEMORY]);
	if (nodes_empty(*nodes))
		*nodes = node_states[N_MEMORY];
}

/**
 * nuksm_may_have_memory - may a process have memory on a node?
 * @mm: of the process
 * @nid: the node
 *
 * Return: whether it may, see nuksm_memory_of().
 */
bool nuksm_may_have_memory(struct mm_struct *mm, int nid)
{
	nodemask_t nodes;

	nuksm_memory_of(mm, &nodes);
	return node_isset(nid, nodes);
}

/**
 * nuksm_settled_on - where a process has moved to
 * @mm: of the process
 *
 * Context: ksm_thread_mutex held.
 *
 * Return: the node, or NUMA_NO_NODE if it is not known to have moved.
 */
int nuksm_settled_on(const struct mm_struct *mm)
{
	int nid = mm->nuksm.seen_on;

	return mm->nuksm.seen == NUKSM_SETTLED && node_state(nid, N_MEMORY) ?
		       nid :
		       NUMA_NO_NODE;
}
