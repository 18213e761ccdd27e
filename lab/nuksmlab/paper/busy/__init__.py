# SPDX-License-Identifier: GPL-2.0-only
"""Two instances that work while they are merged, and ksmd that goes on meanwhile.

plan      what is run
section   table and checks from the results
"""
