"""Subscriptions by regular expression: RE2's syntax, as Kafka has it, in linear time. Pure.

A member chooses the expression, so it must not be able to stop the broker with one.
Source: Apache Kafka, TopicRegexResolver.java (RE2/J).
"""

from __future__ import annotations

from collections.abc import Iterable


class InvalidPattern(ValueError):
    """It is no regular expression; says why."""


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole.

    Raises:
        InvalidPattern: it is none, or takes too much memory.
    """
    # Few groups subscribe by pattern, so a start need not load the library.
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
