"""Matches topics against regular expressions: RE2 syntax like Kafka's, in linear time. Pure.

A member chooses the expression, so an expensive one must not stall the broker.

Source: Apache Kafka, TopicRegexResolver.java (RE2/J).
"""

from __future__ import annotations

from collections.abc import Iterable


class InvalidPattern(ValueError):
    """The regular expression is invalid; the message says why."""


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the names that match completely.

    Raises:
        InvalidPattern: the pattern is invalid, or needs too much memory.
    """
    # Imported here because few groups subscribe by pattern, and a start should not pay for it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        raise InvalidPattern(_text(reason)) from error
    return frozenset(name for name in names if compiled.fullmatch(name))


def _text(reason: object) -> str:
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
