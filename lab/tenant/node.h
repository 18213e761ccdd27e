/* SPDX-License-Identifier: GPL-2.0-only */
/* Binds the calling process, or a part of its memory, to one NUMA node, without libnuma. */
#ifndef TENANT_NODE_H
#define TENANT_NODE_H

#include <stdbool.h>
#include <stddef.h>

int node_bind_cpus(int node);
int node_bind_memory(int node);
int node_bind_area(void *area, size_t bytes, int node, bool strictly);

#endif
