"""The formats of moments that people type."""

from __future__ import annotations

import pytest

from cli.base.command_end import CommandFailed
from cli.base.moments import parse_moment, parse_span

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1767225600000", 1767225600000),
        ("2026-01-01", 1767225600000),
        ("2026-01-01T00:00:00.5", 1767225600500),
        ("2026-01-01T01:00+01:00", 1767225600000),
        ("2026-01-01 00:00Z", 1767225600000),
        ("90m", NOW_MS - 5_400_000),
        ("1.5h ago", NOW_MS - 5_400_000),
        ("2d", NOW_MS - 172_800_000),
    ],
)
def test_a_moment_is_a_date_a_number_or_how_long_ago(text: str, ms: int) -> None:
    assert parse_moment("--since", text, now_ms=NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "12", "5x", "2026-13-01", "-5m"])
def test_what_is_no_moment_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(CommandFailed, match="is not a valid time: write 2026-03-01"):
        parse_moment("--since", text, now_ms=NOW_MS)


def test_a_span_has_a_unit() -> None:
    assert (parse_span("250ms"), parse_span("2w"), parse_span("2")) == (250, 1_209_600_000, None)
