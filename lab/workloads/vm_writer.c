// SPDX-License-Identifier: GPL-2.0-only
/*
 * The smallest virtual machine there is, by KVM: one CPU in real mode, and a program
 * that writes one byte to each page when it is told to. The host's page tables of this
 * process say nothing of that.
 *
 *	vm_writer FILE
 *
 * The machine's pages are filled with the file's first PAGES pages and given to KSM.
 * Says `ready`; for each line of its standard input, a number up to 255, has the machine
 * write that to byte AT of each page, and says `done`. At the end of the input it says
 * how many of its pages differ from the file in any other byte, and ends.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096UL
#define PAGES 64UL
#define AT 0x64
#define FIRST 0x10000UL /* where they are in the machine; its program is at 0 */
#define TSS 0xfffbd000UL /* Intel's KVM wants three pages for itself */

static const unsigned char program[] = {
	0xe4, 0x10, /* 1: in al, 0x10: waits for a number */
	0x88, 0xc3, /* mov bl, al */
	0xb8, 0x00, FIRST >> 12, /* mov ax, FIRST >> 4 */
	0xb9, PAGES, 0x00, /* mov cx, PAGES */
	0x8e, 0xc0, /* 2: mov es, ax */
	0x26, 0x88, 0x1e, AT, 0x00, /* mov es:[AT], bl */
	0x05, 0x00, 0x01, /* add ax, 0x100: a page further */
	0xe2, 0xf4, /* loop 2b */
	0xe6, 0x10, /* out 0x10, al: says that it is done */
	0xeb, 0xe6, /* jmp 1b */
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
		fail("vm_writer: mmap");
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
		"vm_writer: KVM_SET_USER_MEMORY_REGION");
}

static int make_cpu(int vm)
{
	int cpu = checked(ioctl(vm, KVM_CREATE_VCPU, 0), "vm_writer: KVM_CREATE_VCPU");
	struct kvm_regs registers = { .rip = 0, .rflags = 2 };
	struct kvm_sregs special;

	checked(ioctl(cpu, KVM_GET_SREGS, &special), "vm_writer: KVM_GET_SREGS");
	special.cs.base = special.cs.selector = 0;
	checked(ioctl(cpu, KVM_SET_SREGS, &special), "vm_writer: KVM_SET_SREGS");
	checked(ioctl(cpu, KVM_SET_REGS, &registers), "vm_writer: KVM_SET_REGS");
	return cpu;
}

/* Runs the machine to where it asks or tells; returns where the byte is. */
static unsigned char *run(int cpu, struct kvm_run *state)
{
	checked(ioctl(cpu, KVM_RUN, 0), "vm_writer: KVM_RUN");
	if (state->exit_reason != KVM_EXIT_IO) {
		fprintf(stderr, "vm_writer: the machine stopped: %u\n",
			state->exit_reason);
		exit(EXIT_FAILURE);
	}
	return (unsigned char *)state + state->io.data_offset;
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
	unsigned char *code, *memory, *contents, *asked;
	struct kvm_run *state;
	int kvm, vm, cpu, file;
	unsigned int number;

	if (argc != 2) {
		fprintf(stderr, "usage: vm_writer FILE\n");
		return EXIT_FAILURE;
	}
	file = checked(open(argv[1], O_RDONLY), argv[1]);
	contents = mapped(PAGES * PAGE_BYTES, MAP_PRIVATE, file);
	memory = mapped(PAGES * PAGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	code = mapped(PAGE_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memcpy(memory, contents, PAGES * PAGE_BYTES);
	memcpy(code, program, sizeof(program));
	checked(madvise(memory, PAGES * PAGE_BYTES, MADV_MERGEABLE),
		"vm_writer: MADV_MERGEABLE");

	kvm = checked(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
	vm = checked(ioctl(kvm, KVM_CREATE_VM, 0), "vm_writer: KVM_CREATE_VM");
	checked(ioctl(vm, KVM_SET_TSS_ADDR, TSS), "vm_writer: KVM_SET_TSS_ADDR");
	give_memory(vm, 0, 0, code, PAGE_BYTES);
	give_memory(vm, 1, FIRST, memory, PAGES * PAGE_BYTES);
	cpu = make_cpu(vm);
	state = (struct kvm_run *)mapped(
		checked(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
			"vm_writer: KVM_GET_VCPU_MMAP_SIZE"),
		MAP_SHARED, cpu);

	asked = run(cpu, state);
	printf("ready\n");
	fflush(stdout);
	while (scanf("%u", &number) == 1) {
		*asked = number;
		run(cpu, state);
		asked = run(cpu, state);
		printf("done\n");
		fflush(stdout);
	}
	printf("%zu wrong\n", wrong_pages(memory, contents));
	return EXIT_SUCCESS;
}
