"""Formats records as lines, for people or for programs. Pure.

text      VALUE, or KEY separator VALUE; null is `(null)` by default
details   partition, offset, time, key, value, headers
JSON      one object, which `kompakt produce --json` reads back
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cleaner.rules.text import count_text
from cli.base.text import NULL, bytes_members, bytes_text, name_text, time_text

CELL_BYTES_MAX = 200


class ReadRecord(Protocol):
    """A record as a consumer returns it."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


LineWriter: TypeAlias = Callable[[ReadRecord], bytes]
"""Formats a record as one line, without the newline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Formats a record as plain text."""

    separator: bytes | None
    """Stands between key and value. None: the line is the value only."""
    null: bytes
    is_hex: bool
    is_for_terminal: bool
    """Whether to escape control characters, which a terminal would execute."""

    def line(self, record: ReadRecord) -> bytes:
        """Returns the record's line: key and value unchanged unless hex or for a terminal."""
        if self.separator is None:
            return self._bytes(record.value)
        return self._bytes(record.key) + self.separator + self._bytes(record.value)

    def _bytes(self, data: bytes | None) -> bytes:
        if data is None:
            return self.null
        if self.is_hex:
            return data.hex().encode()
        return printable(data) if self.is_for_terminal else data


def details_line(record: ReadRecord) -> bytes:
    """Returns a line with all fields of a record, for people."""
    headers = ", ".join(f"{name_text(name)}={bytes_text(value)}" for name, value in record.headers)
    pair = f"{bytes_text(record.key)} = {bytes_text(record.value)}"
    line = f"{record.partition}:{record.offset}  {time_text(record.timestamp)}  {pair}"
    return (f"{line}  [{headers}]" if headers else line).encode()


def json_line(topic: str) -> LineWriter:
    """Returns a writer of JSON lines with all fields of a record, for programs."""

    def line(record: ReadRecord) -> bytes:
        row: dict[str, Any] = {
            "topic": topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **bytes_members("key", record.key),
            **bytes_members("value", record.value),
            "headers": [
                {"key": name, **bytes_members("value", value)} for name, value in record.headers
            ],
        }
        # json.dumps escapes to ASCII, so a client's control characters do not reach the terminal.
        return json.dumps(row).encode()

    return line


def printable(data: bytes) -> bytes:
    """Returns printable text unchanged, other text quoted and escaped, other bytes as hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return b"0x" + data.hex().encode()
    return data if text.isprintable() else json.dumps(text).encode()


def cell_text(data: bytes | None) -> str:
    """Returns `data` as in `printable`, cut after CELL_BYTES_MAX bytes, for a cell of a table."""
    if data is None:
        return NULL
    text = printable(data[:CELL_BYTES_MAX]).decode(errors="replace")
    return text if len(data) <= CELL_BYTES_MAX else f"{text} ... ({count_text(len(data), 'byte')})"
