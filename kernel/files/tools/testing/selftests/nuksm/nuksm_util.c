// SPDX-License-Identifier: GPL-2.0-only
/*
 * What nuKSM's selftests have in common. Whatever goes wrong here ends the test
 * with a message: the tests themselves are about nuKSM only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <linux/types.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "../kselftest.h"
#include "nuksm_util.h"

#define KSM		"/sys/kernel/mm/ksm/"

/* Seconds that whatever is waited for may take. */
#define PATIENCE	120

enum command {
	VERIFY,
	REWRITE,
	COUNT_ON_NODE,
};

struct request {
	enum command command;
	int node;
};

/* What the tests write to, and so restore; in an order that KSM accepts. */
static struct setting {
	const char *name;
	char value[64];
} settings[] = {
	{ "max_page_sharing" },
	{ "merge_across_nodes" },
	{ "pages_to_scan" },
	{ "sleep_millisecs" },
	{ "smart_scan" },
	{ "use_zero_pages" },
	{ "index" },
	{ "kib_per_tree" },
	{ "placement" },
	{ "run" },
};

static ssize_t file_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t length;

	if (fd < 0)
		return -1;
	length = read(fd, text, size - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return length;
}

/* Returns 0, or what the kernel answered: -EINVAL, -EBUSY. */
int file_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		err = -errno;
	close(fd);
	return err;
}

long file_number(const char *path)
{
	char text[64];

	if (file_read(path, text, sizeof(text)) < 0)
		ksft_exit_fail_msg("cannot read %s: %m\n", path);
	return strtol(text, NULL, 10);
}

static void ksm_path(char *path, const char *name)
{
	snprintf(path, PATH_MAX, KSM "%s", name);
}

int ksm_write(const char *name, const char *value)
{
	char path[PATH_MAX];

	ksm_path(path, name);
	return file_write(path, value);
}

long ksm_number(const char *name)
{
	char path[PATH_MAX];

	ksm_path(path, name);
	return file_number(path);
}

/* The value of a file, or of several to choose from the one in brackets. */
void ksm_choice(const char *name, char *chosen, size_t size)
{
	char path[PATH_MAX], text[256];
	char *start, *end;

	ksm_path(path, name);
	if (file_read(path, text, sizeof(text)) < 0)
		ksft_exit_fail_msg("cannot read %s: %m\n", path);
	start = strchr(text, '[');
	start = start ? start + 1 : text;
	end = start + strcspn(start, "]\n");
	snprintf(chosen, size, "%.*s", (int)(end - start), start);
}

static void ksm_set(const char *name, const char *value)
{
	int err = ksm_write(name, value);

	if (err)
		ksft_exit_fail_msg("cannot write %s to %s: %s\n", value, name,
				   strerror(-err));
}

static void forget_all_pages(void)
{
	ksm_write("run", "2");
	if (!access(CHECKSUM_BITS, F_OK))
		file_write(CHECKSUM_BITS, "32");
}

/* Nothing merged, nothing tracked, all pages looked at in every quick scan. */
void ksm_prepare(void)
{
	forget_all_pages();
	ksm_set("max_page_sharing", "256");
	ksm_set("merge_across_nodes", "1");
	ksm_set("pages_to_scan", "20000");
	ksm_set("sleep_millisecs", "10");
	ksm_set("smart_scan", "0");
	ksm_set("use_zero_pages", "0");
}

/* The process that saved them, not one forked from it. */
static pid_t restorer;

static void ksm_restore(void)
{
	size_t i;

	if (getpid() != restorer)
		return;
	forget_all_pages();
	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (settings[i].value[0] &&
		    ksm_write(settings[i].name, settings[i].value))
			ksft_print_msg("cannot set %s to %s again\n",
				       settings[i].name, settings[i].value);
	}
}

static void ksm_save(void)
{
	char path[PATH_MAX];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		ksm_path(path, settings[i].name);
		if (!access(path, F_OK))
			ksm_choice(settings[i].name, settings[i].value,
				   sizeof(settings[i].value));
	}
}

/* Call first. Skips all tests, or sees to it that KSM's settings come back. */
void skip_without_nuksm(void)
{
	if (geteuid())
		ksft_exit_skip("needs root\n");
	if (access(KSM, F_OK))
		ksft_exit_skip("this kernel has no KSM\n");
	if (access(KSM "index", F_OK))
		ksft_exit_skip("this kernel has no nuKSM\n");
	ksm_save();
	restorer = getpid();
	atexit(ksm_restore);
}

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Lets others run before the caller looks again; gives up some day. */
static void poll_again(time_t start, const char *what)
{
	const struct timespec interval = { .tv_nsec = 5 * 1000 * 1000 };

	if (seconds() - start > PATIENCE)
		ksft_exit_fail_msg("not within %d s: %s\n", PATIENCE, what);
	nanosleep(&interval, NULL);
}

void ksm_wait_scans(long scans)
{
	long goal = ksm_number("full_scans") + scans;
	time_t start = seconds();

	while (ksm_number("full_scans") < goal)
		poll_again(start, "full scans");
}

static __u64 word_of(size_t page, size_t word, __u64 seed)
{
	return (seed * PAGES + page + 1) * 0x9e3779b97f4a7c15ULL + word;
}

static void fill(__u64 *memory, size_t words, __u64 seed)
{
	size_t page, word;

	for (page = 0; page < PAGES; page++)
		for (word = 0; word < words; word++)
			memory[page * words + word] = word_of(page, word, seed);
}

static long count_bad(const __u64 *memory, size_t words, __u64 seed)
{
	size_t page, word;
	long bad = 0;

	for (page = 0; page < PAGES; page++) {
		for (word = 0; word < words; word++) {
			if (memory[page * words + word] !=
			    word_of(page, word, seed)) {
				bad++;
				break;
			}
		}
	}
	return bad;
}

/* By the page tables: without a target, move_pages() tells where pages are. */
static long count_on(const __u64 *memory, size_t words, int node)
{
	static const void *addresses[PAGES];
	static int nodes[PAGES];
	long count = 0;
	size_t page;

	for (page = 0; page < PAGES; page++)
		addresses[page] = memory + page * words;
	if (syscall(__NR_move_pages, 0, PAGES, addresses, NULL, nodes, 0))
		ksft_exit_fail_msg("move_pages: %m\n");
	for (page = 0; page < PAGES; page++)
		count += nodes[page] == node;
	return count;
}

static __u64 *mergeable_memory(size_t size, int node)
{
	unsigned long mask[16] = {};
	__u64 *memory;

	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		ksft_exit_fail_msg("mmap: %m\n");
	/* EINVAL: this kernel has no huge pages. */
	if (madvise(memory, size, MADV_NOHUGEPAGE) && errno != EINVAL)
		ksft_exit_fail_msg("MADV_NOHUGEPAGE: %m\n");
	if (node != ANYWHERE) {
		mask[node / (8 * sizeof(long))] = 1UL << node % (8 * sizeof(long));
		if (syscall(__NR_mbind, memory, size, MPOL_BIND, mask,
			    8 * sizeof(mask), 0))
			ksft_exit_fail_msg("mbind to node %d: %m\n", node);
	}
	if (madvise(memory, size, MADV_MERGEABLE))
		ksft_exit_fail_msg("MADV_MERGEABLE: %m\n");
	return memory;
}

static void answer(int answers, long value)
{
	if (write(answers, &value, sizeof(value)) != sizeof(value))
		_exit(KSFT_FAIL);
}

static void live(int commands, int answers, int node, int nice)
{
	size_t page_size = sysconf(_SC_PAGESIZE);
	size_t words = page_size / sizeof(__u64);
	__u64 *memory = mergeable_memory(PAGES * page_size, node);
	struct request request;
	__u64 seed = 1;

	if (setpriority(PRIO_PROCESS, 0, nice))
		ksft_exit_fail_msg("setpriority: %m\n");
	fill(memory, words, seed);
	answer(answers, 0);

	while (read(commands, &request, sizeof(request)) == sizeof(request)) {
		switch (request.command) {
		case VERIFY:
			answer(answers, count_bad(memory, words, seed));
			break;
		case REWRITE:
			seed++;
			fill(memory, words, seed);
			answer(answers, 0);
			break;
		case COUNT_ON_NODE:
			answer(answers, count_on(memory, words, request.node));
			break;
		}
	}
}

static long hear(struct tenant *tenant)
{
	long value;

	if (read(tenant->answers, &value, sizeof(value)) != sizeof(value))
		ksft_exit_fail_msg("a tenant is gone\n");
	return value;
}

static long ask(struct tenant *tenant, enum command command, int node)
{
	struct request request = { .command = command, .node = node };

	if (write(tenant->commands, &request, sizeof(request)) != sizeof(request))
		ksft_exit_fail_msg("a tenant does not listen\n");
	return hear(tenant);
}

/* Returns when all of its pages are written. It ends with the test. */
void tenant_start(struct tenant *tenant, int node, int nice)
{
	int commands[2], answers[2];

	if (pipe2(commands, O_CLOEXEC) || pipe2(answers, O_CLOEXEC))
		ksft_exit_fail_msg("pipe: %m\n");
	tenant->pid = fork();
	if (tenant->pid < 0)
		ksft_exit_fail_msg("fork: %m\n");
	if (!tenant->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(commands[1]);
		close(answers[0]);
		live(commands[0], answers[1], node, nice);
		_exit(0);
	}
	close(commands[0]);
	close(answers[1]);
	tenant->commands = commands[1];
	tenant->answers = answers[0];
	hear(tenant);
}

void tenant_stop(struct tenant *tenant)
{
	if (!tenant->pid)
		return;
	kill(tenant->pid, SIGKILL);
	waitpid(tenant->pid, NULL, 0);
	close(tenant->commands);
	close(tenant->answers);
	tenant->pid = 0;
}

/* Reads every word of every page. */
long tenant_bad_pages(struct tenant *tenant)
{
	return ask(tenant, VERIFY, 0);
}

/* Gives every page other contents. */
long tenant_rewrite(struct tenant *tenant)
{
	return ask(tenant, REWRITE, 0);
}

long tenant_pages_on(struct tenant *tenant, int node)
{
	return ask(tenant, COUNT_ON_NODE, node);
}

/* A line of its ksm_stat. */
long tenant_stat(const struct tenant *tenant, const char *name)
{
	char path[PATH_MAX], text[1024];
	const char *line;

	snprintf(path, sizeof(path), "/proc/%d/ksm_stat", tenant->pid);
	if (file_read(path, text, sizeof(text)) < 0)
		ksft_exit_fail_msg("cannot read %s: %m\n", path);
	line = strstr(text, name);
	if (!line)
		ksft_exit_fail_msg("%s has no %s\n", path, name);
	return strtol(line + strlen(name), NULL, 10);
}

/* Scans until all pages of all of them are merged, and once more. */
void tenants_merge(const struct tenant *tenants, int count)
{
	time_t start = seconds();
	int i;

	ksm_set("run", "1");
	for (i = 0; i < count; i++)
		while (tenant_stat(tenants + i, "ksm_merging_pages") < PAGES)
			poll_again(start, "all pages merged");
	ksm_wait_scans(2);
}
