"""sync_file_range(2), which Python does not offer: have the disk write a file's bytes beside our work.

It promises nothing: no length, no name and no journal is written, the disk's own cache is not
flushed, and only `fdatasync` makes the bytes safe, soon, because they are no longer dirty.
Linux only, as is the broker. Source: sync_file_range(2), linux/fs.h.
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
    """Have the disk begin to write these bytes. Raises OSError."""
    _call(descriptor, position, size, WRITE)


def end(descriptor: int, position: int, size: int) -> None:
    """Return when these bytes are with the disk. Raises OSError, for a write of any of the file's
    bytes that has failed; then no later fdatasync need say so again."""
    _call(descriptor, position, size, WAIT_BEFORE | WRITE | WAIT_AFTER)


def _call(descriptor: int, position: int, size: int, flags: int) -> None:
    """Where the file system knows no such thing, nothing happens."""
    if _sync_file_range()(descriptor, position, size, flags) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
