/* SPDX-License-Identifier: GPL-2.0-only */
/* nuKSM: what the rest of the kernel sees of it. */
#ifndef __LINUX_NUKSM_H
#define __LINUX_NUKSM_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/workqueue_types.h>

struct folio;
struct mm_struct;
struct seq_file;

/* Bits of the number of a merge domain. */
#define NUKSM_DOMAIN_BITS	48

/**
 * struct nuksm_membership - a process's merge domain, in its mm_struct
 * @domain: under which its pages are filed
 * @left: the one before; of several that were left at once, the first
 * @known: ksmd has been there, and @domain is one; a fork's is its parent's until then
 * @leaves: pages may still be shared with those in @left
 * @areas: that may be looked at for its pages; below 0, so many more were
 *
 * Written under ksm_thread_mutex. Who shows it reads without.
 */
struct nuksm_membership {
	u64 domain : NUKSM_DOMAIN_BITS;
	u64 left : NUKSM_DOMAIN_BITS;
	bool known;
	bool leaves;
	int areas;
};

/**
 * struct nuksm_group - a memory cgroup's merge domain, in its struct mem_cgroup
 * @asked: what was written to memory.ksm_domain, see nuksm_asked_domain
 * @edition: of what all cgroups were given, which @domain follows from; 0 if from none
 * @domain: the one that its processes belong to
 * @own: the number of the one that is this cgroup's alone; 0 until it is needed
 * @room: reclaims something for who leaves, while there is no memory for his pages
 */
struct nuksm_group {
	u32 asked;
	unsigned long edition;
	u64 domain;
	u64 own;
	struct work_struct room;
};

#ifdef CONFIG_NUKSM_DOMAINS
void nuksm_show_domain(struct seq_file *m, struct mm_struct *mm);
bool nuksm_forks_apart(struct mm_struct *mm);
#else
static inline bool nuksm_forks_apart(struct mm_struct *mm)
{
	return false;
}

static inline void nuksm_show_domain(struct seq_file *m, struct mm_struct *mm)
{
}
#endif

/**
 * struct nuksm_voter - a process in a ballot about one merged page
 * @ballot: number of the last ballot that it took part in
 * @nid: node that it counted for there
 * @weight: with which it counted
 *
 * Used under ksm_thread_mutex alone.
 */
struct nuksm_voter {
	unsigned long ballot;
	int nid;
	u32 weight;
};

/**
 * struct nuksm_mm - what nuKSM keeps of a process, in its mm_struct
 * @local: how many of the ksm_merging_pages are on the process's node for them
 * @replicas: and how many are of replicas
 * @voter: see there
 * @seen_on: node where its threads were found to run
 * @here: changes when one that was last seen there has run
 * @elsewhere: changes when one that was last seen on another node has
 * @ended: changes when one has ended
 * @seen: how much looks in a row count, up to where it has moved there
 * @may_pay: what was found when it was asked last whether it might pay for copies
 * @asked: when the look began in which that was, in jiffies
 * @drawn: number of the last draw that it took part in
 *
 * @local and @replicas change under the lock of the page concerned; different pages
 * change them at the same time. The others are for who holds ksm_thread_mutex.
 */
struct nuksm_mm {
	atomic_long_t local;
	atomic_long_t replicas;
	struct nuksm_voter voter;
	int seen_on;
	u32 here;
	u32 elsewhere;
	u32 ended;
	u8 seen;
	bool may_pay;
	unsigned long asked;
	unsigned long drawn;
};

#ifdef CONFIG_NUKSM_PLACEMENT
bool nuksm_stays_put(const struct folio *folio);
void nuksm_show_process(struct seq_file *m, struct mm_struct *mm);
#else
static inline bool nuksm_stays_put(const struct folio *folio)
{
	return false;
}

static inline void nuksm_show_process(struct seq_file *m, struct mm_struct *mm)
{
}
#endif

#endif /* __LINUX_NUKSM_H */
