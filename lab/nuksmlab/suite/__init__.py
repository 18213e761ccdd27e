# SPDX-License-Identifier: GPL-2.0-only
"""The parts of the tests, side by side on the CPUs there are."""
