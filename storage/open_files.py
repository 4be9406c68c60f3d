"""Which segment files are open: a bounded number in the whole process, in two shares.

    sealed   read only; the files that were opened first and nobody reads now are closed again
    active   appended to; one is closed only when all its bytes are synced and nobody has it pinned,
             because an fsync through another descriptor may not learn of a write that failed

A file is opened when it is first used and stays open, because the next use often comes soon. Where too
many active ones hold bytes that no sync covers, their syncs are brought forward: `OpenFiles.add` names
them. The shares follow the process's limit (RLIMIT_NOFILE); the rest is for sockets and all else.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

SEALED_FILES_MAX = 256
UNLIMITED = 1 << 20
"""What a process without a limit is taken to have: no system gives more."""


class Closable(Protocol):
    """The files of a segment, as far as this module needs them."""

    def close_if_idle(self) -> bool:
        """Close the descriptor unless somebody needs it; whether it is closed."""

    def sync_soon(self) -> None:
        """Sync what keeps it from being idle, in the background."""

    def sync_at_once(self) -> bool:
        """Sync that and close it before returning; whether it is closed."""


class OpenFiles:
    """The files of one share that are open, oldest first. The caller holds the segments' guard."""

    __slots__ = ("_opened", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._opened: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def is_exhausted(self) -> bool:
        """Whether there are half as many again as there should be: no more without closing one."""
        return len(self._opened) > self.most + self.most // 2

    def add(self, files: Closable) -> Sequence[Closable]:
        """Note that a file was opened, and close some idle ones if that is one too many.

        Returns those, oldest first, that would have to become idle to keep the bound.
        """
        self._opened[files] = None
        if len(self._opened) <= self.most:
            return ()
        # A quarter more: the next opens need not look for idle ones again.
        spare = len(self._opened) - self.most + self.most // 4
        for each in list(self._opened):
            if spare == 0:
                return ()
            if each is not files and each.close_if_idle():
                del self._opened[each]
                spare -= 1
        if len(self._opened) <= self.most:
            return ()
        return tuple(each for each in islice(self._opened, spare) if each is not files)

    def others(self, files: Closable) -> Sequence[Closable]:
        """All that are open but one, oldest first."""
        return tuple(each for each in self._opened if each is not files)

    def discard(self, files: Closable) -> None:
        """Note that a file was closed."""
        self._opened.pop(files, None)


SEALED = OpenFiles(SEALED_FILES_MAX)
ACTIVE = OpenFiles(SEALED_FILES_MAX)


def share_descriptors(limit: int) -> None:
    """Divide the descriptors that a process may have: at most five eighths are for segments."""
    if limit == resource.RLIM_INFINITY:
        limit = UNLIMITED
    SEALED.most = min(SEALED_FILES_MAX, limit // 8)
    # Half as many again may be open while their syncs are under way.
    ACTIVE.most = limit // 3


share_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
