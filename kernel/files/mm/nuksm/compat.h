/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM: what differs between the kernels that it is made for, apart from the hooks
 * in mm/ksm.c. All other files are written for the newest; here the older ones get
 * what they lack, by its newer name.
 */
#ifndef _MM_NUKSM_COMPAT_H
#define _MM_NUKSM_COMPAT_H

#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pgtable.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/version.h>

#include "../internal.h" /* folio_swap(), for those who copy what is paged out */
#include "../swap.h"

#if KERNEL_VERSION(7, 3, 0) > LINUX_VERSION_CODE

/* @nr is 1, wherever nuKSM asks. */
static inline bool test_and_clear_young_ptes_notify(struct vm_area_struct *vma,
						    unsigned long addr,
						    pte_t *ptep, unsigned int nr)
{
	return ptep_clear_young_notify(vma, addr, ptep);
}

#define pmdp_test_and_clear_young_notify(vma, addr, pmdp) \
	pmdp_clear_young_notify(vma, addr, pmdp)

#define linear_anon_page_index(vma, addr)	linear_page_index(vma, addr)

static inline unsigned long linear_anon_page_address(const struct vm_area_struct *vma,
						     unsigned long index)
{
	return vma->vm_start + ((index - vma->vm_pgoff) << PAGE_SHIFT);
}

#define anon_rmap_tree_foreach(vmac, anon_vma, first, last) \
	anon_vma_interval_tree_foreach(vmac, &(anon_vma)->rb_root, first, last)

#define folio_mk_pte(folio, prot)	mk_pte(&(folio)->page, prot)
#define pte_uffd(pte)			pte_uffd_wp(pte)
#define pte_mkuffd(pte)			pte_mkuffd_wp(pte)
#define pte_swp_uffd(pte)		pte_swp_uffd_wp(pte)

#define softleaf_t			swp_entry_t
#define softleaf_from_pte(pte)		pte_to_swp_entry(pte)
#define softleaf_is_migration(entry)	is_migration_entry(entry)
#define softleaf_to_folio(entry)	pfn_swap_entry_folio(entry)
#define softleaf_is_swap(entry)		(!non_swap_entry(entry))
#define softleaf_is_migration_read(entry) is_readable_migration_entry(entry)

#define mm_flags_test(flag, mm)		test_bit(flag, &(mm)->flags)

#define nuksm_alloc_folio(gfp, vma, addr) \
	vma_alloc_folio(gfp, 0, vma, addr, false)

/* Protection from being read is newer. */
static inline bool userfaultfd_rwp(struct vm_area_struct *vma)
{
	return false;
}

/* Of mm/ksm.c; there it takes a range. */
#define nuksm_break_ksm(vma, addr)	break_ksm(vma, addr, false)

#ifdef CONFIG_MEMCG
#define nuksm_cgroup_of_id(id)		mem_cgroup_from_id(id)
#endif

#ifdef CONFIG_SWAP

#include <linux/mempolicy.h>
#include <linux/swap_cgroup.h>

#define nuksm_get_cached(entry)		swap_cache_get_folio(entry, NULL, 0)

/* The folio is locked. */
static inline bool nuksm_is_cached(struct folio *folio, swp_entry_t entry)
{
	return folio_test_swapcache(folio) &&
	       page_swap_entry(folio_file_page(folio, swp_offset(entry))).val == entry.val;
}

/* If somebody else has begun to, it is not waited until he has memory for it. */
static inline struct folio *nuksm_read_swap(swp_entry_t entry, gfp_t gfp,
					    struct vm_area_struct *vma, unsigned long addr)
{
	struct mempolicy *policy;
	struct folio *folio;
	bool is_new;
	pgoff_t ilx;

	policy = get_vma_policy(vma, addr, 0, &ilx);
	folio = __read_swap_cache_async(entry, gfp, policy, ilx, &is_new, true);
	mpol_cond_put(policy);
	if (is_new)
		swap_read_folio(folio, NULL);
	return folio;
}

#define nuksm_payer_of(entry)		lookup_swap_cgroup_id(entry)

/* Has one page table entry the slot, and is nothing of it in memory? Asked at once. */
static inline bool nuksm_is_only_slot(swp_entry_t entry)
{
	return READ_ONCE(swp_swap_info(entry)->swap_map[swp_offset(entry)]) == 1;
}

static inline void nuksm_put_slot(struct folio *folio, swp_entry_t entry)
{
	swap_free(entry);
}

#endif /* CONFIG_SWAP */

/* The multi-generational LRU promotes a page at its first use. */
static inline bool nuksm_use_promotes(struct folio *folio)
{
	return true;
}

#else

#include <linux/leafops.h>
#include <linux/swap_ops.h>

#define linear_anon_page_address(vma, index)	vma_anon_address(vma, index, 1)

#define nuksm_alloc_folio(gfp, vma, addr)	vma_alloc_folio(gfp, 0, vma, addr)

#include "../page_alloc.h" /* drain_all_pages() */

#define nuksm_break_ksm(vma, addr)				\
({								\
	unsigned long _addr = (addr);				\
								\
	break_ksm(vma, _addr, _addr + PAGE_SIZE, false);	\
})

#ifdef CONFIG_MEMCG
#define nuksm_cgroup_of_id(id)		mem_cgroup_from_private_id(id)
#endif

#ifdef CONFIG_SWAP

#include "../swap_table.h"

#define nuksm_get_cached(entry)		swap_cache_get_folio(entry)
#define nuksm_is_cached(folio, entry)	folio_matches_swap_entry(folio, entry)

static inline struct folio *nuksm_read_swap(swp_entry_t entry, gfp_t gfp,
					    struct vm_area_struct *vma, unsigned long addr)
{
	struct swap_io_ctx ctx = {};
	struct folio *folio = read_swap_cache_async(&ctx, entry, gfp, vma, addr);

	swap_read_submit(&ctx);
	return folio;
}

/* The swap device stays meanwhile. */
static inline unsigned short nuksm_payer_of(swp_entry_t entry)
{
	struct swap_cluster_info *ci = swap_cluster_lock(__swap_entry_to_info(entry),
							 swp_offset(entry));
	unsigned short id = __swap_cgroup_get(ci, swp_cluster_offset(entry));

	swap_cluster_unlock(ci);
	return id;
}

/* Has one page table entry the slot, and is nothing of it in memory? Asked at once. */
static inline bool nuksm_is_only_slot(swp_entry_t entry)
{
	unsigned long slot = swap_table_get(__swap_entry_to_cluster(entry),
					    swp_cluster_offset(entry));

	return !swp_tb_is_folio(slot) && swp_tb_get_count(slot) == 1;
}

static inline void nuksm_put_slot(struct folio *folio, swp_entry_t entry)
{
	folio_put_swap(folio, folio_file_page(folio, swp_offset(entry)));
}

#endif /* CONFIG_SWAP */

/* At the second, the first one being remembered: see folio_update_gen(). */
static inline bool nuksm_use_promotes(struct folio *folio)
{
	if (!folio_test_referenced(folio) && !folio_test_workingset(folio)) {
		folio_set_referenced(folio);
		return false;
	}
	folio_clear_referenced(folio);
	folio_set_workingset(folio);
	return true;
}

#endif

#endif /* _MM_NUKSM_COMPAT_H */
