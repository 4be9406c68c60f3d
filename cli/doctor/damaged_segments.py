"""Asks the running broker of a configuration for damaged segments that its cleaner cleans around."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.rules.text import count_text, moment_text
from cli.doctor.findings import Finding, warning
from cli.doctor.running_broker import Json, asked
from server.config.config import BrokerConfig


def check_damaged_segments(config: BrokerConfig) -> Iterator[Finding]:
    """Yields a finding for each partition with damaged segments; none if there is no damage known."""
    status = asked(config, "/v1/compaction")
    yield from judge_damaged_segments((status or {}).get("fenced", []))


def judge_damaged_segments(fences: list[Json]) -> Iterator[Finding]:
    """Yields a warning for each partition, given the damaged segments of all."""
    by_partition: dict[str, list[Json]] = {}
    for fence in fences:
        by_partition.setdefault(f"{fence['topic']}-{fence['partition']}", []).append(fence)
    for name, its in by_partition.items():
        since_ms = min(fence["since_ms"] for fence in its)
        yield warning(
            "segments",
            f"{name}: {count_text(len(its), 'damaged segment')}, known since {moment_text(since_ms)}:"
            f" {its[0]['reason']}",
            f"kompakt compact explain {name} says what it holds back and what to do",
        )
