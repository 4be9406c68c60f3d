"""Turns the last records of keys into JSON values. Pure.

Keys, values and headers are text if they are UTF-8, and base64 otherwise; `..._encoding` says which.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from protocol.records.record import Record

Json = dict[str, Any]
Hit = tuple[int, Record]
"""A partition, and the last record that it has of a key."""

DELETED, NOT_FOUND = "deleted", "not_found"
ABSENT_ETAG = '"absent"'


def answer_json(topic: str, key: bytes, hits: Sequence[Hit]) -> Json:
    """Returns what a topic has of a key.

    Args:
        hits: of the partitions that have a record of the key.
    """
    values = [hit for hit in hits if hit[1].value is not None]
    named = {"topic": topic, "key": (text := text_of(key))[0], "key_encoding": text[1]}
    if len(values) == 1:
        return named | record_json(*values[0])
    if values:
        newest_first = sorted(values, key=lambda hit: -hit[1].timestamp)
        records = [named | record_json(*hit) for hit in newest_first]
        return named | {"ambiguous": True, "records": records}
    return named | miss_json(hits)


def record_json(partition: int, record: Record) -> Json:
    """Returns a record with a value."""
    assert record.value is not None
    value, encoding = text_of(record.value)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "value": value,
        "value_encoding": encoding,
        "headers": [_header_json(name, each) for name, each in record.headers],
    }


def miss_json(tombstones: Sequence[Hit]) -> Json:
    """Returns why a topic has no value of a key: a sentence, and a code for programs."""
    if not tombstones:
        return {
            "error": "the key is not in the log: it was never written, or its tombstone was cleaned",
            "code": NOT_FOUND,
        }
    where = ", ".join(
        f"offset {record.offset} of partition {number}" for number, record in tombstones
    )
    return {
        "error": f"the key was deleted at {where}",
        "code": DELETED,
        "deleted": [
            {"partition": number, "offset": record.offset, "timestamp_ms": record.timestamp}
            for number, record in tombstones
        ],
    }


def is_miss(answer: Json) -> bool:
    """Returns whether an answer has no value."""
    return "error" in answer


def etag_of(hits: Sequence[Hit]) -> str:
    """Returns a name for what a topic has of a key: it changes with each record of the key."""
    if not hits:
        return ABSENT_ETAG
    return '"' + ",".join(f"{number}-{record.offset}" for number, record in sorted(hits)) + '"'


def text_of(data: bytes) -> tuple[str, str]:
    """Returns bytes as text, and how they are encoded in it."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _header_json(name: str, value: bytes | None) -> Json:
    # A name that is not UTF-8 cannot be sent as it is.
    shown = name.encode(errors="surrogateescape").decode(errors="replace")
    if value is None:
        return {"key": shown, "value": None}
    text, encoding = text_of(value)
    return {"key": shown, "value": text, "encoding": encoding}
