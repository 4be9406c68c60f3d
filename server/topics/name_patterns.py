"""Compiles regular expressions for names of topics: RE2 syntax like Kafka's, in linear time. Pure.

Clients and operators write them, so an expensive one must not hold the broker: with Python's own
expressions a name of 40 characters could for hours.

Source: Apache Kafka, TopicRegexResolver.java (RE2/J).
"""

from __future__ import annotations

from typing import Any


class InvalidPattern(ValueError):
    """The regular expression is invalid, or needs too much memory; the message says why."""


def compiled_pattern(pattern: str, *, memory_bytes_max: int = 8 << 20) -> Any:
    """Returns the compiled expression: RE2, which has no types.

    Args:
        memory_bytes_max: also bounds the time: to fill RE2's default, 8 MiB, takes a tenth of a second.

    Raises:
        InvalidPattern: it is invalid, or needs more memory.
    """
    # Imported here because few brokers have patterns, and a start should not pay for it.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes_max
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        raise InvalidPattern(_text(reason)) from error


def _text(reason: object) -> str:
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
