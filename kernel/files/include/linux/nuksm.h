/* SPDX-License-Identifier: GPL-2.0-only */
/* nuKSM: what the rest of the kernel sees of it. */
#ifndef __LINUX_NUKSM_H
#define __LINUX_NUKSM_H

struct mm_struct;
struct seq_file;

#ifdef CONFIG_NUKSM_PLACEMENT
void ksm_show_placement(struct seq_file *m, struct mm_struct *mm);
#else
static inline void ksm_show_placement(struct seq_file *m, struct mm_struct *mm)
{
}
#endif

#endif /* __LINUX_NUKSM_H */
