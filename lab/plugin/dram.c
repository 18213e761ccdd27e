// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin for QEMU's emulation that counts, for one tenant on each virtual
 * CPU, its programs' accesses to each node's memory that caches would not have
 * answered; or the kernel's there instead.
 *
 * Virtual CPU i is node i's only one. It has a small cache of its own, and its
 * node has a last-level cache; both hold data of all nodes' memory, as those
 * of real machines do. Caches start empty at a start mark. Not modelled:
 * fetching instructions, writing back, prefetching, and what a write on one
 * node does to the other nodes' caches (tenants share what nobody writes).
 *
 * Between a start and a stop mark (mark.h) every translated block of a program, or of the
 * kernel, carries callbacks. Outside, only marks do: at the first start and the last stop all
 * translated code is dropped, and translated anew with or without them.
 *
 * Arguments: out=FILE, to which each stop mark adds a line of JSON;
 * node=BASE+BYTES for each node, in order, the addresses being those that QEMU
 * reports; llc_kib= and llc_ways= of each node, l1_kib= and l1_ways= of each
 * virtual CPU; kernels=1 to count what kernels do, and not what programs do.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "mark.h"
#include "qemu_plugin_api.h"

#define MAX_NODES 16
#define NO_TENANT -1

/* Of one tenant, from its start mark on. */
struct counts {
	uint64_t instructions;
	uint64_t loads;
	uint64_t stores;
	uint64_t l1_misses;
	uint64_t node[MAX_NODES]; /* misses of the last-level cache */
	uint64_t elsewhere; /* the same, outside the nodes' memory */
};

struct vcpu {
	int tenant;
	struct counts counts;
	struct cache l1;
	struct cache llc;
};

struct node {
	uint64_t base;
	uint64_t bytes;
};

/* Of the interface. QEMU reads it before it calls anything. */
QEMU_PLUGIN_EXPORT int qemu_plugin_version = 1;

static qemu_plugin_id_t plugin;
static FILE *out;
static struct node nodes[MAX_NODES];
static unsigned int node_count;
static struct vcpu vcpus[MAX_NODES];
static unsigned int counting; /* virtual CPUs between marks */
static bool of_kernels; /* what is counted */
/* Each virtual CPU may have its own thread; all else here is one's own. */
static pthread_mutex_t marks = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void speak_its_version(void)
{
	if (qemu_plugin_read_memory_vaddr)
		qemu_plugin_version = 4;
}

__attribute__((format(printf, 1, 2))) static void complain(const char *format,
							   ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	qemu_plugin_outs(text);
	fprintf(stderr, "dram plugin: %s\n", text);
}

static void count_miss(struct counts *counts, uint64_t address)
{
	for (unsigned int node = 0; node < node_count; node++)
		if (address - nodes[node].base < nodes[node].bytes) {
			counts->node[node]++;
			return;
		}
	counts->elsewhere++;
}

static void on_access(unsigned int index, qemu_plugin_meminfo_t info,
		      uint64_t vaddr, void *data)
{
	struct vcpu *vcpu = &vcpus[index];
	struct qemu_plugin_hwaddr *where;
	uint64_t address;

	(void)data;
	if (vcpu->tenant == NO_TENANT)
		return;
	where = qemu_plugin_get_hwaddr(info, vaddr);
	if (!where || qemu_plugin_hwaddr_is_io(where))
		return;
	if (qemu_plugin_mem_is_store(info))
		vcpu->counts.stores++;
	else
		vcpu->counts.loads++;
	address = qemu_plugin_hwaddr_phys_addr(where);
	if (cache_access(&vcpu->l1, address >> LINE_SHIFT))
		return;
	vcpu->counts.l1_misses++;
	if (!cache_access(&vcpu->llc, address >> LINE_SHIFT))
		count_miss(&vcpu->counts, address);
}

static void on_block(unsigned int index, void *instructions)
{
	struct vcpu *vcpu = &vcpus[index];

	if (vcpu->tenant != NO_TENANT)
		vcpu->counts.instructions += (uintptr_t)instructions;
}

static void write_counts(unsigned int index)
{
	const struct counts *counts = &vcpus[index].counts;
	uint64_t local = counts->node[index], remote = 0;

	for (unsigned int node = 0; node < node_count; node++)
		remote += counts->node[node];
	remote -= local;
	fprintf(out,
		"{\"tenant\": %d, \"node\": %u, \"instructions\": %" PRIu64
		", \"loads\": %" PRIu64 ", \"stores\": %" PRIu64
		", \"l1_misses\": %" PRIu64 ", \"local\": %" PRIu64
		", \"remote\": %" PRIu64 ", \"elsewhere\": %" PRIu64
		", \"by_node\": [",
		vcpus[index].tenant, index, counts->instructions, counts->loads,
		counts->stores, counts->l1_misses, local, remote,
		counts->elsewhere);
	for (unsigned int node = 0; node < node_count; node++)
		fprintf(out, "%s%" PRIu64, node ? ", " : "", counts->node[node]);
	fprintf(out, "]}\n");
	fflush(out);
}

static void retranslate(qemu_plugin_id_t id);

static void start(unsigned int index, int tenant)
{
	struct vcpu *vcpu = &vcpus[index];

	if (vcpu->tenant != NO_TENANT) {
		complain("tenant %d starts where tenant %d has not stopped",
			 tenant, vcpu->tenant);
		return;
	}
	memset(&vcpu->counts, 0, sizeof(vcpu->counts));
	cache_clear(&vcpu->l1);
	cache_clear(&vcpu->llc);
	vcpu->tenant = tenant;
	if (!counting++)
		qemu_plugin_reset(plugin, retranslate);
}

static void stop(unsigned int index, int tenant)
{
	struct vcpu *vcpu = &vcpus[index];

	if (vcpu->tenant != tenant) {
		complain("tenant %d stops on node %u, where it did not start",
			 tenant, index);
		return;
	}
	write_counts(index);
	vcpu->tenant = NO_TENANT;
	if (!--counting)
		qemu_plugin_reset(plugin, retranslate);
}

static void on_mark(unsigned int index, void *data)
{
	uintptr_t number = (uintptr_t)data;
	int tenant = number >> 8;

	pthread_mutex_lock(&marks);
	if ((number & 0xff) == MARK_START)
		start(index, tenant);
	else
		stop(index, tenant);
	pthread_mutex_unlock(&marks);
}

static bool is_mark(const struct qemu_plugin_insn *insn, uint16_t *number)
{
	static const unsigned char nopl[] = { 0x0f, 0x1f, 0x80 };
	unsigned char code[MARK_BYTES];
	uint16_t magic;

	if (qemu_plugin_insn_size(insn) != MARK_BYTES)
		return false;
	if (qemu_plugin_version == 1)
		memcpy(code, qemu_plugin_insn_data(insn), MARK_BYTES);
	else
		qemu_plugin_insn_copy(insn, code, MARK_BYTES);
	if (memcmp(code, nopl, sizeof(nopl)))
		return false;
	memcpy(number, code + 3, sizeof(*number));
	memcpy(&magic, code + 5, sizeof(magic));
	return magic == MARK_MAGIC && *number >> 8 < MARK_TENANTS &&
	       (*number & 0xff) <= MARK_STOP;
}

/*
 * What kernels do is left out of programs' counts, a guest's kernel's work, too. How often
 * they are interrupted depends on how fast the emulator happens to be: this made up to 4 %
 * of a measured phase's instructions.
 */
static bool is_kernel(uint64_t vaddr)
{
	return vaddr >> 63;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	bool counted = counting && is_kernel(qemu_plugin_tb_vaddr(tb)) == of_kernels;
	size_t count = qemu_plugin_tb_n_insns(tb);
	uint16_t number;

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_mark(insn, &number))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
				(void *)(uintptr_t)number);
		if (counted)
			qemu_plugin_register_vcpu_mem_cb(
				insn, on_access, QEMU_PLUGIN_CB_NO_REGS,
				QEMU_PLUGIN_MEM_RW, NULL);
	}
	if (counted)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block,
						     QEMU_PLUGIN_CB_NO_REGS,
						     (void *)count);
}

/*
 * While an instruction's helper function runs, the virtual CPU points to that
 * instruction's callbacks. QEMU 7.2 leaves it so if the instruction ends a block,
 * as a return from an interrupt does. When translated code is dropped, the
 * callbacks are freed, and the next helper would call what is there then: QEMU
 * then stopped with "code should not be reached", in one boot of two.
 */
static void forget_dropped_callbacks(qemu_plugin_id_t id)
{
	(void)id;
	if (!qemu_get_cpu || !qemu_plugin_disable_mem_helpers)
		return;
	for (unsigned int i = 0; i < node_count; i++)
		qemu_plugin_disable_mem_helpers(qemu_get_cpu(i));
}

static void retranslate(qemu_plugin_id_t id)
{
	qemu_plugin_register_flush_cb(id, forget_dropped_callbacks);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

struct options {
	size_t l1_kib, l1_ways, llc_kib, llc_ways;
};

static bool add_node(const char *value)
{
	struct node *node = &nodes[node_count];

	return node_count < MAX_NODES &&
	       sscanf(value, "%" SCNu64 "+%" SCNu64, &node->base,
		      &node->bytes) == 2 &&
	       ++node_count;
}

static bool parse(const char *argument, struct options *options)
{
	char name[16], value[4096];

	if (sscanf(argument, "%15[^=]=%4095[^\n]", name, value) != 2)
		return false;
	if (!strcmp(name, "out"))
		return (out = fopen(value, "a"));
	if (!strcmp(name, "node"))
		return add_node(value);
	if (!strcmp(name, "l1_kib"))
		return (options->l1_kib = strtoul(value, NULL, 10));
	if (!strcmp(name, "l1_ways"))
		return (options->l1_ways = strtoul(value, NULL, 10));
	if (!strcmp(name, "llc_kib"))
		return (options->llc_kib = strtoul(value, NULL, 10));
	if (!strcmp(name, "llc_ways"))
		return (options->llc_ways = strtoul(value, NULL, 10));
	if (!strcmp(name, "kernels"))
		return (of_kernels = !strcmp(value, "1"));
	return false;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
					   const qemu_info_t *info, int argc,
					   char **argv)
{
	struct options options = { 32, 8, 1024, 16 };

	plugin = id;
	for (int i = 0; i < argc; i++)
		if (!parse(argv[i], &options)) {
			complain("bad argument '%s'", argv[i]);
			return -1;
		}
	if (!out || !info->system_emulation ||
	    info->system.smp_vcpus != (int)node_count) {
		complain("needs out=FILE, and node=BASE+BYTES for each CPU");
		return -1;
	}
	for (unsigned int i = 0; i < node_count; i++) {
		vcpus[i].tenant = NO_TENANT;
		if (!cache_create(&vcpus[i].l1, options.l1_kib << 10,
				  options.l1_ways) ||
		    !cache_create(&vcpus[i].llc, options.llc_kib << 10,
				  options.llc_ways)) {
			complain("a cache's sets must be a power of two");
			return -1;
		}
	}
	retranslate(id);
	return 0;
}
