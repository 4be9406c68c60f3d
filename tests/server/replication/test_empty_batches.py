"""Batches without records, which carry the last sequence of a producer: the internal listener delivers
them, and a mirror that follows it has them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cleaner.passes.clean import clean
from cleaner.rules.cleaning_plan import plan_pass
from cleaner.rules.pick import assess
from protocol.messages.fetch import FetchResponse
from protocol.records.batch_header import BatchHeader, read_header, stamp
from protocol.records.record_batch import build_empty_batch
from protocol.wire.numbers import Epoch, Offset, ProducerId
from server.replication.findings import Verdict
from server.replication.link_spec import parse_link
from server.replication.state_table import Guard
from server.replication.verify.verdict import Verdict as Verdicts
from storage.batches.gap_batch import gap_batch
from storage.log.appender import Appended, LogAppender
from storage.log.log import PartitionLog
from storage.state.producer_state import AppendedBatch
from tests.harness.compacted_log import SETTINGS, meter_of
from tests.harness.log_builder import batch_of, headers_in, run_of, valid
from tests.harness.served_broker import ServedBroker, fetch_request, only_fetched, serving_broker
from tests.server.replication.test_mirroring import LINK, soon, status, until, until_equal
from tests.server.replication.verify.test_verifications import verified

__all__ = ["soon"]  # A fixture that every test here uses, too.

CLIENTS, INTERNAL = "PLAINTEXT", "INTERNAL"
PRODUCER = ProducerId(7)


@asynccontextmanager
async def brokers(
    tmp_path: Path, **source: str
) -> AsyncIterator[tuple[ServedBroker, ServedBroker]]:
    """Yields a source that has a listener for brokers, and the broker that mirrors it."""
    listeners = {
        "listeners": f"{CLIENTS}://127.0.0.1:0,{INTERNAL}://127.0.0.1:0",
        "listener_security_protocol_map": f"{CLIENTS}:PLAINTEXT,{INTERNAL}:PLAINTEXT",
        "inter_broker_listener_name": INTERNAL,
    }
    async with (
        serving_broker(tmp_path / "source", **listeners, **source) as first,
        serving_broker(tmp_path / "target") as second,
    ):
        yield first, second


async def follow(
    target: ServedBroker, source: ServedBroker, listener: str = INTERNAL, **settings: Any
) -> None:
    host, port = source.broker.addresses[listener]
    content = {"bootstrap": f"{host}:{port}", "topics": ["t"], **settings}
    await target.broker.replication.create(parse_link(LINK, json.dumps(content)))


def sent(key: bytes, sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    """Returns a batch of the idempotent producer."""
    return batch_of(
        [(key, b"%d" % sequence)] * count,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def durable(served: ServedBroker, log: PartitionLog) -> None:
    served.broker.group_commit.appended(log)
    await served.broker.group_commit.durable(log, log.log_end_offset)


async def cleaned(source: ServedBroker) -> PartitionLog:
    """Clean the source's log. All of it is seen, because the active segment rolls first."""
    log = source.log("t")
    await durable(source, log)
    log.roll(0)
    now_ms = time.time_ns() // 1_000_000
    view = log.cleaning_view()
    assessment = assess(view, log.config, now_ms, requested=True)
    plan = plan_pass(view, assessment, now_ms=now_ms, stamp_ms=now_ms)
    meter = meter_of(log, view.generation)
    await asyncio.to_thread(
        clean, log.cleaning, plan, SETTINGS, meter=meter, monotonic=time.monotonic
    )
    return log


def batches(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Returns (first offset, last offset, records) of each batch in a log's files."""
    return [
        (header.base_offset, header.last_offset, header.record_count)
        for segment in log.segments
        for header in headers_in(segment.files.open().read_at(0, segment.size))
    ]


async def with_an_empty_batch(source: ServedBroker) -> PartitionLog:
    """Let another producer overwrite all that the idempotent one has written, and clean."""
    await source.create("t", cleanup_policy="compact")
    await source.produce("t", sent(b"k", 0, 3))
    await source.produce("t", sent(b"k", 3, 2))
    await source.produce("t", batch_of([(b"k", b"later")]))
    log = await cleaned(source)
    assert batches(log) == [(3, 4, 0), (5, 5, 1)], "the producer's last batch has no record"
    return log


async def fetched(
    source: ServedBroker, offset: int, listener: str, version: int = 12
) -> list[BatchHeader]:
    """Returns the batches of one Fetch."""
    client = await source.connect(listener)
    request = fetch_request([("t", 0, offset)])
    data = only_fetched(await client.call(request, version, FetchResponse))
    records = data.records if data.records is not None else b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return list(headers_in(bytes(records)))


async def test_an_answer_on_the_internal_listener_begins_with_batches_without_records(
    tmp_path: Path,
) -> None:
    async with brokers(tmp_path) as (source, _):
        await with_an_empty_batch(source)
        for offset in range(5):
            assert [each.base_offset for each in await fetched(source, offset, CLIENTS)] == [5]
            found = await fetched(source, offset, INTERNAL)
            assert [each.base_offset for each in found] == [3, 5]
            assert (found[0].producer_id, found[0].last_sequence) == (PRODUCER, 4)
            # No follower speaks this version, and kafkajs, which does, would ask for ever.
            of_client = await fetched(source, offset, INTERNAL, version=11)
            assert [each.base_offset for each in of_client] == [5]


async def test_a_trailing_batch_without_records_comes_only_on_the_internal_listener(
    tmp_path: Path,
) -> None:
    async with brokers(tmp_path) as (source, _):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"k", b"v")]))
        log = source.log("t")
        log.appender.advance_end(Offset(9))
        await durable(source, log)
        assert await fetched(source, 1, CLIENTS) == []
        assert [each.next_offset for each in await fetched(source, 1, INTERNAL)] == [9]
        # The end of a reader that has the first part of the gap lies within this batch.
        assert await fetched(source, 4, INTERNAL) == []


@pytest.mark.parametrize("continues_at", ["mirror", "mirror after a restart"])
async def test_a_producers_sequence_continues_on_a_mirror_of_a_cleaned_source(
    tmp_path: Path, continues_at: str
) -> None:
    async with brokers(tmp_path) as (source, target):
        theirs = await with_an_empty_batch(source)
        await follow(target, source)
        await until_equal(source, target)
        ours = target.log("t")
        assert bytes_of(ours) == bytes_of(theirs)
        assert status(target)["partitions"][0]["lag"] == 0
        last = AppendedBatch(3, 4, Offset(4))
        assert state_of(ours) == state_of(theirs) == (0, (last,))
        if continues_at == "mirror":
            continues(ours)
            return
    async with serving_broker(tmp_path / "target") as target:
        continues(target.log("t"))


def bytes_of(log: PartitionLog) -> bytes:
    return b"".join(each.files.open().read_at(0, each.size) for each in log.segments)


def state_of(log: PartitionLog) -> tuple[int, tuple[AppendedBatch, ...]]:
    """Returns the producer's epoch and last batch."""
    state = log.producers.get(PRODUCER)
    assert state is not None
    return state.producer_epoch, state.batches[-1:]


def continues(log: PartitionLog) -> None:
    """Check that the producer's last batch is recognised, and the next one accepted, once this broker
    leads the log with its producers."""
    before = log.log_end_offset
    again = log.appender.append_as_leader(valid(sent(b"k", 3, 2)), now_ms=0)
    assert again == Appended(Offset(3), Offset(5), duplicate=True)
    following = log.appender.append_as_leader(valid(sent(b"k", 5)), now_ms=0)
    assert following == Appended(before, Offset(before + 1))
    unsent = log.appender.append_as_leader(valid(sent(b"k", 9)), now_ms=0)
    assert not isinstance(unsent, Appended), "a batch is missing before it"


async def test_a_mirror_of_another_listener_does_not_know_the_producer(tmp_path: Path) -> None:
    async with brokers(tmp_path) as (source, target):
        await with_an_empty_batch(source)
        await follow(target, source, CLIENTS)
        await until_equal(source, target)
        assert target.log("t").producers.get(PRODUCER) is None


async def test_a_trailing_batch_without_records_is_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps, advance_end = list[Offset](), LogAppender.advance_end

    def note(log: LogAppender, offset: Offset, **how: Any) -> None:
        gaps.append(offset)
        advance_end(log, offset, **how)

    async with brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await follow(target, source)
        await source.produce("t", batch_of([(b"k", b"v")]))
        await until_equal(source, target)
        theirs = source.log("t")
        monkeypatch.setattr(LogAppender, "advance_end", note)
        await append_empty(source, sent(b"k", 0, 4), epoch=theirs.leader_epoch)
        await until_equal(source, target)
        await source.produce("t", batch_of([(b"k", b"w")]))
        await until_equal(source, target)
        assert bytes_of(target.log("t")) == bytes_of(theirs)
        assert (gaps, status(target)["partitions"][0]["cut_records"]) == ([], 0)


async def append_empty(source: ServedBroker, batch: bytearray, *, epoch: int) -> None:
    """Append a batch whose records are gone, as a follower of another cleaned log has it."""
    log = source.log("t")
    empty = build_empty_batch(read_header(batch))
    stamp(memoryview(empty), base_offset=log.log_end_offset, leader_epoch=Epoch(epoch))
    log.appender.append_as_follower(run_of(empty), now_ms=0)
    await durable(source, log)


async def test_a_gap_that_the_mirror_has_in_part_is_followed_to_its_end(tmp_path: Path) -> None:
    """The source is a mirror itself, and a resync has made one gap of two."""
    async with brokers(tmp_path) as (source, target):
        await source.create("t", cleanup_policy="compact")
        await source.produce("t", batch_of([(b"k", b"v")]))
        log = source.log("t")
        epoch = log.leader_epoch
        log.appender.advance_end(Offset(5))
        source.broker.group_commit.appended(log)
        await follow(target, source)
        await until_equal(source, target)
        await target.broker.replication.pause(LINK, is_paused=True)
        await source.broker.group_commit.rest(log)
        await asyncio.to_thread(log.truncate_to, Offset(1))
        source.broker.group_commit.abandon(log)
        log.appender.append_as_follower(run_of(gap_batch(Offset(1), Offset(8), epoch)), now_ms=0)
        source.broker.group_commit.appended(log)
        await source.produce("t", batch_of([(b"k", b"w")]))
        await target.broker.replication.pause(LINK, is_paused=False)
        await until_equal(source, target)
        assert target.broker.replication.facts()[LINK].failed_attempts_total == 0


async def test_a_resync_takes_the_producers_along(tmp_path: Path) -> None:
    async with brokers(tmp_path) as (source, target):
        theirs = await with_an_empty_batch(source)
        await follow(target, source)
        await until_equal(source, target)
        (mirror,) = target.broker.replication._links[LINK].mirrors_of("t")
        mirror.answered(Verdict(guard=Guard.MISSED_TOMBSTONES, reason="it is tested"))
        await target.broker.replication.resync(LINK, None, None, puts_aside=False)
        await until(lambda: mirror.resyncs_completed == 1, lambda: status(target))
        ours = target.log("t")
        assert bytes_of(ours) == bytes_of(theirs)
        continues(ours)


async def test_a_comparison_over_the_internal_listener_reads_past_them(tmp_path: Path) -> None:
    async with brokers(tmp_path) as (source, target):
        await with_an_empty_batch(source)
        await append_empty(source, sent(b"k", 5), epoch=source.log("t").leader_epoch)
        await follow(target, source)
        await until_equal(source, target)
        job = await verified(target)
        assert job.verdict is Verdicts.EQUAL, job.as_json()
