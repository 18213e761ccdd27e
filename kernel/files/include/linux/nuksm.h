/* SPDX-License-Identifier: GPL-2.0-only */
/* nuKSM: what the rest of the kernel sees of it. */
#ifndef __LINUX_NUKSM_H
#define __LINUX_NUKSM_H

#include <linux/atomic.h>
#include <linux/types.h>

struct mm_struct;
struct seq_file;

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
 * @elsewhere: changes when other threads have run on other nodes
 * @seen: how often in a row, up to where it counts as having moved there
 *
 * @local and @replicas change under the lock of the page concerned; different pages
 * change them at the same time. The others are for who holds ksm_thread_mutex.
 */
struct nuksm_mm {
	atomic_long_t local;
	atomic_long_t replicas;
	struct nuksm_voter voter;
	int seen_on;
	u32 elsewhere;
	u8 seen;
};

#ifdef CONFIG_NUKSM_PLACEMENT
void nuksm_show_process(struct seq_file *m, struct mm_struct *mm);
#else
static inline void nuksm_show_process(struct seq_file *m, struct mm_struct *mm)
{
}
#endif

#endif /* __LINUX_NUKSM_H */
