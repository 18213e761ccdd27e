// SPDX-License-Identifier: GPL-2.0-only
/*
 * The smallest virtual machine there is, by KVM: one CPU in real mode, and a program
 * that writes one byte to each page when it is told to, or reads one of each page, again
 * and again. The host's page tables of this process say nothing of that.
 *
 *	small_vm FILE
 *
 * The machine's pages are filled with the file's first PAGES pages and given to KSM.
 * Says `ready`; for each line of its standard input, a number up to 255, has the machine
 * write that to byte AT of each page, and says `done`. After the number READS the machine
 * reads until the end of the input. At the end of the input it says how many of its pages
 * differ from the file in any other byte, and ends.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096UL
#define PAGES 64UL
#define AT 0x64
#define READS 256 /* bit 0 of ah, where numbers are in al */
#define FIRST 0x10000UL /* where they are in the machine; its program is at 0 */
#define TSS 0xfffbd000UL /* Intel's KVM wants three pages for itself */

static const unsigned char program[] = {
	0xe5, 0x10, /* 1: in ax, 0x10: waits for a number */
	0x88, 0xc3, /* mov bl, al */
	0x84, 0xe4, /* test ah, ah */
	0x75, 0x16, /* jnz 3f */
	0xb8, 0x00, FIRST >> 12, /* mov ax, FIRST >> 4 */
	0xb9, PAGES, 0x00, /* mov cx, PAGES */
	0x8e, 0xc0, /* 2: mov es, ax */
	0x26, 0x88, 0x1e, AT, 0x00, /* mov es:[AT], bl */
	0x05, 0x00, 0x01, /* add ax, 0x100: a page further */
	0xe2, 0xf4, /* loop 2b */
	0xe6, 0x10, /* out 0x10, al: says that it is done */
	0xeb, 0xe2, /* jmp 1b */
	0xb8, 0x00, FIRST >> 12, /* 3: mov ax, FIRST >> 4 */
	0xb9, PAGES, 0x00, /* mov cx, PAGES */
	0x8e, 0xc0, /* 4: mov es, ax */
	0x26, 0x8a, 0x1e, AT, 0x00, /* mov bl, es:[AT] */
	0x05, 0x00, 0x01, /* add ax, 0x100: a page further */
	0xe2, 0xf4, /* loop 4b */
	0xeb, 0xec, /* jmp 3b */
};

static void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static int checked(int result, const char *what)
{
	if (result < 0)
		fail(what);
	return result;
}

static unsigned char *mapped(size_t bytes, int flags, int file)
{
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

	if (area == MAP_FAILED)
		fail("small_vm: mmap");
	return area;
}

static void give_memory(int vm, unsigned int slot, unsigned long at, void *memory,
			size_t bytes)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.guest_phys_addr = at,
		.memory_size = bytes,
		.userspace_addr = (unsigned long)memory,
	};

	checked(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region),
		"small_vm: KVM_SET_USER_MEMORY_REGION");
}

static int make_cpu(int vm)
{
	int cpu = checked(ioctl(vm, KVM_CREATE_VCPU, 0), "small_vm: KVM_CREATE_VCPU");
	struct kvm_regs registers = { .rip = 0, .rflags = 2 };
	struct kvm_sregs special;

	checked(ioctl(cpu, KVM_GET_SREGS, &special), "small_vm: KVM_GET_SREGS");
	special.cs.base = special.cs.selector = 0;
	checked(ioctl(cpu, KVM_SET_SREGS, &special), "small_vm: KVM_SET_SREGS");
	checked(ioctl(cpu, KVM_SET_REGS, &registers), "small_vm: KVM_SET_REGS");
	return cpu;
}

/* Runs the machine to where it asks or tells; returns where the number is. */
static unsigned short *run(int cpu, struct kvm_run *state)
{
	checked(ioctl(cpu, KVM_RUN, 0), "small_vm: KVM_RUN");
	if (state->exit_reason != KVM_EXIT_IO) {
		fprintf(stderr, "small_vm: the machine stopped: %u\n",
			state->exit_reason);
		exit(EXIT_FAILURE);
	}
	return (unsigned short *)((unsigned char *)state + state->io.data_offset);
}

struct machine {
	int cpu;
	struct kvm_run *state;
};

/* It reads for ever: it ends with this process. */
static void *read_on(void *machine)
{
	const struct machine *reader = machine;

	run(reader->cpu, reader->state);
	return NULL;
}

static size_t wrong_pages(const unsigned char *memory, const unsigned char *contents)
{
	size_t wrong = 0;

	for (size_t at = 0; at < PAGES * PAGE_BYTES; at += PAGE_BYTES)
		wrong += memcmp(memory + at, contents + at, AT) ||
			 memcmp(memory + at + AT + 1, contents + at + AT + 1,
				PAGE_BYTES - AT - 1);
	return wrong;
}

int main(int argc, char **argv)
{
	unsigned char *code, *memory, *contents;
	int kvm, vm, file;
	struct machine machine;
	unsigned short *asked;
	unsigned int number;
	pthread_t reader;

	if (argc != 2) {
		fprintf(stderr, "usage: small_vm FILE\n");
		return EXIT_FAILURE;
	}
	file = checked(open(argv[1], O_RDONLY), argv[1]);
	contents = mapped(PAGES * PAGE_BYTES, MAP_PRIVATE, file);
	memory = mapped(PAGES * PAGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	code = mapped(PAGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memcpy(memory, contents, PAGES * PAGE_BYTES);
	memcpy(code, program, sizeof(program));
	checked(madvise(memory, PAGES * PAGE_BYTES, MADV_MERGEABLE),
		"small_vm: MADV_MERGEABLE");

	kvm = checked(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
	vm = checked(ioctl(kvm, KVM_CREATE_VM, 0), "small_vm: KVM_CREATE_VM");
	checked(ioctl(vm, KVM_SET_TSS_ADDR, TSS), "small_vm: KVM_SET_TSS_ADDR");
	give_memory(vm, 0, 0, code, PAGE_BYTES);
	give_memory(vm, 1, FIRST, memory, PAGES * PAGE_BYTES);
	machine.cpu = make_cpu(vm);
	machine.state = (struct kvm_run *)mapped(
		checked(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
			"small_vm: KVM_GET_VCPU_MMAP_SIZE"),
		MAP_SHARED, machine.cpu);

	asked = run(machine.cpu, machine.state);
	printf("ready\n");
	fflush(stdout);
	while (scanf("%u", &number) == 1) {
		*asked = number;
		if (number == READS) {
			if (pthread_create(&reader, NULL, read_on, &machine))
				fail("small_vm: pthread_create");
			while (getchar() != EOF)
				;
			break;
		}
		run(machine.cpu, machine.state);
		asked = run(machine.cpu, machine.state);
		printf("done\n");
		fflush(stdout);
	}
	printf("%zu wrong\n", wrong_pages(memory, contents));
	return EXIT_SUCCESS;
}
