# SPDX-License-Identifier: GPL-2.0-only
"""Figures 3, 6 and 9, Table II: two equal instances on two nodes.

plan      what is run
section   tables, pictures and checks from the results
published.toml  the paper's figures
"""
