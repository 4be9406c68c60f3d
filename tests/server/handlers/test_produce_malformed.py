"""Produce: what is malformed is refused the same way on every topic, and inflating holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import storage.batches.validate
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.compression import Buffer, Codec
from protocol.records.inflate import inflated
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from server.runtime.turns import Turns
from storage.batches.validate import AT_ONCE_INFLATED_BYTES_MAX
from tests.harness.malformed_batches import MALFORMED, good
from tests.harness.served_broker import (
    NOW_MS,
    ServedBroker,
    only_produced,
    produce_request,
    serving_broker,
)

EACH_CODEC = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
POLICIES = ["compact", "delete", "compact,delete"]


async def produced(
    served: ServedBroker, batch: bytearray, *, acks: int
) -> PartitionProduceResponse:
    request = produce_request("orders", batch, acks=acks)
    return only_produced(await served.call(request, 9, ProduceResponse))


@EACH_CODEC
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_malformed_batch_is_refused_and_the_next_good_one_gets_the_next_offset(
    tmp_path: Path, codec: Codec, policy: str, acks: int
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy=policy)
        expected = 0
        for malformed in MALFORMED:
            answer = await produced(served, malformed.build(codec, NOW_MS), acks=acks)
            is_damaged = malformed.name == "wrong_crc"
            code = ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.INVALID_RECORD
            assert (answer.error_code, answer.base_offset) == (code, -1), malformed.name
            assert answer.error_message, malformed.name
            assert served.log("orders").log_end_offset == expected, malformed.name
            answer = await produced(served, good(codec, NOW_MS), acks=acks)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, expected)
            expected += 3


@EACH_CODEC
@pytest.mark.parametrize("policy", POLICIES)
async def test_every_malformed_batch_with_acks_0_closes_its_connection_and_is_not_appended(
    tmp_path: Path, codec: Codec, policy: str
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy=policy)
        for malformed in MALFORMED:
            client = await served.connect()
            client.send(produce_request("orders", malformed.build(codec, NOW_MS), acks=0), 9)
            assert await client.is_closed(), malformed.name
        answer = await produced(served, good(codec, NOW_MS), acks=-1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


async def test_each_unfit_record_is_named_in_the_answer(tmp_path: Path) -> None:
    """Apache Kafka 4.3.1 names 5, 15, ... 95 too; before version 8 there is no field for them."""
    bad = range(5, 100, 10)
    records = [
        Record(offset=n, timestamp=NOW_MS, key=None if n in bad else b"k", value=b"v")
        for n in range(100)
    ]
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy="compact")
        request = produce_request("orders", build_batch(records))
        for version in (7, 8, 9):
            answer = only_produced(await served.call(request, version, ProduceResponse))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            named = [error.batch_index for error in answer.record_errors]
            assert named == (list(bad) if version >= 8 else [])
        assert served.log("orders").log_end_offset == 0


# ------------------------------------------------------------------ inflating


@dataclass
class Inflations:
    """What was inflated, in which thread, and how much at a time."""

    loop_thread: int = field(default_factory=threading.get_ident)
    on_loop_bytes: list[int] = field(default_factory=list)
    elsewhere_bytes: list[int] = field(default_factory=list)
    under_way: int = 0
    under_way_max: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, codec: Codec, data: Buffer, *, bytes_max: int) -> Iterator[Buffer]:
        on_loop = threading.get_ident() == self.loop_thread
        with self.lock:
            self.under_way += 1
            self.under_way_max = max(self.under_way_max, self.under_way)
        size = 0
        try:
            for window in inflated(codec, data, bytes_max=bytes_max):
                size += len(window)
                yield window
        finally:
            with self.lock:
                self.under_way -= 1
                (self.on_loop_bytes if on_loop else self.elsewhere_bytes).append(size)


@pytest.fixture
def inflations(monkeypatch: pytest.MonkeyPatch) -> Inflations:
    watched = Inflations()
    monkeypatch.setattr(storage.batches.validate, "inflated", watched.watch)
    return watched


def bomb(codec: Codec, size: int) -> bytearray:
    """A batch of one record that inflates to about so many bytes."""
    record = Record(offset=0, timestamp=NOW_MS, key=b"k", value=bytes(size))
    return build_batch([record], codec=codec)


@pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)
@pytest.mark.parametrize("policy", ["compact", "delete"])
async def test_a_small_batch_that_inflates_to_a_lot_does_so_off_the_loop(
    tmp_path: Path, codec: Codec, policy: str, inflations: Inflations
) -> None:
    async with serving_broker(tmp_path) as served:
        await served.create("orders", cleanup_policy=policy)
        answer = await produced(served, bomb(codec, 8 << 20), acks=-1)
    assert answer.error_code == ErrorCode.NONE
    assert sum(inflations.elsewhere_bytes) > 8 << 20
    assert all(size <= AT_ONCE_INFLATED_BYTES_MAX for size in inflations.on_loop_bytes)


async def test_what_inflates_to_too_much_is_refused_on_every_topic(tmp_path: Path) -> None:
    batch = bomb(Codec.ZSTD, 129 << 20)
    async with serving_broker(tmp_path) as served:
        for policy in POLICIES:
            orders = await served.create("orders", cleanup_policy=policy)
            answer = await produced(served, batch, acks=-1)
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
            await served.broker.topics.delete(orders)


async def test_many_connections_inflate_no_more_at_a_time_than_there_are_threads_for_it(
    tmp_path: Path, inflations: Inflations
) -> None:
    """They are recompressed, so each holds all that it inflates."""
    batch = bomb(Codec.ZSTD, 4 << 20)
    async with serving_broker(tmp_path) as served:
        await served.create("orders", compression_type="gzip", max_message_bytes=str(1 << 20))
        clients = [await served.connect() for _ in range(12)]
        answers = await asyncio.gather(
            *(
                client.call(produce_request("orders", batch, acks=1), 9, ProduceResponse)
                for client in clients
            )
        )
    assert [only_produced(answer).error_code for answer in answers] == [ErrorCode.NONE] * 12
    assert sorted(only_produced(answer).base_offset for answer in answers) == list(range(12))
    assert inflations.on_loop_bytes == []
    assert 0 < inflations.under_way_max <= 2


async def test_a_request_of_many_partitions_lets_others_run_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may take a millisecond of the loop."""
    rests: list[int] = []

    async def count_rest(turns: Turns, *, is_new: bool) -> None:
        rests.append(1)

    monkeypatch.setattr("server.runtime.turns.SLICE_SECONDS", 0.0)
    monkeypatch.setattr(Turns, "next", count_rest)
    async with serving_broker(tmp_path) as served:
        await served.create("orders", partitions=5)
        data = tuple(
            PartitionProduceData(index=index, records=memoryview(good(Codec.NONE, NOW_MS)))
            for index in range(5)
        )
        topic = TopicProduceData(name="orders", partition_data=data)
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(topic,))
        before = len(rests)
        response = await served.call(request, 9, ProduceResponse)
        assert len(rests) >= before + 5
    assert [p.error_code for p in response.responses[0].partition_responses] == [0] * 5
