# SPDX-License-Identifier: GPL-2.0-only
"""What placing costs ksmd itself: its instructions, and its DRAM accesses by node.

plan      what is run
guest     the runs, on nodes of the emulated machine
experiment  boots, and keeps
records   what a run observes
section   table and checks from the results
"""
