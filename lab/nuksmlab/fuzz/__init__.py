# SPDX-License-Identifier: GPL-2.0-only
"""Random actions by many processes and on the machine, in rounds that have seeds."""
