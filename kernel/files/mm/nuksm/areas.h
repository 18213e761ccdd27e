/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and the locks of areas, which anon_vmas have: one is for all areas that a fork relates,
 * and who splits huge pages in a thread that hardly gets a CPU's time has it for minutes. Who
 * has ksm_thread_mutex, for which looks and whoever writes to sysfs wait, does not wait for it.
 */
#ifndef _MM_NUKSM_AREAS_H
#define _MM_NUKSM_AREAS_H

struct anon_vma;
struct folio;
struct mm_struct;
struct page;

/*
 * Where more than these may have a page, that is not split; nor moved, unless there are many
 * sharers, and none has more of them than others.
 */
#define NUKSM_MOST_AREAS	4096

#ifdef CONFIG_NUKSM

int nuksm_split(struct page *page, struct mm_struct *mm);
bool nuksm_lock_to_split(struct anon_vma *anon_vma, struct folio *folio);
void nuksm_put_anon_vma(struct anon_vma *anon_vma);

#else /* !CONFIG_NUKSM */

/* No functions: the compiler would make other code of stock's. */
#define nuksm_split(page, mm)			((void)(mm), split_huge_page(page))
#define nuksm_lock_to_split(anon_vma, folio) \
	(anon_vma_lock_write(anon_vma), (void)(folio), true)
#define nuksm_put_anon_vma(anon_vma)		put_anon_vma(anon_vma)

#endif /* CONFIG_NUKSM */
#endif /* _MM_NUKSM_AREAS_H */
