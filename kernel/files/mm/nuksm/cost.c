// SPDX-License-Identifier: GPL-2.0-only
/*
 * What nuKSM's searching costs: the comparison of pages, and the counters.
 */

#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sched/cputime.h>
#include <linux/sysfs.h>

#include <asm/byteorder.h>

#include "nuksm.h"

struct nuksm_stats nuksm_stats;

/* Nanoseconds at which the scan that is going on began. */
static u64 scan_began_wall, scan_began_cpu;

#define WORDS	(PAGE_SIZE / sizeof(u64))

/*
 * Compares two pages. Returns the order, which is memcmp()'s: that of bytes;
 * *@compared is how many words it took.
 *
 * With index=content it is also memcmp()'s loop, so that this stays stock's
 * algorithm. With index=checksum most pages that meet here are equal, and their
 * words are compared four at a time.
 */
static int compare_words(const u64 *a, const u64 *b, unsigned int *compared)
{
	unsigned int i = 0;

	if (nuksm_by_checksum()) {
		while (i < WORDS &&
		       !((a[i] ^ b[i]) | (a[i + 1] ^ b[i + 1]) |
			 (a[i + 2] ^ b[i + 2]) | (a[i + 3] ^ b[i + 3])))
			i += 4;
	}
	/* Written to meanwhile, they may be equal by now */
	for (; i < WORDS; i++) {
		u64 word_a = READ_ONCE(a[i]), word_b = READ_ONCE(b[i]);

		if (word_a != word_b) {
			*compared = i + 1;
			return be64_to_cpu((__force __be64)word_a) <
			       be64_to_cpu((__force __be64)word_b) ? -1 : 1;
		}
	}
	*compared = WORDS;
	return 0;
}

/**
 * nuksm_compare_contents - compare two pages, as memcmp_pages() does
 * @page: that is searched for
 * @other: that is in the tree
 * @here: checksum of @page
 * @there: checksum of @other
 *
 * Counts what it looked at.
 *
 * Return: below, at or above 0.
 */
int nuksm_compare_contents(struct page *page, struct page *other, u32 here,
			   u32 there)
{
	const u64 *a, *b;
	unsigned int words;
	int ret;

	nuksm_window(NUKSM_WINDOW_SEARCH);
	a = kmap_local_page(page);
	b = kmap_local_page(other);
	ret = compare_words(a, b, &words);

	kunmap_local(b);
	kunmap_local(a);

	nuksm_count(&nuksm_stats.content_compares, 1);
	nuksm_count(&nuksm_stats.compared_bytes, words * sizeof(u64));
	if (ret && here == there)
		nuksm_count(&nuksm_stats.collisions, 1);
	/* There, pages whose memory has tags never are equal. */
	if (!ret && IS_ENABLED(CONFIG_ARM64_MTE))
		ret = memcmp_pages(page, other);
	return ret;
}

/** nuksm_scan_begins - ksmd begins a full scan */
void nuksm_scan_begins(void)
{
	scan_began_wall = ktime_get_ns();
	scan_began_cpu = task_sched_runtime(current);
}

/** nuksm_scan_ends - ksmd has finished a full scan */
void nuksm_scan_ends(void)
{
	WRITE_ONCE(nuksm_stats.last_scan_ms,
		   div_u64(ktime_get_ns() - scan_began_wall, NSEC_PER_MSEC));
	WRITE_ONCE(nuksm_stats.last_scan_cpu_ms,
		   div_u64(task_sched_runtime(current) - scan_began_cpu,
			   NSEC_PER_MSEC));
}

/**
 * nuksm_counter_show - read a file that shows a counter
 * @kobj: KSM's directory
 * @attr: of a struct nuksm_counter
 * @buf: to write to
 *
 * Return: the number of bytes written.
 */
ssize_t nuksm_counter_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	struct nuksm_counter *counter =
		container_of(attr, struct nuksm_counter, attr);

	return sysfs_emit(buf, "%lu\n", READ_ONCE(*counter->counter));
}

static NUKSM_COUNTER(checksum_compares, nuksm_stats.checksum_compares);
static NUKSM_COUNTER(content_compares, nuksm_stats.content_compares);
static NUKSM_COUNTER(compared_bytes, nuksm_stats.compared_bytes);
static NUKSM_COUNTER(collisions, nuksm_stats.collisions);
static NUKSM_COUNTER(replaced, nuksm_stats.replaced);
static NUKSM_COUNTER(summed, nuksm_stats.summed);
static NUKSM_COUNTER(last_scan_ms, nuksm_stats.last_scan_ms);
static NUKSM_COUNTER(last_scan_cpu_ms, nuksm_stats.last_scan_cpu_ms);

static struct attribute *cost_attrs[] = {
	&checksum_compares_counter.attr.attr,
	&content_compares_counter.attr.attr,
	&compared_bytes_counter.attr.attr,
	&collisions_counter.attr.attr,
	&replaced_counter.attr.attr,
	&summed_counter.attr.attr,
	&last_scan_ms_counter.attr.attr,
	&last_scan_cpu_ms_counter.attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_cost_attr_group = {
	.name = "ksm",
	.attrs = cost_attrs,
};
