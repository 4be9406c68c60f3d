"""The last frames of a log, in memory: followers that are nearly current are answered without the disk.

Without it, each change would make the leader read the log's last segment again for every follower.
"""

from __future__ import annotations

from collections import deque

from replog.entry import Frame

BYTES_MAX = 1 << 20


class Tail:
    """Frames that follow each other, up to the last one appended. One thread at a time."""

    __slots__ = ("_bytes_max", "_frames", "_size")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """
        Args:
            bytes_max: payloads to keep; not even the last frame is kept if it is larger.
        """
        self._bytes_max = bytes_max
        self._frames: deque[Frame] = deque()
        self._size = 0

    def appended(self, frame: Frame) -> None:
        """Keep a frame that was appended, and drop the oldest ones that no longer fit."""
        if self._frames and self._frames[-1].end != frame.index:
            self._frames.clear()
            self._size = 0
        self._frames.append(frame)
        self._size += _size(frame)
        while self._size > self._bytes_max:
            self._size -= _size(self._frames.popleft())

    def since(self, start: int) -> list[Frame] | None:
        """Returns the frames with the entries from `start` on; None if it does not have all of them.

        The first one may begin below `start`.
        """
        found: list[Frame] = []
        for frame in reversed(self._frames):
            if frame.end <= start:
                break
            found.append(frame)
        if not self._frames or self._frames[-1].end < start:
            return None
        found.reverse()
        begins_at = found[0].index if found else start
        return found if begins_at <= start else None

    def term_at(self, index: int) -> int | None:
        """Returns the term of an entry; None if it does not have it."""
        for frame in reversed(self._frames):
            if frame.end <= index:
                return None
            if frame.index <= index:
                return frame.term
        return None


def _size(frame: Frame) -> int:
    return sum(len(payload) for _, payload in frame.contents)
