/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nuKSM and KSM's chains, of pages with the same content: which of them somebody may share.
 *
 * Included by sharers.h and replicas.h. All of it runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_CHAINS_H
#define _MM_NUKSM_CHAINS_H

static struct rb_root *nuksm_root_of(const struct ksm_stable_node *stable_node)
{
	return root_stable_tree + nuksm_root(NUMA(stable_node->nid),
					     stable_node->checksum,
					     stable_node->domain);
}

/*
 * The first of a chain's pages that @suits, for or besides @other; those that are looked for
 * on a node, on @nid.
 */
static struct ksm_stable_node *
nuksm_find_dup(struct ksm_stable_node *chain,
	       bool (*suits)(struct ksm_stable_node *dup,
			     const struct ksm_stable_node *other, int nid),
	       const struct ksm_stable_node *other, int nid)
{
	struct ksm_stable_node *dup;
	unsigned int n = 0;

	if (!chain)
		return NULL;
	hlist_for_each_entry(dup, &chain->hlist, hlist_dup) {
		if (n++ == NUKSM_MOST_DUPS)
			break;
		if (suits(dup, other, nid))
			return dup;
	}
	return NULL;
}

static bool nuksm_is_same_dup(struct ksm_stable_node *dup,
			      const struct ksm_stable_node *other, int nid)
{
	return dup == other;
}

static bool nuksm_is_filed_as(struct ksm_stable_node *tree_node,
			      struct ksm_stable_node *stable_node)
{
	if (!is_stable_node_chain(tree_node))
		return tree_node == stable_node;
	return nuksm_find_dup(tree_node, nuksm_is_same_dup, stable_node, NUMA_NO_NODE);
}

/* As nuksm_compare(): whose content is another one, or whose merge domain, is beside it. */
static int nuksm_order(const struct ksm_stable_node *here, const struct ksm_stable_node *there)
{
	if (here->checksum != there->checksum)
		return here->checksum < there->checksum ? -1 : 1;
	return nuksm_compare_domains(here->domain, there->domain);
}

/*
 * The first of what a tree has of a page's checksum and domain that @suits: of so many, as somebody
 * may have made others. These are beside each other in their tree.
 */
static struct ksm_stable_node *
nuksm_find_filed(struct ksm_stable_node *stable_node,
		 bool (*suits)(struct ksm_stable_node *tree_node,
			       struct ksm_stable_node *stable_node))
{
	struct rb_node *node = nuksm_root_of(stable_node)->rb_node, *first = NULL;
	struct ksm_stable_node *tree_node;
	unsigned int n = 0;
	int order;

	while (node) {
		tree_node = rb_entry(node, struct ksm_stable_node, node);
		order = nuksm_order(stable_node, tree_node);
		if (!order)
			first = node;
		node = order > 0 ? node->rb_right : node->rb_left;
	}
	for (node = first; node && n++ < NUKSM_MOST_DUPS; node = rb_next(node)) {
		tree_node = rb_entry(node, struct ksm_stable_node, node);
		if (nuksm_order(stable_node, tree_node))
			break;
		if (suits(tree_node, stable_node))
			return tree_node;
	}
	return NULL;
}

/*
 * What a tree has of a page: itself, or the chain of a dup, which does not know it; or NULL if that
 * is too long, or behind too many others.
 */
static struct ksm_stable_node *nuksm_filed_as(struct ksm_stable_node *stable_node)
{
	return nuksm_find_filed(stable_node, nuksm_is_filed_as);
}

/* A chain of one page is none, nor is one of no page. It is below @root. */
static void nuksm_collapse(struct ksm_stable_node *chain, struct rb_root *root)
{
	struct ksm_stable_node *last;

	if (!chain)
		return;
	if (hlist_empty(&chain->hlist)) {
		free_stable_node_chain(chain, root);
		return;
	}
	if (chain->hlist.first->next)
		return;
	last = hlist_entry(chain->hlist.first, struct ksm_stable_node, hlist_dup);
	rb_replace_node(&chain->node, &last->node, root);
	free_stable_node(chain);
	ksm_stable_node_chains--;
	ksm_stable_node_dups--;
}

/* Would all sharers of @stable_node fit into @dup, another page of its chain? */
static bool nuksm_fits_into(const struct ksm_stable_node *stable_node,
			    struct ksm_stable_node *dup)
{
	return is_page_sharing_candidate(dup) &&
	       dup->rmap_hlist_len + stable_node->rmap_hlist_len <= ksm_max_page_sharing;
}

/* Its memory has not failed. */
static bool nuksm_is_sound(const struct ksm_stable_node *stable_node)
{
	return !PageHWPoison(pfn_to_page(READ_ONCE(stable_node->kpfn)));
}

static bool nuksm_is_near(struct ksm_stable_node *dup,
			  const struct ksm_stable_node *other, int nid)
{
	return dup != other && pfn_to_nid(READ_ONCE(dup->kpfn)) == nid &&
	       is_page_sharing_candidate(dup) && nuksm_is_sound(dup);
}

/* A page of @chain on node @nid with room for one more sharer, besides @other. */
static struct ksm_stable_node *nuksm_dup_on(struct ksm_stable_node *chain, int nid,
					    const struct ksm_stable_node *other)
{
	return nuksm_find_dup(chain, nuksm_is_near, other, nid);
}

/*
 * Has somebody the page, though all have left it, or though it was given up? Whoever has paid for
 * it goes on doing so. @dup may be gone then.
 */
static bool nuksm_is_left(struct ksm_stable_node *dup)
{
	struct folio *folio;

	/* Nobody pays for that, and it never goes */
	if (!nuksm_is_sound(dup))
		return false;
	if (!hlist_empty(&dup->hlist))
		return nuksm_is_given_up(dup);
	folio = ksm_get_folio(dup, KSM_GET_FOLIO_NOLOCK);
	if (!folio)
		return false;
	folio_put(folio);
	return true;
}

/*
 * Are as many pages of @chain left, besides @stable_node, as there are nodes? Then it is neither
 * to be given up nor copied: who holds pages that others pay for would else have more and more.
 */
static bool nuksm_has_many_left(struct ksm_stable_node *chain,
				struct ksm_stable_node *stable_node)
{
	unsigned int nr = 0, nr_left = 0;
	struct ksm_stable_node *dup;
	struct hlist_node *next;

	if (!chain || !is_stable_node_chain(chain))
		return false;
	hlist_for_each_entry_safe(dup, next, &chain->hlist, hlist_dup) {
		if (nr++ == NUKSM_MOST_DUPS)
			break;
		/* @dup may be gone then, and the caller goes on with @stable_node */
		if (dup != stable_node)
			nr_left += nuksm_is_left(dup);
	}
	return nr_left >= num_online_nodes();
}

/* Is this a page on node @nid that nobody shares any more, though somebody may have it? */
static bool nuksm_is_left_on(const struct ksm_stable_node *dup, int nid)
{
	return hlist_empty(&dup->hlist) && pfn_to_nid(READ_ONCE(dup->kpfn)) == nid &&
	       nuksm_is_sound(dup);
}

static bool nuksm_takes_all(struct ksm_stable_node *dup,
			    const struct ksm_stable_node *other, int nid)
{
	return dup != other && !dup->replica && nuksm_is_sound(dup) &&
	       nuksm_fits_into(other, dup);
}

/* A page of @chain that is no replica and has room for all who share @stable_node. */
static struct ksm_stable_node *nuksm_dup_for(struct ksm_stable_node *chain,
					     const struct ksm_stable_node *stable_node)
{
	return nuksm_find_dup(chain, nuksm_takes_all, stable_node, NUMA_NO_NODE);
}

#endif /* _MM_NUKSM_CHAINS_H */
