// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the windows of nuKSM wide: whoever passes one sleeps for a while.
 */

#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/random.h>

#include "nuksm.h"

static const char * const window_names[NR_NUKSM_WINDOWS] = {
	[NUKSM_WINDOW_VISIT]	= "visit",
	[NUKSM_WINDOW_SEARCH]	= "search",
	[NUKSM_WINDOW_STALE]	= "stale",
	[NUKSM_WINDOW_CHOOSE]	= "choose",
	[NUKSM_WINDOW_INSTEAD]	= "instead",
	[NUKSM_WINDOW_MERGED]	= "merged",
	[NUKSM_WINDOW_FILED]	= "filed",
	[NUKSM_WINDOW_JOINED]	= "joined",
	[NUKSM_WINDOW_MOVE]	= "move",
	[NUKSM_WINDOW_ISOLATED]	= "isolated",
	[NUKSM_WINDOW_UNMERGE]	= "unmerge",
	[NUKSM_WINDOW_LOOK]	= "look",
	[NUKSM_WINDOW_GLANCE]	= "glance",
	[NUKSM_WINDOW_REPLICA]	= "replica",
	[NUKSM_WINDOW_DRAW_IN]	= "draw_in",
	[NUKSM_WINDOW_FOLD]	= "fold",
	[NUKSM_WINDOW_DOMAIN]	= "domain",
	[NUKSM_WINDOW_OUTSIDERS] = "outsiders",
};

/* Microseconds, 0 for no delay. */
static u32 window_widths[NR_NUKSM_WINDOWS];

/**
 * nuksm_window - somebody else may come between here
 * @window: where this is
 *
 * Sleeps for a random time, up to the window's width.
 */
void nuksm_window(enum nuksm_window window)
{
	u32 width = READ_ONCE(window_widths[window]);

	if (width)
		fsleep(get_random_u32_below(width) + 1);
}

static int __init nuksm_windows_init(void)
{
	struct dentry *dir = debugfs_lookup("nuksm", NULL);
	struct dentry *windows = debugfs_create_dir("windows", dir);
	int i;

	dput(dir);
	for (i = 0; i < NR_NUKSM_WINDOWS; i++)
		debugfs_create_u32(window_names[i], 0600, windows,
				   &window_widths[i]);
	return 0;
}
late_initcall_sync(nuksm_windows_init);
