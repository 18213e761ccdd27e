/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's merge domains, as far as mm/ksm.c's types are concerned. Which domain a process
 * belongs to, domains.c says.
 *
 * A page is filed under its process's domain, in either kind of tree, and found by
 * processes of that domain only. ksmd asks for a process's domain when it comes to it, once
 * in each scan. If it is another one, all that the process has in the unstable trees is
 * taken out first; what it has merged with those of the domain that it left is un-merged as
 * ksmd comes by, within the same scan: so sharing ends with the second scan after
 * a process was moved, at the latest.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_DOMAINS_H
#define _MM_NUKSM_DOMAINS_H

#ifdef CONFIG_NUKSM_DOMAINS

/* In the visit that is going on, a page stayed with the domain that its process left. */
static bool nuksm_stayed;

/* Takes all that a process has in the unstable trees out of them. */
static void nuksm_unfile(struct ksm_mm_slot *mm_slot)
{
	struct ksm_rmap_item *rmap_item;

	for (rmap_item = mm_slot->rmap_list; rmap_item;
	     rmap_item = rmap_item->rmap_list) {
		if (rmap_item->address & UNSTABLE_FLAG)
			remove_rmap_item_from_tree(rmap_item);
		cond_resched();
	}
}

/* ksmd has come to a process, or goes on there: has it changed its domain? */
static void nuksm_begin_visit(struct ksm_mm_slot *mm_slot)
{
	struct nuksm_membership *membership = &mm_slot->slot.mm->nuksm_membership;
	u64 domain;

	if (ksm_scan.address)
		return;
	domain = nuksm_domain_of(mm_slot->slot.mm);
	ksm_scan.domain = domain;
	nuksm_stayed = false;
	if (domain == membership->domain && membership->known)
		return;
	if (domain != membership->domain) {
		nuksm_unfile(mm_slot);
		membership->left = membership->domain;
		membership->leaves = membership->known;
	}
	membership->domain = domain;
	membership->known = true;
}

/* ksmd has come by all pages of the process. */
static void nuksm_end_visit(struct mm_struct *mm)
{
	if (mm->nuksm_membership.leaves && !nuksm_stayed)
		mm->nuksm_membership.leaves = false;
}

/*
 * ksmd came by a page. If it is merged, in a domain that its process left, or in that of the
 * process it was forked from, the process gets one of its own.
 */
static bool nuksm_leaves_domain(const struct ksm_stable_node *stable_node,
				struct ksm_rmap_item *rmap_item)
{
	if (!stable_node || stable_node->domain == nuksm_filed_domain(rmap_item->mm))
		return false;
	nuksm_window(NUKSM_WINDOW_DOMAIN);
	if (nuksm_unshare(rmap_item, &nuksm_domain_unmerged))
		nuksm_stayed = true;
	return true;
}

/*
 * A merged page is read back from swap for a process that did not let go of it before. May
 * it share it? The page is locked, and holds @stable_node.
 */
static bool nuksm_may_share(const struct ksm_stable_node *stable_node,
			    struct mm_struct *mm)
{
	/* data_race() as the bits beside it change, but these do not */
	return data_race((u64)stable_node->domain) == nuksm_domain_of(mm);
}

#else /* !CONFIG_NUKSM_DOMAINS */

static inline void nuksm_begin_visit(struct ksm_mm_slot *mm_slot)
{
}

static inline void nuksm_end_visit(struct mm_struct *mm)
{
}

static inline bool nuksm_leaves_domain(const struct ksm_stable_node *stable_node,
				       struct ksm_rmap_item *rmap_item)
{
	return false;
}

static inline bool nuksm_may_share(const struct ksm_stable_node *stable_node,
				   struct mm_struct *mm)
{
	return true;
}

#endif /* CONFIG_NUKSM_DOMAINS */
#endif /* _MM_NUKSM_DOMAINS_H */
