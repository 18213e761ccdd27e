/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How nuKSM moves a merged page, and who makes that too dear. Included by sharers.h; all of it
 * runs under ksm_thread_mutex.
 */
#ifndef _MM_NUKSM_MOVING_H
#define _MM_NUKSM_MOVING_H

/* Of a page in one scan. */
#define NUKSM_MOST_MOVES	(BIT(NUKSM_MOVES_BITS) - 1)

/*
 * Moving a page takes it from all its sharers for as long as it takes to find
 * their mappings: whoever looks goes through all areas that have the same place in
 * the anon_vma of a sharer, those of its children and whatever mremap() left there.
 * There may be 65,530 of them in each process. Who makes that long must not keep
 * pages where he likes them, nor take ksmd's time from others: if there are more
 * than these, the mappings that have more than their part of it get pages of their
 * own. They may be merged again. See NUKSM_MOST_AREAS.
 */
#define NUKSM_FEW_AREAS		64

/* So many areas are as dear as a move without any. */
#define NUKSM_AREAS_PER_MOVE	512

/*
 * Counts them, up to one more than @most.
 *
 * Context: the lock of the sharer's anon_vma.
 */
static unsigned int nuksm_areas(const struct ksm_rmap_item *sharer,
				unsigned int most)
{
	struct anon_vma_chain *vmac;
	unsigned int areas = 0;

	cond_resched();
	anon_rmap_tree_foreach(vmac, sharer->anon_vma, nuksm_first_index(sharer),
			       nuksm_last_index(sharer)) {
		if (++areas > most)
			break;
	}
	return areas;
}

/* Does one lock have the areas of both? That is so for forks, which follow each other. */
static bool nuksm_has_same_lock(const struct ksm_rmap_item *sharer,
				const struct ksm_rmap_item *before)
{
	return before && sharer->anon_vma->root == before->anon_vma->root;
}

/* Lets go of the areas of all sharers, or of those before @end. */
static void nuksm_unlock_areas(const struct ksm_stable_node *stable_node,
			       const struct ksm_rmap_item *end)
{
	const struct ksm_rmap_item *sharer, *before = NULL;

	WRITE_ONCE(nuksm_mover, NULL);
	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		if (sharer == end)
			break;
		if (!nuksm_has_same_lock(sharer, before))
			up_read_non_owner(&sharer->anon_vma->root->rwsem);
		before = sharer;
	}
}

/*
 * Locks the areas of all sharers, in which their mappings of the page are looked for: to be
 * counted, to see whether all are found, and twice to move the page, which nobody can use
 * between these. Nobody is waited for, with ksm_thread_mutex: who splits huge pages, in a
 * thread that hardly gets a CPU's time, has that lock for minutes; it is one for all who a
 * fork relates. A page that it is in use for stays, as one that somebody holds.
 *
 * Who has a folio's lock may wait for one of these: with them, folios are locked if that can
 * be done at once only, and no memory is waited for, by nuksm_migrate(). Several sharers may
 * have the same one: those that follow each other lock it once, as each time it may be refused
 * because somebody waits for it. There may be more than lockdep keeps; that it is not told of
 * locks that are tried for misses nothing.
 *
 * Returns whether they are all locked.
 */
static bool nuksm_lock_areas(const struct ksm_stable_node *stable_node)
{
	const struct ksm_rmap_item *sharer, *before = NULL;

	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		struct rw_semaphore *rwsem = &sharer->anon_vma->root->rwsem;

		if (!nuksm_has_same_lock(sharer, before)) {
			if (!down_read_trylock(rwsem)) {
				nuksm_unlock_areas(stable_node, sharer);
				return false;
			}
			rwsem_release(&rwsem->dep_map, _THIS_IP_);
		}
		before = sharer;
		cond_resched();
	}
	nuksm_moved_node = stable_node;
	WRITE_ONCE(nuksm_mover, current);
	return true;
}

/* Those of all sharers, up to one more than @most. */
static unsigned int nuksm_all_areas(const struct ksm_stable_node *stable_node,
				    unsigned int most)
{
	const struct ksm_rmap_item *sharer;
	unsigned int areas = 0;

	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		areas += nuksm_areas(sharer, most - areas);
		if (areas > most)
			break;
	}
	return areas;
}

/*
 * Locks all areas in which a page may be. Returns 0; -EBUSY; or -E2BIG if there are more than
 * @most.
 */
static int nuksm_lock_at_most(const struct ksm_stable_node *stable_node, unsigned int most)
{
	if (!nuksm_lock_areas(stable_node))
		return -EBUSY;
	if (nuksm_all_areas(stable_node, most) <= most)
		return 0;
	nuksm_unlock_areas(stable_node, NULL);
	return -E2BIG;
}

/* Returns 1 if the sharer has more areas than that, 0 if not, or -EBUSY: nobody can count them. */
static int nuksm_is_dear(const struct ksm_rmap_item *sharer, unsigned int most)
{
	int dear;

	if (!anon_vma_trylock_read(sharer->anon_vma))
		return -EBUSY;
	dear = nuksm_areas(sharer, most) > most;
	anon_vma_unlock_read(sharer->anon_vma);
	return dear;
}

/*
 * Un-merges the sharers that have more than their part of so many areas, but nobody who
 * has a few only. Returns how many, or an error if one of them stays.
 */
static int nuksm_unshare_dear(struct ksm_stable_node *stable_node, unsigned int most)
{
	unsigned int part = max(most / stable_node->rmap_hlist_len, NUKSM_FEW_AREAS);
	struct ksm_rmap_item *sharer;
	struct hlist_node *next;
	int err, failed = 0, unshared = 0;

	hlist_for_each_entry_safe(sharer, next, &stable_node->hlist, hlist) {
		err = nuksm_is_dear(sharer, part);
		if (!err)
			continue;
		if (err > 0)
			err = nuksm_unshare(sharer, &nuksm_placement_stats.unshared);
		if (err < 0)
			failed = err;
		else
			unshared++;
	}
	return failed ?: unshared;
}

static bool nuksm_has_sharer_on(const struct ksm_stable_node *stable_node, int nid)
{
	const struct ksm_rmap_item *sharer;

	hlist_for_each_entry(sharer, &stable_node->hlist, hlist) {
		if (sharer->home == nid)
			return true;
		cond_resched();
	}
	return false;
}

/*
 * Takes hold of a merged page: it can neither be moved by others nor go away, and
 * @stable_node stays. Those who are about to move it have its lock, and do not look
 * who holds it any more; from now on they see that somebody does.
 *
 * Returns NULL if it is gone, and @stable_node with it, or -EBUSY.
 */
static struct folio *nuksm_take_hold(struct ksm_stable_node *stable_node)
{
	struct folio *folio = ksm_get_folio(stable_node, KSM_GET_FOLIO_TRYLOCK);

	if (!IS_ERR_OR_NULL(folio))
		folio_unlock(folio);
	return folio;
}

/*
 * Moves the page. Returns 0 if it was moved; -ENOENT if it is gone, and @stable_node with it;
 * -EBUSY if somebody holds it, or the like; -EAGAIN if it was too dear, and who made it so shares
 * it no more, and nobody else on node @nid; -ENOMEM or -EBUSY if he still does. *@cost: what that
 * took, in moves of pages whose mappings are easy to find.
 */
static int nuksm_move(struct ksm_stable_node *stable_node, int nid, unsigned int *cost)
{
	struct folio *folio = nuksm_take_hold(stable_node);
	unsigned int areas;
	int err = -EBUSY;

	*cost = 1;
	if (!folio)
		return -ENOENT;
	if (IS_ERR(folio))
		return -EBUSY;
	if (!nuksm_can_be_moved(folio) || !nuksm_lock_areas(stable_node))
		goto refused;

	areas = nuksm_all_areas(stable_node, NUKSM_MOST_AREAS);
	*cost += areas / NUKSM_AREAS_PER_MOVE;
	if (areas > NUKSM_MOST_AREAS) {
		nuksm_unlock_areas(stable_node, NULL);
		err = nuksm_unshare_dear(stable_node, NUKSM_MOST_AREAS);
		if (err < 0 || (err && !nuksm_has_sharer_on(stable_node, nid))) {
			folio_put(folio);
			return err < 0 ? err : -EAGAIN;
		}
		/* Who makes it dear anew in each scan keeps nobody else from having it moved */
		err = -EBUSY;
		if (nuksm_lock_at_most(stable_node,
				       max(NUKSM_MOST_AREAS,
					   NUKSM_FEW_AREAS * stable_node->rmap_hlist_len)))
			goto refused;
	}
	if (nuksm_all_are_found(folio)) {
		err = nuksm_migrate(folio, nid) ? -EBUSY : 0;
		if (!err)
			stable_node->elsewhere = 0;
		nuksm_unlock_areas(stable_node, NULL);
		return err;
	}
	nuksm_unlock_areas(stable_node, NULL);
	/* To look once more would be as dear, and find no more */
	*cost = NUKSM_MOST_MOVES;
refused:
	nuksm_count(&nuksm_placement_stats.migrate_refused, 1);
	folio_put(folio);
	return err;
}

#endif /* _MM_NUKSM_MOVING_H */
