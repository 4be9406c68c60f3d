"""syncfs(2), which Python does not offer: make everything durable that a disk holds, of all programs.

Linux only, like the broker; since Linux 5.8 it reports failed writes. Source: syncfs(2).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable


@functools.cache
def _syncfs() -> Callable[[int], int]:
    function = ctypes.CDLL(None, use_errno=True).syncfs
    function.argtypes = (ctypes.c_int,)
    return function


def sync_all(descriptor: int) -> None:
    """Make everything on the descriptor's disk durable: bytes and names. Raises OSError.

    The failed write may be that of another program.
    """
    if _syncfs()(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
