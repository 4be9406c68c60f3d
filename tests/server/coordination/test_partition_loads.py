"""Loading of a coordinator's partitions after a start: none is served before it is loaded."""

from __future__ import annotations

import asyncio
import logging

import pytest

from protocol.wire.error_codes import ErrorCode
from server.coordination import partition_loads
from server.coordination.partition_loads import PartitionLoads
from storage.files.errors import LogOffline


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


class Unreadable:
    """Partitions whose first loads fail, a given number of times."""

    def __init__(self, **failures: int) -> None:
        self._left = {int(number.removeprefix("p")): count for number, count in failures.items()}
        self.tries: list[int] = []

    async def load(self, partition: int) -> None:
        self.tries.append(partition)
        if self._left.get(partition, 0):
            self._left[partition] -= 1
            raise LogOffline(f"topic-{partition}", "the disk is broken")


async def test_a_partition_that_cannot_be_read_is_not_served_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loads = PartitionLoads(2, logging.getLogger("test"))

    loads.start(Unreadable(p0=1).load)
    await loads.loaded()

    assert loads.error(0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert loads.error(1) is ErrorCode.NONE
    assert loads.by_state(2) == {"loading": 0, "active": 1, "failed": 1}
    assert "topic-0" in caplog.text
    assert "the disk is broken" in caplog.text
    assert "retrying in 1 s" in caplog.text
    await loads.stop()


async def test_a_failed_load_is_retried_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partition_loads, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(partition_loads, "RETRY_SECONDS_MAX", 0.004)
    loads = PartitionLoads(3, logging.getLogger("test"))
    unreadable = Unreadable(p0=2, p2=5)

    loads.start(unreadable.load)
    async with asyncio.timeout(20):
        while loads.by_state(3)["active"] < 3:  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.001)

    assert sorted(unreadable.tries) == [0] * 3 + [1] + [2] * 6
    assert [loads.error(partition) for partition in range(3)] == [ErrorCode.NONE] * 3
    assert "partition 2: loaded after a retry" in caplog.text
    await loads.stop()


async def test_waiting_for_loads_includes_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_loads, "RETRY_SECONDS", 0.001)
    loads = PartitionLoads(1, logging.getLogger("test"))
    is_tried_again, may_end = asyncio.Event(), asyncio.Event()
    unreadable = Unreadable(p0=1)

    async def load(partition: int) -> None:
        await unreadable.load(partition)
        is_tried_again.set()
        await may_end.wait()

    loads.start(load)
    await is_tried_again.wait()
    waiting = asyncio.create_task(loads.loaded())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert loads.error(0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    may_end.set()
    await waiting
    assert loads.error(0) is ErrorCode.NONE


async def test_reading_ends_when_the_broker_does() -> None:
    loads = PartitionLoads(2, logging.getLogger("test"))

    async def load(partition: int) -> None:
        await asyncio.Event().wait()

    loads.start(load)
    await asyncio.sleep(0)
    await loads.stop()
    assert loads.is_loading


async def test_an_unexpected_failure_of_a_load_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_loads, "RETRY_SECONDS", 0.001)
    tries: list[int] = []

    async def load(partition: int) -> None:
        tries.append(partition)
        if partition % 2 == 0 and tries.count(partition) == 1:
            raise RuntimeError("a mistake")

    loads = PartitionLoads(20, logging.getLogger("test"))
    loads.start(load)
    async with asyncio.timeout(10):
        while any(loads.error(each) is not ErrorCode.NONE for each in range(20)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await loads.stop()
