"""Formats the last values of keys as a table for people, row by row. Pure."""

from __future__ import annotations

from cli.base.record_text import ReadRecord, cell_text
from cli.base.text import time_text

PLACE_WIDTH, TIME_WIDTH = 12, 19
KEY_WIDTH_MAX = 30
TITLE = "key"


class LatestTable:
    """A table whose columns fit most cells. A longer key shifts the value in its row.

    Args:
        key_bytes_max: the length of the longest key.
    """

    __slots__ = ("_key_width",)

    def __init__(self, *, key_bytes_max: int) -> None:
        self._key_width = max(min(key_bytes_max, KEY_WIDTH_MAX), len(TITLE))

    @property
    def titles(self) -> bytes:
        """The title row."""
        return self._row("part:offset", "time (UTC)", TITLE, "value")

    def line(self, record: ReadRecord) -> bytes:
        """Returns the row of a record."""
        return self._row(
            f"{record.partition}:{record.offset}",
            time_text(record.timestamp)[:TIME_WIDTH],
            cell_text(record.key),
            "(deleted)" if record.value is None else cell_text(record.value),
        )

    def _row(self, place: str, time: str, key: str, value: str) -> bytes:
        row = f"{place:<{PLACE_WIDTH}}  {time:<{TIME_WIDTH}}  {key:<{self._key_width}}  {value}"
        return row.rstrip().encode()
