/* SPDX-License-Identifier: GPL-2.0-only */
/* Binds the calling process to one NUMA node, without libnuma. */
#ifndef TENANT_NODE_H
#define TENANT_NODE_H

int node_bind_cpus(int node);
int node_bind_memory(int node);

#endif
