// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM: what accessed bits said, for others who ask.
 */

#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/page_idle.h>
#include <linux/swap.h>

#include "../internal.h"
#include "nuksm.h"

#ifdef CONFIG_LRU_GEN
/* Is there a younger generation than the one the page is in? */
static bool folio_can_be_promoted(struct folio *folio)
{
	int gen = folio_lru_gen(folio);
	bool can;

	if (!lru_gen_enabled() || gen < 0)
		return false;
	rcu_read_lock();
	can = gen != lru_gen_from_seq(READ_ONCE(folio_lruvec(folio)->lrugen.max_seq));
	rcu_read_unlock();
	return can;
}
#else
static bool folio_can_be_promoted(struct folio *folio)
{
	return false;
}
#endif

/**
 * nuksm_was_used - give back what an accessed bit said before it was cleared
 * @folio: that was used
 *
 * Reclaim, which finds the bit cleared, asks for young; idle page tracking and
 * DAMON for idle. See also nuksm_promote().
 */
void nuksm_was_used(struct folio *folio)
{
	folio_clear_idle(folio);
	folio_set_young(folio);
}

/**
 * nuksm_promote - give it back to the multi-generational LRU
 * @folio: that was used
 *
 * It does not ask for young, but goes by the generation that it puts a page in
 * when it finds the accessed bit set. Until the caller drains the CPU's lists, they hold
 * the page, which is not merged then, nor moved.
 */
void nuksm_promote(struct folio *folio)
{
	if (!folio_can_be_promoted(folio) || !nuksm_use_promotes(folio))
		return;
	folio_activate(folio);
}
