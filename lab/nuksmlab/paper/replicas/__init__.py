# SPDX-License-Identifier: GPL-2.0-only
"""Beyond the paper: replicas of hot pages, within a budget.

plan      what is run
section   tables, pictures and checks from the results
"""
