# SPDX-License-Identifier: GPL-2.0-only
"""A userfaultfd(2) that protects memory of this process from being read by it."""

import ctypes
import mmap
import os
import struct
from fcntl import ioctl

from nuksmlab.area import address_of

SYS_USERFAULTFD, USER_MODE_ONLY = 323, 1
UFFD_API, FEATURE_RWP, MODE_RWP = 0xAA, 1 << 17, 1 << 3
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_RWPROTECT = 0xC018AA3F, 0xC020AA00, 0xC018AA09


class Protector:
    """Raises OSError where the kernel does not protect so: it is new in Linux 7.3."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY
        self.file = libc.syscall(SYS_USERFAULTFD, flags)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        try:
            ioctl(self.file, UFFDIO_API, struct.pack("3Q", UFFD_API, FEATURE_RWP, 0))
        except OSError:
            self.close()
            raise

    def change(self, area: mmap.mmap, pages: int, on: bool) -> None:
        """Protects so many pages of an area, its first ones, or lets them be read."""
        start, size = address_of(area), pages * mmap.PAGESIZE
        if on:
            whole = struct.pack("4Q", start, len(area), MODE_RWP, 0)
            ioctl(self.file, UFFDIO_REGISTER, whole)
        ioctl(self.file, UFFDIO_RWPROTECT, struct.pack("3Q", start, size, on))

    def close(self) -> None:
        os.close(self.file)
