#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The first process of a guest: runs the service, which answers on the first serial
# line. The kernel's messages go to the second.
export PATH=/usr/bin PYTHONDONTWRITEBYTECODE=1
mkdir -p /dev /tmp
mknod /dev/null c 1 3
mknod /dev/urandom c 1 9
mknod /dev/ttyS0 c 4 64
python3 /service.py </dev/ttyS0 >/dev/ttyS0
