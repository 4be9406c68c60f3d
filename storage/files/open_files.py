"""Bounds the number of open segment files in the whole process, in two shares.

    sealed   read only; the oldest files that no reader uses are closed again
    active   appended to; one is closed only when all its bytes are synced and no thread has it pinned,
             because an fsync through another descriptor may not report a write that failed

A file is opened at its first use and stays open, because the next use often follows soon. When too many
active files hold unsynced bytes, their syncs are brought forward: `OpenFiles.add` returns them. The
shares follow the process's limit (RLIMIT_NOFILE); the rest is for sockets and everything else.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

SEALED_FILES_MAX = 256
UNLIMITED = 1 << 20
"""The limit that is assumed for a process without one; no system allows more."""


class Closable(Protocol):
    """The part of a segment's files that this module uses."""

    def close_if_idle(self) -> bool:
        """Close the descriptor unless it is in use. Returns whether it is closed."""

    def sync_soon(self) -> None:
        """Sync the unsynced bytes in the background, so that the file becomes idle."""

    def sync_at_once(self) -> bool:
        """Sync the unsynced bytes and close the file now. Returns whether it is closed."""


class OpenFiles:
    """The open files of one share, oldest first. The caller holds the segments' guard."""

    __slots__ = ("_opened", "files_max")

    def __init__(self, files_max: int) -> None:
        self.files_max = files_max
        self._opened: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def is_exhausted(self) -> bool:
        """Whether 1.5 times the bound is open: then no file is opened before another is closed."""
        return len(self._opened) > self.files_max + self.files_max // 2

    def add(self, files: Closable) -> Sequence[Closable]:
        """Add a file that was opened, and close idle ones if the share is over its bound.

        Returns the files, oldest first, that have to become idle to keep the bound.
        """
        self._opened[files] = None
        if len(self._opened) <= self.files_max:
            return ()
        # Close a quarter more, so that the next opens need not look for idle files again.
        spare = len(self._opened) - self.files_max + self.files_max // 4
        for each in list(self._opened):
            if spare == 0:
                return ()
            if each is not files and each.close_if_idle():
                del self._opened[each]
                spare -= 1
        if len(self._opened) <= self.files_max:
            return ()
        return tuple(each for each in islice(self._opened, spare) if each is not files)

    def others(self, files: Closable) -> Sequence[Closable]:
        """Returns all open files except one, oldest first."""
        return tuple(each for each in self._opened if each is not files)

    def discard(self, files: Closable) -> None:
        """Remove a file that was closed."""
        self._opened.pop(files, None)


SEALED = OpenFiles(SEALED_FILES_MAX)
ACTIVE = OpenFiles(SEALED_FILES_MAX)


def share_descriptors(limit: int) -> None:
    """Divide the process's descriptors: at most five eighths are for segments."""
    if limit == resource.RLIM_INFINITY:
        limit = UNLIMITED
    SEALED.files_max = min(SEALED_FILES_MAX, limit // 8)
    # The active share may exceed its bound by half while syncs are running.
    ACTIVE.files_max = limit // 3


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as the system does, as servers do. Returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


share_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
