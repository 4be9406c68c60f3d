"""The records in the broker's answers about keys (docs/design/get.md). Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from cli.compact.client import Json

BASE64, JSON = "base64", "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """The last record of a key in a partition, which is not a tombstone."""

    partition: int
    offset: int
    timestamp: int
    """In ms since 1970."""
    key: bytes
    value: bytes
    """As JSON if the broker has decoded it."""
    undecoded: str
    """Why the broker has not decoded it although it names a schema; empty otherwise."""
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(answer: Json) -> list[FoundRecord]:
    """Returns the records in the answer about one key.

    These are one, several if the key has a value in several partitions, or none if it has no value.
    """
    if "error" in answer:
        return []
    found = answer["records"] if answer.get("ambiguous") else [answer]
    return [_record(each) for each in found]


def _record(record: Json) -> FoundRecord:
    return FoundRecord(
        partition=record["partition"],
        offset=record["offset"],
        timestamp=record["timestamp_ms"],
        key=_bytes(record["key"], record["key_encoding"]),
        value=_value(record),
        undecoded=record.get("undecoded", {}).get("error", ""),
        headers=tuple(_header(each) for each in record["headers"]),
    )


def _value(record: Json) -> bytes:
    if record["value_encoding"] == JSON:
        return json.dumps(record["value"], ensure_ascii=False).encode()
    return _bytes(record["value"], record["value_encoding"])


def _header(header: Json) -> tuple[str, bytes | None]:
    value = header["value"]
    return header["key"], None if value is None else _bytes(value, header["encoding"])


def _bytes(text: str, encoding: str) -> bytes:
    return base64.b64decode(text) if encoding == BASE64 else text.encode()
