"""Reads of data outside the page cache run in a thread; the loop continues, and no pin is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from metrics.server_probe import ServerProbe
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Offset
from server.runtime.cold_reads import ColdReads
from storage.files.paths import LOG
from storage.segment.reader import Isolation, ReadResult
from tests.harness.cold_fs import ColdFileSystem, evict
from tests.harness.log_builder import valid
from tests.harness.log_home import LogHome
from tests.harness.memory_fs import MemoryFileSystem
from tests.harness.served_broker import (
    ServedBroker,
    batch_of,
    fetch_request,
    only_fetched,
    records_in,
    serving_broker,
    serving_broker_on,
)

BIG = bytes(50_000)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def let_cool(served: ServedBroker, files: ColdFileSystem, name: str = "orders") -> None:
    """Make the broker believe that a log is not in the page cache."""
    files.cold.update(segment.path(LOG) for segment in served.log(name).segments)


async def test_evicted_segments_are_read_in_threads_and_every_record_arrives(
    tmp_path: Path,
) -> None:
    """Uses real files that the system has evicted from its page cache."""
    async with serving_broker(tmp_path) as served:
        await served.create("orders", segment_bytes=str(1 << 20))
        for _ in range(12):
            await served.produce("orders", batch_of(10, value=BIG))
        log = served.log("orders")
        assert len(log.segments) > 5
        await asyncio.to_thread(served.broker._background.drain)
        if not evict(tmp_path):
            pytest.skip("this file system does not empty its page cache, or does not tell")
        before, offset = served.broker.probe.cold_reads, 0
        while offset < 120:
            records = records_in(await served.fetch("orders", offset))
            assert records[0].offset == offset
            offset = records[-1].offset + 1
        assert served.broker.probe.cold_reads >= before + 3
        warm = served.broker.probe.cold_reads
        assert records_in(await served.fetch("orders", 0))
        assert served.broker.probe.cold_reads == warm


async def test_the_loop_serves_others_while_a_thread_waits_for_the_disk(tmp_path: Path) -> None:
    files = ColdFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        for name in ("orders", "others"):
            await served.create(name)
            await served.produce(name, batch_of(1, value=BIG))
        let_cool(served, files)
        files.disk.clear()
        waiting = asyncio.ensure_future(served.fetch("orders", 0))
        await until(lambda: bool(files.waited_in))

        assert len(records_in(await served.fetch("others", 0))) == 1
        assert not waiting.done()

        files.disk.set()
        assert len(records_in(await waiting)) == 1
    assert all(name.startswith("cold-read") for name in files.waited_in)


async def test_answers_keep_their_order_though_the_first_one_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    files = ColdFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1, value=BIG))
        let_cool(served, files)
        files.disk.clear()
        client = await served.connect()
        first = client.send(fetch_request([("orders", 0, 0)]), 12)
        second = client.send(ListOffsetsRequest(replica_id=-1, topics=()), 7)
        await until(lambda: bool(files.waited_in))
        files.disk.set()
        assert records_in(only_fetched(await client.receive(FetchResponse, 12, first)))
        await client.receive(ListOffsetsResponse, 7, second)


async def test_a_client_that_leaves_meanwhile_leaves_no_pin(tmp_path: Path) -> None:
    files = ColdFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1, value=BIG))
        let_cool(served, files)
        files.disk.clear()
        client = await served.connect()
        client.send(fetch_request([("orders", 0, 0)]), 12)
        await until(lambda: bool(files.waited_in))
        (segment,) = served.log("orders").segments
        assert segment.files._pins == 1
        client.abort()
        await asyncio.sleep(0.02)
        files.disk.set()
        await until(lambda: segment.files._pins == 0)


async def test_what_changes_while_a_thread_reads_wakes_the_fetch_that_waits_for_more(
    tmp_path: Path,
) -> None:
    files = ColdFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        for name in ("early", "orders"):
            await served.create(name)
        await served.produce("orders", batch_of(1, value=BIG))
        let_cool(served, files)
        files.disk.clear()
        client = await served.connect()
        wanted = [("early", 0, 0), ("orders", 0, 0)]
        request = fetch_request(wanted, max_wait_ms=30_000, min_bytes=90_000)
        asked = client.send(request, 12)
        await until(lambda: bool(files.waited_in))
        # The partition was read and had no records; the fetch is not parked yet.
        await served.produce("early", batch_of(1, value=BIG))
        files.disk.set()
        response = await client.receive(FetchResponse, 12, asked)
    assert [len(records_in(topic.partitions[0])) for topic in response.responses] == [1, 1]


async def test_a_disk_that_fails_in_the_thread_is_told_to_that_partition(tmp_path: Path) -> None:
    files = ColdFileSystem()
    async with serving_broker_on(files, tmp_path) as served:
        await served.create("orders")
        await served.produce("orders", batch_of(1, value=BIG))
        let_cool(served, files)
        (segment,) = served.log("orders").segments
        with segment.pinned() as file:
            file.truncate(100)
        data: PartitionData = await served.fetch("orders", 0)
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert segment.files._pins == 0


async def test_a_read_that_nobody_waits_for_any_more_releases_what_it_found() -> None:
    home = LogHome(MemoryFileSystem())
    log = home.create()
    log.appender.append_as_leader(valid(batch_of(1)), now_ms=0)
    log.advance_high_watermark(log.sync())
    reads = ColdReads(ServerProbe())
    started, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> ReadResult | ErrorCode:
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
        return log.reader.read(
            Offset(0), max_bytes=1, whole_first_batch=True, isolation=Isolation.READ_UNCOMMITTED
        )

    task = asyncio.ensure_future(reads.run(read))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.to_thread(reads.close)
    await asyncio.sleep(0)
    await until(lambda: log.segments[0].files._pins == 0)
