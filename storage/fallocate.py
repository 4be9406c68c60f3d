"""fallocate(2) that keeps a file's size, which Python does not offer.

Linux only, as is the broker. Source: fallocate(2), linux/falloc.h.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable

KEEP_SIZE = 0x01


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def allocate(descriptor: int, size: int) -> None:
    """Reserve the blocks of a file's first `size` bytes; its own size stays.

    Where the file system knows no such thing, nothing happens. Raises OSError.
    """
    if _fallocate()(descriptor, KEEP_SIZE, 0, size) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
