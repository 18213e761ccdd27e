# SPDX-License-Identifier: GPL-2.0-only
"""Beyond two nodes (IV-E): four nodes with four and with eight instances.

plan      what is run
section   tables, pictures and checks from the results

The paper says that this was evaluated, but no figures.
"""
