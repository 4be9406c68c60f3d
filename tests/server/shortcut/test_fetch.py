"""The second path of Fetch answers what the ordinary one does, and leaves it the rest."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cleaner.lookup import dead_notes
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch, Offset, ProducerId
from server.net.limits import AnswerMemory
from server.net.send_queue import COPIED_BYTES_MAX
from server.shortcut.plain import PlainRequests
from server.views.latest_view import other_id
from storage.files.errors import DiskError, NotCached
from storage.files.local_files import LocalFile
from storage.log.reader import LogReader
from storage.segment.reader import SegmentRegion
from tests.harness.log_builder import batch_of, valid
from tests.harness.plain_requests import Counts, answers_to, counted, switch_off
from tests.harness.raw_client import RawClient, encode_request
from tests.harness.served_broker import (
    ServedBroker,
    fetch_request,
    only_fetched,
    records_in,
    serving_broker,
)
from tests.server.handlers.test_fetch import until

TOPIC_ID = UUID(int=(3 << 100) + 9)
OTHER_ID = UUID(int=(3 << 100) + 10)
KEYED_ID = UUID(int=(3 << 100) + 11)
IDS = {
    "orders": TOPIC_ID, "payments": OTHER_ID, "keyed": KEYED_ID, "keyed.latest": other_id(KEYED_ID),
}  # fmt: skip
LARGE = bytes(COPIED_BYTES_MAX + 1)


@asynccontextmanager
async def broker_in(directory: Path, **properties: str) -> AsyncIterator[ServedBroker]:
    """Run a broker with records of several producers, transactions and sizes."""
    async with serving_broker(directory, **properties) as served:
        for name, topic_id in (("orders", TOPIC_ID), ("payments", OTHER_ID)):
            created = await served.broker.topics.create(
                name, partitions_count=2, overrides={}, topic_id=topic_id
            )
            assert created.name == name  # type: ignore[union-attr]
            for log in served.broker.topics.logs():
                await served.broker.topics.make_files(log)
        for number in range(6):
            await served.produce("orders", batch_of([(b"k", b"%d" % number * 40)] * 3))
        await served.produce("orders", batch_of([(b"k", LARGE)]))
        await served.produce("payments", batch_of([(b"k", b"v")]))
        await end_transaction(served, is_commit=False)
        await served.produce("payments", batch_of([(b"k", b"v")]))
        yield served


async def end_transaction(served: ServedBroker, *, is_commit: bool) -> None:
    """Write a record of a transaction and its marker."""
    await begin_transaction(served, "payments")
    log = served.log("payments")
    log.appender.append_marker(
        ProducerId(7), Epoch(0), is_commit=is_commit, coordinator_epoch=Epoch(0), now_ms=5_000
    )
    await served.broker.group_commit.rest(log)


async def begin_transaction(served: ServedBroker, topic: str) -> None:
    log = served.log(topic)
    batch = batch_of(
        [(b"k", b"v")], is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.appender.append_as_leader(valid(batch), now_ms=5_000)
    await served.broker.group_commit.rest(log)


async def add_view(served: ServedBroker) -> None:
    """Add a topic whose view has records that others outrank in its first batches only, and ends before
    an open transaction."""
    topics = served.broker.topics
    await topics.create(
        "keyed", partitions_count=1, overrides={"cleanup.policy": "compact"}, topic_id=KEYED_ID
    )
    for log in topics.logs():
        await topics.make_files(log)
    for number in (0, 0, 1, *range(20)):
        await served.produce("keyed", batch_of([(b"key-%d" % number, bytes(40))]))
    await begin_transaction(served, "keyed")


def request_of(offset: int = 0, name: str = "orders", **changed: Any) -> FetchRequest:
    changed.setdefault("topic_id", IDS.get(name, OTHER_ID))
    return fetch_request([(name, changed.pop("partition", 0), offset)], **changed)


# ---------------------------------------------------------------- compared


def random_frames(seed: int, count: int) -> list[bytes]:
    """Returns requests of all kinds, of which most are plain. The same seed makes the same ones."""
    choose = random.Random(seed).choice
    frames = []
    for number in range(count):
        version = choose((4, 5, 7, 9, 11, 12, 13, 17, 18))
        request = request_of(
            choose((*range(20), -1, 10_000)),
            choose(
                ("orders", "orders", "payments", "keyed.latest", "keyed.latest", "none", "\u0119")
            ),
            partition=choose((0, 0, 0, 0, 1, 9)),
            partition_max_bytes=choose((1 << 20, 1 << 20, 100, 0, -1)),
            max_bytes=choose((50 << 20, 50 << 20, 200)),
            min_bytes=choose((0, 1, 1, 300)),
            max_wait_ms=choose((0, 0, 1)),
            isolation_level=choose((0, 1, 1, 2)),
            current_leader_epoch=choose((-1, -1, 0, 4)),
            last_fetched_epoch=choose((-1, -1, -1, 0)) if version >= 12 else -1,
            session_id=choose((0, 0, 0, 0, 9)) if version >= 7 else 0,
            session_epoch=choose((-1, -1, 0, 0, 3)) if version >= 7 else -1,
        )
        frames.append(encode_request(request, version, number))
    return frames


async def answers(directory: Path, seed: int) -> list[bytes]:
    """Returns what a broker answers to random requests, one or several at a time."""
    async with broker_in(directory) as served:
        await add_view(served)
        found = await answers_to(
            random_frames(seed, 150),
            await served.connect(),
            random.Random(seed + 1),
            sizes=(1, 1, 2, 7),
        )
        for name in ("orders", "keyed"):
            assert all(each.files._pins == 0 for each in served.log(name).segments)
    return found


@pytest.mark.parametrize("seed", range(10))
async def test_both_paths_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(dead_notes, "BLOCK_SHIFT_MIN", 0)
    with monkeypatch.context() as patch:
        counts = counted(patch)
        with_it = await answers(tmp_path / "with", seed)
    switch_off(monkeypatch)
    without_it = await answers(tmp_path / "without", seed)

    assert counts.taken > 10
    assert counts.left > 10
    assert with_it == without_it


# ---------------------------------------------------------------- which requests take it


async def is_taken(
    served: ServedBroker, counts: Counts, request: FetchRequest, version: int = 12
) -> bool:
    before = counts.taken
    await served.call(request, version, FetchResponse)
    return counts.taken > before


@pytest.mark.parametrize("version", [5, 7, 9, 11, 12, 13, 18])
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_a_plain_fetch_takes_the_shortcut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, isolation_level: int
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        request = request_of(4, max_wait_ms=500, isolation_level=isolation_level)
        assert await is_taken(served, counts, request, version)


@pytest.mark.parametrize("version", [5, 12, 13, 18])
async def test_a_view_takes_the_shortcut_where_it_is_sent_as_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(dead_notes, "BLOCK_SHIFT_MIN", 0)
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        await add_view(served)
        assert not await is_taken(served, counts, request_of(5, "keyed.latest"), version)
        assert await is_taken(served, counts, request_of(5, "keyed.latest"), version)
        assert not await is_taken(served, counts, request_of(0, "keyed.latest"), version)
        facts = served.broker.view_reads.facts()
        assert (facts.stored_total, facts.filtered_total) == (1, 2)

        monkeypatch.setattr(AnswerMemory, "has_room", property(lambda _: False))
        assert not await is_taken(
            served, counts, request_of(5, "keyed.latest", max_wait_ms=0), version
        )


@pytest.mark.parametrize(
    "request_",
    [
        request_of(19),
        request_of(20),
        request_of(-1),
        request_of(18, min_bytes=1 << 20, max_wait_ms=1),
        request_of(0, "payments", isolation_level=1),
        request_of(0, current_leader_epoch=3),
        request_of(0, partition=9),
        request_of(0, "none", topic_id=UUID(int=5)),
        request_of(0, "__consumer_offsets", topic_id=UUID(int=6)),
    ],
    ids=[
        "at the end",
        "beyond the end",
        "below the start",
        "too little",
        "aborted records",
        "another epoch",
        "no partition",
        "no topic",
        "an internal topic",
    ],
)
async def test_a_request_that_waits_or_is_refused_takes_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: FetchRequest
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        before = counts.left
        assert not await is_taken(served, counts, request_)
        assert counts.left == before + 1
        assert not any(each.files._pins for each in served.log("orders").segments)


async def test_the_listener_of_followers_leaves_requests_to_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        assert await is_taken(served, counts, request_of())
        internal = replace(served.broker.config, inter_broker_listener_name="PLAINTEXT")
        monkeypatch.setattr(served.broker, "config", internal)
        assert not await is_taken(served, counts, request_of())


async def test_a_topic_that_was_deleted_is_unknown_though_its_answer_is_remembered(
    tmp_path: Path,
) -> None:
    async with broker_in(tmp_path) as served:
        found = await served.call(request_of(), 13, FetchResponse)
        assert only_fetched(found).error_code == ErrorCode.NONE
        orders = served.broker.topics.get("orders")
        assert orders is not None
        await served.broker.topics.delete(orders)
        found = await served.call(request_of(), 13, FetchResponse)
        assert only_fetched(found).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# ---------------------------------------------------------------- records


async def test_small_records_are_copied_and_large_ones_pinned_until_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, pinned = counted(monkeypatch), list[bool]()
    async with broker_in(tmp_path) as served:
        (segment,) = served.log("orders").segments
        run = PlainRequests.run

        def noting(*arguments: Any) -> Any:
            done = run(*arguments)
            pinned.append(segment.files._pins > 0)
            return done

        monkeypatch.setattr(PlainRequests, "run", noting)
        for offset in (0, 18):
            before = counts.taken
            found = only_fetched(
                await served.call(request_of(offset, partition_max_bytes=500), 12, FetchResponse)
            )
            assert counts.taken == before + 1
            assert records_in(found)[0].offset == offset
        assert pinned[-2:] == [False, True]
        await until(lambda: segment.files._pins == 0)
        assert served.broker.answers.held_bytes == 0


async def test_nothing_is_copied_while_memory_for_answers_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        monkeypatch.setattr(AnswerMemory, "has_room", property(lambda _: False))
        monkeypatch.setattr(SegmentRegion, "read_cached", failing)
        small = request_of(partition_max_bytes=500)
        assert await is_taken(served, counts, small)
        found = only_fetched(await served.call(small, 12, FetchResponse))
        assert records_in(found)[0].offset == 0


async def test_requests_behind_a_large_answer_are_answered_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        client = await served.connect()
        frames = [encode_request(request_of(18), 12, number) for number in range(9)]
        client.send_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
        assert [await number_of(client) for _ in frames] == list(range(9))
        assert counts.taken >= 1


async def number_of(client: RawClient) -> int:
    """Returns an answer's correlation id."""
    return int.from_bytes((await client.receive_frame())[:4], "big")


# ---------------------------------------------------------------- failures


def failing(*_: object) -> bytes:
    raise DiskError("read", "x", 5, "Input/output error")


async def test_records_that_cannot_be_read_are_an_error_of_the_partition_and_leave_no_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in(tmp_path) as served:
        monkeypatch.setattr(SegmentRegion, "read_cached", failing)
        small = request_of(partition_max_bytes=500)
        found = only_fetched(await served.call(small, 12, FetchResponse))
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not any(each.files._pins for each in served.log("orders").segments)


@pytest.mark.parametrize(
    ("reader", "method"), [(LogReader, "read"), (SegmentRegion, "read_cached")]
)
async def test_records_that_are_not_in_memory_come_by_the_ordinary_path(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reader: type,
    method: str,
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        read, calls = getattr(reader, method), list[object]()

        def cold_once(*arguments: Any, **settings: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 1:
                raise NotCached("x")
            return read(*arguments, **settings)

        monkeypatch.setattr(reader, method, cold_once)
        found = only_fetched(
            await served.call(request_of(partition_max_bytes=500), 12, FetchResponse)
        )
        assert records_in(found)[0].offset == 0
        assert (counts.taken, len(calls)) == (9, 2)
        assert not caplog.records
        assert not any(each.files._pins for each in served.log("orders").segments)


async def test_records_that_a_cut_has_removed_meanwhile_are_not_counted_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in(tmp_path) as served:
        monkeypatch.setattr(
            LocalFile, "read_cached", lambda self, at, size: self.read_at(at, size)[:-10]
        )
        small = request_of(partition_max_bytes=500)
        found = only_fetched(await served.call(small, 12, FetchResponse))
        assert records_in(found)[0].offset == 0


async def test_a_mistake_of_ours_is_logged_and_the_ordinary_path_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        read, calls = LogReader.read, list[Offset]()

        def failing_once(self: LogReader, offset: Offset, **settings: Any) -> Any:
            calls.append(offset)
            if len(calls) == 1:
                raise ValueError("a mistake")
            return read(self, offset, **settings)

        monkeypatch.setattr(LogReader, "read", failing_once)
        assert not await is_taken(served, counts, request_of())
        assert len(calls) == 2
        assert "plain fetch: failed unexpectedly" in caplog.text
