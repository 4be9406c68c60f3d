"""The deadline of `kompakt erase`."""

from __future__ import annotations

import pytest

from cli.base.command_end import CommandFailed
from cli.erase.requests import parse_span


def test_a_deadline_is_a_span() -> None:
    assert parse_span("72h") == 72 * 3_600_000
    assert parse_span("1.5m") == 90_000
    for text in ("72", "h", "0s", "-1h", "tomorrow"):
        with pytest.raises(CommandFailed, match="--by is a time from now"):
            parse_span(text)
