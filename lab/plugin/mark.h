/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a program tells the plugin that its measured phase starts or stops: an
 * instruction that does nothing, neither here nor on any other machine, and
 * that needs no privilege, so that it also works in a guest of a guest:
 *
 *	nopl 0x6e6bTTOO(%rax)	TT: number of the tenant, OO: 0 start, 1 stop
 *
 * The number is part of the instruction, so there is one for each tenant.
 */
#ifndef PLUGIN_MARK_H
#define PLUGIN_MARK_H

#define MARK_MAGIC 0x6e6b
#define MARK_TENANTS 16
#define MARK_BYTES 7

enum mark { MARK_START, MARK_STOP };

/* Each entry is the instruction and a return, together 8 bytes. */
__asm__(".pushsection .text\n"
	".balign 8\n"
	"mark_table:\n"
	".set mark_number, 0\n"
	".rept 32\n"
	"	.byte 0x0f, 0x1f, 0x80\n"
	"	.long 0x6e6b0000 + (mark_number / 2 << 8) + mark_number % 2\n"
	"	ret\n"
	"	.set mark_number, mark_number + 1\n"
	".endr\n"
	".popsection\n");

extern const char mark_table[2 * MARK_TENANTS][MARK_BYTES + 1];

static inline void mark(enum mark what, unsigned int tenant)
{
	void (*instruction)(void) = (void (*)(void))mark_table[2 * tenant + what];

	instruction();
}

#endif
