"""The partitions of a coordinator's topic after a start: what nobody knows yet is never said."""

from __future__ import annotations

import asyncio
import logging

import pytest

from protocol.error_codes import ErrorCode
from server.partition_loads import PartitionLoads
from storage.errors import LogOffline


async def test_a_partition_is_served_once_it_is_read_and_not_before() -> None:
    loads = PartitionLoads(3, logging.getLogger("test"))
    may_end, is_at_the_next = asyncio.Event(), asyncio.Event()

    async def load(partition: int) -> None:
        if partition == 2:
            is_at_the_next.set()
        if partition == 1:
            await may_end.wait()

    assert loads.error(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    loads.start(load)
    await is_at_the_next.wait()
    assert loads.is_loading
    assert loads.error(0) is ErrorCode.NONE
    assert loads.error(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    may_end.set()
    await loads.loaded()
    assert not loads.is_loading
    assert loads.error(1) is ErrorCode.NONE


async def test_a_partition_that_cannot_be_read_is_never_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loads = PartitionLoads(1, logging.getLogger("test"))

    async def load(partition: int) -> None:
        raise LogOffline(f"topic-{partition}", "the disk is broken")

    loads.start(load)
    await loads.loaded()

    assert loads.error(0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "topic-0" in caplog.text
    assert "the disk is broken" in caplog.text


async def test_reading_ends_when_the_broker_does() -> None:
    loads = PartitionLoads(2, logging.getLogger("test"))

    async def load(partition: int) -> None:
        await asyncio.Event().wait()

    loads.start(load)
    await asyncio.sleep(0)
    await loads.stop()
    assert loads.is_loading
