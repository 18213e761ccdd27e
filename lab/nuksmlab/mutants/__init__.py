# SPDX-License-Identifier: GPL-2.0-only
"""Engines broken on purpose, and who notices."""
