"""When a value expires. Pure.

A value expires at its timestamp plus its time to live: the number in its own header
(`compaction.ttl.header`), else the topic's (`compaction.ttl.ms`). A record without a timestamp (-1)
never expires: nobody knows how old it is. Tombstones do not expire; cleaning retires them.

The kernel has the same rule in compiled form (`cleaner/kernel/ttl.pxi`). docs/design/ttl.md says why it
is this one.
"""

from __future__ import annotations

from protocol.records.record import Headers
from storage.formats.compaction_ttl import NO_TTL, CompactionTtl
from storage.formats.config_property import LONG_MAX

NEVER = LONG_MAX
"""The expiry time of a value that does not expire."""

DIGITS_MAX = 19
"""The number of digits of the largest int64."""


def expires_ms(ttl: CompactionTtl, *, timestamp: int, headers: Headers) -> int:
    """Returns the wall time, in ms, from which a value is expired; NEVER if it does not expire.

    Args:
        timestamp: the record's, in ms; with LogAppendTime that of its batch.
        headers: the record's headers in their order.
    """
    own_ms = _own_ms(ttl, headers)
    ttl_ms = ttl.topic_ms if own_ms is None else own_ms
    if ttl_ms == NO_TTL or timestamp < 0:
        return NEVER
    return min(timestamp + ttl_ms, NEVER)


def is_unreadable(ttl: CompactionTtl, headers: Headers) -> bool:
    """Returns whether a record has the header, with a value that is no time to live.

    A header without a value (null) counts as absent.
    """
    values = _values(ttl, headers)
    return bool(values) and values[-1] is not None and ttl_of_header(values[-1]) is None


def ttl_of_header(value: bytes | None) -> int | None:
    """Returns the time to live that a header's value says, in ms; None if it says none.

    Numbers above the largest int64 count as that.
    """
    if value is None or not 0 < len(value) <= DIGITS_MAX or not value.isdigit():
        return None
    return min(int(value), LONG_MAX)


def _own_ms(ttl: CompactionTtl, headers: Headers) -> int | None:
    values = _values(ttl, headers)
    return ttl_of_header(values[-1]) if values else None


def _values(ttl: CompactionTtl, headers: Headers) -> list[bytes | None]:
    return [value for name, value in headers if name == ttl.header] if ttl.header else []
