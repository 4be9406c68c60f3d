"""The watch of a fetch: which partitions it wakes for, also from one request to the next."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from protocol.messages.fetch import FetchPartition
from protocol.wire.numbers import Offset
from server.fetching.asked_partitions import AskedPartition, AskedTopic
from server.fetching.watch import Watch
from storage.segment.reader import Isolation, ReadResult
from tests.harness.served_broker import ServedBroker, batch_of, serving_broker


def read(served: ServedBroker, asked: AskedPartition) -> None:
    log = served.log("orders", asked.wanted.partition)
    found = log.reader.read(
        Offset(0), max_bytes=1, whole_first_batch=False, isolation=Isolation.READ_UNCOMMITTED
    )
    assert isinstance(found, ReadResult)
    asked.store(log, found, may_copy=True)


def partitions(count: int) -> list[AskedPartition]:
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(count)
    ]
    return [AskedPartition(AskedTopic("orders", None), each) for each in wanted]


def covered(served: ServedBroker, asked: Iterable[AskedPartition]) -> Watch:
    watch = Watch(served.broker.fetch_waiters)
    for each in asked:
        read(served, each)
    watch.cover(asked)
    return watch


async def test_a_log_that_changes_wakes_for_its_partition(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 3)
        asked = partitions(3)
        watch = covered(served, asked)
        assert not watch.parked.is_woken
        await served.produce("orders", batch_of(1), 1)
        assert list(watch.take_changed()) == [asked[1]]
        assert list(watch.take_changed()) == []


async def test_what_changed_between_the_read_and_the_cover_wakes_at_once(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        asked = partitions(2)
        for each in asked:
            read(served, each)
        await served.produce("orders", batch_of(1), 1)
        watch = Watch(served.broker.fetch_waiters)
        watch.cover(asked)
        assert list(watch.take_changed()) == [asked[1]]


async def test_a_suspended_watch_wakes_the_next_request_for_what_that_has_not_read(
    tmp_path: Path,
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 3)
        asked = partitions(3)
        watch = covered(served, asked)
        for each in asked:
            each.note_answer()
        watch.parked.suspend()
        await served.produce("orders", batch_of(1), 0)
        read(served, asked[0])
        await served.produce("orders", batch_of(1), 1)
        watch.parked.resume()
        watch.cover(list(watch.take_changed()))
        assert list(watch.take_changed()) == [asked[1]]


async def test_a_suspended_watch_does_not_hurry_a_sync(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 1)
        (asked,) = partitions(1)
        watch, log = covered(served, [asked]), served.log("orders")
        waiters = served.broker.fetch_waiters
        assert waiters.is_watched(log)
        watch.parked.suspend()
        assert not waiters.is_watched(log)
        watch.parked.resume()
        assert waiters.is_watched(log)
        watch.uncover(asked)
        watch.uncover(asked)
        assert not waiters.is_watched(log)


async def test_a_partition_that_is_no_longer_covered_does_not_wake(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", 2)
        asked = partitions(2)
        watch = covered(served, asked)
        for number in range(2):
            await served.produce("orders", batch_of(1), number)
        watch.uncover(asked[0])
        assert list(watch.take_changed()) == [asked[1]]
        await served.produce("orders", batch_of(1), 0)
        assert not watch.parked.is_woken


async def test_a_partition_with_another_log_wakes_for_that_one(tmp_path: Path) -> None:
    async with serving_broker(tmp_path) as served:
        topic = await served.create("orders", 1)
        asked = partitions(1)
        watch, old = covered(served, asked), served.log("orders")
        await served.broker.topics.delete(topic)
        await served.create("orders", 1)
        list(watch.take_changed())
        read(served, asked[0])
        watch.cover(asked)
        assert not served.broker.fetch_waiters.is_watched(old)
        await served.produce("orders", batch_of(1), 0)
        assert list(watch.take_changed()) == asked
