# SPDX-License-Identifier: GPL-2.0-only
"""How much memory virtual machines share, and what it costs: a report on KSM
under KVM, repeated in small.

plan        what is run
init.sh     a guest's first process
service.py  what answers in a guest
guest       the runs, inside the emulated machine
experiment  boots, and keeps
records     what a run observes
section     tables, pictures and checks from the results
"""
