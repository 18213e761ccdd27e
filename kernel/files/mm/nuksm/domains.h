/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM's merge domains, as far as mm/ksm.c's types are concerned. Which domain a process
 * belongs to, domains.c says.
 *
 * A page is filed under its process's domain, in either kind of tree, and found by
 * processes of that domain only. ksmd asks for a process's domain when it comes to it, once
 * in each scan. If it is another one, this visit is for leaving: all that ksmd comes by is
 * taken out of the unstable trees, or un-merged if it is merged with those of the domain
 * that the process left, and nothing is filed. So sharing ends with the second scan after a
 * process was moved, at the latest; and a fork in between gets copies.
 *
 * Included by mm/ksm.c, whose types are private to it. All of it runs under
 * ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_DOMAINS_H
#define _MM_NUKSM_DOMAINS_H

#ifdef CONFIG_NUKSM_DOMAINS

/**
 * struct nuksm_stay - how the visit that is going on is made
 * @domain: in which the process may share
 * @files: pages are merged and filed; else they are taken out of the trees
 * @leaves: what the process shares in swap ends, too, as it may be with another domain
 * @waits: merged pages stay: nobody knows yet where the process belongs, or who would pay
 *	for copies, as its last thread has ended
 * @kept: one stayed that is merged in another domain, or may be
 * @from: the first address at which one may be in swap, from the last visit
 * @to: the last one
 * @first: of those that stayed now, the first address
 * @last: the last one
 */
static struct nuksm_stay {
	u64 domain;
	bool files;
	bool leaves;
	bool waits;
	bool kept;
	unsigned long from;
	unsigned long to;
	unsigned long first;
	unsigned long last;
} nuksm_stay;

/* A page stays that is merged in another domain, or may be. */
static void nuksm_keep(unsigned long address)
{
	nuksm_stay.kept = true;
	nuksm_stay.first = min(nuksm_stay.first, address);
	nuksm_stay.last = max(nuksm_stay.last, address);
}

/*
 * Of a page that forks share it has to be asked who maps it. A process may have so many areas
 * looked at for each page that ksmd comes by, later ones before: or a tenant could make ksmd
 * look at all of its forks for each page of each of them. No page has more than the most.
 */
#define NUKSM_AREAS_PER_PAGE	8

/* ksmd has come to a process, or goes on there: has it changed its domain? */
static void nuksm_begin_visit(struct ksm_mm_slot *mm_slot)
{
	struct nuksm_membership *membership = &mm_slot->slot.mm->nuksm_membership;
	u64 domain;

	if (ksm_scan.address)
		return;
	nuksm_forget_full();
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_see_memory(mm_slot);
#endif
	domain = nuksm_domain_of(mm_slot->slot.mm);
	/* Of a process that is new to ksmd nothing is filed */
	if (!membership->known && domain < NUKSM_NO_DOMAIN) {
		membership->domain = domain;
		membership->known = true;
	}
	nuksm_stay = (struct nuksm_stay) {
		.domain = domain,
		.files = membership->known && domain == membership->domain,
		.waits = domain >= NUKSM_NO_DOMAIN,
		.to = ULONG_MAX,
		.first = ULONG_MAX,
	};
	ksm_scan.domain = domain;
	nuksm_stayed = (struct nuksm_stayed) { .first = ULONG_MAX };
	if (!nuksm_stay.files && !nuksm_stay.waits && !membership->leaves) {
		membership->left = membership->domain;
		membership->leaves = true;
	}
	nuksm_stay.leaves = membership->leaves && !nuksm_stay.waits;
	/* What it has in swap elsewhere was its own, and may be shared in this domain since */
	if (nuksm_stay.files && mm_slot->kept_to) {
		nuksm_stay.from = mm_slot->kept_from;
		nuksm_stay.to = mm_slot->kept_to;
	}
	/* Where there is none for its own pages, others' are not read */
	if (nuksm_stay.leaves)
		nuksm_look_for_room(mm_slot->slot.mm);
}

/* ksmd has come by all pages of the process: nothing is filed under the domain it left. */
static void nuksm_end_visit(struct mm_struct *mm)
{
	struct nuksm_membership *membership = &mm->nuksm_membership;

	if (nuksm_stay.waits || ksm_test_exit(mm))
		return;
	if (nuksm_stayed.first <= nuksm_stayed.last) {
		nuksm_keep(nuksm_stayed.first);
		nuksm_keep(nuksm_stayed.last);
	}
	ksm_scan.mm_slot->kept_from = nuksm_stay.first;
	ksm_scan.mm_slot->kept_to = nuksm_stay.last;
	if (!nuksm_stay.kept)
		membership->leaves = false;
	if (!nuksm_stay.files) {
		membership->domain = nuksm_stay.domain;
		membership->known = true;
	}
}

/* The process has no mergeable memory any more. */
static void nuksm_forget_domain(struct mm_struct *mm)
{
	mm->nuksm_membership.known = false;
	mm->nuksm_membership.leaves = false;
}

/* Of a merged page that could not be filed nobody knows whose it is: who leaves, leaves it. */
static bool nuksm_is_foreign(struct page *page,
			     const struct ksm_stable_node *stable_node)
{
	if (stable_node)
		return stable_node->domain != nuksm_stay.domain;
	return READ_ONCE(nuksm_has_domains) && folio_test_ksm(page_folio(page)) &&
	       (!nuksm_stay.files || nuksm_stay.leaves);
}

/* What nuksm_leave_domain() did with the page that ksmd came by last, as nuksm_unshare() says. */
static int nuksm_has_left;

/*
 * ksmd came by a page. If it is merged in another domain than its process's, the process gets
 * one of its own.
 *
 * Context: the mmap_lock for reading, with which nobody keeps what it shares.
 */
static void nuksm_leave_domain(struct page *page, const struct ksm_stable_node *stable_node,
			       struct ksm_rmap_item *rmap_item, struct vm_area_struct *vma)
{
	nuksm_has_left = 0;
	if (!nuksm_is_foreign(page, stable_node))
		return;
	nuksm_window(NUKSM_WINDOW_DOMAIN);
	if (!nuksm_stay.waits)
		nuksm_has_left = nuksm_unshare_in(rmap_item, vma, &nuksm_domain_unmerged);
}

/*
 * ksmd came by a page of whose process it does not know that it may be merged as things are,
 * or that is merged in another domain than its process's: it gets out of the trees.
 */
static bool nuksm_leaves_domain(struct page *page,
				const struct ksm_stable_node *stable_node,
				struct ksm_rmap_item *rmap_item)
{
	struct nuksm_membership *membership = &rmap_item->mm->nuksm_membership;
	bool is_foreign = nuksm_is_foreign(page, stable_node);
	u64 domain = stable_node ? stable_node->domain : membership->left;

	membership->areas = min(membership->areas + NUKSM_AREAS_PER_PAGE, NUKSM_PAGE_AREAS);
	if (nuksm_stay.files && !is_foreign)
		return false;
	/* A fork may have had merged what was filed before: that is out of date anyway */
	if (rmap_item->address & UNSTABLE_FLAG)
		remove_rmap_item_from_tree(rmap_item);
	if (!is_foreign)
		return true;
	if (nuksm_stay.waits || nuksm_has_left > 0)
		return true;
	/* It stays, or was paged out since */
	nuksm_keep(rmap_item->address & PAGE_MASK);
	if (!membership->leaves) {
		nuksm_keep(0);
		nuksm_keep(ULONG_MAX);
		membership->left = domain;
		membership->leaves = true;
	}
	return true;
}

/* Is there something to be done about all pages, whatever they are? */
static bool nuksm_is_leaving(void)
{
	return !nuksm_stay.files;
}

/*
 * A merged page is read back from swap for a process that did not let go of it before. May
 * it share it? The page is locked, and holds @stable_node. Only if ksmd has been there in
 * that domain: what it has elsewhere would not be seen as leaving.
 */
static bool nuksm_may_share(const struct ksm_stable_node *stable_node,
			    struct mm_struct *mm)
{
	/* data_race() as the bits beside it change, but these do not */
	return nuksm_is_settled(mm, data_race((u64)stable_node->domain));
}

#else /* !CONFIG_NUKSM_DOMAINS */

static inline void nuksm_begin_visit(struct ksm_mm_slot *mm_slot)
{
}

static inline void nuksm_end_visit(struct mm_struct *mm)
{
}

static inline void nuksm_forget_domain(struct mm_struct *mm)
{
}

static inline void nuksm_leave_domain(struct page *page,
				      const struct ksm_stable_node *stable_node,
				      struct ksm_rmap_item *rmap_item,
				      struct vm_area_struct *vma)
{
}

static inline bool nuksm_leaves_domain(struct page *page,
				       const struct ksm_stable_node *stable_node,
				       struct ksm_rmap_item *rmap_item)
{
	return false;
}

static inline bool nuksm_is_leaving(void)
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
