# SPDX-License-Identifier: GPL-2.0-only
"""As Figure 6 and Table II, in real virtual machines, by KVM.

plan      what is run
section   tables, pictures and checks from the results
"""
