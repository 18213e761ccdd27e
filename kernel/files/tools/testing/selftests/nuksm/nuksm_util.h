/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What nuKSM's selftests have in common: KSM's files, and processes whose pages
 * it merges.
 */
#ifndef _NUKSM_UTIL_H
#define _NUKSM_UTIL_H

#include <stddef.h>
#include <sys/types.h>

#define CHECKSUM_BITS	"/sys/kernel/debug/nuksm/checksum_bits"

/* Of each tenant: enough for shares to show, few enough for emulated machines. */
#define PAGES		1024L

/* Seconds for a test, on an emulated machine. */
#define TIMEOUT		300

/* A tenant may be wherever the scheduler and the default policy put it. */
#define ANYWHERE	(-1)

/**
 * struct tenant - a process with PAGES pages for KSM, no two of them equal
 * @pid: the process, or 0
 * @commands: pipe to it
 * @answers: pipe from it
 *
 * Page 5 of one tenant equals page 5 of any other.
 */
struct tenant {
	pid_t pid;
	int commands;
	int answers;
};

int file_write(const char *path, const char *value);
long file_number(const char *path);

int ksm_write(const char *name, const char *value);
long ksm_number(const char *name);
void ksm_choice(const char *name, char *chosen, size_t size);
void ksm_prepare(void);
void ksm_wait_scans(long scans);

void tenant_start(struct tenant *tenant, int node, int nice);
void tenant_stop(struct tenant *tenant);
long tenant_bad_pages(struct tenant *tenant);
long tenant_rewrite(struct tenant *tenant);
long tenant_pages_on(struct tenant *tenant, int node);
long tenant_stat(const struct tenant *tenant, const char *name);
void tenants_merge(const struct tenant *tenants, int count);

void skip_without_nuksm(void);

#endif /* _NUKSM_UTIL_H */
