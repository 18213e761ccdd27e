/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests: points of nuKSM at which somebody else may come between. With
 * CONFIG_NUKSM_WINDOWS they can be made as wide as one likes, so that a race
 * that needs luck on a running system is had in seconds.
 */
#ifndef _MM_NUKSM_WINDOWS_H
#define _MM_NUKSM_WINDOWS_H

/**
 * enum nuksm_window - between what
 * @NUKSM_WINDOW_VISIT: finding a page in a page table, and looking at it
 * @NUKSM_WINDOW_SEARCH: getting at a page of a tree, and comparing it
 * @NUKSM_WINDOW_STALE: finding an item of the unstable tree out of date, and
 *	taking it out
 * @NUKSM_WINDOW_CHOOSE: choosing which of two pages stays, and merging them
 * @NUKSM_WINDOW_INSTEAD: failing to merge two pages, and filing one in the other's place
 * @NUKSM_WINDOW_MERGED: merging two pages, and filing the one that stays
 * @NUKSM_WINDOW_FILED: filing it, and being done with it
 * @NUKSM_WINDOW_JOINED: joining a merged page, and asking where it belongs
 * @NUKSM_WINDOW_MOVE: the answer, and taking hold of the page
 * @NUKSM_WINDOW_ISOLATED: taking it off its list, and moving it
 * @NUKSM_WINDOW_UNMERGE: one page that is un-merged, and the next
 * @NUKSM_WINDOW_LOOK: clearing accessed bits, and seeing which are set again
 * @NUKSM_WINDOW_GLANCE: the end of a glance's time, and seeing what was used in it
 * @NUKSM_WINDOW_REPLICA: copying a merged page, and mapping the copy
 * @NUKSM_WINDOW_DRAW_IN: choosing a replica to which another page is to go, and taking hold
 *	of that
 * @NUKSM_WINDOW_FOLD: taking a replica from all who have it, and giving them another page
 * @NUKSM_WINDOW_DOMAIN: finding a page merged in another domain, and un-merging it
 * @NUKSM_WINDOW_OUTSIDERS: asking all who map a page, and merging it
 * @NR_NUKSM_WINDOWS: how many there are
 */
enum nuksm_window {
	NUKSM_WINDOW_VISIT,
	NUKSM_WINDOW_SEARCH,
	NUKSM_WINDOW_STALE,
	NUKSM_WINDOW_CHOOSE,
	NUKSM_WINDOW_INSTEAD,
	NUKSM_WINDOW_MERGED,
	NUKSM_WINDOW_FILED,
	NUKSM_WINDOW_JOINED,
	NUKSM_WINDOW_MOVE,
	NUKSM_WINDOW_ISOLATED,
	NUKSM_WINDOW_UNMERGE,
	NUKSM_WINDOW_LOOK,
	NUKSM_WINDOW_GLANCE,
	NUKSM_WINDOW_REPLICA,
	NUKSM_WINDOW_DRAW_IN,
	NUKSM_WINDOW_FOLD,
	NUKSM_WINDOW_DOMAIN,
	NUKSM_WINDOW_OUTSIDERS,
	NR_NUKSM_WINDOWS,
};

#ifdef CONFIG_NUKSM_WINDOWS
void nuksm_window(enum nuksm_window window);
#else
static inline void nuksm_window(enum nuksm_window window)
{
}
#endif

#endif /* _MM_NUKSM_WINDOWS_H */
