# SPDX-License-Identifier: GPL-2.0-only
"""A userfaultfd(2) that protects memory of this process from being read or written."""

import ctypes
import mmap
import os
import struct
from fcntl import ioctl
from typing import NamedTuple

from nuksmlab.area import address_of

SYS_USERFAULTFD, USER_MODE_ONLY = 323, 1
UFFD_API, UFFDIO_API, UFFDIO_REGISTER = 0xAA, 0xC018AA3F, 0xC020AA00


class Protection(NamedTuple):
    """What a userfaultfd needs to know, and to do, for one kind."""

    feature: int
    mode: int
    change: int


WRITES = Protection(1 << 0, 1 << 1, 0xC018AA06)
READS = Protection(1 << 17, 1 << 3, 0xC018AA09)  # new in Linux 7.3


class Protector:
    """Raises OSError where the kernel does not protect so."""

    def __init__(self, protection: Protection) -> None:
        self.protection = protection
        libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY
        self.file = libc.syscall(SYS_USERFAULTFD, flags)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        try:
            wanted = struct.pack("3Q", UFFD_API, protection.feature, 0)
            ioctl(self.file, UFFDIO_API, wanted)
        except OSError:
            self.close()
            raise

    def change(self, area: mmap.mmap, pages: int, on: bool) -> None:
        """Protects so many pages of an area, its first ones, or does so no more."""
        start, size = address_of(area), pages * mmap.PAGESIZE
        if on:
            whole = struct.pack("4Q", start, len(area), self.protection.mode, 0)
            ioctl(self.file, UFFDIO_REGISTER, whole)
        ioctl(self.file, self.protection.change, struct.pack("3Q", start, size, on))

    def close(self) -> None:
        os.close(self.file)
