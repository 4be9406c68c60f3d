"""Values as people and as programs read them: times, bytes of clients, sizes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

from cleaner.text import count_text

NULL = "(null)"
"""What stands for no key, and for a tombstone's value: `null` is JSON that a client may have written."""

SHOWN_BYTES_MAX = 200
"""A longer key or value is cut for people; programs get all of it."""


def time_text(timestamp_ms: int, *, with_raw: bool = False) -> str:
    """A timestamp as people read it, and raw if wanted; "-" for none.

    Clients choose timestamps, so any number may come.
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
    """Bytes of a client, such that no terminal obeys them: quoted text, or hexadecimal."""
    if data is None:
        return NULL
    shown = data[:SHOWN_BYTES_MAX]
    rest = f" ... ({count_text(len(data), 'byte')})" if len(data) > len(shown) else ""
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError:
        # A cut may have split the last character.
        text = shown[:-3].decode("utf-8", "replace") if rest else "\ufffd"
    if "\ufffd" in text or not text.isprintable():
        return f"0x{shown.hex()}{rest}"
    return json.dumps(text, ensure_ascii=False) + rest


def bytes_members(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes of a client as a member of a JSON object: `name`, or `name`_base64 if they are no text."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def name_text(name: str) -> str:
    """A client's text where it is printed bare; quoted if a terminal could obey it."""
    return name if name.isprintable() else json.dumps(name)
