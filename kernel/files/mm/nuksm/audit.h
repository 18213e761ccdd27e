/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests: do KSM's counters say what there is?
 *
 * Included by mm/ksm.c, whose types and locks are private to it.
 */
#ifndef _MM_NUKSM_AUDIT_H
#define _MM_NUKSM_AUDIT_H

#ifdef CONFIG_NUKSM_WINDOWS

#include <linux/debugfs.h>
#include <linux/seq_file.h>

/* In struct ksm_rmap_item.address: what it is filed in, or why it is not. */
#define NUKSM_ITEM_FLAGS	(UNSTABLE_FLAG | STABLE_FLAG | NUKSM_SUMMED_FLAG)

/* What a walk of everything finds, under ksm_thread_mutex. */
struct nuksm_audit {
	long shared[MAX_NUMNODES];
	long sharing[MAX_NUMNODES];
	long replicas[MAX_NUMNODES];
	long chains;
	long dups;
	long items;
	long unshared;
	long filed;
	long differences;
};

static void nuksm_compare_counts(struct seq_file *m, struct nuksm_audit *audit,
				 const char *name, int number, long counted,
				 long walked)
{
	if (counted == walked)
		return;
	audit->differences++;
	seq_printf(m, "%s %d counted=%ld walked=%ld\n", name, number, counted,
		   walked);
}

static void nuksm_audit_node(struct seq_file *m, struct nuksm_audit *audit,
			     const struct ksm_stable_node *stable_node)
{
	int nid = pfn_to_nid(READ_ONCE(stable_node->kpfn));
	const struct ksm_rmap_item *rmap_item;
	long len = 0;

	hlist_for_each_entry(rmap_item, &stable_node->hlist, hlist) {
		if (rmap_item->head != stable_node ||
		    (rmap_item->address & (UNSTABLE_FLAG | STABLE_FLAG)) != STABLE_FLAG)
			nuksm_compare_counts(m, audit, "sharer", nid, 0, 1);
		len++;
	}
	nuksm_compare_counts(m, audit, "rmap_hlist_len", nid,
			     stable_node->rmap_hlist_len, len);
	if (len) {
		audit->shared[nid]++;
		audit->sharing[nid] += len - 1;
#ifdef CONFIG_NUKSM_PLACEMENT
		audit->replicas[nid] += stable_node->replica;
#endif
	}
}

static void nuksm_audit_trees(struct seq_file *m, struct nuksm_audit *audit)
{
	struct ksm_stable_node *stable_node, *dup;
	struct rb_node *node;
	unsigned int tree;

	for (tree = 0; tree < nuksm_nr_roots(ksm_nr_node_ids); tree++) {
		cond_resched();
		for (node = rb_first(root_stable_tree + tree); node;
		     node = rb_next(node)) {
			stable_node = rb_entry(node, struct ksm_stable_node, node);
			if (!is_stable_node_chain(stable_node)) {
				nuksm_audit_node(m, audit, stable_node);
				continue;
			}
			audit->chains++;
			hlist_for_each_entry(dup, &stable_node->hlist, hlist_dup) {
				audit->dups++;
				nuksm_audit_node(m, audit, dup);
			}
		}
	}
	list_for_each_entry(stable_node, &migrate_nodes, list)
		nuksm_audit_node(m, audit, stable_node);
}

/* Is what lies in the unstable trees there because it was filed there? */
static void nuksm_audit_unstable(struct seq_file *m, struct nuksm_audit *audit)
{
	const struct ksm_rmap_item *rmap_item;
	struct rb_node *node;
	unsigned int tree;

	for (tree = 0; tree < nuksm_nr_roots(ksm_nr_node_ids); tree++) {
		cond_resched();
		for (node = rb_first(root_unstable_tree + tree); node;
		     node = rb_next(node)) {
			rmap_item = rb_entry(node, struct ksm_rmap_item, node);
			nuksm_compare_counts(m, audit, "flags of an item", tree,
					     UNSTABLE_FLAG,
					     rmap_item->address & NUKSM_ITEM_FLAGS);
			nuksm_compare_counts(m, audit, "tree of an item", tree,
					     nuksm_root(NUMA(rmap_item->nid),
							rmap_item->oldchecksum,
							nuksm_filed_domain(rmap_item->mm)),
					     tree);
			audit->filed++;
		}
	}
}

static void nuksm_audit_process(struct seq_file *m, struct nuksm_audit *audit,
				const struct ksm_mm_slot *mm_slot)
{
	struct mm_struct *mm = mm_slot->slot.mm;
	const struct ksm_rmap_item *rmap_item;
	long items = 0, merged = 0, foreign = 0;
	long local __maybe_unused = 0, replicas __maybe_unused = 0;

	for (rmap_item = mm_slot->rmap_list; rmap_item;
	     rmap_item = rmap_item->rmap_list) {
		items++;
		if (rmap_item->address & UNSTABLE_FLAG)
			audit->unshared++;
		if (!(rmap_item->address & STABLE_FLAG))
			continue;
		merged++;
		foreign += rmap_item->head->domain != nuksm_filed_domain(mm);
#ifdef CONFIG_NUKSM_PLACEMENT
		local += pfn_to_nid(READ_ONCE(rmap_item->head->kpfn)) ==
			 rmap_item->home;
		replicas += rmap_item->head->replica;
#endif
	}
	audit->items += items;
	nuksm_compare_counts(m, audit, "process: ksm_rmap_items", 0,
			     mm->ksm_rmap_items, items);
	nuksm_compare_counts(m, audit, "process: ksm_merging_pages", 0,
			     mm->ksm_merging_pages, merged);
#ifdef CONFIG_NUKSM_DOMAINS
	if (!mm->nuksm_membership.leaves)
		nuksm_compare_counts(m, audit, "process: merged in another domain", 0, 0,
				     foreign);
#endif
#ifdef CONFIG_NUKSM_PLACEMENT
	nuksm_compare_counts(m, audit, "process: ksm_merged_local", 0,
			     atomic_long_read(&mm->nuksm.local), local);
	nuksm_compare_counts(m, audit, "process: ksm_merged_replicas", 0,
			     atomic_long_read(&mm->nuksm.replicas), replicas);
#endif
}

static void nuksm_audit_processes(struct seq_file *m, struct nuksm_audit *audit)
{
	struct mm_slot *slot;

	/* Slots come and go under this lock; what they list, under the mutex. */
	spin_lock(&ksm_mmlist_lock);
	list_for_each_entry(slot, &ksm_mm_head.slot.mm_node, mm_node)
		nuksm_audit_process(m, audit, mm_slot_entry(slot, struct ksm_mm_slot,
							    slot));
	spin_unlock(&ksm_mmlist_lock);
}

static void nuksm_audit_sums(struct seq_file *m, struct nuksm_audit *audit)
{
	long shared = 0, sharing = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++) {
		shared += audit->shared[nid];
		sharing += audit->sharing[nid];
#ifdef CONFIG_NUKSM_PLACEMENT
		nuksm_compare_counts(m, audit, "pages_shared_by_node", nid,
				     atomic_long_read(&nuksm_node_counts[nid].shared),
				     audit->shared[nid]);
		nuksm_compare_counts(m, audit, "pages_sharing_by_node", nid,
				     atomic_long_read(&nuksm_node_counts[nid].sharing),
				     audit->sharing[nid]);
		nuksm_compare_counts(m, audit, "replicas_by_node", nid,
				     atomic_long_read(&nuksm_node_counts[nid].replicas),
				     audit->replicas[nid]);
#endif
	}
	nuksm_compare_counts(m, audit, "pages_shared", 0, ksm_pages_shared, shared);
	nuksm_compare_counts(m, audit, "pages_sharing", 0, ksm_pages_sharing,
			     sharing);
	nuksm_compare_counts(m, audit, "pages_unshared", 0, ksm_pages_unshared,
			     audit->unshared);
	if (nuksm_by_checksum())
		nuksm_compare_counts(m, audit, "unstable trees", 0,
				     audit->filed, audit->unshared);
	nuksm_compare_counts(m, audit, "rmap_items", 0, ksm_rmap_items,
			     audit->items);
	nuksm_compare_counts(m, audit, "stable_node_chains", 0,
			     ksm_stable_node_chains, audit->chains);
	nuksm_compare_counts(m, audit, "stable_node_dups", 0,
			     ksm_stable_node_dups, audit->dups);
	seq_printf(m, "pages_shared %ld\npages_sharing %ld\npages_unshared %ld\n",
		   shared, sharing, audit->unshared);
}

/*
 * Pages that somebody moves to another node meanwhile make differences: have
 * everybody hold still, and ask again.
 */
static int nuksm_audit_show(struct seq_file *m, void *unused)
{
	struct nuksm_audit *audit = kzalloc(sizeof(*audit), GFP_KERNEL);

	if (!audit)
		return -ENOMEM;
	mutex_lock(&ksm_thread_mutex);
	wait_while_offlining();
	nuksm_audit_trees(m, audit);
	if (nuksm_by_checksum())
		nuksm_audit_unstable(m, audit);
	nuksm_audit_processes(m, audit);
	nuksm_audit_sums(m, audit);
	mutex_unlock(&ksm_thread_mutex);
	if (audit->differences)
		seq_printf(m, "audit: %ld differences\n", audit->differences);
	else
		seq_puts(m, "audit: ok\n");
	kfree(audit);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(nuksm_audit);

static int __init nuksm_audit_init(void)
{
	struct dentry *dir = debugfs_lookup("nuksm", NULL);

	debugfs_create_file("audit", 0400, dir, NULL, &nuksm_audit_fops);
	dput(dir);
	return 0;
}
late_initcall_sync(nuksm_audit_init);

#endif /* CONFIG_NUKSM_WINDOWS */
#endif /* _MM_NUKSM_AUDIT_H */
