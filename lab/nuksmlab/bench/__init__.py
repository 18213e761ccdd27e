# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark: what ksmd's merging pass costs with each index.

plan      workloads, sizes, indexes, and the order in which they are run
records   what a run observes, and the figures made from it
scanner   one full scan by ksmd
guest     the runs, inside User-Mode Linux
settings  the ways of scanning that are compared
steady    scans of what was scanned before, and tenants that come
steady_guest  the same, inside
neighbour what such scans cost a program on another CPU
neighbour_guest  the same, inside
meter     the CPU time that the guest's kernel takes
host      what the host has to have for all that
figures   medians, speedups, what does not fit together
table     how they are shown: Markdown
picture   the same as a picture
report    what is kept in build/bench
__main__  the part on the host
"""
