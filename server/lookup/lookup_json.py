"""Turns the last records of keys into JSON values. Pure.

Keys, values and headers are text if they are UTF-8, and base64 otherwise; `..._encoding` says which. A
value that was decoded by its schema is JSON.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from protocol.records.record import Record
from schemas.outcomes import Decoded, Outcome

Json = dict[str, Any]
Hit = tuple[int, Record]
"""A partition, and the last record that it has of a key."""

Decodings = Mapping[bytes, Outcome]
"""What values and keys are that name a schema, by their bytes (`value_decoding.py`)."""

JSON = "json"
DELETED, NOT_FOUND = "deleted", "not_found"
ABSENT_ETAG = '"absent"'


def answer_json(topic: str, key: bytes, hits: Sequence[Hit], decodings: Decodings) -> Json:
    """Returns what a topic has of a key.

    Args:
        hits: of the partitions that have a record of the key.
    """
    values = [hit for hit in hits if hit[1].value is not None]
    named = {"topic": topic, **key_json(key, decodings)}
    if len(values) == 1:
        return named | record_json(*values[0], decodings)
    if values:
        newest_first = sorted(values, key=lambda hit: -hit[1].timestamp)
        records = [named | record_json(*hit, decodings) for hit in newest_first]
        return named | {"ambiguous": True, "records": records}
    return named | miss_json(hits)


def key_json(key: bytes, decodings: Decodings) -> Json:
    """Returns a key as a request may name it again, and beside that what it is by its schema."""
    text, encoding = text_of(key)
    named: Json = {"key": text, "key_encoding": encoding}
    decoding = decodings.get(key)
    if isinstance(decoding, Decoded):
        named["decoded_key"] = msgspec.Raw(decoding.json)
        named["key_schema"] = _schema_json(decoding)
    return named


def record_json(partition: int, record: Record, decodings: Decodings) -> Json:
    """Returns a record with a value."""
    assert record.value is not None
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        **_value_json(record.value, decodings.get(record.value)),
        "headers": [_header_json(name, each) for name, each in record.headers],
    }


def _value_json(value: bytes, decoding: Outcome | None) -> Json:
    if isinstance(decoding, Decoded):
        return {
            "value": msgspec.Raw(decoding.json),
            "value_encoding": JSON,
            "schema": _schema_json(decoding),
        }
    text, encoding = text_of(value)
    shown: Json = {"value": text, "value_encoding": encoding}
    if decoding is not None:
        shown["schema"] = {"id": decoding.schema_id}
        shown["undecoded"] = {"error": decoding.reason, "code": decoding.code}
    return shown


def _schema_json(decoded: Decoded) -> Json:
    return {"id": decoded.schema_id, "type": decoded.schema_type.value}


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
