// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's index: a forest of stable and a forest of unstable trees.
 *
 * The tree that holds a page is chosen by the checksum of its content (nuKSM,
 * PACT 2021, section IV-C), one tree of each kind per kib_per_tree KiB of
 * memory, so that trees stay as shallow on a large machine as on a small one.
 * Inside a tree the order is by (checksum, content): a level costs comparing
 * two integers, and contents are compared only where these are equal.
 *
 * Equal checksums never decide that two pages are equal: mm/ksm.c compares
 * their contents, once more after write-protecting both. A collision costs a
 * comparison.
 */

#include <linux/debugfs.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sysfs.h>

#include "nuksm.h"

/* One tree until KSM is started and nuksm_fit_forest() allocates a forest. */
struct nuksm_index nuksm_index = {
	.kib_per_tree = 16,
	.trees = 1,
	.by_checksum = true,
	.checksum_mask = U32_MAX,
};

u64 nuksm_seed;

bool nuksm_read_all;

/**
 * nuksm_trees_wanted - how many trees of each kind there should be
 * @kib_per_tree: KiB of memory per tree; 0 for one tree, whatever the memory
 *
 * Return: the number, over all nodes, with the memory of today.
 */
unsigned int nuksm_trees_wanted(unsigned int kib_per_tree)
{
	u64 kib = (u64)totalram_pages() << (PAGE_SHIFT - 10);

	if (!kib_per_tree)
		return 1;
	return clamp_t(u64, div_u64(kib, kib_per_tree), 1, INT_MAX / 2);
}

static ssize_t index_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, READ_ONCE(nuksm_index.by_checksum) ?
			  "content [checksum]\n" : "[content] checksum\n");
}

static ssize_t index_store(struct kobject *kobj, struct kobj_attribute *attr,
			   const char *buf, size_t count)
{
	bool by_checksum = sysfs_streq(buf, "checksum");
	int err;

	if (!by_checksum && !sysfs_streq(buf, "content"))
		return -EINVAL;
	err = ksm_reindex(NUKSM_SET_ORDER, by_checksum);
	return err ? err : count;
}

static ssize_t kib_per_tree_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_index.kib_per_tree));
}

static ssize_t kib_per_tree_store(struct kobject *kobj,
				  struct kobj_attribute *attr,
				  const char *buf, size_t count)
{
	unsigned int kib;
	int err;

	err = kstrtouint(buf, 10, &kib);
	if (err)
		return err;
	err = ksm_reindex(NUKSM_SET_KIB_PER_TREE, kib);
	return err ? err : count;
}

static ssize_t trees_show(struct kobject *kobj, struct kobj_attribute *attr,
			  char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_index.trees));
}

static struct kobj_attribute index_attr = __ATTR_RW(index);
static struct kobj_attribute kib_per_tree_attr = __ATTR_RW(kib_per_tree);
static struct kobj_attribute trees_attr = __ATTR_RO(trees);

static struct attribute *index_attrs[] = {
	&index_attr.attr,
	&kib_per_tree_attr.attr,
	&trees_attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_index_attr_group = {
	.name = "ksm",
	.attrs = index_attrs,
};

/*
 * For tests: how many bits a checksum has. With few, pages of different content
 * collide, which they else do once in 2^32.
 */
static int checksum_bits_get(void *data, u64 *bits)
{
	*bits = hweight32(READ_ONCE(nuksm_index.checksum_mask));
	return 0;
}

static int checksum_bits_set(void *data, u64 bits)
{
	if (bits > 32)
		return -EINVAL;
	return ksm_reindex(NUKSM_SET_CHECKSUM_MASK,
			   bits ? GENMASK(bits - 1, 0) : 0);
}

DEFINE_DEBUGFS_ATTRIBUTE(checksum_bits_fops, checksum_bits_get,
			 checksum_bits_set, "%llu\n");

static int __init nuksm_debugfs_init(void)
{
	struct dentry *dir = debugfs_create_dir("nuksm", NULL);

	debugfs_create_file("checksum_bits", 0600, dir, NULL,
			    &checksum_bits_fops);
	debugfs_create_bool("read_all", 0600, dir, &nuksm_read_all);
	return 0;
}
late_initcall(nuksm_debugfs_init);
