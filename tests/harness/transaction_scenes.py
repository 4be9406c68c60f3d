"""Puts a transactional id into a state, sends it one request, and records the answer.

Each cell of the matrix is a scene (the state of the transaction), a probe (a request of one version)
and a relation (the producer id and epoch in the request, relative to those of the coordinator). The
same code asks Apache Kafka and the broker under test, over the wire:

    python -m tests.harness.transaction_scenes HOST:PORT HOLD_FILE    print the answers of a Kafka

Scenes with a decided but incomplete transaction need its markers held back. For a Kafka, put a proxy on
its inter-broker listener that holds WriteTxnMarkers while HOLD_FILE exists, and set
`transaction.abort.timed.out.transaction.cleanup.interval.ms=100`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.record_batch import Record, build_batch
from protocol.wire.error_codes import ErrorCode
from protocol.wire.schema import Message
from server.coordination.producer import Producer
from tests.harness.raw_client import RawClient

M = TypeVar("M", bound=Message)

TOPIC, GROUP = "txn-scenes", "txn-scenes-group"
AT_ONCE = 24
"""Cells that run in parallel, each on its own connection. Not for Kafka: it verifies transactions of
several requests together, with the errors of one of their versions."""

SHORT_TIMEOUT_MS = 300
PATIENCE_SECONDS = 300.0
STRANGERS = 1_000_000_000
"""Producer ids from here on do not exist."""

RELATIONS = ("epoch-1", "epoch", "epoch+1", "other id")


class Asked(Protocol):
    """The broker under test, as far as it must be controlled."""

    address: tuple[str, int]

    def hold_markers(self) -> None:
        """Keep decided transactions incomplete from now on."""

    def release_markers(self) -> None:
        """Let markers be written again."""


class Id:
    """One transactional id and a connection for its requests."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self.client = client
        self.name = transactional_id
        self.told = Producer(-1, -1)
        """The producer id and epoch in its last answer."""

    async def call(self, request: Message, version: int, response_type: type[M]) -> M:
        return await self.client.call(request, version, response_type)

    async def init(self, *, timeout_ms: int = 60_000) -> None:
        """Become its producer; this aborts its open transaction."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await self.call(request, 4, InitProducerIdResponse)
            while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                await asyncio.sleep(0.01)
                answer = await self.call(request, 4, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.told = Producer(answer.producer_id, answer.producer_epoch)

    async def begins(self, protocol: int) -> bool:
        """Begin a transaction in version 1 or 2 of the protocol. Returns whether it has begun."""
        probe = _add_partitions(3) if protocol == 1 else _produce(12, partition=0)
        return await probe(self, self.told) == "NONE"

    async def end(self, protocol: int, *, is_commit: bool) -> None:
        request = self.end_request(self.told, is_commit=is_commit)
        answer = await self.call(request, 3 if protocol == 1 else 5, EndTxnResponse)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)

    def end_request(self, producer: Producer, *, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )

    async def state(self) -> tuple[str, Producer]:
        """Returns the coordinator's state of the id."""
        request = DescribeTransactionsRequest(transactional_ids=(self.name,))
        (found,) = (await self.call(request, 0, DescribeTransactionsResponse)).transaction_states
        return found.transaction_state, Producer(found.producer_id, found.producer_epoch)

    async def until(self, title: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.state())[0] != title:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Scene:
    """The preparation of a transactional id for a probe."""

    name: str
    set_up: Callable[[Id], Awaitable[None]]
    is_held: bool = False
    """Whether its markers are held back."""


Probe = Callable[[Id, Producer], Awaitable[str]]
"""Sends one request as this producer. Returns the answer as a text."""


# Scenes.


def scenes() -> Iterator[Scene]:
    """Yields all scenes."""
    yield Scene("no such id", _nothing)
    yield Scene("Empty", _twice_init)
    for protocol in (1, 2):
        yield Scene(f"Ongoing, v{protocol}", _begun(protocol))
        for is_commit in (True, False):
            verdict = "Commit" if is_commit else "Abort"
            for is_held in (True, False):
                state = f"{'Prepare' if is_held else 'Complete'}{verdict}"
                yield Scene(
                    f"{state}, v{protocol}", _ended(protocol, state, is_commit=is_commit), is_held
                )
        for is_held in (True, False):
            state = "PrepareAbort" if is_held else "CompleteAbort"
            yield Scene(f"{state} by time-out, v{protocol}", _timed_out(protocol, state), is_held)
            yield Scene(f"{state} by init, v{protocol}", _fenced(protocol, state), is_held)
    yield Scene("Empty after a commit, v2", _given_again)


async def _nothing(each: Id) -> None:
    """Do nothing: the id was never used."""


async def _twice_init(each: Id, *, timeout_ms: int = 60_000) -> None:
    """Initialise twice, so that there is an epoch below the current one."""
    await each.init(timeout_ms=timeout_ms)
    await each.init(timeout_ms=timeout_ms)


def _begun(protocol: int) -> Callable[[Id], Awaitable[None]]:
    async def set_up(each: Id) -> None:
        await _twice_init(each)
        assert await each.begins(protocol)

    return set_up


def _ended(protocol: int, state: str, *, is_commit: bool) -> Callable[[Id], Awaitable[None]]:
    async def set_up(each: Id) -> None:
        await _begun(protocol)(each)
        await each.end(protocol, is_commit=is_commit)
        await each.until(state)

    return set_up


def _timed_out(protocol: int, state: str) -> Callable[[Id], Awaitable[None]]:
    async def set_up(each: Id) -> None:
        timeout_ms = SHORT_TIMEOUT_MS
        await _twice_init(each, timeout_ms=timeout_ms)
        while not await each.begins(protocol):
            # On a slow machine the transaction timed out before the answer. Another id begins, because
            # while markers are held this one never gets another producer.
            timeout_ms *= 2
            each.name += "-again"
            await each.init(timeout_ms=timeout_ms)
        await each.until(state)

    return set_up


def _fenced(protocol: int, state: str) -> Callable[[Id], Awaitable[None]]:
    async def set_up(each: Id) -> None:
        await _begun(protocol)(each)
        request = InitProducerIdRequest(transactional_id=each.name, transaction_timeout_ms=60_000)
        answer = await each.call(request, 4, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        await each.until(state)

    return set_up


async def _given_again(each: Id) -> None:
    await _ended(2, "CompleteCommit", is_commit=True)(each)
    await each.init()


# Probes.


def probes() -> Iterator[tuple[str, tuple[tuple[int, Probe], ...]]]:
    """Yields each request by name, with the versions that get the same answers."""

    def versions(
        name: str, numbers: range, make: Callable[[int], Probe]
    ) -> tuple[str, tuple[tuple[int, Probe], ...]]:
        span = f"v{numbers[0]}" if len(numbers) == 1 else f"v{numbers[0]}-{numbers[-1]}"
        return f"{name.format(span)}", tuple((number, make(number)) for number in numbers)

    for numbers in (range(2), range(2, 5), range(5, 6)):
        for is_commit in (True, False):
            verdict = "commit" if is_commit else "abort"
            yield versions(f"EndTxn {{}} {verdict}", numbers, _end(is_commit=is_commit))
    for numbers in (range(2), range(2, 4)):
        yield versions("AddPartitionsToTxn {}", numbers, _add_partitions)
    for numbers in (range(4, 5), range(5, 6)):
        yield versions("AddPartitionsToTxn {} add", numbers, _add_partitions_as_broker)
        yield versions("AddPartitionsToTxn {} verify", numbers, _verify_partitions)
    for numbers in (range(2), range(2, 5)):
        yield versions("AddOffsetsToTxn {}", numbers, _add_offsets)
    for numbers in (range(4), range(4, 5), range(5, 6)):
        yield versions("TxnOffsetCommit {}", numbers, _commit_offsets)
    for numbers in (range(3, 4), range(4, 6)):
        yield versions("InitProducerId {}", numbers, _init_as)
    yield versions("InitProducerId {} by anybody", range(6), _init_again)
    for numbers in (range(3, 11), range(11, 12), range(12, 13)):
        yield versions("Produce {}", numbers, _produce)
    yield versions("WriteTxnMarkers {} abort", range(1, 2), _write_markers)


def _end(*, is_commit: bool) -> Callable[[int], Probe]:
    def make(version: int) -> Probe:
        async def probe(each: Id, producer: Producer) -> str:
            _, before = await each.state()
            request = each.end_request(producer, is_commit=is_commit)
            answer = await each.call(request, version, EndTxnResponse)
            return _told(answer, before)

        return probe

    return make


def _told(answer: EndTxnResponse | InitProducerIdResponse, before: Producer) -> str:
    """Returns the error, or the relation of the returned producer to the coordinator's previous one."""
    if answer.error_code != ErrorCode.NONE or answer.producer_id < 0:
        return ErrorCode(answer.error_code).name
    is_same = answer.producer_id == before.id
    if not is_same:
        return f"NONE, new id, epoch {answer.producer_epoch}"
    return f"NONE, epoch{answer.producer_epoch - before.epoch:+}"


def _init_as(version: int) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        _, before = await each.state()
        request = InitProducerIdRequest(
            transactional_id=each.name,
            transaction_timeout_ms=60_000,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
        )
        return _told(await each.call(request, version, InitProducerIdResponse), before)

    return probe


def _init_again(version: int) -> Probe:
    async def probe(each: Id, _: Producer) -> str:
        return await _init_as(version)(each, Producer(-1, -1))

    return probe


_PLACES = (AddPartitionsToTxnTopic(name=TOPIC, partitions=(1,)),)


def _add_partitions(version: int) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=each.name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=_PLACES,
        )
        answer = await each.call(request, version, AddPartitionsToTxnResponse)
        ((code,),) = (
            [one.partition_error_code for one in topic.results_by_partition]
            for topic in answer.results_by_topic_v3_and_below
        )
        return ErrorCode(code).name

    return probe


def _verify_partitions(version: int) -> Probe:
    return _as_broker(version, verify_only=True)


def _add_partitions_as_broker(version: int) -> Probe:
    return _as_broker(version, verify_only=False)


def _as_broker(version: int, *, verify_only: bool) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=each.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=_PLACES,
        )
        request = AddPartitionsToTxnRequest(transactions=(transaction,))
        answer = await each.call(request, version, AddPartitionsToTxnResponse)
        (result,) = answer.results_by_transaction
        ((code,),) = (
            [one.partition_error_code for one in topic.results_by_partition]
            for topic in result.topic_results
        )
        return ErrorCode(code).name

    return probe


def _add_offsets(version: int) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=each.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=GROUP,
        )
        return ErrorCode(
            (await each.call(request, version, AddOffsetsToTxnResponse)).error_code
        ).name

    return probe


def _commit_offsets(version: int) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=each.name,
            group_id=GROUP,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
        answer = await each.call(request, version, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    return probe


def _produce(version: int, partition: int = 1) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        batch = build_batch(
            [Record(offset=0, timestamp=time.time_ns() // 1_000_000, key=b"k", value=b"v")],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = PartitionProduceData(index=partition, records=memoryview(bytes(batch)))
        request = ProduceRequest(
            transactional_id=each.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),),
        )
        answer = await each.call(request, version, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name

    return probe


def _write_markers(version: int) -> Probe:
    async def probe(each: Id, producer: Producer) -> str:
        marker = WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=(WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(0,)),),
            coordinator_epoch=1,
        )
        request = WriteTxnMarkersRequest(markers=(marker,))
        answer = await each.call(request, version, WriteTxnMarkersResponse)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code).name

    return probe


# The matrix.

Row = tuple[str, str]
"""The names of a scene and a probe."""


async def matrix(asked: Asked, *, at_once: int = AT_ONCE) -> dict[Row, tuple[str, ...]]:
    """Returns the answers in each scene to each probe: one cell for each relation.

    Versions that are named together must get the same answers.
    """
    await _create_topic(asked)
    found: dict[tuple[Row, int, str], str] = {}
    for is_held in (False, True):
        if is_held:
            asked.hold_markers()
        cells = [
            _cell(asked, scene, probe, relation, found, (row, version, relation))
            for scene in scenes()
            if scene.is_held is is_held
            for name, versions in probes()
            for version, probe in versions
            for relation in RELATIONS
            for row in [(scene.name, name)]
        ]
        await _in_parallel(cells, at_once)
    asked.release_markers()
    return _rows(found)


async def _in_parallel(cells: Sequence[Awaitable[None]], at_once: int) -> None:
    waiting = iter(cells)

    async def work() -> None:
        for cell in waiting:
            await cell

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


_numbers = itertools.count()
_RUN = time.time_ns()


async def _cell(
    asked: Asked,
    scene: Scene,
    probe: Probe,
    relation: str,
    found: dict[Any, str],
    key: tuple[Row, int, str],
) -> None:
    async with await RawClient.connect(*asked.address) as client:
        number = next(_numbers)
        each = Id(client, f"scene-{_RUN}-{number}")
        await scene.set_up(each)
        title, now = await each.state()
        named = now if title else Producer(STRANGERS + number, 5)
        found[key] = await probe(each, _related(named, relation))


def _related(now: Producer, relation: str) -> Producer:
    match relation:
        case "epoch-1":
            return Producer(now.id, now.epoch - 1)
        case "epoch+1":
            return Producer(now.id, now.epoch + 1)
        case "other id":
            return Producer(now.id + 1_000_000, now.epoch)
        case _:
            return now


def _rows(found: dict[tuple[Row, int, str], str]) -> dict[Row, tuple[str, ...]]:
    rows: dict[Row, tuple[str, ...]] = {}
    for row in ((scene.name, name) for scene in scenes() for name, _ in probes()):
        cells = []
        for relation in RELATIONS:
            answers = {
                version: answer
                for (each, version, its), answer in found.items()
                if each == row and its == relation
            }
            distinct = sorted(set(answers.values()))
            cells.append(distinct[0] if len(distinct) == 1 else f"differs: {answers}")
        rows[row] = tuple(cells)
    return rows


async def _create_topic(asked: Asked) -> None:
    async with await RawClient.connect(*asked.address) as client:
        topic = CreatableTopic(
            name=TOPIC, num_partitions=2, replication_factor=1, assignments=(), configs=()
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
        answer = await client.call(request, 5, CreateTopicsResponse)
        taken = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert answer.topics[0].error_code in taken, answer
        each = Id(client, "scene-first")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _until_served(each)


async def _until_served(each: Id) -> None:
    """Wait for the coordinators, which create their topics at first use."""
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(GROUP,))
        await each.call(request, 4, FindCoordinatorResponse)
    while True:
        with suppress(AssertionError):
            await each.init()
            if await _add_offsets(3)(each, each.told) == "NONE":
                break
        await asyncio.sleep(0.2)
    await each.end(1, is_commit=False)


# As text.


def written(rows: dict[Row, tuple[str, ...]]) -> str:
    """Returns the matrix as text for a file."""
    lines = [" | ".join(("state", "request", *RELATIONS))]
    lines += [" | ".join((*row, *cells)) for row, cells in rows.items()]
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[Row, tuple[str, ...]]:
    """Parse the matrix from its text."""
    rows: dict[Row, tuple[str, ...]] = {}
    for line in text.splitlines()[1:]:
        scene, request, *cells = line.split(" | ")
        rows[scene, request] = tuple(cells)
    return rows


class _Kafka:
    def __init__(self, address: str, hold_file: str) -> None:
        host, port = address.split(":")
        self.address = (host, int(port))
        self._hold_file = Path(hold_file)

    def hold_markers(self) -> None:
        self._hold_file.touch()

    def release_markers(self) -> None:
        self._hold_file.unlink()


if __name__ == "__main__":
    sys.stdout.write(written(asyncio.run(matrix(_Kafka(*sys.argv[1:3]), at_once=1))))
