"""Formats values for people and for programs: times, names, and bytes from clients."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

from cleaner.rules.text import count_text

NULL = "(null)"
"""Stands for a missing key and for a tombstone's value. Not `null`: a client may write JSON."""

SHOWN_BYTES_MAX = 200
"""Longer keys and values are cut for people; programs get them completely."""


def time_text(timestamp_ms: int, *, with_raw: bool = False) -> str:
    """Returns a timestamp for people, with the raw number if wanted; "-" for no timestamp.

    Clients choose timestamps, so any number is possible. One outside the calendar is returned raw.
    """
    if timestamp_ms == -1:
        return "-"
    try:
        time = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    text = f"{time:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"
    return f"{text} ({timestamp_ms})" if with_raw else text


def bytes_text(data: bytes | None) -> str:
    """Returns a client's bytes as quoted text or as hexadecimal, without control characters."""
    if data is None:
        return NULL
    shown = data[:SHOWN_BYTES_MAX]
    rest = f" ... ({count_text(len(data), 'byte')})" if len(data) > len(shown) else ""
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError:
        # The cut may have split the last character.
        text = shown[:-3].decode("utf-8", "replace") if rest else "\ufffd"
    if "\ufffd" in text or not text.isprintable():
        return f"0x{shown.hex()}{rest}"
    return json.dumps(text, ensure_ascii=False) + rest


def bytes_members(name: str, data: bytes | None) -> dict[str, str | None]:
    """Returns a client's bytes as a JSON member: `name`, or `name`_base64 if they are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def name_text(name: str) -> str:
    """Returns a client's text for printing, quoted and escaped if it has control characters."""
    return name if name.isprintable() else json.dumps(name)
