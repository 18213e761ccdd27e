// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tenant: a process on one node with a given mix of pages, that does what
 * its control channel says and can tell at any time whether its content is
 * intact.
 *
 * It prints one line `ready KEY=VALUE…` when its pages are written. Then every
 * line it reads is a command, answered by exactly one line when it is done:
 * `ok KEY=VALUE…` or `error TEXT`. End of input is the same as `quit`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "churn.h"
#include "memory.h"
#include "node.h"
#include "split.h"

#define NAME_MAX_LENGTH 15 /* what the kernel keeps of a process name */
#define CHILD_WRITES 64

static const char *const class_name[CLASS_COUNT] = {
	[CLASS_EQUAL] = "equal",
	[CLASS_PRIVATE] = "private",
	[CLASS_ZERO] = "zero",
	[CLASS_CHANGING] = "changing",
	[CLASS_ALIKE] = "alike",
	[CLASS_SAME] = "same",
};

/**
 * struct options - the command line
 * @name: the process name, part of the private content
 * @mib: size of all pages together
 * @node: where CPUs and memory are bound; below 0 nowhere
 * @percent: share of each class; they sum to 100
 * @seed: makes the equal content
 * @distinct: of equal pages, after which they repeat; 0 if they never do
 * @mergeable: whether the pages are offered to KSM by madvise
 */
struct options {
	const char *name;
	size_t mib;
	int node;
	size_t percent[CLASS_COUNT];
	uint64_t seed;
	size_t distinct;
	bool mergeable;
};

__attribute__((format(printf, 1, 2), noreturn)) static void
fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("tenant: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(EXIT_FAILURE);
}

__attribute__((format(printf, 1, 2))) static void answer(const char *format,
							 ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

static unsigned long parse_number(const char *option, const char *text)
{
	unsigned long number;
	char *end;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *end || end == text || *text == '-')
		fail("--%s: '%s' is not a number", option, text);
	return number;
}

static struct options parse_options(int argc, char **argv)
{
	enum { OPTION_NAME = CLASS_COUNT, OPTION_MIB, OPTION_NODE, OPTION_SEED,
	       OPTION_DISTINCT, OPTION_NOT_MADVISED };
	static const struct option known[] = {
		{ "equal", required_argument, NULL, CLASS_EQUAL },
		{ "private", required_argument, NULL, CLASS_PRIVATE },
		{ "zero", required_argument, NULL, CLASS_ZERO },
		{ "changing", required_argument, NULL, CLASS_CHANGING },
		{ "alike", required_argument, NULL, CLASS_ALIKE },
		{ "same", required_argument, NULL, CLASS_SAME },
		{ "name", required_argument, NULL, OPTION_NAME },
		{ "mib", required_argument, NULL, OPTION_MIB },
		{ "node", required_argument, NULL, OPTION_NODE },
		{ "seed", required_argument, NULL, OPTION_SEED },
		{ "distinct", required_argument, NULL, OPTION_DISTINCT },
		{ "not-madvised", no_argument, NULL, OPTION_NOT_MADVISED },
		{ 0 },
	};
	struct options options = { .node = -1, .mergeable = true };
	size_t sum = 0;
	int option, index;

	while ((option = getopt_long(argc, argv, "", known, &index)) != -1) {
		if (option == '?')
			exit(EXIT_FAILURE);
		if (option == OPTION_NAME)
			options.name = optarg;
		else if (option == OPTION_NOT_MADVISED)
			options.mergeable = false;
		else if (option == OPTION_MIB)
			options.mib = parse_number("mib", optarg);
		else if (option == OPTION_NODE)
			options.node = (int)parse_number("node", optarg);
		else if (option == OPTION_SEED)
			options.seed = parse_number("seed", optarg);
		else if (option == OPTION_DISTINCT)
			options.distinct = parse_number("distinct", optarg);
		else
			options.percent[option] =
				parse_number(known[index].name, optarg);
	}
	for (int class = 0; class < CLASS_COUNT; class++)
		sum += options.percent[class];
	if (optind != argc)
		fail("'%s' is no option", argv[optind]);
	if (!options.name || !options.mib)
		fail("--name and --mib are needed");
	if (strlen(options.name) > NAME_MAX_LENGTH)
		fail("--name: at most %d characters", NAME_MAX_LENGTH);
	if (sum != 100)
		fail("the classes' shares sum to %zu, not 100", sum);
	return options;
}

static void bind_to_node(int node)
{
	int error = node_bind_cpus(node);

	if (error)
		fail("cannot bind to the CPUs of node %d: %s", node,
		     strerror(-error));
	error = node_bind_memory(node);
	if (error)
		fail("cannot bind memory to node %d: %s", node,
		     strerror(-error));
}

static void set_up(struct memory *memory, const struct options *options)
{
	size_t total = (options->mib << 20) / PAGE_BYTES;
	size_t left = total;
	int error;

	prctl(PR_SET_NAME, options->name);
	if (options->node >= 0)
		bind_to_node(options->node);

	memory->id.seed = options->seed;
	memory->id.distinct = options->distinct;
	memory->id.name_key = content_name_key(options->name, options->seed);
	for (int class = CLASS_COUNT - 1; class >= 0; class--) {
		struct pages *pages = &memory->class[class];

		pages->class = class;
		pages->count = total * options->percent[class] / 100;
		left -= pages->count;
	}
	/* What rounding leaves goes to the first class that was asked for. */
	for (int class = 0; class < CLASS_COUNT && left; class++)
		if (options->percent[class]) {
			memory->class[class].count += left;
			left = 0;
		}
	error = memory_map(memory, options->mergeable);
	if (error)
		fail("cannot set up %zu MiB: %s", options->mib,
		     strerror(-error));
}

static void announce(const struct memory *memory)
{
	printf("ready pid=%d", getpid());
	for (int class = 0; class < CLASS_COUNT; class++) {
		const struct pages *pages = &memory->class[class];

		printf(" %s=%zu %s_at=%lx", class_name[class], pages->count,
		       class_name[class], (unsigned long)pages->base);
	}
	answer("%s", "");
}

/* The child has the pages, but neither the channel nor the churning thread. */
__attribute__((noreturn)) static void child_main(struct memory *memory)
{
	int null = open("/dev/null", O_RDWR);
	size_t before, after;

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(null, STDOUT_FILENO) < 0)
		_exit(EXIT_FAILURE);
	memory_verify(memory, &before);
	memory_write(memory, CHILD_WRITES);
	memory_change(memory);
	memory_verify(memory, &after);
	_exit(before || after ? EXIT_FAILURE : EXIT_SUCCESS);
}

static void do_fork(struct memory *memory)
{
	int status;
	pid_t child;

	/* Held over the fork, or the child could inherit a half-written page. */
	memory_lock();
	child = fork();
	memory_unlock();
	if (child == 0)
		child_main(memory);
	if (child < 0)
		answer("error fork: %s", strerror(errno));
	else if (waitpid(child, &status, 0) != child)
		answer("error waitpid: %s", strerror(errno));
	else if (WIFSIGNALED(status))
		answer("error child killed by signal %d", WTERMSIG(status));
	else
		answer("ok child=%d bad=%d", child, WEXITSTATUS(status));
}

static void do_churn(struct memory *memory, const char *verb)
{
	size_t first, pages = 0;
	int error = -EINVAL;

	if (!strcmp(verb, "start"))
		error = churn_start(memory, CHURN_REWRITE, 0, 0);
	else if (!strcmp(verb, "read"))
		error = churn_start(memory, CHURN_READ, 0, 0);
	else if (sscanf(verb, "prefer:%zu,%zu", &first, &pages) == 2)
		error = churn_start(memory, CHURN_PREFER, first, pages);
	else if (!strcmp(verb, "stop"))
		error = churn_stop(&pages);
	if (error)
		answer("error churn %s: %s", verb, strerror(-error));
	else
		answer("ok pages=%zu", pages);
}

static void do_write(struct memory *memory, const char *text)
{
	char *end;
	size_t wanted = strtoul(text, &end, 10);

	if (*end || end == text)
		answer("error write: '%s' is not a number of pages", text);
	else
		answer("ok pages=%zu", memory_write(memory, wanted));
}

/* The time is taken here: it is short, and an answer's way is long. */
static void do_touch(struct memory *memory)
{
	struct timespec began, ended;
	size_t pages;

	clock_gettime(CLOCK_MONOTONIC, &began);
	pages = memory_touch(memory);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	answer("ok pages=%zu nanoseconds=%ld", pages,
	       (ended.tv_sec - began.tv_sec) * 1000000000L +
		       ended.tv_nsec - began.tv_nsec);
}

static void *errand(void *memory)
{
	static int cpu;

	memory_touch(memory);
	cpu = sched_getcpu();
	return &cpu;
}

/* A thread reads all pages and ends, on whichever CPU it is put; this one stays. */
static void do_errand(struct memory *memory)
{
	cpu_set_t own, all;
	pthread_t thread;
	void *cpu = NULL;
	int error;

	memset(&all, 0xff, sizeof(all));
	if (sched_getaffinity(0, sizeof(own), &own) ||
	    sched_setaffinity(0, sizeof(all), &all)) {
		answer("error errand: %s", strerror(errno));
		return;
	}
	error = pthread_create(&thread, NULL, errand, memory);
	if (sched_setaffinity(0, sizeof(own), &own) && !error)
		error = errno;
	if (!error)
		error = pthread_join(thread, &cpu);
	if (error)
		answer("error errand: %s", strerror(error));
	else
		answer("ok cpu=%d", *(int *)cpu);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* A thread is there from now on, that does nothing, on the CPUs of this one. */
static void do_wait(void)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, wait_for_ever, NULL);

	if (error)
		answer("error wait: %s", strerror(error));
	else
		answer("ok");
}

/* As `bind 0 100`: the first 100 equal pages have to be on node 0; `prefer`: if they can. */
static void do_bind(struct memory *memory, const char *node, bool strictly)
{
	const struct pages *equal = &memory->class[CLASS_EQUAL];
	const char *text = strtok(NULL, " \n");
	size_t pages = text ? strtoul(text, NULL, 10) : 0;
	int error;

	if (!pages || pages > equal->count) {
		answer("error bind: wants a node and how many equal pages");
		return;
	}
	error = node_bind_area(equal->base, pages * PAGE_BYTES, atoi(node), strictly);
	if (error)
		answer("error bind: %s", strerror(-error));
	else
		answer("ok pages=%zu", pages);
}

/* As `use write 10 3`: a tenth of the pages, chosen by the seed 3. */
static void do_use(struct memory *memory, const char *kind)
{
	const char *percent = strtok(NULL, " \n"), *seed = strtok(NULL, " \n");
	struct use use = { .write = !strcmp(kind, "write") };

	if (!seed || (!use.write && strcmp(kind, "read"))) {
		answer("error use: wants read or write, percent and seed");
		return;
	}
	use.percent = strtoul(percent, NULL, 10);
	use.seed = strtoul(seed, NULL, 10);
	answer("ok pages=%zu", memory_use(memory, &use));
}

/*
 * Puts the first equal pages themselves, not copies, into a pipe, as many as it
 * takes: they then outlive this process, until somebody reads or closes it.
 */
static void do_lend(struct memory *memory, const char *pipe_path)
{
	int pipe = open(pipe_path, O_WRONLY);
	struct iovec pages = { .iov_base = memory->class[CLASS_EQUAL].base };
	ssize_t lent;

	if (pipe < 0) {
		answer("error lend: %s: %s", pipe_path, strerror(errno));
		return;
	}
	pages.iov_len = memory->class[CLASS_EQUAL].count * PAGE_BYTES;
	lent = vmsplice(pipe, &pages, 1, SPLICE_F_NONBLOCK);
	if (lent < 0)
		answer("error lend: %s", strerror(errno));
	else
		answer("ok pages=%zd", lent / PAGE_BYTES);
	close(pipe);
}

/* Equal pages, by numbers with commas between, get what they have already. */
static void do_again(struct memory *memory, const char *list)
{
	size_t pages = 0;
	char *end;

	for (; *list; list = *end == ',' ? end + 1 : end) {
		size_t index = strtoul(list, &end, 10);

		if (end == list || (*end && *end != ',') ||
		    !memory_again(memory, index)) {
			answer("error again: '%s' begins with no page", list);
			return;
		}
		pages++;
	}
	answer("ok pages=%zu", pages);
}

/* Says that it does not need its equal pages' contents any more: they may be lost. */
static void do_free(struct memory *memory)
{
	const struct pages *pages = &memory->class[CLASS_EQUAL];

	if (madvise(pages->base, pages->count * PAGE_BYTES, MADV_FREE))
		answer("error free: %s", strerror(errno));
	else
		answer("ok pages=%zu", pages->count);
}

/*
 * As `take 1000 PATH`: takes so many pages more. The file says, as a number of 64 bits, how
 * many it has got, also to those who come when it was killed for them.
 */
static void do_take(const char *pages)
{
	const char *path = strtok(NULL, " \n");
	size_t wanted = strtoul(pages, NULL, 10);
	int error, file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
	volatile uint64_t *taken;

	if (file < 0 || ftruncate(file, sizeof(*taken))) {
		answer("error take: wants pages and a file");
		return;
	}
	taken = mmap(NULL, sizeof(*taken), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	error = taken == MAP_FAILED ? -errno : memory_take(wanted, taken);
	if (error)
		answer("error take: %s", strerror(-error));
	else
		answer("ok pages=%zu", wanted);
}

static void do_stack(struct memory *memory, const char *text)
{
	size_t wanted = strtoul(text, NULL, 10);
	size_t made = memory_stack(memory, wanted);

	if (made < wanted)
		answer("error stack: %zu of %zu areas: %s", made, wanted,
		       strerror(errno));
	else
		answer("ok areas=%zu", made);
}

/*
 * As `split 1500`, so many areas, `split collapse` or `split stay`, and then `split begin`; see
 * split.h.
 */
static void do_split(struct memory *memory, const char *areas)
{
	pid_t child;

	if (!strcmp(areas, "collapse")) {
		answer("ok huge=%d", split_collapse(memory));
		return;
	}
	if (!strcmp(areas, "stay"))
		child = split_stay();
	else if (!strcmp(areas, "begin"))
		child = split_begin();
	else
		child = split_prepare(memory, strtoul(areas, NULL, 10));
	if (child < 0)
		answer("error split: %s", strerror(-child));
	else
		answer("ok child=%d", child);
}

/* Returns false when the tenant is to end. */
static bool obey(struct memory *memory, char *line)
{
	char *command = strtok(line, " \n");
	char *argument = strtok(NULL, " \n");
	size_t pages, bad;

	if (!argument)
		argument = "";
	if (!command) {
		answer("error empty command");
	} else if (!strcmp(command, "verify")) {
		pages = memory_verify(memory, &bad);
		answer("ok pages=%zu bad=%zu", pages, bad);
	} else if (!strcmp(command, "touch")) {
		do_touch(memory);
	} else if (!strcmp(command, "errand")) {
		do_errand(memory);
	} else if (!strcmp(command, "wait")) {
		do_wait();
	} else if (!strcmp(command, "bind")) {
		do_bind(memory, argument, true);
	} else if (!strcmp(command, "prefer")) {
		do_bind(memory, argument, false);
	} else if (!strcmp(command, "use")) {
		do_use(memory, argument);
	} else if (!strcmp(command, "write")) {
		do_write(memory, argument);
	} else if (!strcmp(command, "again")) {
		do_again(memory, argument);
	} else if (!strcmp(command, "restore")) {
		answer("ok pages=%zu", memory_restore(memory));
	} else if (!strcmp(command, "change")) {
		answer("ok pages=%zu", memory_change(memory));
	} else if (!strcmp(command, "churn")) {
		do_churn(memory, argument);
	} else if (!strcmp(command, "fork")) {
		do_fork(memory);
	} else if (!strcmp(command, "lend")) {
		do_lend(memory, argument);
	} else if (!strcmp(command, "free")) {
		do_free(memory);
	} else if (!strcmp(command, "take")) {
		do_take(argument);
	} else if (!strcmp(command, "stack")) {
		do_stack(memory, argument);
	} else if (!strcmp(command, "split")) {
		do_split(memory, argument);
	} else if (!strcmp(command, "quit")) {
		answer("ok");
		return false;
	} else {
		answer("error '%s' is no command", command);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options options = parse_options(argc, argv);
	struct memory memory = { 0 };
	size_t capacity = 0, written;
	char *line = NULL;

	set_up(&memory, &options);
	announce(&memory);
	while (getline(&line, &capacity, stdin) > 0)
		if (!obey(&memory, line))
			break;
	/* The thread works on this function's memory: it has to end first. */
	churn_stop(&written);
	free(line);
	return EXIT_SUCCESS;
}
