// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's placement: its knobs and counters in /sys/kernel/mm/ksm.
 */

#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "nuksm.h"

static const char * const placement_names[NR_NUKSM_PLACEMENTS] = {
	[NUKSM_FIRST]		= "first",
	[NUKSM_FAIR]		= "fair",
	[NUKSM_PRIORITY]	= "priority",
};

static ssize_t placement_show(struct kobject *kobj,
			      struct kobj_attribute *attr, char *buf)
{
	enum nuksm_placement current_placement = READ_ONCE(nuksm_placement);
	ssize_t len = 0;
	int i;

	for (i = 0; i < NR_NUKSM_PLACEMENTS; i++)
		len += sysfs_emit_at(buf, len,
				     i == current_placement ? "%s[%s]" : "%s%s",
				     i ? " " : "", placement_names[i]);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t placement_store(struct kobject *kobj,
			       struct kobj_attribute *attr,
			       const char *buf, size_t count)
{
	int placement = sysfs_match_string(placement_names, buf);

	if (placement < 0)
		return placement;
	if (placement == READ_ONCE(nuksm_placement))
		return count;
	WRITE_ONCE(nuksm_placement, placement);
	WRITE_ONCE(nuksm_replaces, 1);
	return count;
}

static ssize_t look_cpu_permille_show(struct kobject *kobj,
				      struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_look_permille));
}

/* A number up to @most. */
static int parse(const char *buf, unsigned int most, unsigned int *value)
{
	int err = kstrtouint(buf, 10, value);

	return err ?: *value > most ? -EINVAL : 0;
}

static ssize_t look_cpu_permille_store(struct kobject *kobj,
				       struct kobj_attribute *attr,
				       const char *buf, size_t count)
{
	unsigned int permille;
	int err = parse(buf, 1000, &permille);

	if (err)
		return err;
	WRITE_ONCE(nuksm_look_permille, permille);
	wake_up_interruptible(&nuksm_look_wait);
	return count;
}

static ssize_t replica_percent_show(struct kobject *kobj,
				    struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(nuksm_replica_percent));
}

static ssize_t replica_percent_store(struct kobject *kobj,
				     struct kobj_attribute *attr,
				     const char *buf, size_t count)
{
	unsigned int percent;
	int err = parse(buf, 100, &percent);

	if (err)
		return err;
	WRITE_ONCE(nuksm_replica_percent, percent);
	return count;
}

#define STATS	nuksm_placement_stats

static NUKSM_COUNTER(placed_hot, STATS.placed[NUKSM_BY_HEAT]);
static NUKSM_COUNTER(placed_spread, STATS.placed[NUKSM_BY_SPREAD]);
static NUKSM_COUNTER(placed_priority, STATS.placed[NUKSM_BY_PRIORITY]);
static NUKSM_COUNTER(placed_no_room, STATS.placed[NUKSM_NO_ROOM]);
static NUKSM_COUNTER(migrated, STATS.migrated);
static NUKSM_COUNTER(migrate_refused, STATS.migrate_refused);
static NUKSM_COUNTER(migrate_unshared, STATS.unshared);
static NUKSM_COUNTER(looks, nuksm_look_stats.looks);
static NUKSM_COUNTER(look_cpu_us, nuksm_look_stats.cpu_us);
static NUKSM_COUNTER(look_round_ms, nuksm_look_stats.round_ms);
static NUKSM_COUNTER(used_local, nuksm_look_stats.used_local);
static NUKSM_COUNTER(used_remote, nuksm_look_stats.used_remote);
static NUKSM_COUNTER(replicas_made, nuksm_replica_stats.made);
static NUKSM_COUNTER(replicas_folded, nuksm_replica_stats.folded);
static NUKSM_COUNTER(replicas_refused, nuksm_replica_stats.refused);
static NUKSM_COUNTER(replica_glance_ms, nuksm_replica_stats.glance_ms);

/* The nodes that have any, as in numa_maps: N0=123 N1=456 */
static ssize_t show_by_node(char *buf, size_t offset)
{
	ssize_t len = 0;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++) {
		atomic_long_t *counter = (void *)&nuksm_node_counts[nid] + offset;
		long count = atomic_long_read(counter);

		if (count > 0)
			len += sysfs_emit_at(buf, len, "%sN%d=%ld",
					     len ? " " : "", nid, count);
	}
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t pages_shared_by_node_show(struct kobject *kobj,
					 struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, shared));
}

static ssize_t pages_sharing_by_node_show(struct kobject *kobj,
					  struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, sharing));
}

static ssize_t replicas_by_node_show(struct kobject *kobj,
				     struct kobj_attribute *attr, char *buf)
{
	return show_by_node(buf, offsetof(struct nuksm_node_count, replicas));
}

static struct kobj_attribute placement_attr = __ATTR_RW(placement);
static struct kobj_attribute replica_percent_attr = __ATTR_RW(replica_percent);
/* For root, as counters are */
static struct kobj_attribute replicas_by_node_attr =
	__ATTR(replicas_by_node, 0400, replicas_by_node_show, NULL);
static struct kobj_attribute look_cpu_permille_attr = __ATTR_RW(look_cpu_permille);
static struct kobj_attribute pages_shared_by_node_attr =
	__ATTR_RO(pages_shared_by_node);
static struct kobj_attribute pages_sharing_by_node_attr =
	__ATTR_RO(pages_sharing_by_node);

static struct attribute *placement_attrs[] = {
	&placement_attr.attr,
	&placed_hot_counter.attr.attr,
	&placed_spread_counter.attr.attr,
	&placed_priority_counter.attr.attr,
	&placed_no_room_counter.attr.attr,
	&migrated_counter.attr.attr,
	&migrate_refused_counter.attr.attr,
	&migrate_unshared_counter.attr.attr,
	&look_cpu_permille_attr.attr,
	&looks_counter.attr.attr,
	&look_cpu_us_counter.attr.attr,
	&look_round_ms_counter.attr.attr,
	&used_local_counter.attr.attr,
	&used_remote_counter.attr.attr,
	&replica_percent_attr.attr,
	&replicas_made_counter.attr.attr,
	&replicas_folded_counter.attr.attr,
	&replicas_refused_counter.attr.attr,
	&replica_glance_ms_counter.attr.attr,
	&replicas_by_node_attr.attr,
	&pages_shared_by_node_attr.attr,
	&pages_sharing_by_node_attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_placement_attr_group = {
	.name = "ksm",
	.attrs = placement_attrs,
};
