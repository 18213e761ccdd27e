// SPDX-License-Identifier: GPL-2.0-only
/*
 * nuKSM's merge domains: pages are merged with those of the same domain alone.
 *
 * Who can write to a page, and see how long that takes, finds out whether it was merged:
 * what others have in memory, if it is merged with theirs. So those who do not trust
 * each other belong into different domains. Which one a process belongs to is for who
 * administers the machine to say, never for itself: it follows from its memory cgroup.
 */

#include <linux/cgroup.h>
#include <linux/kstrtox.h>
#include <linux/memcontrol.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/swap.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "nuksm.h"
#include "compat.h"

/*
 * Domain 0 is that of all whose cgroups were given none, unless each of those has its own.
 * Numbers that can be given to a cgroup end before the first one that is a cgroup's own.
 */
#define NUKSM_SHARED_DOMAIN	0
#define NUKSM_FIRST_OWN		BIT_ULL(32)

/* Set with the first cgroup that is given a domain. Until then nobody is asked for his. */
bool nuksm_has_domains;

/* Cgroups that were given no domain have their own. */
static bool nuksm_own_by_default;

/* None is used again: pages may be filed under it for some time after its cgroup is gone. */
static u64 nuksm_last_own = NUKSM_FIRST_OWN - 1;

/*
 * What cgroups were given, and what follows from it for their descendants: changed, and found
 * anew, under the lock. Who asks reads without, see domain_of_group().
 */
static DEFINE_SPINLOCK(nuksm_domains_lock);

/* How often what cgroups were given has changed, and one more: 0 is before all. */
static unsigned long nuksm_edition = 1;

static u64 own_domain(struct nuksm_group *group)
{
	if (!group->own)
		group->own = ++nuksm_last_own;
	return group->own;
}

/* From the nearest ancestor that was given one. */
static u64 look_up_domain(struct mem_cgroup *memcg)
{
	struct mem_cgroup *ancestor;

	for (ancestor = memcg; ancestor; ancestor = parent_mem_cgroup(ancestor)) {
		u32 asked = ancestor->nuksm.asked;

		if (asked == NUKSM_ASKED_OWN)
			return own_domain(&ancestor->nuksm);
		if (asked != NUKSM_ASKED_NONE)
			return asked - NUKSM_ASKED_NUMBER;
	}
	return nuksm_own_by_default ? own_domain(&memcg->nuksm) : NUKSM_SHARED_DOMAIN;
}

/*
 * Tenants make their cgroups as deep as they like: the ancestors are gone through once for
 * each change, and not for each page.
 */
static u64 domain_of_group(struct mem_cgroup *memcg)
{
	struct nuksm_group *group = &memcg->nuksm;
	unsigned long edition = READ_ONCE(nuksm_edition);
	u64 domain;

	/* Pairs with smp_store_release() below: the domain is that edition's, or a later one's */
	if (smp_load_acquire(&group->edition) == edition) {
		domain = READ_ONCE(group->domain);
		smp_rmb(); /* with the smp_wmb() below */
		if (READ_ONCE(group->edition) == edition)
			return domain;
	}
	spin_lock(&nuksm_domains_lock);
	domain = look_up_domain(memcg);
	WRITE_ONCE(group->edition, 0);
	smp_wmb(); /* who reads another domain reads another edition, too */
	WRITE_ONCE(group->domain, domain);
	/* Pairs with smp_load_acquire() above */
	smp_store_release(&group->edition, nuksm_edition);
	spin_unlock(&nuksm_domains_lock);
	return domain;
}

/**
 * nuksm_domain_of - the merge domain that a process belongs to now
 * @mm: of the process
 *
 * It is that of its memory cgroup, of the nearest ancestor that was given one.
 *
 * Return: the number of the domain; NUKSM_NO_DOMAIN where the last thread has ended, and
 * NUKSM_UNBORN where a fork is not done, and its thread is in the first cgroup yet.
 */
u64 nuksm_domain_of(struct mm_struct *mm)
{
	u64 domain = NUKSM_NO_DOMAIN;
	struct task_struct *owner;

	if (!READ_ONCE(nuksm_has_domains))
		return NUKSM_SHARED_DOMAIN;
	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	/* Pairs with wake_up_new_task(), which follows the fork's entering its cgroup */
	if (owner && smp_load_acquire(&owner->__state) & TASK_NEW)
		domain = NUKSM_UNBORN;
	else if (owner)
		domain = domain_of_group(mem_cgroup_from_task(owner));
	rcu_read_unlock();
	return domain;
}

/**
 * nuksm_forks_apart - are a process's merged pages copied when it forks?
 * @mm: of the process
 *
 * As it has changed its domain, and may have pages of the one that it left: they would be
 * with a child, and its children, for as long as there are forks. So may one that ksmd does
 * not know yet, if it was forked.
 *
 * Return: whether they are.
 */
bool nuksm_forks_apart(struct mm_struct *mm)
{
	/* Written by ksmd, plainly: what it is just leaving, it has not left before */
	struct nuksm_membership membership = data_race(mm->nuksm_membership);

	return READ_ONCE(nuksm_has_domains) &&
	       (!membership.known || membership.leaves ||
		membership.domain != nuksm_domain_of(mm));
}

/**
 * nuksm_is_settled - does a process belong to a domain, and did it when ksmd was there?
 * @mm: of the process
 * @domain: the number of the domain
 *
 * Return: whether it does, and has nothing that it might yet share in another one.
 */
bool nuksm_is_settled(struct mm_struct *mm, u64 domain)
{
	/* Written by ksmd, plainly: what is settled just now is settled with the next read */
	struct nuksm_membership membership = data_race(mm->nuksm_membership);

	if (!READ_ONCE(nuksm_has_domains))
		return domain == NUKSM_SHARED_DOMAIN;
	return membership.known && !membership.leaves && membership.domain == domain &&
	       nuksm_domain_of(mm) == domain;
}

struct nuksm_outsiders {
	struct mm_struct *mm;
	u64 domain;
	bool found;
};

/*
 * Does ksmd come to this area? Where it does not, nobody would see that the process
 * leaves; nor may it, where somebody is at work who perhaps takes the area from it. The
 * mmap_lock of @held is, by us.
 */
static bool is_visited(struct vm_area_struct *vma, const struct mm_struct *held)
{
	bool visited;

	if (vma->vm_mm != held && !mmap_read_trylock(vma->vm_mm))
		return false;
	/* A child that there was no memory for is not known, though its areas are mergeable */
	visited = (vma->vm_flags & VM_MERGEABLE) &&
		  mm_flags_test(MMF_VM_MERGEABLE, vma->vm_mm);
	if (vma->vm_mm != held)
		mmap_read_unlock(vma->vm_mm);
	return visited;
}

static bool is_outsider(struct folio *folio, struct vm_area_struct *vma,
			unsigned long addr, void *arg)
{
	/* Whose entry is just being changed has the page, too */
	DEFINE_FOLIO_VMA_WALK(pvmw, folio, vma, addr, PVMW_SYNC);
	struct nuksm_outsiders *outsiders = arg;

	if (outsiders->mm->nuksm_membership.areas-- < -NUKSM_PAGE_AREAS) {
		outsiders->found = true;
		return false;
	}
	if (is_visited(vma, outsiders->mm) &&
	    nuksm_domain_of(vma->vm_mm) == outsiders->domain)
		return true;
	while (page_vma_mapped_walk(&pvmw))
		outsiders->found = true;
	return !outsiders->found;
}

/*
 * The lock of all areas that may have the page that is being merged, from asking whether they
 * are visited until it is a merged page: whoever stops merging in his waits for that, and
 * un-merges it. Under ksm_thread_mutex.
 */
static struct anon_vma *nuksm_asked_areas;

/*
 * The page that was just asked about may not become a merged one, but may give way to one.
 * Under ksm_thread_mutex.
 */
bool nuksm_gives_way;

/**
 * nuksm_has_outsiders - has another domain a page, or somebody where ksmd never comes?
 * @folio: of the page, which is not merged
 * @mm: of the process whose page it is, and which pays for the areas that are looked at
 * @domain: the domain
 *
 * As a fork shares pages, and one of both may have gone elsewhere since. If not, that holds
 * until nuksm_has_asked().
 *
 * Context: the folio is locked; the process's mmap_lock for reading.
 *
 * Return: whether they have, or may have: of a merged page that is filed nowhere nobody knows,
 * nor of one that more have than may be asked, or that has a slot in swap which others have,
 * too. Of one that somebody holds, which cannot be merged anyway, nobody is asked.
 */
bool nuksm_has_outsiders(struct folio *folio, struct mm_struct *mm, u64 domain)
{
	struct nuksm_outsiders outsiders = {
		.mm = mm,
		.domain = domain,
	};
	struct rmap_walk_control rwc = {
		.rmap_one = is_outsider,
		.arg = &outsiders,
		.try_lock = true,
	};
	bool has_slot;

	nuksm_gives_way = false;
	if (!READ_ONCE(nuksm_has_domains))
		return false;
	/* Others may have it by its slot in swap, and not map it */
	has_slot = folio_test_swapcache(folio) && !folio_test_ksm(folio) &&
		   !folio_free_swap(folio);
	if (!has_slot && folio_mapcount(folio) < 2)
		return false;
	if (folio_test_ksm(folio) || nuksm_is_held(folio))
		return true;
	nuksm_gives_way = true;
	if (has_slot || mm->nuksm_membership.areas <= 0)
		return true;
	/*
	 * All who mapped it may be gone by now, and the anon_vma with them; and whoever has it
	 * locked is not waited for, see nuksm_lock_areas()
	 */
	nuksm_asked_areas = folio_lock_anon_vma_read(folio, &rwc);
	if (!nuksm_asked_areas)
		return true;
	rmap_walk_locked(folio, &rwc);
	nuksm_window(NUKSM_WINDOW_OUTSIDERS);
	nuksm_gives_way = outsiders.found;
	if (outsiders.found)
		nuksm_has_asked();
	return outsiders.found;
}

/**
 * nuksm_has_asked - a page is merged now, or will not be
 *
 * Its folio is still locked.
 */
void nuksm_has_asked(void)
{
	if (nuksm_asked_areas)
		anon_vma_unlock_read(nuksm_asked_areas);
	nuksm_asked_areas = NULL;
}

/**
 * nuksm_stop_merging - an area is about to be mergeable no more
 * @vma: the area
 *
 * What is being merged there is merged, and can be un-merged, when this returns. Nothing
 * else is, as nobody gets the mmap_lock to ask.
 *
 * Context: the mmap_lock for writing.
 */
void nuksm_stop_merging(struct vm_area_struct *vma)
{
	if (!READ_ONCE(nuksm_has_domains) || !vma->anon_vma)
		return;
	anon_vma_lock_write(vma->anon_vma);
	anon_vma_unlock_write(vma->anon_vma);
}

/*
 * Tenants are not to know who is kept apart from whom; nor is who got the file opened by
 * somebody else.
 */
static bool may_know(struct seq_file *m)
{
	return !security_capable(m->file->f_cred, &init_user_ns, CAP_SYS_ADMIN,
				 CAP_OPT_NOAUDIT);
}

/**
 * nuksm_show_domain - show a process's merge domain
 * @m: the process's ksm_stat
 * @mm: of the process; the caller keeps it in use
 *
 * And the one that it belonged to before, as long as some of its pages may be merged
 * there. To those who may administer the machine.
 */
void nuksm_show_domain(struct seq_file *m, struct mm_struct *mm)
{
	/* Written by ksmd, plainly */
	struct nuksm_membership membership = data_race(mm->nuksm_membership);
	u64 domain = nuksm_domain_of(mm);

	if (!may_know(m) || domain >= NUKSM_NO_DOMAIN)
		return;
	seq_printf(m, "ksm_domain %llu\n", domain);
	if (membership.leaves)
		seq_printf(m, "ksm_domain_left %llu\n", (u64)membership.left);
	else if (membership.known && membership.domain != domain)
		seq_printf(m, "ksm_domain_left %llu\n", (u64)membership.domain);
}

static int domain_show(struct seq_file *m, void *unused)
{
	u32 asked = READ_ONCE(mem_cgroup_from_seq(m)->nuksm.asked);

	if (!may_know(m))
		return -EPERM;
	if (asked == NUKSM_ASKED_NONE)
		seq_puts(m, "inherit\n");
	else if (asked == NUKSM_ASKED_OWN)
		seq_puts(m, "own\n");
	else
		seq_printf(m, "%u\n", asked - NUKSM_ASKED_NUMBER);
	return 0;
}

/*
 * Not for whoever the cgroup was delegated to: he could join others. Nor for who got the
 * file opened by somebody else.
 */
static ssize_t domain_write(struct kernfs_open_file *of, char *buf, size_t nbytes,
			    loff_t off)
{
	struct mem_cgroup *memcg = mem_cgroup_from_css(of_css(of));
	unsigned int number;
	u32 asked;
	int err;

	if (!file_ns_capable(of->file, &init_user_ns, CAP_SYS_ADMIN) ||
	    !ns_capable(&init_user_ns, CAP_SYS_ADMIN))
		return -EPERM;

	buf = strstrip(buf);
	if (!strcmp(buf, "inherit")) {
		asked = NUKSM_ASKED_NONE;
	} else if (!strcmp(buf, "own")) {
		asked = NUKSM_ASKED_OWN;
	} else {
		err = kstrtouint(buf, 10, &number);
		if (err)
			return err;
		if (number > INT_MAX)
			return -ERANGE;
		asked = NUKSM_ASKED_NUMBER + number;
	}
	spin_lock(&nuksm_domains_lock);
	WRITE_ONCE(memcg->nuksm.asked, asked);
	WRITE_ONCE(nuksm_edition, nuksm_edition + 1);
	spin_unlock(&nuksm_domains_lock);
	WRITE_ONCE(nuksm_has_domains, true);
	return nbytes;
}

static struct cftype domain_files[] = {
	{
		.name = "ksm_domain",
		.flags = CFTYPE_NOT_ON_ROOT,
		.seq_show = domain_show,
		.write = domain_write,
	},
	{ }
};

static ssize_t default_domain_show(struct kobject *kobj, struct kobj_attribute *attr,
				   char *buf)
{
	return sysfs_emit(buf, READ_ONCE(nuksm_own_by_default) ? "shared [own]\n" :
								 "[shared] own\n");
}

static ssize_t default_domain_store(struct kobject *kobj, struct kobj_attribute *attr,
				    const char *buf, size_t count)
{
	bool own = sysfs_streq(buf, "own");

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!own && !sysfs_streq(buf, "shared"))
		return -EINVAL;
	if (own && mem_cgroup_disabled())
		return -EOPNOTSUPP;
	spin_lock(&nuksm_domains_lock);
	WRITE_ONCE(nuksm_own_by_default, own);
	WRITE_ONCE(nuksm_edition, nuksm_edition + 1);
	spin_unlock(&nuksm_domains_lock);
	if (own)
		WRITE_ONCE(nuksm_has_domains, true);
	return count;
}

static struct kobj_attribute default_domain_attr = __ATTR_RW(default_domain);

unsigned long nuksm_domain_unmerged;
static NUKSM_COUNTER(domain_unmerged, nuksm_domain_unmerged);

static struct attribute *domains_attrs[] = {
	&default_domain_attr.attr,
	&domain_unmerged_counter.attr.attr,
	NULL,
};

/* Merged into KSM's own directory, /sys/kernel/mm/ksm. */
const struct attribute_group nuksm_domains_attr_group = {
	.name = "ksm",
	.attrs = domains_attrs,
};

static int __init nuksm_domains_init(void)
{
	if (cgroup_add_dfl_cftypes(&memory_cgrp_subsys, domain_files))
		pr_err("ksm: register memory.ksm_domain failed\n");
	return 0;
}
late_initcall(nuksm_domains_init);
