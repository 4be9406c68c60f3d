"""Parses points in time as users type them: a date, ms since 1970, or a time ago. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cli.base.command_end import EXIT_USAGE, CommandFailed

SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MS = re.compile(r"\d{9,}")
"""A number with fewer digits may be a year, so it is not read as ms."""

EXAMPLES = "2026-03-01, 2026-03-01T12:30 (UTC by default), 1767225600000 (ms), or 90m ago"


def parse_moment(option: str, text: str, *, now_ms: int) -> int:
    """Returns a point in time in ms since 1970. Raises CommandFailed if `text` is not valid."""
    words = text.strip().removesuffix("ago").strip()
    if MS.fullmatch(words):
        return int(words)
    span = parse_span(words)
    if span is not None:
        return now_ms - span
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise CommandFailed(
            EXIT_USAGE, f"{option} {text} is not a valid time: write {EXAMPLES}"
        ) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


def parse_span(text: str) -> int | None:
    """Returns a duration such as 90m or 1.5h in ms, or None if `text` is not a duration."""
    found = SPAN.fullmatch(text)
    return None if found is None else int(float(found[1]) * UNIT_MS[found[2]])
