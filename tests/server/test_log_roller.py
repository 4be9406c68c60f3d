"""Idle logs roll by the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.harness.served_broker import serving_broker


async def test_an_idle_log_rolls_when_its_time_is_over_and_an_empty_one_never(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path, log_roll_check_interval_ms="20") as served:
        await served.create("written", segment_ms="100")
        await served.create("empty", segment_ms="100")
        await served.produce("written")
        assert len(served.log("written").segments) == 1

        for _ in range(500):
            await asyncio.sleep(0.02)
            if len(served.log("written").segments) > 1:
                break
        await asyncio.sleep(0.3)

        assert len(served.log("written").segments) == 2, "the new segment is empty and stays"
        assert len(served.log("empty").segments) == 1
        assert served.log("written").log_end_offset == 1


async def test_a_log_whose_time_is_not_over_does_not_roll(tmp_path: Path) -> None:
    async with serving_broker(tmp_path, log_roll_check_interval_ms="20") as served:
        await served.create("written")
        await served.produce("written")
        await asyncio.sleep(0.2)

        assert len(served.log("written").segments) == 1
