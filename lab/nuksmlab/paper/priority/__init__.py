# SPDX-License-Identifier: GPL-2.0-only
"""Figures 4 and 7, Table III: instances of different priority.

plan      what is run
section   tables, pictures and checks from the results
published.toml  the paper's figures
"""
