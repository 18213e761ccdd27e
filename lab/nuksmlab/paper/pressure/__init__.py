# SPDX-License-Identifier: GPL-2.0-only
"""Figure 8: memory just over the limit, and a job that keeps allocating.

plan      what is run
guest     the runs, inside User-Mode Linux
experiment  boots, and keeps
records   what a run observes
section   tables, pictures and checks from the results
"""
