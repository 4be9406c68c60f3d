"""The second path of Produce answers and stores what the ordinary one does, and leaves it the rest."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records.batch_header import (
    CONTROL,
    DELETE_HORIZON,
    FLAGS_AT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    seal,
)
from protocol.records.codec import Codec
from protocol.wire.decode import decode
from protocol.wire.error_codes import ErrorCode
from protocol.wire.numbers import Epoch
from server.durability.group_commit import GroupCommit
from server.shortcut import produce
from storage.batches.validate import AT_ONCE_INFLATED_BYTES_MAX
from storage.files.errors import NoSpace
from storage.files.paths import LOG
from storage.log.appender import LogAppender
from storage.log.log import PartitionLog
from tests.harness.log_builder import batch_of
from tests.harness.log_home import read_all
from tests.harness.plain_requests import Counts, answers_to, counted, switch_off
from tests.harness.raw_client import RawClient, encode_request
from tests.harness.served_broker import (
    ServedBroker,
    only_produced,
    produce_request,
    serving_broker,
)

TOPIC_ID = UUID(int=(3 << 100) + 9)
NEXT_ID = UUID(int=(3 << 100) + 14)
KEYED = [(b"k", b"v"), (b"l", None)]


@asynccontextmanager
async def broker_in(directory: Path) -> AsyncIterator[ServedBroker]:
    async with serving_broker(directory, cluster_id="bm90LWEtcmVhbC1jbHVzdA") as served:
        for name, topic_id, configs in (
            ("orders", TOPIC_ID, {}),
            ("table", UUID(int=(3 << 100) + 10), {"cleanup.policy": "compact"}),
            ("stamped", UUID(int=(3 << 100) + 11), {"message.timestamp.type": "LogAppendTime"}),
            ("packed", UUID(int=(3 << 100) + 12), {"compression.type": "gzip"}),
            ("small", UUID(int=(3 << 100) + 13), {"max.message.bytes": "200"}),
        ):
            created = await served.broker.topics.create(
                name, partitions_count=2, overrides=configs, topic_id=topic_id
            )
            assert created.name == name  # type: ignore[union-attr]
        for log in served.broker.topics.logs():
            await served.broker.topics.make_files(log)
        yield served


# ---------------------------------------------------------------- compared


class RandomClient:
    """Makes requests of all kinds, of which most are plain. The same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sequence = 0

    def frames(self, count: int) -> list[tuple[int, bytes]]:
        """Returns requests with their versions."""
        return [self._frame(number) for number in range(count)]

    def _frame(self, number: int) -> tuple[int, bytes]:
        version = self._random.choice((3, 5, 8, 9, 9, 9, 12, 13))
        batch = self._batch()
        name = self._random.choice((*["orders"] * 8, "table", "small", "none", "\u0119"))
        request = produce_request(
            name,
            batch,
            partition=self._random.choice((0, 0, 0, 0, 1, 1, 7)),
            topic_id=self._random.choice((TOPIC_ID, TOPIC_ID, UUID(int=5))),
            acks=self._random.choice((1, -1, -1)),
        )
        if self._random.random() < 0.1:
            request = self._doubled(request)
        return version, encode_request(request, version, number)

    def _doubled(self, request: ProduceRequest) -> ProduceRequest:
        return ProduceRequest(acks=request.acks, timeout_ms=1000, topic_data=request.topic_data * 2)

    def _batch(self) -> bytearray:
        choose = self._random.choice
        is_idempotent = self._random.random() < 0.5
        sequence = self._sequence if self._random.random() < 0.9 else choose((0, 5))
        count = choose((1, 2, 3))
        batch = batch_of(
            [(choose((b"k", b"l", None)), choose((b"v", b"v" * 300, None))) for _ in range(count)],
            codec=choose(list(Codec)) if self._random.random() < 0.3 else Codec.NONE,
            producer_id=9 if is_idempotent else -1,
            producer_epoch=0 if is_idempotent else -1,
            base_sequence=sequence if is_idempotent else -1,
            is_transactional=self._random.random() < 0.05,
        )
        if is_idempotent:
            self._sequence = sequence + count
        if self._random.random() < 0.1:
            batch[self._random.randrange(len(batch))] ^= 1 << self._random.randrange(8)
            if self._random.random() < 0.5:
                seal(batch)
        return batch


async def answers_and_logs(
    directory: Path, seed: int
) -> tuple[list[bytes], dict[str, tuple[int, list[Any], object]]]:
    """Returns what a broker answers to random requests, and what its logs hold afterwards."""
    async with broker_in(directory) as served:
        found = await answers_to(
            [frame for _, frame in RandomClient(seed).frames(100)],
            await served.connect(),
            random.Random(seed + 1),
            sizes=(1, 1, 1, 2, 7),
        )
        answers = [re.sub(rb"broker's time \d+", b"broker's time", each) for each in found]
        for log in served.broker.topics.logs():
            await served.broker.group_commit.rest(log)
        logs = {str(log): contents(log) for log in served.broker.topics.logs()}
    return answers, logs


def contents(log: PartitionLog) -> tuple[int, list[Any], object]:
    producers = [(number, each.batches) for number, each in log.producers.items()]
    return log.log_end_offset, read_all(log), producers


@pytest.mark.parametrize("seed", range(6))
async def test_both_paths_answer_and_store_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with monkeypatch.context() as patch:
        counts = counted(patch)
        with_it = await answers_and_logs(tmp_path / "with", seed)
    switch_off(monkeypatch)
    without_it = await answers_and_logs(tmp_path / "without", seed)

    assert counts.taken > 5
    assert counts.left > 5
    assert with_it == without_it


# ---------------------------------------------------------------- which requests take it


async def is_taken(
    served: ServedBroker, counts: Counts, request: ProduceRequest, version: int = 9
) -> bool:
    before = counts.taken
    await served.call(request, version, ProduceResponse)
    return counts.taken > before


@pytest.mark.parametrize("version", [5, 9, 13])
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_plain_produce_takes_the_shortcut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        request = produce_request("orders", batch_of(KEYED), topic_id=TOPIC_ID, acks=acks)
        assert await is_taken(served, counts, request, version)
        assert served.log("orders").log_end_offset == 2


def first_batch(log: PartitionLog) -> BatchHeader:
    """Returns the header of the first batch in the log's file."""
    return read_header(Path(log.segments[0].path(LOG)).read_bytes())


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
async def test_a_compressed_batch_takes_the_shortcut_and_stays_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    counts, batch = counted(monkeypatch), batch_of(KEYED, codec=codec)
    async with broker_in(tmp_path) as served:
        assert await is_taken(served, counts, produce_request("table", batch))
        stored = first_batch(served.log("table"))
        assert (stored.codec, stored.record_count) == (codec, 2)


@pytest.mark.parametrize("bit", [LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON])
async def test_a_compressed_batch_that_says_more_takes_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    counts = counted(monkeypatch)
    batch = batch_of(KEYED, codec=Codec.ZSTD, producer_id=9, producer_epoch=0, base_sequence=0)
    batch[FLAGS_AT] |= bit
    seal(batch)
    async with broker_in(tmp_path) as served:
        assert not await is_taken(served, counts, produce_request("orders", batch))
        assert served.log("orders").log_end_offset == 0


async def test_a_compressed_batch_that_inflates_to_much_takes_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a thread checks it."""
    counts = counted(monkeypatch)
    large = batch_of([(b"k", bytes(AT_ONCE_INFLATED_BYTES_MAX))], codec=Codec.ZSTD)
    async with broker_in(tmp_path) as served:
        assert not await is_taken(served, counts, produce_request("orders", large))
        assert served.log("orders").log_end_offset == 1
        with monkeypatch.context() as patch:
            patch.setattr(produce, "validate_at_once", raising(AssertionError("inflated twice")))
            assert not await is_taken(served, counts, produce_request("orders", large))
        assert served.log("orders").log_end_offset == 2


async def test_a_check_that_fails_unexpectedly_is_left_to_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = counted(monkeypatch)
    monkeypatch.setattr(produce, "check_plain_batch", raising(MemoryError()))
    async with broker_in(tmp_path) as served:
        assert not await is_taken(served, counts, produce_request("orders", batch_of(KEYED)))
        assert served.log("orders").log_end_offset == 2
    assert "plain produce" in caplog.text


@pytest.mark.parametrize("name", ["stamped", "packed"])
async def test_a_topic_that_changes_batches_leaves_them_to_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        assert not await is_taken(served, counts, produce_request(name, batch_of(KEYED)))
        assert served.log(name).log_end_offset == 2


async def test_a_change_of_the_topic_counts_from_the_next_request_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        keyless = produce_request("orders", batch_of([(None, b"v")]))
        assert await is_taken(served, counts, keyless)
        await served.broker.topics.alter("orders", lambda *_: {"cleanup.policy": "compact"})
        answer = await served.call(keyless, 9, ProduceResponse)
        assert only_produced(answer).error_code == ErrorCode.INVALID_RECORD
        assert await is_taken(served, counts, produce_request("orders", batch_of(KEYED)))


async def test_a_topic_that_is_created_again_gets_the_next_records_in_its_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        request, topics = produce_request("orders", batch_of(KEYED)), served.broker.topics
        assert await is_taken(served, counts, request)
        before, deleted = served.log("orders"), topics.get("orders")
        assert deleted is not None
        assert await topics.delete(deleted) is None
        answer = await served.call(request, 9, ProduceResponse)
        assert only_produced(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        await topics.create("orders", partitions_count=2, overrides={}, topic_id=NEXT_ID)
        await topics.make_files(served.log("orders"))
        assert await is_taken(served, counts, request)
        assert (before.log_end_offset, served.log("orders").log_end_offset) == (2, 2)
        by_id = produce_request("orders", batch_of(KEYED), topic_id=TOPIC_ID)
        answer = await served.call(by_id, 13, ProduceResponse)
        assert only_produced(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID


Prepare = Callable[[ServedBroker, pytest.MonkeyPatch], None]


def with_quotas(served: ServedBroker, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(served.broker.quotas), "are_set", property(lambda _: True))


def offline(served: ServedBroker, _: pytest.MonkeyPatch) -> None:
    served.log("orders").go_offline("a reason")


def as_mirror(served: ServedBroker, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(served.log("orders").config), "is_mirror", property(lambda _: True))


@pytest.mark.parametrize("prepare", [with_quotas, offline, as_mirror])
async def test_a_broker_or_topic_with_rules_of_its_own_leaves_requests_to_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        client = await served.connect()
        prepare(served, monkeypatch)
        client.send(produce_request("orders", batch_of(KEYED)), 9)
        await client.receive_frame()
        assert counts == Counts(taken=0, left=1)


# ---------------------------------------------------------------- order and failure


async def test_requests_behind_one_that_waits_stay_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        client = await served.connect()
        plain = produce_request("orders", batch_of(KEYED))
        packed = produce_request("packed", batch_of(KEYED))
        versions = [9] * 7
        sent = [
            encode_request(request, version, number)
            for number, (request, version) in enumerate(
                zip((plain, plain, packed, plain, plain, packed, plain), versions, strict=True)
            )
        ]
        client.send_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in sent))
        found = [await answer_of(client) for _ in sent]
    assert [number for number, _ in found] == list(range(7))
    assert [offset for _, offset in found] == [0, 2, 0, 4, 6, 2, 8]
    assert counts.taken >= 2


async def answer_of(client: RawClient) -> tuple[int, int]:
    """Returns an answer's correlation id and base offset."""
    frame = await client.receive_frame()
    response = decode(ProduceResponse, 9, memoryview(frame), 5)
    return int.from_bytes(frame[:4], "big"), only_produced(response).base_offset


async def test_an_append_that_cannot_become_durable_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counted(monkeypatch)
    async with broker_in(tmp_path) as served:
        client = await served.connect()

        def fail(self: GroupCommit, log: PartitionLog, _: int) -> None:
            self.abandon(log)

        monkeypatch.setattr(GroupCommit, "_advance", fail)
        number = client.send(produce_request("orders", batch_of(KEYED)), 9)
        answer = await client.receive(ProduceResponse, 9, number)
    assert counts.taken == 1
    assert only_produced(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert only_produced(answer).base_offset == -1


async def test_a_disk_that_fails_is_an_error_of_the_partition_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in(tmp_path) as served:
        request = produce_request("orders", batch_of(KEYED))
        answers = []
        for is_shortcut in (True, False):
            with monkeypatch.context() as patch:
                if not is_shortcut:
                    switch_off(patch)
                patch.setattr(
                    LogAppender, "append_as_leader", raising(NoSpace("write", "x", 28, "f"))
                )
                answers.append(only_produced(await served.call(request, 9, ProduceResponse)))
    assert answers[0] == answers[1]
    assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_mistake_of_ours_is_answered_and_the_next_request_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in(tmp_path) as served:
        client = await served.connect()
        with monkeypatch.context() as patch:
            patch.setattr(LogAppender, "append_as_leader", raising(ValueError("a mistake")))
            number = client.send(produce_request("orders", batch_of(KEYED)), 9)
            answer = await client.receive(ProduceResponse, 9, number)
        assert only_produced(answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        number = client.send(produce_request("orders", batch_of(KEYED)), 9)
        answer = await client.receive(ProduceResponse, 9, number)
        assert only_produced(answer).base_offset == 0


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


async def test_names_of_topics_that_do_not_exist_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client chooses them: 10,000 long ones would take gigabytes."""
    counts, made = counted(monkeypatch), list[str]()
    monkeypatch.setattr(produce, "_made_template", made.append)
    async with broker_in(tmp_path) as served:
        for number in range(5):
            request = produce_request("\U0001f300" * 8_000 + str(number), batch_of(KEYED))
            await served.call(request, 9, ProduceResponse)
    assert (made, counts) == ([], Counts(taken=0, left=5))


async def test_a_batch_has_the_leader_epoch_of_its_log(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as served:
        served.log("orders").lead_above(Epoch(41))
        await served.call(produce_request("orders", batch_of(KEYED)), 9, ProduceResponse)
        assert served.log("orders").epochs.latest == 42
