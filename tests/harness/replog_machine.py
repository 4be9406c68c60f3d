"""A small state machine for tests of replog: a map from key to value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replog.checkpoint_format import row_bytes
from replog.digest import replaced, row_digest
from replog.machine import Row


class KeyValueMachine:
    """Applies `key=value` and `key` (a removal), and knows its digest and its size."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self._digest = 0
        self._size = 0

    def apply(self, index: int, command: bytes) -> None:
        key, is_put, value = command.partition(b"=")
        before = self.rows.pop(key, None)
        if before is not None:
            self._digest = replaced(self._digest, row_digest(key, before), 0)
            self._size -= row_bytes(key, before)
        if is_put:
            self._put(key, value)

    def _put(self, key: bytes, value: bytes) -> None:
        self.rows[key] = value
        self._digest = replaced(self._digest, 0, row_digest(key, value))
        self._size += row_bytes(key, value)

    def snapshot(self) -> Iterator[Row]:
        return iter(sorted(self.rows.items()))

    def restore(self, rows: Iterable[Row]) -> None:
        self.rows, self._digest, self._size = {}, 0, 0
        for key, value in rows:
            self._put(key, value)

    def digest(self) -> int:
        return self._digest

    def size_bytes(self) -> int | None:
        return self._size
