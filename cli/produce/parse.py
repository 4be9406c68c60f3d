"""Parses input lines into records to produce. Pure.

    text                 the line is the value
    text, separator      KEY separator VALUE, split at the first separator
    tombstones           the line is the key, and the value is null
    JSON                 one object per line, as `kompakt consume --json` prints them

In JSON `key` and `value` are text or null, `key_base64` and `value_base64` any bytes; `headers` is
{NAME: TEXT} or a list of {"key": NAME, "value" or "value_base64": ...}; `timestamp` is in ms since
1970. `topic`, `partition` and `offset` are ignored: they say where a record was read, not where to send
it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cli.base.command_end import EXIT_FAILED, CommandFailed

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

MEMBERS = {"key", "key_base64", "value", "value_base64", "headers", "timestamp"}
MEMBERS_IGNORED = {"topic", "partition", "offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to produce, which has no offset yet."""

    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None: the time of sending."""


class BadLine(CommandFailed):
    """A line is not a valid record. The message does not contain the line number."""

    def __init__(self, reason: str) -> None:
        super().__init__(EXIT_FAILED, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """Parses lines of text."""

    separator: bytes | None = None
    """Stands between key and value. None: the line is the value only."""
    key: bytes | None = None
    """The key of every record, if there is no separator."""
    null_value: bytes | None = None
    """The text that stands for a null value."""
    is_keys: bool = False
    """Lines are the keys of tombstones."""
    headers: Headers = ()
    """The headers of every record."""

    def read(self, line: bytes) -> NewRecord:
        """Returns the record of a line. Raises BadLine."""
        if self.is_keys:
            return NewRecord(key=line, value=None, headers=self.headers)
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise BadLine(f"there is no separator {self.separator.decode(errors='replace')!r}")
        is_null = self.null_value is not None and value == self.null_value
        return NewRecord(key=key, value=None if is_null else value, headers=self.headers)


def read_json(line: bytes) -> NewRecord:
    """Returns the record of a JSON line. Raises BadLine."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadLine(f"not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    unknown = sorted(row.keys() - MEMBERS - MEMBERS_IGNORED)
    if unknown:
        raise BadLine(f"unknown member {unknown[0]}; known are {', '.join(sorted(MEMBERS))}")
    return NewRecord(
        key=_bytes(row, "key"),
        value=_bytes(row, "value"),
        headers=_headers(row.get("headers") or ()),
        timestamp_ms=_timestamp(row.get("timestamp")),
    )


def parse_separator(text: str) -> bytes:
    """Returns the bytes of a separator given on the command line, which may be `\\t` or another
    escape.
    """
    return _ESCAPES.get(text, text).encode()


_ESCAPES = {"\\t": "\t", "\\0": "\0", "\\x1f": "\x1f", "\\x01": "\x01"}

LineReader: TypeAlias = Callable[[bytes], NewRecord]


def _bytes(row: Mapping[str, Any], name: str) -> bytes | None:
    """Returns the bytes of a member that is given as text or in base64."""
    text, packed = row.get(name), row.get(f"{name}_base64")
    if text is not None and packed is not None:
        raise BadLine(f"{name} is given twice, as text and in base64")
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if text is not None:
        raise BadLine(f"{name} must be text or null; quote JSON inside it as text")
    if packed is None:
        return None
    try:
        return base64.b64decode(packed, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise BadLine(f"{name}_base64 is not valid base64") from error


def _headers(given: Mapping[str, Any] | Sequence[Any]) -> Headers:
    if isinstance(given, dict):
        return tuple((name, _bytes({"value": value}, "value")) for name, value in given.items())
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in given
    ):
        raise BadLine('headers must be {NAME: TEXT} or a list of {"key": ..., "value": ...}')
    return tuple((each["key"], _bytes(each, "value")) for each in given)


def _timestamp(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise BadLine("timestamp must be a whole number of ms")
