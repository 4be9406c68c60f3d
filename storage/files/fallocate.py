"""fallocate(2) with FALLOC_FL_KEEP_SIZE, which Python does not offer.

Linux only, like the broker. Source: fallocate(2), linux/falloc.h.
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
    """Allocate the blocks of a file's first `size` bytes without changing the file's size.

    Does nothing on a file system that does not support it. Raises OSError.
    """
    if _fallocate()(descriptor, KEEP_SIZE, 0, size) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
