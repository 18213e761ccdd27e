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

/* So often in a row a process has to be seen running on a node, to have moved there. */
#define NUKSM_SETTLED		4

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

/*
 * On which node are the threads that run now? *@nid is NUMA_NO_NODE if none does. Returns
 * false if they are on several, or not to be asked.
 */
static bool runs_on(struct task_struct *owner, int *nid)
{
	struct task_struct *thread;
	unsigned int asked = 0;

	*nid = NUMA_NO_NODE;
	for_each_thread(owner, thread) {
		int on = cpu_to_node(task_cpu(thread));

		if (++asked > NUKSM_ASKED_THREADS)
			return false;
		if (!task_is_running(thread))
			continue;
		if (*nid != NUMA_NO_NODE && on != *nid)
			return false;
		*nid = on;
	}
	return true;
}

/*
 * May all threads run on the node, and the process's memory be there? *@elsewhere changes
 * whenever one that was last seen on another node has run there.
 */
static bool may_live_on(struct task_struct *owner, int nid, u32 *elsewhere)
{
	struct task_struct *thread;
	unsigned int asked = 0;
	bool may;

	*elsewhere = 0;
	for_each_thread(owner, thread) {
		if (++asked > NUKSM_ASKED_THREADS ||
		    !cpumask_intersects(thread->cpus_ptr, cpumask_of_node(nid)))
			return false;
		if (cpu_to_node(task_cpu(thread)) == nid)
			continue;
		/* data_race() as one that runs now counts the next time */
		*elsewhere += data_race(thread->nvcsw + thread->nivcsw) + 1;
	}
	task_lock(owner);
	may = nuksm_allows(owner->mempolicy, nid);
	task_unlock(owner);
	return may && node_isset(nid, cpuset_mems_allowed(owner));
}

/**
 * nuksm_settle - looks have come to a process: has it moved?
 * @mm: of the process
 *
 * It has if all that ran of it since they were there the last time did so on one node, so
 * often in a row.
 *
 * Context: ksm_thread_mutex held.
 */
void nuksm_settle(struct mm_struct *mm)
{
	struct nuksm_mm *process = &mm->nuksm;
	struct task_struct *owner;
	u32 elsewhere = 0;
	int nid = NUMA_NO_NODE;
	bool may = false;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner && runs_on(owner, &nid))
		may = may_live_on(owner, nid == NUMA_NO_NODE ? process->seen_on : nid,
				  &elsewhere);
	rcu_read_unlock();

	if (!may || elsewhere != process->elsewhere ||
	    (nid != NUMA_NO_NODE && nid != process->seen_on))
		process->seen = 0;
	process->elsewhere = elsewhere;
	if (!may || nid == NUMA_NO_NODE)
		return;
	process->seen_on = nid;
	if (process->seen < NUKSM_SETTLED)
		process->seen++;
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
