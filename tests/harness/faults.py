"""Disk faults that a test orders; `MemoryFileSystem` and `FaultyFileSystem` raise them.

fail("sync", errno.EIO)                  the next sync fails
fail("append to", errno.EIO, path=".log", times=FOR_EVER)
fail_nth(5, errno.EIO)                   the fifth operation from now on fails, of any kind
space = 1000                             the disk is full after 1000 more bytes
is_read_only = True                      nothing can be written, created, renamed or removed
"""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass

from storage.files.files import disk_error

FOR_EVER = math.inf
CHANGES = frozenset(
    {"append to", "truncate", "open", "write", "rename", "unlink", "create", "remove"}
)
"""Operations that a read-only file system refuses; we open every file for writing, too."""
GROWS = frozenset({"append to", "write", "reserve"})


@dataclass(slots=True)
class _Fault:
    action: str
    path: str
    number: int
    times: float


class Faults:
    """The faults of one disk. An action has the name that `DiskError` uses: "append to", "sync" ..."""

    def __init__(self) -> None:
        self.space: int | None = None
        """Bytes that can still be written; None: no limit."""
        self.is_read_only = False
        self.raised = 0
        """Number of operations that have failed."""
        self._faults: list[_Fault] = []
        self._countdown = 0
        self._number = 0

    def fail(self, action: str, number: int, *, path: str = "", times: float = 1) -> None:
        """Make the next `times` operations `action` on a path that contains `path` raise `number`."""
        self._faults.append(_Fault(action, path, number, times))

    def fail_nth(self, count: int, number: int) -> None:
        """Make the `count`th operation from now on raise `number`."""
        self._countdown, self._number = count, number

    def heal(self) -> None:
        """Remove all faults."""
        self._faults.clear()
        self._countdown = 0
        self.space = None
        self.is_read_only = False

    def check(self, action: str, path: str, size: int = 0) -> None:
        """Raise the ordered fault, if any; otherwise count `size` bytes as used."""
        number = self._number_for(action, path, size)
        if number:
            self.raised += 1
            raise disk_error(action, path, OSError(number, os.strerror(number)))
        if self.space is not None and action in GROWS:
            self.space -= size

    def give_back(self, size: int) -> None:
        """Note that `size` bytes of the disk are free again."""
        if self.space is not None:
            self.space += size

    def _number_for(self, action: str, path: str, size: int) -> int:
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                return self._number
        for fault in self._faults:
            if fault.action == action and fault.path in path:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault.number
        if self.is_read_only and action in CHANGES:
            return errno.EROFS
        is_full = self.space is not None and action in GROWS and size > self.space
        return errno.ENOSPC if is_full else 0
