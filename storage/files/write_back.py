"""sync_file_range(2), which Python does not offer: write a file's bytes to disk in the background.

It does not make anything durable: it writes neither the file's length nor its name nor the journal, and
it does not flush the disk's cache. Only `fdatasync` does, and it is quick afterwards because the pages
are clean. Linux only, like the broker. Source: sync_file_range(2), linux/fs.h.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable

WAIT_BEFORE = 0x01
WRITE = 0x02
WAIT_AFTER = 0x04


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).sync_file_range
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def begin(descriptor: int, position: int, size: int) -> None:
    """Start writing these bytes to the disk. Raises OSError."""
    _call(descriptor, position, size, WRITE)


def end(descriptor: int, position: int, size: int) -> None:
    """Wait until the disk has received these bytes.

    Raises OSError if a write of any byte of the file has failed. The kernel may report such a failure
    only once, so a later fdatasync need not report it again.
    """
    _call(descriptor, position, size, WAIT_BEFORE | WRITE | WAIT_AFTER)


def _call(descriptor: int, position: int, size: int, flags: int) -> None:
    """Call sync_file_range; do nothing on a file system that does not support it."""
    if _sync_file_range()(descriptor, position, size, flags) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
