"""What the doctor says about damaged segments, from the answer of a running broker."""

from __future__ import annotations

from typing import Any

from cli.doctor.damaged_segments import judge_damaged_segments
from cli.doctor.findings import Status


def fence(topic: str, base_offset: int, since_ms: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": 0,
        "base_offset": base_offset,
        "end_offset": base_offset + 10,
        "since_ms": since_ms,
        "reason": f"CRC differs, position {base_offset}",
    }


def test_without_damage_there_is_nothing_to_say() -> None:
    assert list(judge_damaged_segments([])) == []


def test_each_partition_with_damage_is_a_warning_with_its_place() -> None:
    found = judge_damaged_segments(
        [fence("a", 0, 1_700_000_001_000), fence("a", 50, 1_700_000_000_000), fence("b", 7, 0)]
    )

    first, second = found
    assert first.status is Status.WARNING
    assert first.text.startswith("a-0: 2 damaged segments, known since 2023-11-14")
    assert first.text.endswith(": CRC differs, position 0")
    assert "kompakt compact explain a-0" in first.remedy
    assert second.text.startswith("b-0: 1 damaged segment,")
