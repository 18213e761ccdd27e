# SPDX-License-Identifier: GPL-2.0-only
"""Machines with several NUMA nodes, and tenants on them.

Layers, each using only those above it in this list:

paths     where things are in this checkout
wait      deadlines
guard     starts what ends with its starter
kernels   finds or fetches a kernel to boot
machine   boots it on a machine of N nodes
ksm, numa the guest kernel's view of merging and placement
tenant    a process with known pages
program   the `nuksm` binary
demo      the demonstration
suite     the parts of the tests, side by side
"""
