# SPDX-License-Identifier: GPL-2.0-only
"""How quickly ksmd merges: KSM's own benchmarks of 2009 once more.

plan        what is run
records     what a run observes
copies      the runs with copies of a program, inside User-Mode Linux
guests      the runs with virtual machines, inside an emulated machine
experiment  boots both, and keeps
figures     rates and times from what was observed
pictures    of these
goals       what has to hold
section     tables, and all that together
"""
