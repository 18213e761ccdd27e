# SPDX-License-Identifier: GPL-2.0-only
"""The paper's evaluation (nuKSM, PACT 2021, section V), reproduced.

experiments     all of them
fairness/       Figures 3, 6 and 9, Table II
priority/       Figures 4 and 7, Table III
guests/         the same as fairness/, in virtual machines
nodes/          four nodes: IV-E
pressure/       Figure 8
merging/        another paper, KSM's of 2009, and its Figure 8
replicas/       beyond the paper: hot pages on several nodes
consolidation/  another report: KSM under KVM

extent          how much of each workload; configurations; parts, one boot each
trial           one trial, and what was observed of it
start           instances of any workload
use             some pages are used more than others
guest           the trials, inside the machine
where           in an emulated machine, or on this one
runner          what was observed is kept, and not run again
model           from counted accesses to run times, and to fairness
merits          the paper's figures of merit, of each repetition
sensitivity     what they would be on other hardware
section         tables, pictures and checks
report          as HTML and CSV
__main__        the part on the host
"""
