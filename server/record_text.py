"""Records as people and as programs read them. Pure.

text      VALUE, or KEY separator VALUE, a line a record; null is `(null)` unless said otherwise
details   partition, offset, time, key, value, headers, a line a record
JSON      an object a line, which `kompakt produce --json` reads back
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from cleaner.text import count_text
from server.dump_text import NULL, bytes_members, bytes_text, name_text, time_text

CELL_BYTES_MAX = 200


class ReadRecord(Protocol):
    """A record as a consumer gives it."""

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
"""A record's line, without its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How a record becomes a line of text."""

    separator: bytes | None
    """None: the line is all value."""
    null: bytes
    is_hex: bool
    is_for_terminal: bool
    """What a terminal would obey is shown instead of sent."""

    def line(self, record: ReadRecord) -> bytes:
        """Its bytes as they are, unless a terminal shows them."""
        if self.separator is None:
            return self._bytes(record.value)
        return self._bytes(record.key) + self.separator + self._bytes(record.value)

    def _bytes(self, data: bytes | None) -> bytes:
        if data is None:
            return self.null
        if self.is_hex:
            return data.hex().encode()
        return shown(data) if self.is_for_terminal else data


def details_line(record: ReadRecord) -> bytes:
    """All that is known of a record, for people."""
    headers = ", ".join(f"{name_text(name)}={bytes_text(value)}" for name, value in record.headers)
    pair = f"{bytes_text(record.key)} = {bytes_text(record.value)}"
    told = f"{record.partition}:{record.offset}  {time_text(record.timestamp)}  {pair}"
    return (f"{told}  [{headers}]" if headers else told).encode()


def json_line(topic: str) -> LineWriter:
    """All that is known of a record, for programs."""

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
        # ASCII only: a client's bytes must not reach a terminal that obeys them.
        return json.dumps(row).encode()

    return line


def shown(data: bytes) -> bytes:
    """Text as it is if a terminal obeys nothing in it, else quoted or as hexadecimal."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return b"0x" + data.hex().encode()
    return data if text.isprintable() else json.dumps(text).encode()


def cell_text(data: bytes | None) -> str:
    """The same in a table, where what is very long is cut."""
    if data is None:
        return NULL
    text = shown(data[:CELL_BYTES_MAX]).decode(errors="replace")
    return text if len(data) <= CELL_BYTES_MAX else f"{text} ... ({count_text(len(data), 'byte')})"
