"""Which files of sealed segments are open: a bounded number in the whole process.

A segment's file is opened when it is first read and stays open, because the next read often comes
soon; when too many are open, those that were opened first and nobody reads now are closed again. The
active segments' files are not counted: an fsync must come through the descriptor that wrote, or the
kernel may forget to tell of a write that failed.
"""

from __future__ import annotations

from typing import Protocol

SEALED_FILES_MAX = 256


class Closable(Protocol):
    """A segment, as far as this module needs one."""

    def close_if_idle(self) -> bool:
        """Close the file unless somebody uses it; whether it is closed."""


class OpenFiles:
    """The segments whose files are open, oldest first. The caller holds the segments' guard."""

    __slots__ = ("_most", "_opened")

    def __init__(self, most: int) -> None:
        self._most = most
        self._opened: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, segment: Closable) -> None:
        """Note that a file was opened, and close some idle ones if that is one too many."""
        self._opened[segment] = None
        if len(self._opened) <= self._most:
            return
        # A quarter at a time: the next opens need not look for idle ones again.
        spare = self._most // 4
        for each in list(self._opened):
            if spare == 0:
                return
            if each is not segment and each.close_if_idle():
                del self._opened[each]
                spare -= 1

    def discard(self, segment: Closable) -> None:
        """Note that a file was closed."""
        self._opened.pop(segment, None)
