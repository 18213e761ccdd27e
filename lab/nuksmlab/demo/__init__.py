# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration: the problem, the cure, and the paper's Table III.

paper     the published figures and the formula behind them
records   what the guest observes, and the summary made from it
guest     the phases, run inside the machine
claims    what the summary has to show
table     how it is shown
__main__  the part on the host
"""
